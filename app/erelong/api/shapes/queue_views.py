"""Queues as JSON, and their schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from erelong.api.shapes.parts import COUNT, SECONDS_OR_NULL, TEXT_OR_NULL, TIME, array_of, object_of, ref
from erelong.clock.instants import format_instant
from erelong.model.job import WORDS

if TYPE_CHECKING:
    from erelong.monitoring.statistics.flows import Rates
    from erelong.service.queues import Queue
    from erelong.stores.base import Pause


def queue_view(queue: Queue, rates: Rates) -> dict[str, Any]:
    view = {
        "name": queue.name,
        "paused": queue.is_paused,
        "pause": None if queue.pause is None else _pause_view(queue.pause),
        "settings": queue.settings.model_dump(mode="json"),
        "overridden": queue.is_overridden,
        "counts": queue.counts,
        "rates": rates._asdict(),
        "oldest_due_age": queue.oldest_due_age,
        "late_p50": queue.late_p50,
        "late_p99": queue.late_p99,
    }
    if queue.is_brief:
        del view["oldest_due_age"]
    return view


def _pause_view(pause: Pause) -> dict[str, Any]:
    return {"at": format_instant(pause.at), "by": pause.by, "reason": pause.reason}


_PAUSE: Final = object_of(
    {
        "at": TIME,
        "by": TEXT_OR_NULL | {"description": "The API key that paused the queue; null without one."},
        "reason": TEXT_OR_NULL,
    }
)
_PER_SECOND: Final = {"type": "number", "minimum": 0}
_QUEUE: Final = {
    "name": {"type": "string"},
    "paused": {"type": "boolean"},
    "pause": {"anyOf": [_PAUSE, {"type": "null"}]},
    "settings": ref("QueueSettings"),
    "overridden": {"type": "boolean", "description": "Whether `PUT` has set any of the settings."},
    "counts": object_of(dict.fromkeys(("scheduled", "due", *WORDS[1:]), COUNT)),
    "rates": object_of(dict.fromkeys(("submitted", "started", "succeeded", "failed"), _PER_SECOND))
    | {"description": "Jobs per second over the last minute."},
    "oldest_due_age": SECONDS_OR_NULL | {"description": "Seconds since the oldest due job became due."},
    "late_p50": SECONDS_OR_NULL | {"description": "Median lateness in seconds, over the last five minutes."},
    "late_p99": SECONDS_OR_NULL
    | {"description": "Seconds of lateness at the 99th percentile, over the last five minutes."},
}
QUEUE_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "Queue": object_of(_QUEUE),
    "ListedQueue": object_of(_QUEUE, optional=("oldest_due_age",)),
    "Queues": object_of({"queues": array_of(ref("ListedQueue")), "next": TEXT_OR_NULL}),
    "Purged": object_of({"cancelled": COUNT}),
}
