"""The shape of what clients send; names, bounds and texts of these models are the contract, and OpenAPI shows them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema, field_validator
from pydantic_core import PydanticCustomError

from app.clock import Duration, PositiveDuration, parse_instant
from app.config import Name, RetryPatch
from app.conflict import OnConflict
from app.job import NOTHING, STATES
from app.service import Change, Submission

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
Key = Annotated[str, Field(pattern=r"^[\x20-\x7e]{1,255}$", description="Names a live job, unique in its queue.")]
ExpiresAfter = Annotated[
    Duration, Field(description="Counted from the later of execute_at and now: not begun by then, it is `expired`.")
]
LeaseTime = Annotated[
    Duration, Field(ge=1, le=43_200, description="Seconds until the job is taken back if nothing is heard.")
]
Params = Annotated[dict[str, Any], Field(description="What the kind's schema says (`GET /v1/kinds`).")]
StateWord = Literal["scheduled", "running", "succeeded", "failed", "cancelled", "expired"]


class Body(BaseModel):
    """What all bodies share: nothing unknown, nothing guessed."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


class Timed(Body):
    """A time is asked for as an instant or as a delay, not both."""

    execute_at: InstantIn = Field(None, validate_default=False, description="When it may start.")  # type: ignore[assignment]  # absent, never null
    delay: Duration = Field(None, validate_default=False, description="Seconds from now, in place of execute_at.")  # type: ignore[assignment]  # absent, never null

    @field_validator("delay")
    @classmethod
    def _one_time(cls, delay: float, info: ValidationInfo) -> float:
        if info.data.get("execute_at") is not None:
            raise _refused("give execute_at or delay, not both")
        max_horizon = (info.context or {})["max_horizon"]
        if delay > max_horizon:
            raise _refused(f"{delay:.12g} s is too far ahead; at most {max_horizon:.12g} s (max_horizon)")
        return delay


class JobIn(Timed):
    """A job to be submitted."""

    kind: Name = Field(description="What runs it: a name of `GET /v1/kinds`.")
    params: Params | None = None
    queue: Name | None = Field(None, description="Where it waits its turn; `default` if not given.")
    priority: Priority | None = None
    timeout: PositiveDuration | None = Field(None, description="Seconds that one attempt may take.")
    retry: RetryPatch | None = None
    expires_after: ExpiresAfter | None = None
    labels: Labels | None = None
    key: Key | None = None
    on_conflict: Literal["reject", "keep", "replace", "reschedule"] | None = Field(
        None, description="What happens when a live job of the queue holds the key; `reject` if not given."
    )

    @field_validator("on_conflict")
    @classmethod
    def _key_for_conflict(cls, on_conflict: str | None, info: ValidationInfo) -> str | None:
        if on_conflict is not None and info.data.get("key") is None:
            raise _refused("on_conflict needs a key; give one, or leave it out")
        return on_conflict

    def to_submission(self) -> Submission:
        on_conflict = OnConflict.REJECT if self.on_conflict is None else OnConflict(self.on_conflict)
        return Submission(
            self.kind,
            orjson.dumps(self.params) if self.params else NOTHING,
            self.queue or "default",
            self.execute_at,
            self.delay,
            self.priority or 0,
            self.timeout,
            self.retry,
            self.expires_after,
            orjson.dumps(self.labels) if self.labels else None,
            self.key,
            on_conflict,
        )


class BatchIn(Body):
    """Jobs that are taken all or not at all."""

    jobs: list[Any] = Field(min_length=1, description="Each as for `POST /v1/jobs`.")


class PatchIn(Timed):
    """What is to change of a scheduled job; null clears what is optional."""

    priority: Priority | None = None
    params: Params | None = None
    labels: Labels | None = None
    timeout: PositiveDuration | None = None
    expires_after: ExpiresAfter | None = None
    retry: RetryPatch | None = None

    def to_change(self) -> Change:
        return Change(
            given=frozenset(self.model_fields_set),
            execute_at=self.execute_at,
            delay=self.delay,
            priority=self.priority or 0,
            params=orjson.dumps(self.params) if self.params else NOTHING,
            labels=orjson.dumps(self.labels) if self.labels else None,
            timeout=self.timeout,
            expires_after=self.expires_after,
            retry=self.retry,
        )


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


class ReadIn(Body):
    """How to read a job."""

    wait: Annotated[Duration, OfQuery] | None = Field(None, description="Seconds to wait until it is final; capped.")


class ListIn(Body):
    """What to list."""

    state: list[StateWord] = Field([], max_length=100, description="Any of these states.")
    queue: list[Name] = Field([], max_length=100, description="Any of these queues.")
    kind: list[Name] = Field([], max_length=100, description="Any of these kinds.")
    key: Key | None = None
    due_after: Annotated[InstantIn, OfQuery] | None = Field(None, description="due_at is this or later.")
    due_before: Annotated[InstantIn, OfQuery] | None = Field(None, description="due_at is before this.")
    order: Literal["created", "due_at"] = Field("created", description="Newest first, or waiting jobs by time.")
    limit: Annotated[int, Field(ge=1, le=1_000), OfQuery] = Field(100, description="Jobs of one page.")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="`next` of the page before.")
    view: Literal["brief", "full"] = Field("brief", description="`full`: with params, result and attempts.")
    label: Labels = Field({}, description="`label.<name>=<value>`: jobs that have all of these.")


assert set(StateWord.__args__) == set(STATES)  # type: ignore[attr-defined]  # Literal has its values there
