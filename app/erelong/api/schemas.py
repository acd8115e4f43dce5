"""The models of request bodies. Their names, bounds and texts are the contract, shown in OpenAPI."""

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
    model_validator,
    with_config,
)
from pydantic_core import PydanticCustomError, PydanticUndefined
from typing_extensions import TypedDict

from erelong.clock.instants import Instant, parse_duration, parse_instant
from erelong.model.extras import PATCHED
from erelong.model.faults import too_long
from erelong.model.job import NOTHING, SECOND, STATES
from erelong.model.reports.callback import FINAL_WORDS
from erelong.model.times.local_time import LOCAL_PATTERN, parse_local
from erelong.model.times.spread import MAX_SPREAD
from erelong.service.factory import Change, Own, Submission
from erelong.service.jobs import BY_KEY
from erelong.service.waits import Until
from erelong.settings.names import KEY, TEXT
from erelong.settings.queues import RetryPatch
from erelong.settings.section import Name, PathName
from erelong.settings.types import DURATION_SCHEMA, Duration, PositiveDuration, read_duration

MAX_LABELS = 16


def _instant(value: object, info: ValidationInfo) -> int:
    context = info.context or {}
    try:
        return parse_instant(value, context["now"], context["max_horizon"])
    except ValueError as error:
        raise PydanticCustomError("instant", "{reason}", {"reason": str(error)}) from None


def _ahead(value: object, info: ValidationInfo) -> float:
    delay, max_horizon = read_duration(value), (info.context or {})["max_horizon"]
    if delay > max_horizon:
        raise _refused(too_long(delay, max_horizon, "max_horizon"))
    return delay


def _local_time(value: object, info: ValidationInfo) -> str:
    try:
        local = parse_local(value)
    except ValueError as error:
        raise _refused(str(error)) from None
    if "execute_at" in info.data or "delay" in info.data:
        raise _refused("give execute_at, delay or local_time, only one of them")
    return local.isoformat()


def _id(text: str) -> str:
    if text.startswith(BY_KEY):
        raise _refused("is the key of a job; send its id")
    return text


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
LabelValue = Annotated[str, Field(pattern=TEXT, max_length=64)]
Labels = Annotated[
    dict[Name, LabelValue],
    BeforeValidator(_few),
    Field(description="Up to 16 names with values, for filters and limits."),
]
Key = Annotated[str, Field(pattern=KEY, description="Names a live job, unique in its queue.")]
ExpiresAfter = Annotated[
    Duration,
    Field(description="Counted from execute_at, or from now if that is later. A job not started by then is `expired`."),
]
Spread = Annotated[
    Duration,
    Field(le=MAX_SPREAD, description="due_at is execute_at and a share of these seconds, which follows from the id."),
    AfterValidator(lambda seconds: seconds or None),
]
DelayIn = Annotated[float, BeforeValidator(_ahead), DURATION_SCHEMA]
JobId = Annotated[str, AfterValidator(_id)]
Params = Annotated[dict[str, Any], Field(description="Parameters by the kind's schema (`GET /v1/kinds`).")]
FinalWord = Literal["succeeded", "failed", "cancelled", "expired"]
StateWord = Literal["scheduled", "running", "succeeded", "failed", "cancelled", "expired"]


STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Body(BaseModel):
    """A strict body: no unknown fields, no type conversion. null means that a field with a default is not set."""

    model_config = ConfigDict(**STRICT, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: object) -> object:
        if not isinstance(given, dict) or None not in given.values():
            return given
        return {name: value for name, value in given.items() if value is not None or not cls._has_default(name)}

    @classmethod
    def _has_default(cls, name: str) -> bool:
        field = cls.model_fields.get(name)
        return field is not None and field.default not in (None, PydanticUndefined)


# hot: submit. Frequent bodies are dictionaries: a model would also hold every absent field.


def _delay(value: object, info: ValidationInfo) -> float:
    delay = _ahead(value, info)
    if "execute_at" in info.data:
        raise _refused("give execute_at or delay, not both")
    return delay


def _with_key(on_conflict: str | None, info: ValidationInfo) -> str | None:
    if on_conflict is not None and info.data.get("key") is None:
        raise _refused("on_conflict needs a job key; give key, or leave it out")
    return on_conflict


@with_config(STRICT)
class OnFinishIn(TypedDict, total=False):
    """The callback of a job: an http request that reports its end."""

    url: Required[Annotated[str, Field(description="As the `url` of an http job.")]]
    headers: Annotated[dict[str, str] | None, Field(description="As the `headers` of an http job.")]
    states: Annotated[
        list[FinalWord] | None, Field(min_length=1, description="The final states to report; all if not given.")
    ]
    queue: Annotated[PathName | None, Field(description="The queue of the callback; `callbacks` if not given.")]


OnFinish = Annotated[OnFinishIn, Field(description="A callback that each end of the job makes.")]


class Moved(TypedDict, total=False):
    """The time as an instant or as a delay."""

    execute_at: Annotated[InstantIn, Field(description="When the job may start.")]
    delay: Annotated[
        float, BeforeValidator(_delay), DURATION_SCHEMA, Field(description="Seconds from now, in place of execute_at.")
    ]


