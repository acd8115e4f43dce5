"""What comes into each queue and what becomes of it, per second over the last minute."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.job import WORDS, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from erelong.engine.engine import Engine

SPAN = 60.0
EVERY = 30.0
SLICE = 1_000


class Arrivals(NamedTuple):
    """How many jobs ever came into a queue, and into two of its final states, up to a constant."""

    submitted: int = 0
    succeeded: int = 0
    failed: int = 0

    def with_group(self, state: State, jobs: int) -> Arrivals:
        """Return these arrivals and those of jobs in a state."""
        return Arrivals(
            self.submitted + jobs,
            self.succeeded + (jobs if state is State.SUCCEEDED else 0),
            self.failed + (jobs if state is State.FAILED else 0),
        )


class Rates(NamedTuple):
    """Jobs per second."""

    submitted: float
    started: float
    succeeded: float
    failed: float


NO_ARRIVALS = Arrivals()


class Flows:
    """Keeps the arrivals of all queues at a few moments of the last two minutes."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._kept: deque[tuple[float, dict[str, Arrivals]]] = deque(maxlen=4)

    async def sample(self, tick: float) -> None:
        """Keep the arrivals of this moment, if the last ones are old enough. Let others run in between."""
        if self._kept and tick - self._kept[-1][0] < EVERY:
            return
        groups = [*self._engine.store.counts().items()]
        arrivals: dict[str, Arrivals] = {}
        for start in range(0, len(groups), SLICE):
            if start:
                await asyncio.sleep(0)
            for (queue, _, state), jobs in groups[start : start + SLICE]:
                if jobs:
                    arrivals[queue] = arrivals.get(queue, NO_ARRIVALS).with_group(state, jobs)
        departures = self._engine.lanes.departures
        departures.forget({*arrivals})
        names = arrivals.keys() | departures.queues
        kept = {queue: self._with_departed(queue, arrivals.get(queue, NO_ARRIVALS)) for queue in names}
        self._kept.append((tick, kept))

    def rates(self, queues: Iterable[str]) -> Rates:
        """Return the rates of some queues together."""
        counted = dict.fromkeys(queues, NO_ARRIVALS)
        for (queue, _, state), jobs in dict(self._engine.store.counts()).items():
            if queue in counted:
                counted[queue] = counted[queue].with_group(state, jobs)
        return self._since_basis(counted)

    def rates_of(self, queue: str, counts: Mapping[str, int]) -> Rates:
        """Return the rates of a queue with these jobs by state."""
        jobs = Arrivals(sum(counts[word] for word in WORDS), counts["succeeded"], counts["failed"])
        return self._since_basis({queue: jobs})

    def _since_basis(self, counted: Mapping[str, Arrivals]) -> Rates:
        tick, lanes = self._engine.tick(), self._engine.lanes
        if not self._kept:
            return Rates(0.0, 0.0, 0.0, 0.0)
        since, before = self._basis(tick)
        totals = [0, 0, 0]
        for queue, found in counted.items():
            pairs = zip(self._with_departed(queue, found), before.get(queue, NO_ARRIVALS), strict=True)
            for index, (now, then) in enumerate(pairs):
                totals[index] += max(0, now - then)
        seconds = max(tick - since, 1.0)
        submitted, succeeded, failed = (round(total / seconds, 3) for total in totals)
        started = round(sum(map(lanes.started_per_second, counted)), 3)
        return Rates(submitted, started, succeeded, failed)

    def _basis(self, tick: float) -> tuple[float, dict[str, Arrivals]]:
        """Return the youngest of the kept moments that are a minute old, or the oldest."""
        found = [kept for kept in self._kept if tick - kept[0] >= SPAN]
        return found[-1] if found else self._kept[0]

    def _with_departed(self, queue: str, found: Arrivals) -> Arrivals:
        departures = self._engine.lanes.departures
        deleted = [departures.deleted.get((queue, state), 0) for state in State]
        return Arrivals(
            found.submitted + sum(deleted),
            found.succeeded + deleted[State.SUCCEEDED],
            found.failed + deleted[State.FAILED] + departures.revived.get((queue, State.FAILED), 0),
        )
