"""The models of the bodies and queries of operations, and how they become requests."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from erelong.api.schemas import Body, InstantIn, JobId, Key, Labels, OfQuery, PatchIn, Spread, StateWord, read_change
from erelong.clock.instants import SECOND, Instant, parse_duration
from erelong.errors import Fault, Invalid
from erelong.model.faults import too_long
from erelong.model.job import STATES, WORDS
from erelong.model.operations.operation import APPLICABLE, RATE, Action, Phase, Request
from erelong.service.operations.changes import write_change
from erelong.settings.bounds import time_faults
from erelong.settings.names import CAUSE
from erelong.settings.section import Name
from erelong.settings.sections import JobsSection
from erelong.settings.types import Duration
from erelong.web.problems import faults_of

MAX_IDS: Final = 10_000
MAX_BODY: Final = 1 << 20  # bytes; 10,000 ids take 300 KB
WHAT: Final = "the operation is not valid"

Words = Annotated[list[Name], Field(min_length=1, max_length=100)]


def _shift(value: object) -> float:
    """Read a duration with a sign."""
    text, sign = value, 1
    if isinstance(value, str) and value[:1] in ("+", "-"):
        text, sign = value[1:], -1 if value[0] == "-" else 1
    elif isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
        text, sign = -value, -1
    try:
        return sign * parse_duration(text)
    except ValueError as error:
        raise PydanticCustomError("duration", "{reason}", {"reason": str(error)}) from None


Shift = Annotated[
    float,
    BeforeValidator(_shift),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "number"}], "examples": ["2h", "-30m"], "description": "A duration."}
    ),
]


class FilterIn(Body):
    """The jobs of an operation: all conditions must hold. At least one must be given, if only `all`."""

    all: Literal[True] | None = Field(None, description="Every job: in place of other conditions.")
    state: Annotated[list[StateWord], Field(min_length=1, max_length=6)] | None = Field(
        None, description="Any of these states; all that the action applies to if not given."
    )
    queue: Words | None = Field(None, description="Any of these queues.")
    kind: Words | None = Field(None, description="Any of these kinds.")
    schedule: Words | None = Field(None, description="Jobs of any of these schedules.")
    occurrence: InstantIn | None = Field(None, description="Jobs of this nominal time of their schedule.")
    jobs: Annotated[list[Annotated[JobId, Field(max_length=40)]], Field(min_length=1, max_length=MAX_IDS)] | None = (
        Field(None, description="Any of these ids.")
    )
    key: Key | None = Field(None, description="Jobs with this key.")
    cause: Annotated[str, Field(pattern=CAUSE)] | None = Field(
        None, description="Jobs whose error has this cause, from `GET /v1/jobs/errors`."
    )
    error: Annotated[list[Name], Field(min_length=1, max_length=100)] | None = Field(
        None, description="Jobs whose error is of any of these types."
    )
    attempt_min: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Jobs whose `attempt` is at least this number."
    )
    labels: Annotated[Labels, Field(min_length=1)] | None = Field(None, description="Jobs with all of these labels.")
    due_after: InstantIn | None = Field(None, description="due_at at or after this time.")
    due_before: InstantIn | None = Field(None, description="due_at before this time.")
    created_after: InstantIn | None = Field(None, description="created_at at or after this time.")
    created_before: InstantIn | None = Field(None, description="created_at before this time.")
    finished_after: InstantIn | None = Field(None, description="finished_at at or after this time.")
    finished_before: InstantIn | None = Field(None, description="finished_at before this time.")

    @model_validator(mode="after")
    def _not_empty(self) -> Self:
        if not self.given():
            raise _refused('names no job; give a condition, or {"all": true} for every job')
        return self

    def given(self) -> dict[str, Any]:
        """Return the conditions that are set."""
        return self.model_dump(exclude_none=True)


class OperationIn(Body):
    """An action, and the jobs to apply it to."""

    action: Literal["cancel", "run", "retry", "delete", "patch"] = Field(description="What to do with each job.")
    filter: FilterIn
    at_most: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Required: if more jobs match, none is changed. null: any number."
    )
    rate: Annotated[float, Field(ge=1, le=50_000)] = Field(RATE, description="Jobs a second, at most.")
    spread: Spread | None = Field(None, description="For run and retry: due within this many seconds, by the id.")
    reason: Annotated[str, Field(max_length=500)] | None = Field(None, description="For cancel: kept with each job.")
    set: Annotated[dict[str, Any], WithJsonSchema({"$ref": "#/components/schemas/PatchIn"})] | None = Field(
        None, description="For patch: a change of a job, without params."
    )
    shift: Shift | None = Field(None, description="For patch: moves due_at by a duration, which may be negative.")


class ListOperationsIn(Body):
    """The filters of a listing of operations."""

    state: list[Literal["waiting", "counting", "running", "succeeded", "cancelled", "refused", "failed"]] = Field(
        [], max_length=10, description="Any of these states."
    )
    action: list[Literal["cancel", "run", "retry", "delete", "patch", "backfill"]] = Field(
        [], max_length=10, description="Any of these actions."
    )
    limit: Annotated[int, Field(ge=1, le=1_000), OfQuery] = Field(100, description="Operations per page.")
    cursor: Annotated[str, Field(max_length=300)] | None = Field(None, description="`next` of the previous page.")


class ReadOperationIn(Body):
    """The options of reading an operation."""

    wait: Annotated[Duration, OfQuery] | None = Field(
        None, description="Seconds to wait until the operation is over; capped."
    )


def read_request(body: Any, now: Instant, bounds: JobsSection, *, is_dry: bool) -> Request:
    """Return a body as a request, or raise `Invalid`."""
    max_horizon = bounds.max_horizon
    try:
        given = OperationIn.model_validate(body, context={"now": now, "max_horizon": max_horizon})
    except ValidationError as error:
        raise Invalid(WHAT, faults=faults_of(error.errors(include_url=False), OperationIn)) from None
    action = Action(given.action)
    faults = [*_faults(given, action, max_horizon)]
    if "at_most" not in given.model_fields_set and not is_dry:
        faults.append(Fault("/at_most", "is required: the most jobs that may match, or null for any number"))
    change = None
    if given.set is not None:
        try:
            read = read_change(given.set, now, max_horizon)
            faults += [fault.under("/set") for fault in time_faults(bounds, read.timeout, read.retry)]
            change = write_change(read)
        except ValidationError as error:
            faults += [fault.under("/set") for fault in faults_of(error.errors(include_url=False), PatchIn)]
    if faults:
        raise Invalid(WHAT, faults=faults)
    return Request(
        action=action,
        filter=given.filter.given(),
        at_most=given.at_most,
        rate=given.rate,
        spread=given.spread or 0.0,
        reason=given.reason,
        set=given.set,
        change=change,
        shift=None if given.shift is None else round(given.shift * SECOND),
    )


def _faults(given: OperationIn, action: Action, max_horizon: float) -> list[Fault]:
    """Return the faults of fields that do not go together."""
    faults = []
    applicable = APPLICABLE[action]
    for number, word in enumerate(given.filter.state or ()):
        if STATES[word] not in applicable:
            able = ", ".join(WORDS[state] for state in sorted(applicable))
            faults.append(Fault(f"/filter/state/{number}", f"{action} applies to {able} jobs, not to {word} ones"))
    for name, actions in _ONLY_WITH.items():
        if getattr(given, name) is not None and action not in actions:
            faults.append(Fault(f"/{name}", f"applies only to {' and '.join(actions)}; remove it"))
    if action is Action.PATCH and (given.set is None) == (given.shift is None):
        faults.append(Fault("/set", "give exactly one of set and shift"))
    if given.set is not None and "params" in given.set:
        faults.append(Fault("/set/params", "cannot be set for many jobs; remove it"))
    if given.set == {}:
        faults.append(Fault("/set", "changes nothing; give at least one field"))
    if given.shift is not None and abs(given.shift) > max_horizon:
        faults.append(Fault("/shift", too_long(abs(given.shift), max_horizon, "max_horizon")))
    return faults


def _refused(reason: str) -> PydanticCustomError:
    return PydanticCustomError("field", "{reason}", {"reason": reason})


_ONLY_WITH: Final = {
    "reason": (Action.CANCEL,),
    "spread": (Action.RUN, Action.RETRY),
    "set": (Action.PATCH,),
    "shift": (Action.PATCH,),
}
assert set(OperationIn.model_fields["action"].annotation.__args__) == {*Action} - {Action.BACKFILL}  # type: ignore[union-attr]  # a Literal
assert len(Phase) == 7
