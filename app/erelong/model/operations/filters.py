"""Which jobs an operation is about: the filter of its client, as conditions on one job."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from erelong.model.extras import label_of
from erelong.model.ids import parse_id
from erelong.model.job import STATES, Job, State
from erelong.model.matching.residue import BOUNDS, Residue
from erelong.model.query import Query

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The conditions on a job: those of a listing, and the ids of jobs. All must hold."""

    query: Query
    jobs: Mapping[int, str] | None = None
    """The token of each job, by its number, the newest first; None for any job."""

    def matches(self, job: Job) -> bool:
        return (self.jobs is None or self.jobs.get(job.seq) == job.token) and self.query.matches(job)

    def page(self, below: int, limit: int) -> Query:
        """Return the listing of the newest jobs with numbers below `below`."""
        return replace(self.query, after=(0, below), limit=limit)


def read_filter(given: Mapping[str, Any], states: frozenset[State], within: frozenset[str]) -> Filter:
    """Return a filter as its client gave it, whose instants are numbers. `states` and `within` (queues) are defaults.

    A queue that is not within the ones a key may use has been refused before.
    """
    ids, schedules, labels = given.get("jobs"), frozenset(given.get("schedule", ())), given.get("labels", {})
    found_by: dict[str, str] = {}  # labels of the system, which come first: they are rarer than those of clients
    if "occurrence" in given:
        found_by |= dict([label_of("occurrence", given["occurrence"])])
    if len(schedules) == 1:
        found_by |= dict(label_of("schedule", name) for name in schedules)
    query = Query(
        states=frozenset(STATES[word] for word in given.get("state", ())) or states,
        queues=frozenset(given.get("queue", ())) or within,
        kinds=frozenset(given.get("kind", ())),
        key=given.get("key"),
        labels=found_by | labels,
        residue=Residue(
            bounds={name: given[name] for name in BOUNDS if name in given},
            schedules=schedules if len(schedules) > 1 else frozenset(),
            errors=frozenset(given.get("error", ())),
            cause=given.get("cause"),
            attempt_min=given.get("attempt_min", 0),
        ),
    )
    jobs = None if ids is None else dict(sorted(filter(None, map(parse_id, ids)), reverse=True))
    return Filter(query=query, jobs=jobs)
