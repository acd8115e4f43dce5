"""The only duty that pops the agenda: sleeps until a job is due, then hands it over."""

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
    from erelong.duties.signal import Settable
    from erelong.engine.agenda import Agenda
    from erelong.engine.window.handover import Handover
    from erelong.telemetry.metrics import Metrics
    from erelong.telemetry.notes import Notes

MAX_POP = 500  # per lap; more would delay the API
BUSY_LAP = 0.002  # average seconds between two laps with jobs; a shorter one is a rush
WAKE_FLOOR = 0.001  # added lateness in a rush, so that more jobs share the disk round trip of a lap

_seq_of = itemgetter(1)

log = get_logger(__name__)


class Scheduler:
    """Moves jobs from the agenda into their lanes at their due time."""

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
        notes: Notes,
        now: Now,
    ) -> None:
        self._agenda = agenda
        self._rechecks = rechecks
        self._handover = handover
        self._timer = timer
        self._refill = refill
        self._metrics = metrics
        self._notes = notes
        self._now = now
        self._last_lap = -math.inf
        self._between_laps = 10 * BUSY_LAP
        self.is_hurried = False  # whether no job should wait for later ones
        self.aside = handover.aside
        self.checked_at = 0.0  # when it last checked the agenda, on the monotonic clock
        self.last_jump: float | None = None
        self.jumped_at = 0.0

    @property
    def next_due(self) -> Instant | None:
        """Return when it must wake next; None if the agenda is empty."""
        earliest = min(self._agenda.earliest, self._rechecks.earliest)
        return None if earliest == NEVER else earliest

    def is_settled(self) -> bool:
        return min(self._agenda.earliest, self._rechecks.earliest) > self._now()

    async def ready(self) -> None:
        """Wait until an entry is due, the agenda has an earlier entry, or the clock was stepped."""
        self.checked_at = asyncio.get_running_loop().time()
        earliest = min(self._agenda.earliest, self._rechecks.earliest)
        if earliest > self._now():
            until = None if earliest == NEVER else earliest
            if await self._timer.wait(until) is Wake.STEPPED:
                self._note_jump()

    async def lap(self) -> None:
        """Hand over at most `MAX_POP` due jobs."""
        now, self.checked_at = self._now(), asyncio.get_running_loop().time()
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
        """Return whether jobs come due so fast that waiting for a few saves work; not while more are due."""
        tick = asyncio.get_running_loop().time()
        self._between_laps += (min(tick - self._last_lap, 10 * BUSY_LAP) - self._between_laps) / 16
        self._last_lap = tick
        return self._between_laps < BUSY_LAP and popped < MAX_POP and not self.is_hurried

    def _note_jump(self) -> None:
        jump = self._timer.jump
        if abs(jump) < 1:
            return
        self.last_jump, self.jumped_at = jump, asyncio.get_running_loop().time()
        self._metrics.clock_jumps.values[()] += 1
        self._notes.add("clock_stepped", detail=f"{jump:+.1f} s")
        log.warning(
            "clock_jumped",
            seconds=round(jump, 3),
            effect="waiting jobs start sooner" if jump > 0 else "waiting jobs wait longer",
        )
