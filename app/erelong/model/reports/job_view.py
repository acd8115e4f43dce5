"""A job as JSON, in the names of the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from erelong.clock.instants import format_instant
from erelong.model.extras import FIELDS, HIDDEN, own_labels, read_extras
from erelong.model.job import WORDS

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.model.extras import Extras
    from erelong.model.job import Job

_SHOWN = FIELDS - HIDDEN


def job_view(job: Job, waiting_for: str | None, *, is_full: bool = True) -> dict[str, Any]:
    """Return a job as an object; stored JSON text is not parsed."""
    execute_at, due_at = format_instant(job.execute_at), job.due_at
    view: dict[str, Any] = {
        "id": job.id,
        "state": WORDS[job.state],
        "kind": job.kind,
        "queue": job.queue,
        "params": orjson.Fragment(job.params),
        "key": job.key,
        "labels": orjson.Fragment(job.labels) if job.labels else {},
        "priority": job.priority,
        "timeout": job.timeout,
        "execute_at": execute_at,
        "due_at": execute_at if due_at == job.execute_at else _instant(due_at),
        "expires_at": _instant(job.expires_at),
        "retry": orjson.Fragment(job.retry),
        "attempt": job.attempt,
        "cancel_requested": job.cancel_requested,
        "created_at": format_instant(job.created_at),
        "started_at": _instant(job.started_at),
        "finished_at": _instant(job.finished_at),
        "late_by": job.late_by,
        "waiting_for": waiting_for,
        "result": _json(job.result),
        "error": _json(job.error),
        "attempts": orjson.Fragment(job.history),
        "version": job.version,
    }
    if job.result_truncated:
        view["result_truncated"] = True
    if not is_full:
        del view["params"], view["result"], view["attempts"]
    if job.extras is not None:
        view["labels"] = own_labels(job.labels)
        view |= _extras_view(read_extras(job.extras))
    return view


def _extras_view(extras: Extras) -> dict[str, Any]:
    """Return the extras that this version knows, without those of a newer one."""
    view: dict[str, Any] = {name: value for name, value in extras.items() if name in _SHOWN}
    if "occurrence" in view:
        view["occurrence"] = format_instant(view["occurrence"])
    return view


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _json(text: bytes | None) -> orjson.Fragment | None:
    return None if text is None else orjson.Fragment(text)
