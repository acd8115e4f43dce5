"""A listing's filters and order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import orjson

from erelong.model.job import Job, State
from erelong.model.matching.residue import NO_RESIDUE, Residue

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from erelong.clock.instants import Instant


class Order(StrEnum):
    """How a listing is sorted; `ORDERED` names the states in it.

    Newest first, waiting jobs by due time, running jobs with the longest first, or final jobs with the latest first.
    """

    CREATED = "created"
    DUE = "due_at"
    STARTED = "started_at"
    FINISHED = "finished_at"


PREVIEW: Final = 640
FINAL: Final = frozenset(state for state in State if state.is_final)
ORDERED: Final[Mapping[Order, frozenset[State]]] = {
    Order.CREATED: frozenset(State),
    Order.DUE: frozenset({State.SCHEDULED}),
    Order.STARTED: frozenset({State.RUNNING}),
    Order.FINISHED: FINAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The filters of a listing. An empty filter matches all jobs; `after` is the position of the last job seen."""

    states: frozenset[State] = frozenset()
    queues: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    due_after: Instant | None = None
    due_before: Instant | None = None
    residue: Residue = NO_RESIDUE
    order: Order = Order.CREATED
    after: tuple[Instant, int] | None = None
    limit: int = 100
    is_full: bool = False
    is_line: bool = False
    """Whether jobs come with the first `PREVIEW` bytes of their params in place of them."""

    @property
    def filters(self) -> Hashable:
        """All filters, as a value to compare."""
        due = (self.due_after, self.due_before)
        named = (self.states, self.queues, self.kinds, self.key, frozenset(self.labels.items()))
        residue = self.residue
        read = (residue.schedules, residue.errors, residue.cause, residue.attempt_min)
        return (*named, *due, frozenset(residue.bounds.items()), *read)

    @property
    def is_counted(self) -> bool:
        """Whether the numbers of jobs by queue, kind and state tell how many match."""
        is_due = self.due_after is None and self.due_before is None
        return is_due and not (self.key or self.labels or self.residue)

    @property
    def is_sifted(self) -> bool:
        """Whether jobs have to be read and checked, since the index of the order does not serve all filters.

        The index of ends serves states, queues and bounds of the end.
        """
        if self.order is not Order.FINISHED:
            return bool(self.residue)
        bounds = {name: bound for name, bound in self.residue.bounds.items() if not name.startswith("finished_")}
        rest = replace(self, residue=replace(self.residue, bounds=bounds))
        return bool(self.kinds) or not rest.is_counted

    def matches_group(self, queue: str, kind: str, state: State) -> bool:
        """Return whether jobs of this queue, kind and state may match."""
        return (
            state in ORDERED[self.order]
            and (not self.states or state in self.states)
            and (not self.queues or queue in self.queues)
            and (not self.kinds or kind in self.kinds)
        )

    def matches(self, job: Job) -> bool:
        """Return whether a job matches all filters."""
        return (
            self.matches_group(job.queue, job.kind, job.state)
            and (self.key is None or job.key == self.key)
            and (not self.labels or self._matches_labels(job))
            and (self.due_after is None or (job.due_at is not None and job.due_at >= self.due_after))
            and (self.due_before is None or (job.due_at is not None and job.due_at < self.due_before))
            and self.residue.matches(job)
        )

    def position(self, job: Job) -> tuple[Instant, int]:
        """Return the position of a job in the order of the listing."""
        match self.order:
            case Order.CREATED:
                return (0, job.seq)
            case Order.DUE:
                return (job.due_at or 0, job.seq)
            case Order.STARTED:
                return (job.started_at or 0, job.seq)
            case Order.FINISHED:
                return (job.finished_at or 0, job.seq)

    @property
    def is_descending(self) -> bool:
        """Whether later positions are lower."""
        return self.order in (Order.CREATED, Order.FINISHED)

    def _matches_labels(self, job: Job) -> bool:
        labels: dict[str, str] = orjson.loads(job.labels) if job.labels else {}
        return all(labels.get(name) == value for name, value in self.labels.items())
