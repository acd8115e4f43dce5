"""The models of the bodies and queries of schedules, and how they become definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Annotated, Any, Final, Literal, Required

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    with_config,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from erelong.api.schemas import STRICT, Body, ExpiresAfter, InstantIn, Labels, OfQuery, OnFinish, Params, Priority
from erelong.clock.instants import DEEPEST_PAST, SECOND, Instant, parse_instant
from erelong.errors import Fault, Invalid
from erelong.model.schedules.edits import job_text, patched_job, patched_timing
from erelong.model.schedules.schedule import Definition, Overlap
from erelong.model.times.catchup import MissedPolicy
from erelong.model.times.cron import MAX_CRON
from erelong.model.times.local_time import Fold, Gap
from erelong.model.times.spread import MAX_SPREAD
from erelong.model.times.timing import Timing
from erelong.settings.queues import RetryPatch
from erelong.settings.section import Name, PathName
from erelong.settings.types import Duration, PositiveDuration
from erelong.web.problems import faults_of

MAX_PREVIEW: Final = 1_000
MAX_TEXT: Final = 500


def _anchor(value: object, info: ValidationInfo) -> int:
    """Read an instant that may be as early as 1970, the default."""
    context = info.context or {}
    try:
        return parse_instant(value, DEEPEST_PAST, context["max_horizon"] + (context["now"] - DEEPEST_PAST) / SECOND)
    except ValueError as error:
        raise PydanticCustomError("instant", "{reason}", {"reason": str(error)}) from None


_INSTANT: Final = {
    "anyOf": [{"type": "string", "format": "date-time"}, {"type": "number"}],
    "description": "RFC 3339 with an offset, or Unix seconds.",
}
AnchorIn = Annotated[int, BeforeValidator(_anchor), WithJsonSchema(_INSTANT)]
Spread = Annotated[Duration, Field(le=MAX_SPREAD, description="All jobs are due later by one fixed part of it.")]
CronText = Annotated[str, Field(max_length=MAX_CRON, description="5 fields, or 6 with seconds first, or `@daily`.")]
ZoneName = Annotated[str, Field(max_length=100, description="An IANA time zone; `UTC` if not given.")]


class ScheduledJobFields(TypedDict, total=False):
    """What a job of a schedule may have; its time and identity come from the schedule."""

    params: Params | None
    queue: Annotated[PathName | None, Field(description="The queue of the jobs; `default` if not given.")]
    priority: Priority | None
    timeout: Annotated[PositiveDuration | None, Field(description="Seconds that one attempt may take.")]
    retry: RetryPatch | None
    expires_after: ExpiresAfter | None
    labels: Labels | None
    on_finish: OnFinish | None


@with_config(STRICT)
class ScheduledJobIn(ScheduledJobFields, total=False):
    """The job to submit at each occurrence."""

    kind: Required[Annotated[Name, Field(description="The kind that runs the job: a name from `GET /v1/kinds`.")]]


@with_config(STRICT)
class ScheduledJobPatchIn(ScheduledJobFields, total=False):
    """A change of the job; null resets an optional field."""

    kind: Name


class ScheduleFields(TypedDict, total=False):
    """When a schedule is due, and what becomes of occurrences that cannot be made on time."""

    cron: CronText | None
    every: Annotated[PositiveDuration | None, Field(description="Elapsed time between two occurrences.")]
    anchor: Annotated[AnchorIn | None, Field(description="Where `every` counts from; 1970 if not given.")]
    zone: ZoneName | None
    gap: Annotated[Literal["shift", "skip"] | None, Field(description="For local times that do not exist.")]
    fold: Annotated[Literal["first", "second", "both"] | None, Field(description="For local times that occur twice.")]
    starts_at: Annotated[InstantIn | None, Field(description="Occurrences are at or after this time.")]
    ends_at: Annotated[InstantIn | None, Field(description="Occurrences are before this time.")]
    spread: Spread | None
    missed: Annotated[
        Literal["once", "skip", "all"] | None, Field(description="Which occurrences of a downtime are made late.")
    ]
    catchup: Annotated[Duration | None, Field(description="The oldest occurrence that is made late.")]
    overlap: Annotated[
        Literal["skip", "queue_one", "replace", "allow"] | None,
        Field(description="What becomes of an occurrence while an earlier job is live."),
    ]


@with_config(STRICT)
class ScheduleIn(ScheduleFields, total=False):
    """A schedule: when, and which job."""

    job: Required[ScheduledJobIn]


@with_config(STRICT)
class SchedulePatchIn(ScheduleFields, total=False):
    """A change of a schedule. null resets an optional field."""

    job: ScheduledJobPatchIn


class PauseScheduleIn(Body):
    """Why a schedule is paused."""

    reason: Annotated[str, Field(max_length=MAX_TEXT)] | None = None


class TriggerIn(Body):
    """What to do if a job of the schedule is live."""

    overlap: Literal["skip", "queue_one", "replace", "allow"] | None = Field(
        None, description="In place of the policy of the schedule."
    )


class ListSchedulesIn(Body):
    """The filters of a listing of schedules."""

    queue: list[Name] = Field([], max_length=100, description="Any of these queues.")
    kind: list[Name] = Field([], max_length=100, description="Any of these kinds.")
    paused: Literal["true", "false"] | None = Field(None, description="Only paused, or only active ones.")
    limit: Annotated[int, Field(ge=1, le=1_000), OfQuery] = Field(100, description="Schedules per page.")
    cursor: Annotated[str, Field(max_length=300)] | None = Field(None, description="`next` of the previous page.")


BackfillIn: type[BaseModel] = create_model(
    "BackfillIn",
    __base__=Body,
    __doc__="The occurrences to make.",
    **{  # type: ignore[call-overload]  # a keyword of Python
        "from": (Annotated[InstantIn, Field(description="The first instant.")], ...),
        "to": (Annotated[InstantIn, Field(description="The end, which is left out; now at the latest.")], ...),
    },
)

PreviewIn: type[BaseModel] = create_model(
    "PreviewIn",
    __base__=Body,
    __doc__="The range of a preview.",
    **{  # type: ignore[call-overload]  # a keyword of Python
        "from": (Annotated[InstantIn, OfQuery] | None, Field(None, description="The first instant; now if not given.")),
        "count": (Annotated[int, Field(ge=1, le=MAX_PREVIEW), OfQuery], Field(10, description="How many occurrences.")),
    },
)

_TIMES: Final = "belongs to the schedule, which sets the times of its jobs: give cron or every beside job"
_IDENTITY: Final = "belongs to no job of a schedule: overlap, beside job, decides what happens while one is live"
_ELSEWHERE: Final = {
    "/job/execute_at": _TIMES,
    "/job/delay": _TIMES,
    "/job/local_time": _TIMES,
    "/job/zone": "belongs to the schedule: give zone beside cron",
    "/job/spread": "belongs to the schedule: give spread beside job",
    "/job/key": _IDENTITY,
    "/job/on_conflict": _IDENTITY,
}
"""What to send in place of the fields of a submit that a scheduled job does not have."""

_SCHEDULE: Final = TypeAdapter(ScheduleIn).validator
_PATCH: Final = TypeAdapter(SchedulePatchIn).validator
_TIMING: Final = tuple(field.name for field in fields(Timing))


def refusal(error: ValidationError, shape: type, what: str) -> Invalid:
    """Return the refusal of a schedule or of its change."""
    faults = faults_of(error.errors(include_url=False), shape)
    explained = [Fault(fault.pointer, _ELSEWHERE.get(fault.pointer, fault.detail)) for fault in faults]
    return Invalid(what, faults=explained)


def read_definition(body: Any, now: Instant, max_horizon: float) -> Definition:
    """Return a body as a definition, or raise pydantic's `ValidationError`."""
    given = _SCHEDULE.validate_python(body, context={"now": now, "max_horizon": max_horizon})
    return _definition(given, given, _plain(given["job"]))


