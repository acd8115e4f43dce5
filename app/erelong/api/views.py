"""Tickets and queues as JSON, in the names of the contract, and the schemas of all views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.api.shapes.clock import CLOCK_SCHEMAS
from erelong.api.shapes.event_shapes import EVENT_SCHEMAS
from erelong.api.shapes.kind_shapes import KIND_SCHEMAS
from erelong.api.shapes.listing_views import LISTING_SCHEMAS, PREVIEW_SCHEMA
from erelong.api.shapes.operation_views import OPERATION_SCHEMAS
from erelong.api.shapes.overview_views import OVERVIEW_SCHEMAS
from erelong.api.shapes.parts import COUNT as _COUNT
from erelong.api.shapes.parts import ID as _ID
from erelong.api.shapes.parts import SECONDS_OR_NULL as _SECONDS_OR_NULL
from erelong.api.shapes.parts import TEXT_OR_NULL as _TEXT_OR_NULL
from erelong.api.shapes.parts import TIME as _TIME
from erelong.api.shapes.parts import TIME_OR_NULL as _TIME_OR_NULL
from erelong.api.shapes.parts import array_of as _list
from erelong.api.shapes.parts import object_of as _object
from erelong.api.shapes.parts import ref as _ref
from erelong.api.shapes.queue_views import QUEUE_SCHEMAS
from erelong.api.shapes.schedule_views import SCHEDULE_SCHEMAS
from erelong.clock.instants import format_instant
from erelong.model.blocker import MAX_AHEAD, Basis, Hold, Remover
from erelong.model.extras import FIELDS, HIDDEN
from erelong.model.history import MAX_ATTEMPTS_KEPT
from erelong.model.job import WORDS
from erelong.model.outcome import End
from erelong.model.reports.callback import FINAL_WORDS
from erelong.model.reports.job_view import job_view

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.model.blocker import Blocker
    from erelong.model.job import Job
    from erelong.service.explain import Explanation


def ticket_view(job: Job, is_new: bool) -> dict[str, Any]:
    """Return the short view of a job in a batch."""
    return {"id": job.id, "state": WORDS[job.state], "execute_at": format_instant(job.execute_at), "created": is_new}


def explanation_view(explanation: Explanation, waiting_for: str | None) -> dict[str, Any]:
    start = explanation.start
    return {
        "job": job_view(explanation.job, waiting_for, is_full=False),
        "at": format_instant(explanation.at),
        "summary": explanation.summary,
        "blockers": [_blocker_view(blocker) for blocker in explanation.blockers],
        "ahead": explanation.ahead.number,
        "ahead_is_more": explanation.ahead.is_more,
        "start": {"earliest": _instant(start.earliest), "likely": _instant(start.likely), "basis": start.basis},
    }


def _blocker_view(blocker: Blocker) -> dict[str, Any]:
    value, limit = blocker.value, blocker.limit
    return {
        "type": blocker.type,
        "detail": blocker.detail,
        "value": format_instant(value) if blocker.type in _SINCE and isinstance(value, int) else value,
        "limit": format_instant(limit) if blocker.type in _UNTIL and isinstance(limit, int) else limit,
        "clears_at": _instant(blocker.clears_at),
        "clears_by": blocker.clears_by,
    }


_SINCE = (Hold.PAUSE, Hold.WORKER)
_UNTIL = (Hold.TIME, Hold.RETRY)


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


# OpenAPI schemas of the same views; tests check every response against them.

_STATE = {"type": "string", "enum": list(WORDS)}


_ERROR = _object(
    {
        "type": {
            "type": "string",
            "examples": ["timeout", "http_status", "give_up", "exception", "cancelled", "superseded"],
        },
        "message": {"type": "string"},
        "retryable": {"type": "boolean"},
    }
)
_ATTEMPT = _object(
    {
        "number": {"type": "integer", "minimum": 1},
        "started_at": _TIME,
        "finished_at": _TIME,
        "late_by": _SECONDS_OR_NULL,
        "outcome": {"type": "string", "enum": list(End)},
        "error": {"anyOf": [_ref("Error"), {"type": "null"}]},
        "output": {"type": "string", "description": "The last 64 KiB of its output or of its traceback."},
        "worker": {"type": "string", "description": "The pull worker that ran it, if that has given its name."},
    },
    optional=("output", "worker"),
)
_JOB = {
    "id": _ID,
    "state": _STATE,
    "kind": {"type": "string"},
    "queue": {"type": "string"},
    "params": {"type": "object"},
    "key": _TEXT_OR_NULL | {"description": "Null also if a newer job took the key while this one ran."},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "priority": {"type": "integer"},
    "timeout": {"type": "number", "exclusiveMinimum": 0, "description": "Seconds that one attempt may take."},
    "execute_at": _TIME | {"description": "The time that the caller requested."},
    "due_at": _TIME_OR_NULL | {"description": "When the next attempt may start; null once final."},
    "expires_at": _TIME_OR_NULL,
    "retry": _ref("Retry"),
    "attempt": _COUNT | {"description": "Attempts started since submit or the last retry call."},
    "cancel_requested": {"type": "boolean"},
    "created_at": _TIME,
    "started_at": _TIME_OR_NULL,
    "finished_at": _TIME_OR_NULL,
    "late_by": _SECONDS_OR_NULL | {"description": "Seconds from due_at to the start of the latest attempt."},
    "waiting_for": {
        "enum": ["time", "pause", "worker", "rate", "label", "slot", None],
        "description": "Why a scheduled job does not run: the first reason that applies.",
    },
    "result": {"description": "The value that the handler returned."},
    "error": {"anyOf": [_ref("Error"), {"type": "null"}]},
    "attempts": _list(_ref("Attempt")) | {"maxItems": MAX_ATTEMPTS_KEPT, "description": "The latest attempts."},
    "version": {"type": "integer", "minimum": 1, "description": "Counts every change; also the ETag."},
    "result_truncated": {"const": True, "description": "Present if the result was too long and was truncated."},
}
_EXTRAS = {
    "schedule": {"type": "string", "description": "The schedule that made the job."},
    "occurrence": _TIME | {"description": "The nominal time of the schedule, before `spread`."},
    "on_finish": _object(
        {
            "url": {"type": "string"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "states": _list({"type": "string", "enum": list(FINAL_WORDS)}),
            "queue": {"type": "string"},
            "job": _TEXT_OR_NULL | {"description": "The id of the latest callback."},
        }
    )
    | {"description": "The callback that each end of the job in one of `states` makes."},
    "callback_of": {"type": "string", "description": "The id of the job whose end this job reports."},
    "local_time": {"type": "string", "description": "The local time in `zone` that execute_at was made of."},
    "zone": {"type": "string", "description": "The IANA time zone of local_time."},
    "submitted_by": {"type": "string", "description": "The API key that submitted the job, or PUT its schedule."},
    "worker": {"type": "string", "description": "The pull worker that has leased the job; absent once the lease ends."},
    "spread": {"type": "number", "minimum": 0, "description": "due_at is execute_at and a share of these seconds."},
}
_OPTIONAL = ("result_truncated", *_EXTRAS)
_LISTED = ("params", "result", "attempts", "result_truncated")  # only with view=full
_BLOCKER = _object(
    {
        "type": {"type": "string", "enum": list(Hold)},
        "detail": {"type": "string", "description": "What holds the job, and what to do."},
        "value": {
            "type": ["number", "string", "null"],
            "description": "`time`, `retry`: seconds to go. `pause`: since when. `worker`: when one last asked. "
            "`disk`: unsaved outcomes, or what ails the store. `rate`: tokens. `label`, `slot`, `workers`: running "
            "jobs. `ahead`: jobs.",
        },
        "limit": {
            "type": ["number", "string", "object", "null"],
            "description": "`time`, `retry`: `due_at`. `disk`, `label`, `slot`, `workers`: the limit. "
            "`rate`: the rate.",
        },
        "clears_at": _TIME_OR_NULL | {"description": "The earliest end; null if `clears_by` or running jobs decide."},
        "clears_by": {
            "enum": [*Remover, None],
            "description": "Needed first: to resume the queue, a worker, a declaration of the kind, an "
            "operator, or a restart.",
        },
    }
)
_START = _object(
    {
        "earliest": _TIME_OR_NULL | {"description": "When the last blocker ends at the earliest."},
        "likely": _TIME_OR_NULL | {"description": "When the job is likely to start, after the jobs ahead of it."},
        "basis": {
            "enum": [*Basis, None],
            "description": "`rate` of the queue, or `starts`: those per second while jobs waited, over the last "
            "five minutes.",
        },
    }
)
_EXPLANATION = _object(
    {
        "job": _ref("ListedJob"),
        "at": _TIME,
        "summary": {"type": "string", "description": "One line for people."},
        "blockers": _list(_ref("Blocker")) | {"description": "Everything that holds at this moment, in a fixed order."},
        "ahead": _COUNT | {"maximum": MAX_AHEAD, "description": "Due jobs of the queue that start before it."},
        "ahead_is_more": {"type": "boolean", "description": "True if there may be more than `ahead`."},
        "start": _START,
    }
)
_NO_ID = {"type": "null", "description": "A new job has no id in a dry run."}
_TICKET = _object({"id": _JOB["id"], "state": _STATE, "execute_at": _TIME, "created": {"type": "boolean"}})
_DRY_TICKET = _object(_TICKET["properties"] | {"id": {"anyOf": [_JOB["id"], _NO_ID]}})
_CREATED = {"created": {"type": "boolean"}}
_LINE = {
    "oneOf": [
        _object({"id": _JOB["id"], **_CREATED}),
        _object({"id": _NO_ID, **_CREATED}),
        _object({"problem": _ref("Problem")}),
    ]
}
_PENDING = {
    "done": {"type": "boolean", "description": "Whether the wait has reached its aim, `until`."},
    "pending": _list({"type": "string"}),
}
_WAITED = _object(
    {
        **_PENDING,
        "ended": _list(_ref("ListedJob")) | {"description": "In the order of their ends."},
        "missing": _list({"type": "string"}) | {"description": "Unknown ids, and those of deleted jobs."},
    }
)
_WAIT_LINE = {
    "oneOf": [
        _object({"job": _ref("ListedJob")}),
        _object({"missing": {"type": "string"}}),
        _object(_PENDING),
        _object({"problem": _ref("Problem")}),
    ]
}
_LEASE = _object(
    {
        "token": {"type": "string"},
        "lease_until": _TIME,
        "traceparent": _TEXT_OR_NULL | {"description": "Continues the trace of the attempt; null without tracing."},
        "job": _ref("Job"),
    }
)
_CHECKS = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "The status of each part: `ok` or the failure. Only for keys with `read`.",
}

SCHEMAS: dict[str, dict[str, Any]] = {
    "Job": _object(_JOB | _EXTRAS, optional=_OPTIONAL),
    "DryJob": _object(_JOB | _EXTRAS | {"id": _NO_ID}, optional=_OPTIONAL),
    "ListedJob": _object(
        _JOB | _EXTRAS | {"params_preview": PREVIEW_SCHEMA}, optional=(*_LISTED, *_EXTRAS, "params_preview")
    ),
    "Attempt": _ATTEMPT,
    "Error": _ERROR,
    **LISTING_SCHEMAS,
    "Tickets": _object({"jobs": _list(_TICKET)}),
    "DryTickets": _object({"jobs": _list(_DRY_TICKET)}),
    "Line": _LINE,
    "Waited": _WAITED,
    "WaitLine": _WAIT_LINE,
    "Explanation": _EXPLANATION,
    "Blocker": _BLOCKER,
    "Leases": _object({"leases": _list(_LEASE)}),
    "Extended": _object({"lease_until": _TIME, "cancel_requested": {"type": "boolean"}}),
    **CLOCK_SCHEMAS,
    "Live": _object({"live": {"const": True}}),
    "Ready": _object({"ready": {"type": "boolean"}, "checks": _CHECKS}, optional=("checks",)),
    **SCHEDULE_SCHEMAS,
    **QUEUE_SCHEMAS,
    **KIND_SCHEMAS,
    **OVERVIEW_SCHEMAS,
    **OPERATION_SCHEMAS,
    **EVENT_SCHEMAS,
    "Text": {"type": "string"},
    "Page": {"type": "string"},
    "Any": {},
}

assert _EXTRAS.keys() == FIELDS - HIDDEN
