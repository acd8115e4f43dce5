"""An operation as it is stored: what its client asked for, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from erelong.model.document import Document
from erelong.model.job import State
from erelong.model.operations.filters import Filter, read_filter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.clock.instants import Instant

SORT: Final = "operation"
"""The sort of the documents that hold operations."""
MAX_ERRORS: Final = 20
RATE: Final = 2_000.0
TOO_MANY_MATCH: Final = "too_many_match"


class Action(StrEnum):
    """What an operation does to each job."""

    CANCEL = "cancel"
    RUN = "run"
    RETRY = "retry"
    DELETE = "delete"
    PATCH = "patch"
    BACKFILL = "backfill"


class Phase(StrEnum):
    """The state of an operation."""

    WAITING = "waiting"
    COUNTING = "counting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        return self not in (Phase.WAITING, Phase.COUNTING, Phase.RUNNING)


APPLICABLE: Final[Mapping[Action, frozenset[State]]] = {
    Action.CANCEL: frozenset({State.SCHEDULED, State.RUNNING}),
    Action.RUN: frozenset({State.SCHEDULED}),
    Action.PATCH: frozenset({State.SCHEDULED}),
    Action.RETRY: frozenset({State.FAILED, State.CANCELLED, State.EXPIRED}),
    Action.DELETE: frozenset(State) - {State.RUNNING},
    Action.BACKFILL: frozenset(),
}
"""The states of jobs to which an action can be applied."""


class Range(NamedTuple):
    """The occurrences of a schedule that a backfill makes: from the first instant, before the end.

    `text` is the stored form of the schedule when the backfill was requested. `kept` is made by the schedule itself.
    """

    schedule: str
    first: Instant
    end: Instant
    text: str
    kept: Instant | None = None


class JobError(NamedTuple):
    """Why an operation could not be applied to a job; without a job, why it is over."""

    job: str | None
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a client asks for. `filter`, `set` and `change` are JSON; `change` is `set` with its values checked."""

    action: Action
    filter: Mapping[str, Any]
    within: tuple[str, ...] = ()
    """The queues that the key of the client may use; all if empty."""
    at_most: int | None = None
    rate: float = RATE
    spread: float = 0.0
    reason: str | None = None
    set: Mapping[str, Any] | None = None
    change: Mapping[str, Any] | None = None
    shift: int | None = None
    range: Range | None = None
    """What a backfill makes. Its `filter` is empty, and its cursor is the instant of the next occurrence."""
    by: str = ""

    def conditions(self) -> Filter:
        """Return the filter with the states and queues that apply if it names none."""
        return read_filter(self.filter, APPLICABLE[self.action], frozenset(self.within))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A request and its progress. `version` counts all writes of the document."""

    id: str
    request: Request
    key: str | None = None
    """The digest of its `Idempotency-Key`."""
    state: Phase = Phase.WAITING
    cursor: int
    """Jobs with this number or a higher one are new, or have had their turn."""
    matches: int | None = None
    done: int = 0
    skipped: int = 0
    failed: int = 0
    errors: tuple[JobError, ...] = field(default=())
    created_at: Instant
    started_at: Instant | None = None
    finished_at: Instant | None = None
    version: int = 0

    @property
    def left(self) -> float:
        """How many more jobs it may change."""
        at_most = self.request.at_most
        return float("inf") if at_most is None else at_most - self.done

    @property
    def remaining(self) -> int | None:
        """How many of the jobs that matched it has not come to; None until they are counted."""
        return None if self.matches is None else max(0, self.matches - self.done - self.skipped - self.failed)

    def begin(self, now: Instant) -> Operation:
        return replace(self, state=Phase.COUNTING, started_at=now)

    def counted(self, matches: int, now: Instant) -> Operation:
        """Go on to the jobs, or refuse if more match than the client allows."""
        after = replace(self, matches=matches)
        at_most = self.request.at_most
        if at_most is not None and matches > at_most:
            return replace(after, errors=(JobError(None, TOO_MANY_MATCH),)).finish(Phase.REFUSED, now)
        if at_most == 0:  # a job may match by the time of the first slice
            return after.finish(Phase.SUCCEEDED, now)
        return replace(after, state=Phase.RUNNING)

    def advance(self, cursor: int, done: int, failures: Sequence[JobError] = (), skipped: int = 0) -> Operation:
        """Count the jobs of a slice, whose lowest number is the new cursor."""
        errors = (*self.errors, *failures)[:MAX_ERRORS]
        failed = self.failed + len(failures)
        done, skipped = self.done + done, self.skipped + skipped
        return replace(self, cursor=cursor, done=done, skipped=skipped, failed=failed, errors=errors)

    def ended_by(self, code: str) -> Operation:
        """Note why it is over."""
        return replace(self, errors=(*self.errors[: MAX_ERRORS - 1], JobError(None, code)))

    def without_ids(self) -> Operation:
        """Return the operation with the number of the ids that its filter lists in their place: they may be many."""
        conditions = {name: len(value) if name == "jobs" else value for name, value in self.request.filter.items()}
        return replace(self, request=replace(self.request, filter=conditions))

    def stored(self) -> Operation:
        """Return the operation with the version that it has once it is stored."""
        return replace(self, version=self.version + 1)

    def finish(self, state: Phase, now: Instant) -> Operation:
        """End it. After the last job, those that matched and had no turn have changed meanwhile."""
        unchanged = self.remaining or 0 if state is Phase.SUCCEEDED and self.left > 0 else 0
        return replace(self, state=state, skipped=self.skipped + unchanged, finished_at=now)


def as_document(operation: Operation, now: Instant) -> Document:
    """Return the next version of the document that holds the operation."""
    errors, occurrences = [[*error] for error in operation.errors], operation.request.range
    request = _as_json(operation.request) | {"range": occurrences and [*occurrences]}
    text = _as_json(operation) | {"request": request, "errors": errors}
    del text["id"], text["version"]
    return Document(SORT, operation.id, operation.version + 1, now, orjson.dumps(text))


def _as_json(value: Operation | Request) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in fields(value)}


def read_operation(document: Document) -> Operation:
    """Return the operation in a document. Raise ValueError, KeyError or TypeError if it is damaged."""
    text = orjson.loads(document.text or b"")
    request = text.pop("request")
    request |= {"action": Action(request["action"]), "within": tuple(request["within"])}
    request["range"] = None if request.get("range") is None else Range(*request["range"])
    return Operation(
        id=document.name,
        version=document.version,
        request=Request(**request),
        **text | {"state": Phase(text["state"]), "errors": tuple(JobError(*error) for error in text["errors"])},
    )
