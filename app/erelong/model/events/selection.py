"""Which events one reader wants."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from erelong.model.events.event import STORED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.model.events.event import Event, EventType
    from erelong.model.job import Job, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The filters of a reader. An empty filter matches all events; those on jobs leave out events about no job.

    `seqs` has the numbers of the jobs in `ids`, because they are faster to compare.
    """

    types: frozenset[EventType] = STORED
    ids: tuple[str, ...] = ()
    seqs: frozenset[int] = frozenset()
    states: frozenset[State] = frozenset()
    queues: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_of_jobs(self) -> bool:
        return bool(self.ids or self.states or self.queues or self.kinds or self.key is not None or self.labels)

    def takes(self, event: Event) -> bool:
        """Return whether an event passes all filters."""
        if event.type not in self.types:
            return False
        job = event.job
        if job is None:
            return not self.is_of_jobs
        return self._takes_job(job) and self._has_labels(event)

    def _takes_job(self, job: Job) -> bool:
        return (
            (not self.ids or (job.seq in self.seqs and job.id in self.ids))
            and (not self.states or job.state in self.states)
            and (not self.queues or job.queue in self.queues)
            and (not self.kinds or job.kind in self.kinds)
            and (self.key is None or job.key == self.key)
        )

    def _has_labels(self, event: Event) -> bool:
        return not self.labels or self.labels.items() <= event.labels.items()
