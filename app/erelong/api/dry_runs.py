"""Dry runs: the query parameter `dry_run`, and the answers of calls that stored nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.api import conditions
from erelong.api.shapes.queries import DryRunIn
from erelong.model.extras import read_extras
from erelong.service.rehearsal import is_rehearsed

if TYPE_CHECKING:
    from aiohttp import web

    from erelong.model.job import Job
    from erelong.web.response import Reply

HEADERS = {"Dry-Run": "true"}


def is_dry_run(request: web.Request) -> bool:
    """Read the query of a call whose only parameter is `dry_run`."""
    return bool(request.query_string) and conditions.read_query(request, DryRunIn).is_dry_run


def as_dry_run(reply: Reply) -> Reply:
    """Mark the answer of a dry run, whose status is always 200."""
    reply.status = 200
    reply.headers |= HEADERS
    return reply


def without_id(view: dict[str, Any], job: Job) -> dict[str, Any]:
    """Return the view of a job in a dry run; a new job has no id, nor instants that `spread` would make of it."""
    if not is_rehearsed(job):
        return view
    is_spread = "spread" in read_extras(job.extras)
    return view | {"id": None} | {name: None for name in ("due_at", "expires_at") if is_spread and name in view}