def read_patch(body: Any, now: Instant, max_horizon: float) -> dict[str, Any]:
    """Return the fields of a PATCH, or raise pydantic's `ValidationError`."""
    given: dict[str, Any] = _PATCH.validate_python(body, context={"now": now, "max_horizon": max_horizon})
    return given


def apply_patch(definition: Definition, given: Mapping[str, Any]) -> Definition:
    """Return a definition with the fields of a PATCH."""
    before = {name: getattr(definition, name) for name in ("spread", "missed", "catchup", "overlap")}
    timing = {name: value for name, value in given.items() if name in _TIMING}
    job = patched_job(definition.job, _plain(given["job"])) if "job" in given else patched_job(definition.job, {})
    return _definition(patched_timing(asdict(definition.timing), timing), before | dict(given), job)


def _definition(timing: Mapping[str, Any], policies: Mapping[str, Any], job: Mapping[str, Any]) -> Definition:
    times = {name: timing.get(name) for name in _TIMING}
    return Definition(
        timing=Timing(
            **times
            | {
                "gap": Gap(times["gap"]) if times["gap"] else None,
                "fold": Fold(times["fold"]) if times["fold"] else None,
            }
        ),
        spread=policies.get("spread") or 0.0,
        missed=MissedPolicy(policies.get("missed") or MissedPolicy.ONCE),
        catchup=policies.get("catchup"),
        overlap=Overlap(policies.get("overlap") or Overlap.SKIP),
        job=job_text(job),
    )


def _plain(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return a submission with plain values, as it is stored."""
    retry = job.get("retry")
    return {**job, "retry": retry.model_dump(exclude_unset=True)} if isinstance(retry, RetryPatch) else dict(job)
