"""Kinds as JSON, their schemas, and the body that declares one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from erelong.api.schemas import Body
from erelong.api.shapes.parts import COUNT, COUNT_OR_NULL, TEXT_OR_NULL, TIME_OR_NULL, array_of, object_of, ref
from erelong.clock.instants import format_instant
from erelong.handlers.kinds import Origin
from erelong.settings.queues import RetryPatch
from erelong.settings.types import PositiveDuration

if TYPE_CHECKING:
    from erelong.service.kinds import KindState


class KindIn(Body):
    """The declaration of a pull kind."""

    params_schema: dict[str, Any] | None = Field(
        None,
        description="A JSON Schema (draft 2020-12) of up to 64 KiB; any object if not given. References begin with "
        "`#/`, and it has no regular expressions.",
    )
    timeout: PositiveDuration | None = Field(None, description="Timeout of an attempt, for jobs without their own.")
    retry: RetryPatch | None = Field(None, description="Retry policy, for jobs without their own.")


def kind_view(state: KindState) -> dict[str, Any]:
    kind = state.kind
    return {
        "name": kind.name,
        "type": kind.type,
        "declared": kind.declared,
        "isolation": kind.isolation,
        "stop": kind.stop,
        "timeout": kind.timeout,
        "retry": None if kind.retry is None else kind.retry.model_dump(exclude_none=True),
        "params_schema": kind.params_schema,
        "result_schema": kind.result_schema,
        "example": kind.example,
        "counts": state.counts._asdict(),
        "polling": state.polling,
        "last_polled_at": None if state.last_polled_at is None else format_instant(state.last_polled_at),
    }


_JSON_SCHEMA: Final = {"type": "object", "description": "A JSON Schema."}
_KIND: Final = object_of(
    {
        "name": {"type": "string"},
        "type": {"type": "string"},
        "declared": {"enum": [*Origin], "description": "Where: built in, in config.toml, or by `PUT /v1/kinds`."},
        "isolation": TEXT_OR_NULL,
        "stop": {"enum": ["kill", "cooperative", "none"], "description": "How a timeout or a cancel stops an attempt."},
        "timeout": {"type": ["number", "null"], "description": "Of jobs without their own; null: of queue or service."},
        "retry": {"anyOf": [ref("RetryPatch"), {"type": "null"}]},
        "params_schema": _JSON_SCHEMA,
        "result_schema": {"anyOf": [_JSON_SCHEMA, {"type": "null"}]},
        "example": {"type": ["object", "null"], "description": "Params that the kind accepts; null if none are known."},
        "counts": object_of(dict.fromkeys(("due", "waiting", "failed"), COUNT))
        | {"description": "Jobs of the queues of this API key. `waiting` includes `due`, which may be seconds old."},
        "polling": COUNT_OR_NULL | {"description": "Workers that wait for jobs now; null if the jobs run here."},
        "last_polled_at": TIME_OR_NULL
        | {"description": "When a worker last waited; null if none has since the start."},
    }
)
KIND_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "Kind": _KIND,
    "Kinds": object_of({"kinds": array_of(ref("Kind"))}),
    "Dropped": object_of({"waiting": COUNT | {"description": "Jobs that wait until the kind is declared again."}}),
}
