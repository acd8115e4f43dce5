"""When the waiting jobs are due: a histogram that many clients share."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from erelong.clock.instants import SECOND
from erelong.model.query import Query
from erelong.service.overview.readings import Readings
from erelong.stores.base import Bins

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.stores.base import Spread

LIFE = 1.0


class DueTimes(NamedTuple):
    """The histogram, and when it was made."""

    as_of: Instant
    bins: Bins
    spread: Spread


class Due:
    """Counts due jobs. Nothing is repeated soon if it was costly."""

    def __init__(self, *, engine: Engine) -> None:
        self._store = engine.store
        self._now = engine.now
        self._lanes = engine.lanes
        self._readings: Readings[DueTimes] = Readings(tick=engine.tick, life=LIFE)
        self._by_kind: Readings[dict[str, int]] = Readings(tick=engine.tick, life=LIFE)

    async def read(self, start: Instant | None, step: float, number: int, query: Query) -> DueTimes:
        """Return the histogram from `start`, by default the beginning of the current step."""
        key = (start, step, number, query.filters)
        return await self._readings.get(key, lambda: self._make(start, round(step * SECOND), number, query))

    async def _make(self, start: Instant | None, step: int, number: int, query: Query) -> DueTimes:
        now = self._now()
        bins = Bins(now - now % step if start is None else start, step, number)
        return DueTimes(now, bins, await self._store.spread(bins, query))

    async def of_kinds(self, kinds: Sequence[str], queues: frozenset[str]) -> dict[str, int]:
        """Return how many jobs of each of these kinds are due and not started, in these queues (none: all)."""
        if not any(jobs for queue, jobs in self._lanes.all_due().items() if not queues or queue in queues):
            return {}
        return await self._by_kind.get((tuple(kinds), queues), lambda: self._count(kinds, queues))

    async def _count(self, kinds: Sequence[str], queues: frozenset[str]) -> dict[str, int]:
        bins = Bins(self._now() + 1, 1, 1)
        spreads = [await self._store.spread(bins, Query(kinds=frozenset({kind}), queues=queues)) for kind in kinds]
        return {kind: spread.overdue for kind, spread in zip(kinds, spreads, strict=True)}
