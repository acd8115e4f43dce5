"""What a service and its keys are and do, as JSON, and the schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from erelong.api.shapes.parts import (
    COUNT,
    COUNT_OR_NULL,
    SECONDS_OR_NULL,
    TEXT_OR_NULL,
    TIME,
    TIME_OR_NULL,
    array_of,
    object_of,
)
from erelong.clock.instants import SECOND, format_instant
from erelong.model.caller import Scope
from erelong.model.job import WORDS
from erelong.monitoring.statistics.totals import FLOWS, Late
from erelong.service.overview.causes import MAX_CAUSES
from erelong.telemetry.notes import EVENTS
from erelong.version import VERSION

if TYPE_CHECKING:
    from erelong.model.caller import Caller
    from erelong.monitoring.statistics.stats import Stats
    from erelong.service.overview.causes import Cause, Causes
    from erelong.service.overview.due import DueTimes
    from erelong.settings.queues import Rate
    from erelong.telemetry.notes import Note


def me_view(caller: Caller, rate: Rate | None) -> dict[str, Any]:
    return {
        "name": caller.name or None,
        "scopes": sorted(caller.scopes),
        "queues": sorted(caller.queues) or None,
        "rate": None if rate is None else rate.model_dump(),
        "anonymous": not caller.name,
    }


def stats_view(stats: Stats, *, is_brief: bool) -> dict[str, Any]:
    """Return the statistics without `now`; those of some queues have neither host nor checks."""
    checks = stats.checks
    shared: dict[str, Any] = {
        "started_at": format_instant(stats.started_at),
        "version": VERSION,
        "ready": stats.is_ready,
        "jobs": stats.jobs,
        "next_due_at": None if stats.next_due_at is None else format_instant(stats.next_due_at),
        "oldest_due_age": stats.oldest_due_age,
        "rates": stats.rates,
        "late": stats.late._asdict(),
        "abandoned": stats.abandoned,
        "workers": {"running": stats.running, "of": stats.workers},
    }
    if checks is not None and is_brief:
        checks = {name: state for name, state in checks.items() if state != "ok"}
    if checks is not None:
        shared["checks"] = checks
    if not is_brief:
        shared["notes"] = [_note_view(note) for note in stats.notes]
        if stats.host is not None:
            shared["host"] = stats.host._asdict()
    if stats.series is not None:
        shared["series"] = {**stats.series, "from": format_instant(stats.series["from"])}
    return shared


def due_view(due: DueTimes) -> dict[str, Any]:
    return {
        "as_of": format_instant(due.as_of),
        "from": format_instant(due.bins.start),
        "step": due.bins.step / SECOND,
        **due.spread._asdict(),
    }


def causes_view(causes: Causes, shown: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the causes, which `cause_view` has shown."""
    return {"scanned": causes.scanned, "of": causes.of, "causes": shown}


def cause_view(cause: Cause) -> dict[str, Any]:
    return {
        "cause": cause.cause,
        "kind": cause.kind,
        "type": cause.type,
        "message": cause.message,
        "count": cause.count,
        "first_at": format_instant(cause.first_at),
        "last_at": format_instant(cause.last_at),
        "by_hour": cause.by_hour,
        "sample": cause.sample,
    }


def _note_view(note: Note) -> dict[str, Any]:
    fields = {name: value for name, value in note._asdict().items() if value is not None}
    return fields | {"at": format_instant(note.at)}


