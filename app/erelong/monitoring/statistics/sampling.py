"""The duty that reads the counters every ten seconds and keeps their differences."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from erelong.clock.instants import SECOND
from erelong.monitoring.statistics.flows import Flows
from erelong.monitoring.statistics.host import HostGauges
from erelong.monitoring.statistics.series import Point, Series
from erelong.monitoring.statistics.totals import NOTHING, Totals, read_totals

if TYPE_CHECKING:
    from pathlib import Path

    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine

STEP = 10
COARSE = 300
HOUR = 3_600
DAY = 86_400
BASIS = 9.0
"""Seconds over which rates are computed at least. Laps are ten seconds apart, a little more or less."""


class Mark(NamedTuple):
    """The totals at one moment of the monotonic clock."""

    tick: float
    totals: Totals


class Sampling:
    """Keeps points of ten seconds for an hour, and of five minutes for a day. All begin again with the process."""

    name = "statistics"

    def __init__(self, *, engine: Engine, path: Path | None) -> None:
        self._engine = engine
        self.fine = Series(step=STEP, size=HOUR // STEP)
        self.coarse = Series(step=COARSE, size=DAY // COARSE)
        self.flows = Flows(engine=engine)
        self.host = HostGauges(metrics=engine.metrics, path=path)
        self.started_at: Instant = engine.now()
        self._last = Mark(engine.tick(), read_totals(engine.metrics))
        self._number = self.fine.number_at(self.started_at)
        self._pause = 0.0
        self._is_whole = False  # whether the step under way began with the previous lap
        self._marks: deque[Mark] = deque([self._last], maxlen=16)

    async def ready(self) -> None:
        """Wait until the step of the wall clock is over. A virtual clock may stand still: wait in real time."""
        await self.flows.sample(self._engine.tick())
        left = STEP - (self._engine.now() / SECOND) % STEP
        await asyncio.sleep(max(left + 0.001, self._pause))

    async def lap(self) -> None:
        """Note the point of the step that is over. Nothing is noted over a leap of the clock."""
        now = self._engine.now()
        number = self.fine.number_at(now)
        self._pause = 1.0 if number == self._number else 0.0
        if number == self._number:  # the clock stands still
            return
        before, self._last = self._last, Mark(self._engine.tick(), read_totals(self._engine.metrics))
        is_next, self._number = number == self._number + 1, number
        is_whole, self._is_whole = self._is_whole and is_next, now % (STEP * SECOND) < SECOND
        self._mark(self._last)
        self.host.sample(self._engine.tick())
        if is_whole:
            self.fine.add(number - 1, Point(self._last.totals.since(before.totals), self.due(), self.running()))
        self._add_coarse(number)

    def _add_coarse(self, number: int) -> None:
        """Note the point of five minutes, if it is over."""
        steps = COARSE // STEP
        if number % steps:
            return
        points = self.fine.latest(steps, number)
        if points:
            happened = NOTHING
            for point in points:
                happened = happened.plus(point.happened)
            self.coarse.add(number // steps - 1, points[-1]._replace(happened=happened))

    def due(self) -> int:
        return sum(self._engine.lanes.all_due().values())

    def running(self) -> int:
        return self._engine.workers.running + len(self._engine.leases)

    def rates(self) -> tuple[Totals, float]:
        """Return what has happened in the last ten seconds or so, and in how many seconds."""
        current = Mark(self._engine.tick(), read_totals(self._engine.metrics))
        older = [mark for mark in self._marks if current.tick - mark.tick >= BASIS]
        basis = older[-1] if older else self._marks[0]
        self._mark(current)
        return current.totals.since(basis.totals), max(current.tick - basis.tick, 1.0)

    def late(self) -> Totals:
        """Return what has happened in the last five minutes, the step under way included."""
        happened = read_totals(self._engine.metrics).since(self._last.totals)
        number = self.fine.number_at(self._engine.now())
        for point in self.fine.latest(COARSE // STEP, number):
            happened = happened.plus(point.happened)
        return happened

    def _mark(self, mark: Mark) -> None:
        """Keep a mark of about each second, as long as rates need it."""
        if mark.tick - self._marks[-1].tick >= 0.9:
            self._marks.append(mark)
