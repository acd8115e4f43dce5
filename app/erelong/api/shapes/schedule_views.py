"""Schedules as JSON, in the names of the contract, and their schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from erelong.api.shapes.parts import COUNT, TEXT_OR_NULL, TIME, TIME_OR_NULL, array_of, object_of, ref
from erelong.clock.instants import format_instant
from erelong.model.ids import parse_id
from erelong.model.schedules.schedule import MAX_RECENT, Fate, Overlap, Reason, Record
from erelong.model.times.catchup import MissedPolicy
from erelong.model.times.local_time import Fold, Gap, Note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.model.times.recurrence import Preview
    from erelong.service.schedules import Shown


def schedule_view(shown: Shown, *, is_full: bool = True) -> dict[str, Any]:
    """Return a schedule as an object."""
    schedule = shown.schedule
    definition = schedule.definition
    timing, job = definition.timing.fill(), orjson.loads(definition.job)
    if not is_full:
        job.pop("params", None)
    view: dict[str, Any] = {
        "name": schedule.name,
        "cron": timing.cron,
        "every": timing.every,
        "anchor": _instant(timing.anchor),
        "zone": timing.zone,
        "gap": timing.gap,
        "fold": timing.fold,
        "starts_at": _instant(timing.starts_at),
        "ends_at": _instant(timing.ends_at),
        "spread": definition.spread,
        "missed": definition.missed,
        "catchup": definition.catchup,
        "overlap": definition.overlap,
        "job": job,
        "described": shown.described,
        "paused": schedule.is_paused,
        "reason": schedule.reason,
        "next_at": _instant(shown.next[0] if shown.next else None),
        "queued": _instant(schedule.queued),
        "counts": schedule.counts._asdict(),
        "created_at": format_instant(schedule.created_at),
        "changed_at": format_instant(schedule.changed_at),
        "version": schedule.version,
    }
    if is_full:
        view["next"] = [format_instant(occurrence) for occurrence in shown.next]
        view["live"] = list(shown.live)
        view["recent"] = [_record_view(record) for record in schedule.recent]
    return view


def preview_view(previews: Sequence[Preview], offset: int, tzdb: str) -> dict[str, Any]:
    occurrences = [
        {
            "occurrence": format_instant(occurrence),
            "local": local,
            "due_at": format_instant(occurrence + offset),
            "note": note,
        }
        for occurrence, local, note in previews
    ]
    return {"occurrences": occurrences, "tzdb": tzdb}


def _record_view(record: Record) -> dict[str, Any]:
    is_known = record.job is not None and parse_id(record.job) is not None
    view: dict[str, Any] = {
        "occurrence": format_instant(record.occurrence),
        "outcome": record.fate,
        "job": record.job if is_known else None,
        "reason": record.reason,
    }
    if (missed := record.missed) is not None:
        view |= {
            "count": missed.count,
            "first": format_instant(missed.first),
            "last": format_instant(missed.last),
            "more": missed.more,
        }
    return view


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


# OpenAPI schemas of the same views; tests check every response against them.

_RECORD = object_of(
    {
        "occurrence": TIME,
        "outcome": {"enum": [*Fate]},
        "job": TEXT_OR_NULL | {"description": "The id of the job that was made."},
        "reason": {"enum": [*Reason, None]},
        "count": COUNT | {"description": "How many occurrences were missed; present if there may be several."},
        "first": TIME,
        "last": TIME,
        "more": {"type": "boolean", "description": "More were missed than were counted."},
    },
    optional=("count", "first", "last", "more"),
)
_SCHEDULE = {
    "name": {"type": "string"},
    "cron": TEXT_OR_NULL,
    "every": {"type": ["number", "null"]},
    "anchor": TIME_OR_NULL,
    "zone": TEXT_OR_NULL,
    "gap": {"enum": [*Gap, None]},
    "fold": {"enum": [*Fold, None]},
    "starts_at": TIME_OR_NULL,
    "ends_at": TIME_OR_NULL,
    "spread": {"type": "number", "minimum": 0},
    "missed": {"enum": [*MissedPolicy]},
    "catchup": {"type": ["number", "null"], "minimum": 0},
    "overlap": {"enum": [*Overlap]},
    "job": {"type": "object", "description": "The submission of its jobs."},
    "described": {"type": "string", "description": "The timing in words."},
    "paused": {"type": "boolean"},
    "reason": TEXT_OR_NULL | {"description": "Why it is paused."},
    "next_at": TIME_OR_NULL | {"description": "The next occurrence; null while paused, or if none is left."},
    "queued": TIME_OR_NULL | {"description": "An occurrence whose job is made when the live one has ended."},
    "counts": object_of({fate.value: COUNT for fate in Fate}),
    "created_at": TIME,
    "changed_at": TIME,
    "version": {"type": "integer", "minimum": 1, "description": "Counts changes by clients; also the ETag."},
    "next": array_of(TIME) | {"maxItems": 5},
    "live": array_of({"type": "string"}) | {"description": "Its jobs that wait or run."},
    "recent": array_of(_RECORD) | {"maxItems": MAX_RECENT, "description": "The latest first."},
}
_IN_FULL = ("next", "live", "recent")
_PREVIEW = object_of(
    {
        "occurrence": TIME,
        "local": {"type": "string", "description": "The local time in its zone, with the offset."},
        "due_at": TIME | {"description": "The occurrence and the offset by `spread`."},
        "note": {"enum": [*(note for note in Note if note), None]},
    }
)
SCHEDULE_SCHEMAS: dict[str, dict[str, Any]] = {
    "Schedule": object_of(_SCHEDULE),
    "ListedSchedule": object_of({name: value for name, value in _SCHEDULE.items() if name not in _IN_FULL}),
    "Schedules": object_of({"schedules": array_of(ref("ListedSchedule")), "next": TEXT_OR_NULL}),
    "Preview": object_of(
        {"occurrences": array_of(_PREVIEW), "tzdb": {"type": "string", "description": "The time-zone rules used."}}
    ),
}
