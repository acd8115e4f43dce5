"""What jobs fail of: their errors grouped by cause, in a reading that many clients share."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from erelong.clock.instants import SECOND
from erelong.model.job import State
from erelong.model.matching.cause import cause_of
from erelong.service.overview.listings import SLICE
from erelong.service.overview.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.model.job import Job
    from erelong.model.query import Query

LIFE: Final = 1.0
PAGE: Final = 250
AT_ONCE: Final = 15
"""Jobs grouped before others use the loop."""
MANY: Final = 1_000
"""Causes sorted by their counts before others use the loop."""
MAX_CAUSES: Final = 1_000
HOURS: Final = 24
SAMPLE: Final = 3
HOUR: Final = 3_600 * SECOND
FAILED: Final = frozenset({State.FAILED})


@dataclass(slots=True, kw_only=True)
class Cause:
    """Jobs that failed of the same cause; the first one seen, which is the newest, gives the texts."""

    cause: str
    kind: str
    type: str
    message: str
    count: int = 0
    first_at: Instant
    last_at: Instant
    by_hour: list[int] = field(default_factory=lambda: [0] * HOURS)
    sample: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Causes:
    """The most frequent causes of the errors of the newest matching jobs, the most frequent first."""

    scanned: int
    of: int
    causes: Sequence[Cause]


class Failures:
    """Makes the readings. None is repeated soon if it was costly."""

    def __init__(self, *, engine: Engine) -> None:
        self._store = engine.store
        self._now = engine.now
        self._readings: Readings[Causes] = Readings(tick=engine.tick, life=LIFE)

    async def read(self, query: Query, last: int) -> Causes:
        """Group the errors of the newest `last` jobs that match."""
        key = (query.filters, last)
        return await self._readings.get(key, lambda: self._make(query, last))

    async def _make(self, query: Query, last: int) -> Causes:
        now, found, scanned = self._now(), dict[str, Cause](), 0
        query = replace(query, limit=PAGE)
        while scanned < last:
            page = await self._store.search(query, min(SLICE if query.residue else PAGE, last - scanned))
            for number, job in enumerate(page.jobs, 1):
                _note(found, job, now)
                if number % AT_ONCE == 0:
                    await asyncio.sleep(0)
            scanned += page.scanned
            if page.after is None:
                break
            query = replace(query, after=page.after)
            await asyncio.sleep(0)
        causes = await _most_frequent([*found.values()])
        return Causes(scanned=scanned, of=max(scanned, self._matching(query)), causes=causes)

    def _matching(self, query: Query) -> int:
        """Return how many jobs have the states, queues and kinds of a query."""
        return sum(jobs for group, jobs in dict(self._store.counts()).items() if query.matches_group(*group))


async def _most_frequent(causes: Sequence[Cause]) -> Sequence[Cause]:
    """Return the causes of most jobs; of equally frequent ones those of newer jobs, which come first."""
    by_count: defaultdict[int, list[Cause]] = defaultdict(list)
    for start in range(0, len(causes), MANY):
        for cause in causes[start : start + MANY]:
            by_count[cause.count].append(cause)
        await asyncio.sleep(0)
    ordered = (cause for count in sorted(by_count, reverse=True) for cause in by_count[count])
    return [*islice(ordered, MAX_CAUSES)]


def _note(found: dict[str, Cause], job: Job, now: Instant) -> None:
    name = cause_of(job.kind, job.error)
    if name is None or job.error is None:
        return
    at = job.finished_at or job.started_at or job.created_at
    cause = found.get(name)
    if cause is None:
        error: dict[str, Any] = orjson.loads(job.error)
        cause = found[name] = Cause(
            cause=name, kind=job.kind, type=error["type"], message=error["message"], first_at=at, last_at=at
        )
    cause.count += 1
    cause.first_at, cause.last_at = min(cause.first_at, at), max(cause.last_at, at)
    hours = (now - at) // HOUR
    if 0 <= hours < HOURS:
        cause.by_hour[HOURS - 1 - hours] += 1
    if len(cause.sample) < SAMPLE:
        cause.sample.append(job.id)