_NUMBER: Final = {"type": "number"}
_RATE: Final = object_of({"per_second": _NUMBER, "burst": _NUMBER})
_ME: Final = object_of(
    {
        "name": TEXT_OR_NULL | {"description": "The name of the API key; null without one."},
        "scopes": array_of({"type": "string", "enum": [*Scope]}),
        "queues": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "The queues that the key is limited to; null: none, it may use all.",
        },
        "rate": {"anyOf": [_RATE, {"type": "null"}], "description": "Requests per second; null: not limited."},
        "anonymous": {"type": "boolean", "description": "Whether the caller sent no key, and none is needed."},
    }
)
_RATE_OR_NULL: Final = {"type": ["number", "null"]}
_RATES: Final = object_of(dict.fromkeys(FLOWS, _RATE_OR_NULL))
_LATE: Final = object_of(dict.fromkeys(Late._fields, SECONDS_OR_NULL))
_HOST: Final = object_of(
    {
        "cpu": _NUMBER | {"description": "Cores in use by the process, over the last ten seconds."},
        "rss": COUNT_OR_NULL | {"description": "Resident memory in bytes."},
        "loop_lag_p99": SECONDS_OR_NULL,
        "commit_p99": SECONDS_OR_NULL,
        "store_bytes": COUNT_OR_NULL,
        "disk_free": COUNT_OR_NULL,
        "connections": COUNT,
        "streams": COUNT,
    }
)
_NOTE: Final = object_of(
    {
        "at": TIME,
        "event": {"enum": [*EVENTS]},
        "queue": {"type": "string"},
        "by": {"type": "string", "description": "The API key."},
        "detail": {"type": "string"},
    },
    optional=("queue", "by", "detail"),
)
_LINE: Final = array_of(_RATE_OR_NULL)
_SERIES: Final = object_of(
    {
        "from": TIME | {"description": "The beginning of the first step."},
        "step": {"type": "integer", "description": "Seconds."},
        **dict.fromkeys(FLOWS, _LINE | {"description": "Per second; null without a whole step."}),
        **dict.fromkeys(("due", "running"), _LINE | {"description": "Jobs at the end of the step."}),
        **dict.fromkeys(("late_p50", "late_p99", "late_max"), _LINE | {"description": "Seconds."}),
    }
)
_STATS: Final = object_of(
    {
        "now": TIME,
        "started_at": TIME,
        "version": {"type": "string"},
        "ready": {"type": "boolean"},
        "checks": {"type": "object", "additionalProperties": {"type": "string"}},
        "jobs": object_of(dict.fromkeys(("scheduled", "due", *WORDS[1:]), COUNT)),
        "next_due_at": TIME_OR_NULL | {"description": "The earliest due time that is still to come."},
        "oldest_due_age": SECONDS_OR_NULL,
        "rates": _RATES | {"description": "Per second: over ten seconds; with queues, over the last minute."},
        "late": _LATE | {"description": "Seconds from due_at to the start, over five minutes; `max` as a bound."},
        "abandoned": COUNT,
        "workers": object_of({"running": COUNT, "of": COUNT}),
        "host": _HOST,
        "notes": array_of(_NOTE) | {"description": "Notable events, the oldest first."},
        "series": _SERIES,
    },
    optional=("checks", "host", "notes", "series"),
)
_DUE: Final = object_of(
    {
        "as_of": TIME,
        "from": TIME,
        "step": {"type": "number", "description": "Seconds."},
        "counts": array_of(COUNT) | {"description": "Waiting jobs due in each bin."},
        "overdue": COUNT | {"description": "Waiting jobs due before the first bin."},
        "later": COUNT | {"description": "Waiting jobs due after the last bin."},
        "sampled": COUNT | {"description": "n: every n-th job was read and counts as n. 1: the counts are exact."},
    }
)
_CAUSE: Final = object_of(
    {
        "cause": {"type": "string", "pattern": "^[0-9a-f]{12}$", "description": "The same for alike errors."},
        "kind": {"type": "string"},
        "type": {"type": "string"},
        "message": {"type": "string", "description": "That of the newest job."},
        "count": COUNT,
        "first_at": TIME,
        "last_at": TIME,
        "by_hour": array_of(COUNT) | {"description": "Jobs in each of the last 24 hours, the latest last."},
        "sample": array_of({"type": "string"}) | {"maxItems": 3, "description": "Ids of the newest jobs."},
    }
)
_CAUSES: Final = object_of(
    {
        "scanned": COUNT | {"description": "Jobs that were read."},
        "of": COUNT | {"description": "Jobs with these states, queues and kinds."},
        "causes": array_of(_CAUSE) | {"maxItems": MAX_CAUSES, "description": "The most frequent first."},
    }
)
OVERVIEW_SCHEMAS: Final[dict[str, dict[str, Any]]] = {"Me": _ME, "Stats": _STATS, "Due": _DUE, "Causes": _CAUSES}
