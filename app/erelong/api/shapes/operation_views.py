"""The bodies of responses about operations, and the OpenAPI schemas of the same views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.api.shapes.parts import COUNT, TEXT_OR_NULL, TIME, TIME_OR_NULL, array_of, object_of, ref
from erelong.clock.instants import SECOND, format_instant
from erelong.model.matching.residue import BOUNDS
from erelong.model.operations.operation import MAX_ERRORS, Action, Phase
from erelong.web.response import Reply, json_reply

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.model.operations.operation import Operation
    from erelong.service.operations.operations import Count

_INSTANTS = (*BOUNDS, "occurrence")


def operation_view(operation: Operation, *, is_full: bool = True) -> dict[str, Any]:
    """Return an operation; without `is_full`, as in a listing: without errors, and with the number of listed ids."""
    if not is_full and isinstance(operation.request.filter.get("jobs"), list):
        operation = operation.without_ids()
    request = operation.request
    conditions = {name: format_instant(value) if name in _INSTANTS else value for name, value in request.filter.items()}
    view: dict[str, Any] = {"id": operation.id, "action": request.action}
    if request.range is None:
        view |= {"filter": conditions, "at_most": request.at_most}
    else:
        name, first, end, *_ = request.range
        view |= {"schedule": name, "from": format_instant(first), "to": format_instant(end)}
    view["rate"] = request.rate
    if request.spread:
        view["spread"] = request.spread
    if request.reason is not None:
        view["reason"] = request.reason
    if request.set is not None:
        view["set"] = request.set
    if request.shift is not None:
        view["shift"] = request.shift / SECOND
    view |= {
        "state": operation.state,
        "matches": operation.matches,
        "done": operation.done,
        "skipped": operation.skipped,
        "failed": operation.failed,
        "remaining": operation.remaining,
    }
    if is_full:
        view["errors"] = [{"job": error.job, "code": error.code} for error in operation.errors]
    return view | {
        "by": request.by,
        "created_at": format_instant(operation.created_at),
        "started_at": _instant(operation.started_at),
        "finished_at": _instant(operation.finished_at),
        "version": operation.version,
    }


def operation_reply(operation: Operation, *, is_replay: bool) -> Reply:
    """Return the response to a request that starts an operation, or repeats one that did."""
    reply = json_reply(operation_view(operation), status=200 if is_replay else 202)
    reply.headers["Location"] = f"/v1/operations/{operation.id}"
    if is_replay:
        reply.headers["Idempotency-Replayed"] = "true"
    return reply


def count_view(count: Count) -> dict[str, Any]:
    by = {"state": count.states, "queue": count.queues, "kind": count.kinds}
    return {"matches": count.matches, "more": count.is_cut, "by": by, "sample": count.sample}


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)


# OpenAPI schemas of the same views; tests check every response against them.

_NUMBERS = {"type": "object", "additionalProperties": COUNT}
_OPERATION = {
    "id": {"type": "string"},
    "action": {"enum": [*Action]},
    "filter": {"type": "object", "description": "As given; a listing has the number of `jobs` in place of their ids."},
    "at_most": {"type": ["integer", "null"]},
    "schedule": {"type": "string", "description": "For backfill."},
    "from": TIME,
    "to": TIME,
    "rate": {"type": "number", "description": "Jobs a second, at most."},
    "spread": {"type": "number"},
    "reason": {"type": "string"},
    "set": {"type": "object"},
    "shift": {"type": "number", "description": "Seconds."},
    "state": {"enum": [*Phase]},
    "matches": {"type": ["integer", "null"], "description": "How many jobs matched; null until they are counted."},
    "done": COUNT | {"description": "Jobs to which the action was applied."},
    "skipped": COUNT
    | {"description": "Jobs that matched, but had gone or changed when their turn came; counted at the end."},
    "failed": COUNT | {"description": "Jobs to which the action could not be applied."},
    "remaining": {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "Jobs that matched and have not had their turn; null until they are counted.",
    },
    "errors": array_of(object_of({"job": TEXT_OR_NULL, "code": {"type": "string"}}))
    | {"maxItems": MAX_ERRORS, "description": "The first failures; without a job: why the operation is over."},
    "by": {"type": "string", "description": "The API key that started it; empty without one."},
    "created_at": TIME,
    "started_at": TIME_OR_NULL,
    "finished_at": TIME_OR_NULL,
    "version": {"type": "integer", "minimum": 1},
}
_OPTIONAL = ("filter", "at_most", "schedule", "from", "to", "spread", "reason", "set", "shift")
OPERATION_SCHEMAS: dict[str, dict[str, Any]] = {
    "Operation": object_of(_OPERATION, optional=_OPTIONAL),
    "DryOperation": object_of(
        {
            "matches": COUNT,
            "more": {"type": "boolean", "description": "More match than were counted."},
            "by": object_of({"state": _NUMBERS, "queue": _NUMBERS, "kind": _NUMBERS}),
            "sample": array_of({"type": "string"}) | {"description": "The ids of up to ten of them."},
        }
    ),
    "ListedOperation": object_of(
        {name: value for name, value in _OPERATION.items() if name != "errors"}, optional=_OPTIONAL
    ),
    "Operations": object_of({"operations": array_of(ref("ListedOperation")), "next": TEXT_OR_NULL}),
}
