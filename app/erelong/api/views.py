"""Jobs and queues as JSON, in the names of the contract, and their schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from erelong.clock.instants import format_instant
from erelong.model.history import MAX_ATTEMPTS_KEPT
from erelong.model.job import WORDS
from erelong.model.outcome import End

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.model.job import Job
    from erelong.service.queues import Queue


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
    return view


def ticket_view(job: Job, is_new: bool) -> dict[str, Any]:
    """Return the short view of a job in a batch."""
    return {"id": job.id, "state": WORDS[job.state], "execute_at": format_instant(job.execute_at), "created": is_new}


def queue_view(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "paused": queue.is_paused,
        "settings": queue.settings.model_dump(mode="json"),
        "counts": queue.counts,
        "oldest_due_age": queue.oldest_due_age,
        "late_p99": queue.late_p99,
    }


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


def _json(text: bytes | None) -> orjson.Fragment | None:
    return None if text is None else orjson.Fragment(text)


# OpenAPI schemas of the same views; tests check every response against them.

_TIME = {"type": "string", "format": "date-time", "description": "RFC 3339, UTC, milliseconds, rounded up."}
_TIME_OR_NULL = {"type": ["string", "null"], "format": "date-time"}
_SECONDS_OR_NULL = {"type": ["number", "null"], "minimum": 0}
_TEXT_OR_NULL = {"type": ["string", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
_STATE = {"type": "string", "enum": list(WORDS)}
_JSON_SCHEMA = {"type": "object", "description": "A JSON Schema."}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _object(properties: dict[str, Any], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


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
        "output": {"type": "string", "description": "The last 64 KiB of output of its process."},
    },
    optional=("output",),
)
_JOB = {
    "id": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$", "description": "Opaque; sorts by creation."},
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
_LISTED = ("params", "result", "attempts", "result_truncated")  # only with view=full
_QUEUE = _object(
    {
        "name": {"type": "string"},
        "paused": {"type": "boolean"},
        "settings": _ref("QueueSettings"),
        "counts": _object(dict.fromkeys(("scheduled", "due", *WORDS[1:]), _COUNT)),
        "oldest_due_age": _SECONDS_OR_NULL | {"description": "Seconds since the oldest due job became due."},
        "late_p99": _SECONDS_OR_NULL
        | {"description": "Seconds of lateness at the 99th percentile, over the last five minutes."},
    }
)
_KIND = _object(
    {
        "name": {"type": "string"},
        "type": {"type": "string"},
        "isolation": _TEXT_OR_NULL,
        "stop": {"enum": ["kill", "cooperative", "none"], "description": "How a timeout or a cancel stops an attempt."},
        "params_schema": _JSON_SCHEMA,
        "result_schema": {"anyOf": [_JSON_SCHEMA, {"type": "null"}]},
    }
)
_TICKET = _object({"id": _JOB["id"], "state": _STATE, "execute_at": _TIME, "created": {"type": "boolean"}})
_LINE = {"oneOf": [_object({"id": _JOB["id"], "created": {"type": "boolean"}}), _object({"problem": _ref("Problem")})]}
_LEASE = _object({"token": {"type": "string"}, "lease_until": _TIME, "job": _ref("Job")})
_CHECKS = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "description": "The status of each part: `ok` or the failure. Only for keys with `read`.",
}

SCHEMAS: dict[str, dict[str, Any]] = {
    "Job": _object(_JOB, optional=("result_truncated",)),
    "ListedJob": _object(_JOB, optional=_LISTED),
    "Attempt": _ATTEMPT,
    "Error": _ERROR,
    "Jobs": _object({"jobs": _list(_ref("ListedJob")), "next": _TEXT_OR_NULL}),
    "Tickets": _object({"jobs": _list(_TICKET)}),
    "Line": _LINE,
    "Queue": _QUEUE,
    "Queues": _object({"queues": _list(_ref("Queue"))}),
    "Leases": _object({"leases": _list(_LEASE)}),
    "Extended": _object({"lease_until": _TIME, "cancel_requested": {"type": "boolean"}}),
    "Purged": _object({"cancelled": _COUNT}),
    "Kinds": _object({"kinds": _list(_KIND)}),
    "Live": _object({"live": {"const": True}}),
    "Ready": _object({"ready": {"type": "boolean"}, "checks": _CHECKS}, optional=("checks",)),
    "Text": {"type": "string"},
    "Page": {"type": "string"},
    "Any": {},
}