class Timed(Moved, total=False):
    """The time as an instant, as a delay, or as a local time in a zone."""

    local_time: Annotated[
        str,
        BeforeValidator(_local_time),
        WithJsonSchema({"type": "string", "pattern": f"^{LOCAL_PATTERN}$", "examples": ["2027-03-28T09:00:00"]}),
        Field(description="A local time without an offset, in place of execute_at; needs a zone."),
    ]
    zone: Annotated[str, Field(description="The IANA time zone of local_time.", examples=["Europe/Berlin"])]


@with_config(STRICT)
class JobIn(Timed, total=False):
    """A job to submit."""

    kind: Required[Annotated[Name, Field(description="The kind that runs the job: a name from `GET /v1/kinds`.")]]
    params: Params | None
    queue: Annotated[PathName | None, Field(description="The queue of the job; `default` if not given.")]
    priority: Priority | None
    timeout: Annotated[PositiveDuration | None, Field(description="Seconds that one attempt may take.")]
    retry: RetryPatch | None
    expires_after: ExpiresAfter | None
    spread: Spread | None
    labels: Labels | None
    on_finish: OnFinish | None
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
    spread: Spread | None
    on_finish: OnFinish | None


@with_config(STRICT)
class RetryIn(Moved, total=False):
    """What is different in the next attempts of a job. null restores a default."""

    params: Params | None
    timeout: PositiveDuration | None
    retry: RetryPatch | None


def read_submission(body: Any, now: Instant, max_horizon: float) -> Submission:
    """Return a body as a submission, or raise pydantic's `ValidationError`."""
    submission: Submission = _JOB_IN.validate_python(body, context={"now": now, "max_horizon": max_horizon})
    return submission


def pop_own(body: dict[str, Any], now: Instant, max_horizon: float) -> Own:
    """Remove the fields from a body that few bodies share. Raise ValueError where `read_submission` would fail."""
    params, key, labels = body.pop("params", None), body.pop("key", None), body.pop("labels", None)
    if "execute_at" in body:  # a delay beside it stays in the body and is refused later
        execute_at = parse_instant(body.pop("execute_at"), now, max_horizon)
    else:
        delay = body.pop("delay", 0)
        if type(delay) is int and 0 <= delay <= max_horizon:  # hot: submit; `type` excludes bool
            execute_at = now + delay * SECOND
        elif (seconds := parse_duration(delay)) <= max_horizon:  # max_horizon <= LONGEST_DURATION
            execute_at = now + round(seconds * SECOND)
        else:
            raise ValueError("too far ahead")
    if params is not None and not isinstance(params, dict):
        raise ValueError("params are not an object")
    if key is None and body.get("on_conflict") is not None:
        raise ValueError("on_conflict without a key")
    if key is not None and not (isinstance(key, str) and _A_KEY.fullmatch(key)):
        raise ValueError("not a key")
    if labels is not None:
        labels = _LABELS.validate_python(labels)
    return tuple.__new__(Own, (params, execute_at, key, labels))


def read_change(body: Any, now: Instant, max_horizon: float) -> Change:
    """Return a body as a change, or raise pydantic's `ValidationError`."""
    return _change_of(_PATCH_IN.validate_python(body, context={"now": now, "max_horizon": max_horizon}))


def read_retry(body: Any, now: Instant, max_horizon: float) -> Change:
    """Return the body of a retry as a change, or raise pydantic's `ValidationError`."""
    return _change_of(_RETRY_IN.validate_python(body, context={"now": now, "max_horizon": max_horizon}))


def _change_of(patch: PatchIn) -> Change:
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
        extras={name: value for name, value in patch.items() if name in PATCHED},
    )


_JOB_IN: Final = TypeAdapter(JobIn).validator
_PATCH_IN: Final = TypeAdapter(PatchIn).validator
_RETRY_IN: Final = TypeAdapter(RetryIn).validator
_LABELS: Final = TypeAdapter(Labels, config=STRICT).validator
_A_KEY: Final = re.compile(KEY)


class BatchIn(Body):
    """Jobs that are stored all or not at all."""

    jobs: list[Any] = Field(min_length=1, description="Each as for `POST /v1/jobs`.")


class CancelIn(Body):
    """The reason of a cancel, stored with the job."""

    reason: Annotated[str, Field(max_length=500)] | None = None


class WaitIn(Body):
    """The jobs to wait for, and what ends the wait."""

    jobs: list[JobId] = Field(min_length=1, max_length=1_000, description="Ids; equal ones count once.")
    until: Annotated[Until, Field(strict=False)] = Field(
        Until.ALL,
        description="`all`: all have ended. `first`: one has. `first_failure`: one has failed, was cancelled, has "
        "expired or is missing, or all have ended.",
    )
    wait: Duration = Field(0.0, description="Seconds to wait; capped. A stream may last an hour.")
    view: Literal["brief", "full"] = Field("brief", description="`full`: with params, result and attempts.")


class EmptyIn(Body):
    """An empty body."""


assert FinalWord.__args__ == FINAL_WORDS  # type: ignore[attr-defined]  # as below
assert set(StateWord.__args__) == set(STATES)  # type: ignore[attr-defined]  # mypy does not know a Literal's __args__
assert JobIn.__annotations__.keys() == Submission.__annotations__.keys()
