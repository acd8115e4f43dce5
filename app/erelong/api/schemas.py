"""The models of request bodies and queries. Their names, bounds and texts are the contract, shown in OpenAPI."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal, Required

import orjson
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
    with_config,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from erelong.clock.instants import Instant, parse_duration, parse_instant
from erelong.model.job import NOTHING, SECOND, STATES
from erelong.service.factory import Change, Submission
from erelong.settings.names import KEY
from erelong.settings.queues import RetryPatch
from erelong.settings.section import Name
from erelong.settings.types import DURATION_SCHEMA, Duration, PositiveDuration, read_duration

MAX_LABELS = 16


def _instant(value: object, info: ValidationInfo) -> int:
    context = info.context or {}
    try:
        return parse_instant(value, context["now"], context["max_horizon"])
    except ValueError as error:
        raise PydanticCustomError("instant", "{reason}", {"reason": str(error)}) from None


def _few(labels: object) -> object:
    if isinstance(labels, dict) and len(labels) > MAX_LABELS:  # before each label is checked
        raise _refused(f"{len(labels)} labels; give at most {MAX_LABELS}")
    return labels


def _refused(reason: str) -> PydanticCustomError:
    return PydanticCustomError("field", "{reason}", {"reason": reason})


def _number(text: object) -> object:
    """Return the text of a query value as a number if it looks like one."""
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("-").isdigit() and len(text) < 16 else float(text)


_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
OfQuery = BeforeValidator(_number)
InstantIn = Annotated[
    int,
    BeforeValidator(_instant),
    WithJsonSchema(
        {
            "anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}],
            "description": "RFC 3339 with an offset, or Unix seconds. The past means now.",
            "examples": ["2026-12-01T09:00:00Z", 1796115600],
        }
    ),
]
Priority = Annotated[int, Field(ge=-100, le=100, description="Higher runs first among due jobs.")]
LabelValue = Annotated[str, Field(max_length=64)]
Labels = Annotated[
    dict[Name, LabelValue],
    BeforeValidator(_few),
    Field(description="Up to 16 names with values, for filters and limits."),
]
Key = Annotated[str, Field(pattern=KEY, description="Names a live job, unique in its queue.")]
ExpiresAfter = Annotated[
    Duration, Field(description="From the later of execute_at and now. A job not started by then is `expired`.")
]
LeaseTime = Annotated[
    Duration, Field(ge=1, le=43_200, description="Seconds until the lease runs out unless it is extended.")
]
Params = Annotated[dict[str, Any], Field(description="Parameters by the kind's schema (`GET /v1/kinds`).")]
StateWord = Literal["scheduled", "running", "succeeded", "failed", "cancelled", "expired"]


STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Body(BaseModel):
    """A strict body: no unknown fields, no type conversion."""

    model_config = ConfigDict(**STRICT, frozen=True)


# hot: submit. Frequent bodies are dictionaries: a model would also hold every absent field.


def _delay(value: object, info: ValidationInfo) -> float:
    delay = read_duration(value)
    if "execute_at" in info.data:
        raise _refused("give execute_at or delay, not both")
    max_horizon = (info.context or {})["max_horizon"]
    if delay > max_horizon:
        raise _refused(f"{delay:.12g} s is too far ahead; give at most {max_horizon:.12g} s (max_horizon)")
    return delay


def _with_key(on_conflict: str | None, info: ValidationInfo) -> str | None:
    if on_conflict is not None and info.data.get("key") is None:
        raise _refused("on_conflict needs a key; give one, or leave it out")
    return on_conflict


class Timed(TypedDict, total=False):
    """The time as an instant or as a delay, not both."""

    execute_at: Annotated[InstantIn, Field(description="When the job may start.")]
    delay: Annotated[
        float, BeforeValidator(_delay), DURATION_SCHEMA, Field(description="Seconds from now, in place of execute_at.")
    ]


@with_config(STRICT)
class JobIn(Timed, total=False):
    """A job to submit."""

    kind: Required[Annotated[Name, Field(description="The kind that runs the job: a name from `GET /v1/kinds`.")]]
    params: Params | None
    queue: Annotated[Name | None, Field(description="The queue of the job; `default` if not given.")]
    priority: Priority | None
    timeout: Annotated[PositiveDuration | None, Field(description="Seconds that one attempt may take.")]
    retry: RetryPatch | None
    expires_after: ExpiresAfter | None
    labels: Labels | None
    key: Key | None
    on_conflict: Annotated[
        Literal["reject", "keep", "replace", "reschedule"] | None,
        AfterValidator(_with_key),
        Field(
            description="If a live job of the queue has the key; `reject` if not given. A running one is superseded."
        ),
    ]


@with_config(STRICT)
class PatchIn(Timed, total=False):
    """A change of a scheduled job. null clears an optional field."""

    priority: Priority | None
    params: Params | None
    labels: Labels | None
    timeout: PositiveDuration | None
    expires_after: ExpiresAfter | None
    retry: RetryPatch | None


def read_submission(body: Any, now: Instant, max_horizon: float) -> Submission:
    """Return a body as a submission, or raise pydantic's `ValidationError`."""
    submission: Submission = _JOB_IN.validate_python(body, context={"now": now, "max_horizon": max_horizon})
    return submission


