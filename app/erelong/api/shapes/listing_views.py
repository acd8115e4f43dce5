"""The bodies of listings of jobs, and their OpenAPI schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from erelong.api.shapes.parts import COUNT, TEXT_OR_NULL, array_of, object_of, ref
from erelong.model.reports.job_view import job_view

if TYPE_CHECKING:
    from erelong.model.job import Job
    from erelong.service.overview.listings import Count

LINE: Final = 160
"""Characters of params in the view `line`."""


def listed_view(job: Job, waiting_for: str | None, view: str) -> dict[str, Any]:
    """Return a job as a listing shows it; for the view `line`, `job` has the beginning of its params."""
    shown = job_view(job, waiting_for, is_full=view == "full")
    if view == "line":
        shown["params_preview"] = job.params.decode(errors="ignore")[:LINE]
    return shown


def count_view(count: Count) -> dict[str, Any]:
    return {"n": count.number, "exact": count.is_exact}


PREVIEW_SCHEMA: Final = {
    "type": "string",
    "maxLength": LINE,
    "description": "The first characters of params as JSON text, in the view `line`.",
}
_COUNT_SCHEMA: Final = object_of(
    {
        "n": COUNT,
        "exact": {"type": "boolean", "description": "If false, at least `n` jobs match: the others were not read."},
    }
)
_SCANNED: Final = COUNT | {
    "description": "The number of jobs read, if the page is short because too many do not match. Go on with `next`."
}
_COMPLETE: Final = {
    "type": "boolean",
    "description": "With `order=next`: whether the order is known up to its end. After a start, or with very many due "
    "jobs, some are not in it.",
}
LISTING_SCHEMAS: Final = {
    "Jobs": object_of(
        {
            "jobs": array_of(ref("ListedJob")),
            "next": TEXT_OR_NULL,
            "scanned": _SCANNED,
            "count": _COUNT_SCHEMA,
            "complete": _COMPLETE,
        },
        optional=("scanned", "count", "complete"),
    )
}
