"""The shape of what clients send; names, bounds and texts of these models are the contract, and OpenAPI shows them."""

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
    if isinstance(labels, dict) and len(labels) > MAX_LABELS:  # before each of them is looked at
        raise _refused(f"{len(labels)} labels; at most {MAX_LABELS} are taken")
    return labels


def _refused(reason: str) -> PydanticCustomError:
    return PydanticCustomError("field", "{reason}", {"reason": reason})


def _number(text: object) -> object:
    """Everything in a query is text; what looks like a number is one."""
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
    dict[Name, LabelValue], BeforeValidator(_few), Field(description="Up to 16 names with values, to find jobs by.")
]
Key = Annotated[str, Field(pattern=KEY, description="Names a live job, unique in its queue.")]
ExpiresAfter = Annotated[
    Duration, Field(description="Counted from the later of execute_at and now: not begun by then, it is `expired`.")
]
LeaseTime = Annotated[
    Duration, Field(ge=1, le=43_200, description="Seconds until the job is taken back if nothing is heard.")
]
Params = Annotated[dict[str, Any], Field(description="What the kind's schema says (`GET /v1/kinds`).")]
StateWord = Literal["scheduled", "running", "succeeded", "failed", "cancelled", "expired"]


STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Body(BaseModel):
    """What most bodies share: nothing unknown, nothing guessed."""

    model_config = ConfigDict(**STRICT, frozen=True)


# The bodies that come in masses are dictionaries: to make a model of one takes twice as long, with all that is absent.


def _delay(value: object, info: ValidationInfo) -> float:
    delay = read_duration(value)
    if "execute_at" in info.data:
        raise _refused("give execute_at or delay, not both")
    max_horizon = (info.context or {})["max_horizon"]
    if delay > max_horizon:
        raise _refused(f"{delay:.12g} s is too far ahead; at most {max_horizon:.12g} s (max_horizon)")
    return delay


def _with_key(on_conflict: str | None, info: ValidationInfo) -> str | None:
    if on_conflict is not None and info.data.get("key") is None:
        raise _refused("on_conflict needs a key; give one, or leave it out")
    return on_conflict


class Timed(TypedDict, total=False):
    """A time is asked for as an instant or as a delay, not both."""

    execute_at: Annotated[InstantIn, Field(description="When it may start.")]
    delay: Annotated[
        float, BeforeValidator(_delay), DURATION_SCHEMA, Field(description="Seconds from now, in place of execute_at.")
    ]


@with_config(STRICT)
class JobIn(Timed, total=False):
    """A job to be submitted."""

    kind: Required[Annotated[Name, Field(description="What runs it: a name of `GET /v1/kinds`.")]]
    params: Params | None
    queue: Annotated[Name | None, Field(description="Where it waits its turn; `default` if not given.")]
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
            description="When a live job of the queue has the key; `reject` if not given. A running one is superseded."
        ),
    ]


@with_config(STRICT)
class PatchIn(Timed, total=False):
    """What is to change of a scheduled job; null clears what is optional."""

    priority: Priority | None
    params: Params | None
    labels: Labels | None
    timeout: PositiveDuration | None
    expires_after: ExpiresAfter | None
    retry: RetryPatch | None


def read_submission(body: Any, now: Instant, max_horizon: float) -> Submission:
    """What a body asks for; raises pydantic's `ValidationError`."""
    asked: Submission = _JOB_IN.validate_python(body, context={"now": now, "max_horizon": max_horizon})
    return asked


def pop_time(body: dict[str, Any], now: Instant, max_horizon: float) -> Instant:
    """Take the time out of a body, and read it as `read_submission` would; raise ValueError if that would not."""
    if "execute_at" in body:  # a delay beside it stays, and is refused with the rest
        return parse_instant(body.pop("execute_at"), now, max_horizon)
    delay = body.pop("delay", 0)  # whole seconds are usual, and cost a third if nobody asks what they mean; no bool
    seconds: float = delay if type(delay) is int and delay >= 0 else parse_duration(delay)
    if seconds > max_horizon:  # which is never more than a duration may be
        raise ValueError("that is too far ahead")
    return now + round(seconds * SECOND)