def pop_time(body: dict[str, Any], now: Instant, max_horizon: float) -> Instant:
    """Remove the time from a body and return it as an instant. Raise ValueError where `read_submission` would fail."""
    if "execute_at" in body:  # a delay beside it stays in the body and is refused later
        return parse_instant(body.pop("execute_at"), now, max_horizon)
    delay = body.pop("delay", 0)  # hot: submit, whole seconds skip the parser; a bool does not
    seconds: float = delay if type(delay) is int and delay >= 0 else parse_duration(delay)
    if seconds > max_horizon:  # max_horizon is at most the longest duration
        raise ValueError("too far ahead")
    return now + round(seconds * SECOND)


def read_change(body: Any, now: Instant, max_horizon: float) -> Change:
    """Return a body as a change, or raise pydantic's `ValidationError`."""
    patch: PatchIn = _PATCH_IN.validate_python(body, context={"now": now, "max_horizon": max_horizon})
    return Change(
        given=frozenset(patch),
        execute_at=patch.get("execute_at"),
        delay=patch.get("delay"),
        priority=patch.get("priority") or 0,
        params=orjson.dumps(params) if (params := patch.get("params")) else NOTHING,
        labels=orjson.dumps(labels) if (labels := patch.get("labels")) else None,
        timeout=patch.get("timeout"),
        expires_after=patch.get("expires_after"),
        retry=patch.get("retry"),
    )


_JOB_IN: Final = TypeAdapter(JobIn).validator
_PATCH_IN: Final = TypeAdapter(PatchIn).validator


class BatchIn(Body):
    """Jobs that are stored all or not at all."""

    jobs: list[Any] = Field(min_length=1, description="Each as for `POST /v1/jobs`.")


class CancelIn(Body):
    """The reason of a cancel, stored with the job."""

    reason: Annotated[str, Field(max_length=500)] | None = None


class EmptyIn(Body):
    """An empty body."""


class LeaseIn(Body):
    """The jobs that an external worker accepts."""

    kinds: list[Name] = Field(min_length=1, max_length=100, description="Pull kinds.")
    queues: list[Name] | None = Field(None, max_length=100, description="Only these queues; all if not given.")
    max: Annotated[int, Field(ge=1, le=1_000)] = 1
    wait: Duration = Field(0.0, description="Seconds to wait for a job; capped.")
    lease: LeaseTime = 30.0


class ExtendIn(Body):
    """The new length of a lease, from now."""

    lease: LeaseTime = 30.0


class FinishIn(Body):
    """The result of a leased job."""

    result: Any = Field(None, description="Any JSON; kept up to 64 KiB.")


class ErrorIn(Body):
    """The error of a leased job."""

    type: Name = "exception"
    message: Annotated[str, Field(max_length=2_000)] = ""


class FailIn(Body):
    """The error of a leased job, and whether and when to retry it."""

    error: ErrorIn = ErrorIn()
    retryable: bool = True
    delay: Duration | None = Field(
        None, description="Seconds until the next attempt; by the retry policy if not given."
    )


class NameIn(Body):
    """The queue of a job that is named by its key."""

    queue: Name | None = Field(
        None, description="The queue of a `~key`; `default` if not given. Not allowed with an id."
    )


class ReadIn(NameIn):
    """The options of reading a job."""

    wait: Annotated[Duration, OfQuery] | None = Field(
        None, description="Seconds to wait until the job is final; capped."
    )


class ListIn(Body):
    """The filters and the order of a listing."""

    state: list[StateWord] = Field([], max_length=100, description="Any of these states.")
    queue: list[Name] = Field([], max_length=100, description="Any of these queues.")
    kind: list[Name] = Field([], max_length=100, description="Any of these kinds.")
    key: Key | None = Field(None, description="Jobs with this key. A superseded job has none.")
    due_after: Annotated[InstantIn, OfQuery] | None = Field(None, description="due_at at or after this time.")
    due_before: Annotated[InstantIn, OfQuery] | None = Field(None, description="due_at before this time.")
    order: Literal["created", "due_at"] = Field(
        "created", description="`created`: newest first. `due_at`: waiting jobs by time."
    )
    limit: Annotated[int, Field(ge=1, le=1_000), OfQuery] = Field(100, description="Jobs per page.")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="`next` of the previous page.")
    view: Literal["brief", "full"] = Field("brief", description="`full`: with params, result and attempts.")
    label: Labels = Field({}, description="`label.<name>=<value>`: jobs with all of these labels.")


assert set(StateWord.__args__) == set(STATES)  # type: ignore[attr-defined]  # mypy does not know a Literal's __args__
assert JobIn.__annotations__.keys() == Submission.__annotations__.keys()
