"""The one coroutine that owns the popping: sleep until due or changed, then hand over."""

from __future__ import annotations

import asyncio
import math
from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.clock.timer import Wake
from erelong.engine.agenda import NEVER
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.clock.instants import Instant, Now
    from erelong.clock.timer import Timer
    from erelong.engine.agenda import Agenda, Settable
    from erelong.engine.window.handover import Handover
    from erelong.telemetry.metrics import Metrics

MAX_POP = 500  # a lap: more would keep the API waiting
BUSY_LAP = 0.002  # seconds between two laps that found jobs, on average: more often is a rush
WAKE_FLOOR = 0.001  # what a job may be late in a rush, where each lap's way to the disk and back is shared by more

_seq_of = itemgetter(1)

log = get_logger(__name__)


class Scheduler:
    """Moves jobs from the agenda into their lanes, on the dot."""

    name = "scheduler"

    def __init__(
        self,
        *,
        agenda: Agenda,
        rechecks: Agenda,
        handover: Handover,
        timer: Timer,
        refill: Settable,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._agenda = agenda
        self._rechecks = rechecks
        self._handover = handover
        self._timer = timer
        self._refill = refill
        self._metrics = metrics
        self._now = now
        self._last_lap = -math.inf
        self._between_laps = 10 * BUSY_LAP
        self.aside = handover.aside
        self.looked_at = 0.0  # when it last looked at the agenda, on the monotonic clock
        self.last_jump: float | None = None
        self.jumped_at = 0.0

    @property
    def next_due(self) -> Instant | None:
        """When it must wake next; None if nothing waits."""
        earliest = min(self._agenda.earliest, self._rechecks.earliest)
        return None if earliest == NEVER else earliest

    async def ready(self) -> None:
        """Wait until something is due, or a change or a step of the clock makes another look worth it."""
        self.looked_at = asyncio.get_running_loop().time()
        earliest = min(self._agenda.earliest, self._rechecks.earliest)
        if earliest > self._now():
            until = None if earliest == NEVER else earliest
            if await self._timer.wait(until) is Wake.STEPPED:
                self._note_jump()

    async def lap(self) -> None:
        """Hand over what is due, at most `MAX_POP` jobs."""
        now, self.looked_at = self._now(), asyncio.get_running_loop().time()
        again = self._rechecks.pop(now, MAX_POP // 2) if self._rechecks.earliest <= now else []
        popped = again + self._agenda.pop(now, MAX_POP - len(again))
        if self._agenda.edge[0] <= now:
            self._refill.set()
        if popped:
            try:
                seqs = [*dict.fromkeys(map(_seq_of, popped))]
                await self._handover.hand_over(seqs, now, again={*map(_seq_of, again)})
            except BaseException:
                self._rechecks.extend(popped)
                raise
            await asyncio.sleep(WAKE_FLOOR if self._is_rush(len(popped)) else 0)

    def _is_rush(self, popped: int) -> bool:
        """Whether jobs come due so fast that to wait for a few is cheaper; not while there are more at hand."""
        tick = asyncio.get_running_loop().time()
        self._between_laps += (min(tick - self._last_lap, 10 * BUSY_LAP) - self._between_laps) / 16
        self._last_lap = tick
        return self._between_laps < BUSY_LAP and popped < MAX_POP

    def _note_jump(self) -> None:
        jump = self._timer.jump
        if abs(jump) < 1:
            return
        self.last_jump, self.jumped_at = jump, asyncio.get_running_loop().time()
        self._metrics.clock_jumps.values[()] += 1
        log.warning(
            "clock_jumped",
            seconds=round(jump, 3),
            effect="what waits is due sooner" if jump > 0 else "what waits, waits longer",
        )