def read_change(body: Any, now: Instant, max_horizon: float) -> Change:
    """What a body would change; raises pydantic's `ValidationError`."""
    asked: PatchIn = _PATCH_IN.validate_python(body, context={"now": now, "max_horizon": max_horizon})
    return Change(
        given=frozenset(asked),
        execute_at=asked.get("execute_at"),
        delay=asked.get("delay"),
        priority=asked.get("priority") or 0,
        params=orjson.dumps(params) if (params := asked.get("params")) else NOTHING,
        labels=orjson.dumps(labels) if (labels := asked.get("labels")) else None,
        timeout=asked.get("timeout"),
        expires_after=asked.get("expires_after"),
        retry=asked.get("retry"),
    )


_JOB_IN: Final = TypeAdapter(JobIn).validator
_PATCH_IN: Final = TypeAdapter(PatchIn).validator


class BatchIn(Body):
    """Jobs that are taken all or not at all."""

    jobs: list[Any] = Field(min_length=1, description="Each as for `POST /v1/jobs`.")


class CancelIn(Body):
    """Why a job is cancelled, for those who ask later."""

    reason: Annotated[str, Field(max_length=500)] | None = None


class EmptyIn(Body):
    """A body with nothing in it."""


class LeaseIn(Body):
    """Which jobs a worker outside would take."""

    kinds: list[Name] = Field(min_length=1, max_length=100, description="Pull kinds.")
    queues: list[Name] | None = Field(None, max_length=100, description="Of these queues; all if not given.")
    max: Annotated[int, Field(ge=1, le=1_000)] = 1
    wait: Duration = Field(0.0, description="Seconds to wait for a job; capped.")
    lease: LeaseTime = 30.0


class ExtendIn(Body):
    """For how long, from now, a job is to be kept."""

    lease: LeaseTime = 30.0


class FinishIn(Body):
    """What came of the work."""

    result: Any = Field(None, description="Any JSON; kept up to 64 KiB.")


class ErrorIn(Body):
    """Why the work failed."""

    type: Name = "exception"
    message: Annotated[str, Field(max_length=2_000)] = ""


class FailIn(Body):
    """Why the work failed, and whether and when to try again."""

    error: ErrorIn = ErrorIn()
    retryable: bool = True
    delay: Duration | None = Field(None, description="Seconds until the next attempt; by the policy if not given.")


class NameIn(Body):
    """Where the job is that is named by its key."""

    queue: Name | None = Field(None, description="Beside `~` and a key only: the queue; `default` if not given.")


class ReadIn(NameIn):
    """How to read a job."""

    wait: Annotated[Duration, OfQuery] | None = Field(None, description="Seconds to wait until it is final; capped.")


class ListIn(Body):
    """What to list."""

    state: list[StateWord] = Field([], max_length=100, description="Any of these states.")
    queue: list[Name] = Field([], max_length=100, description="Any of these queues.")
    kind: list[Name] = Field([], max_length=100, description="Any of these kinds.")
    key: Key | None = Field(None, description="Jobs that have this key; one that lost it to a newer job has none.")
    due_after: Annotated[InstantIn, OfQuery] | None = Field(None, description="due_at is this or later.")
    due_before: Annotated[InstantIn, OfQuery] | None = Field(None, description="due_at is before this.")
    order: Literal["created", "due_at"] = Field("created", description="Newest first, or waiting jobs by time.")
    limit: Annotated[int, Field(ge=1, le=1_000), OfQuery] = Field(100, description="Jobs of one page.")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="`next` of the page before.")
    view: Literal["brief", "full"] = Field("brief", description="`full`: with params, result and attempts.")
    label: Labels = Field({}, description="`label.<name>=<value>`: jobs that have all of these.")


assert set(StateWord.__args__) == set(STATES)  # type: ignore[attr-defined]  # Literal has its values there
assert JobIn.__annotations__.keys() == Submission.__annotations__.keys()
