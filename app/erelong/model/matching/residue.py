"""The conditions on a job that no index serves: each job has to be read to check them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import orjson

from erelong.model.extras import label_of
from erelong.model.matching.cause import cause_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant
    from erelong.model.job import Job

BOUNDS: Final = ("due_after", "due_before", "created_after", "created_before", "finished_after", "finished_before")
"""The names of bounds: `…_after` is the first instant that matches, `…_before` the first that no longer does."""
SCHEDULE_LABEL: Final = label_of("schedule", "")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Residue:
    """Conditions, all of which must hold. An empty residue matches all jobs."""

    bounds: Mapping[str, Instant] = field(default_factory=dict)
    schedules: frozenset[str] = frozenset()
    errors: frozenset[str] = frozenset()
    """The types of errors."""
    cause: str | None = None
    attempt_min: int = 0

    def __bool__(self) -> bool:
        return bool(self.bounds or self.schedules or self.errors or self.cause or self.attempt_min > 0)

    def matches(self, job: Job) -> bool:
        return (
            job.attempt >= self.attempt_min
            and all(is_within(job, name, bound) for name, bound in self.bounds.items())
            and (not self.schedules or _schedule_of(job) in self.schedules)
            and (not self.errors or (job.error is not None and orjson.loads(job.error).get("type") in self.errors))
            and (self.cause is None or cause_of(job.kind, job.error) == self.cause)
        )


NO_RESIDUE: Final = Residue()


def is_within(job: Job, name: str, bound: Instant) -> bool:
    """Return whether a job is on the right side of a bound."""
    field, _, side = name.partition("_")
    instant: Instant | None = {"due": job.due_at, "created": job.created_at, "finished": job.finished_at}[field]
    return instant is not None and (instant >= bound if side == "after" else instant < bound)


def _schedule_of(job: Job) -> str | None:
    labels: dict[str, str] = orjson.loads(job.labels) if job.labels else {}
    return labels.get(SCHEDULE_LABEL)
