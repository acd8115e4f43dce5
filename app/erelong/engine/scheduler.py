"""The one coroutine that owns the popping: sleep until due or changed, then hand over; expire what is too late."""

from __future__ import annotations

import asyncio
import math
from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.clock.timer import Wake
from erelong.duties.duty import SetAside, in_halves
from erelong.errors import StoreRefused
from erelong.model.job import SECOND, Job, State
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.clock.timer import Timer
    from erelong.engine.agenda import Agenda
    from erelong.engine.changes import Changes
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Glance, Store
    from erelong.telemetry.metrics import Metrics

MAX_POP = 500  # a lap: more would keep the API waiting
LOAD_PAGE = 20_000
BUSY_LAP = 0.002  # seconds between two laps that found jobs, on average: more often is a rush
WAKE_FLOOR = 0.001  # what a job may be late in a rush, where each lap's way to the disk and back is shared by more
STORE_PAUSE = 0.5
FOREVER = 1 << 62

_seq_of = itemgetter(1)

log = get_logger(__name__)


class Scheduler:
    """Moves jobs from the agenda into their lanes, on the dot."""

    name = "scheduler"

    def __init__(
        self, *, agenda: Agenda, store: Store, lanes: Lanes, timer: Timer, changes: Changes, metrics: Metrics, now: Now
    ) -> None:
        self._agenda = agenda
        self._store = store
        self._lanes = lanes
        self._timer = timer
        self._changes = changes
        self._metrics = metrics
        self._now = now
        self._last_lap = -math.inf
        self._between_laps = 10 * BUSY_LAP
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)
        self.looked_at = 0.0  # when it last looked at the agenda, on the monotonic clock
        self.last_jump: float | None = None
        self.jumped_at = 0.0

    async def load(self) -> int:
        """Fill the agenda from the store; return how many instants it holds."""
        after, page = (-1, -1), LOAD_PAGE
        while page == LOAD_PAGE:
            instants = await self._store.due(after, FOREVER, LOAD_PAGE)
            self._agenda.extend(instants)
            page = len(instants)
            after = instants[-1] if instants else after
        return len(self._agenda)

    async def ready(self) -> None:
        """Wait until something is due, or a change or a step of the clock makes another look worth it."""
        self.looked_at = asyncio.get_running_loop().time()
        next_due = self._agenda.next_due()
        if (next_due is None or next_due > self._now()) and await self._timer.wait(next_due) is Wake.STEPPED:
            self._note_jump()

    async def lap(self) -> None:
        """Hand over what is due, at most `MAX_POP` jobs."""
        now, self.looked_at = self._now(), asyncio.get_running_loop().time()
        popped = self._agenda.pop(now, MAX_POP)
        if popped:
            await self._hand_over(popped, now)
            await asyncio.sleep(WAKE_FLOOR if self._is_rush(len(popped)) else 0)

    def _is_rush(self, popped: int) -> bool:
        """Whether jobs come due so fast that to wait for a few is cheaper; not while there are more at hand."""
        tick = asyncio.get_running_loop().time()
        self._between_laps += (min(tick - self._last_lap, 10 * BUSY_LAP) - self._between_laps) / 16
        self._last_lap = tick
        return self._between_laps < BUSY_LAP and popped < MAX_POP

    async def _hand_over(self, popped: list[tuple[Instant, int]], now: Instant) -> None:
        """Put jobs that are due into their lanes; drop the entries of those that were cancelled or moved meanwhile."""
        expired: list[int] = []

        async def sort_out(seqs: Sequence[int]) -> None:
            expired.extend(self._sort_out(await self._store.glance(seqs), now))

        try:
            failed = await in_halves(list(dict.fromkeys(map(_seq_of, popped))), sort_out)
        except BaseException:
            self._agenda.extend(popped)
            raise
        try:
            if expired:
                failed += await in_halves(expired, self._expire)
        except BaseException:
            self._agenda.extend([(now, seq) for seq in expired])
            raise
        finally:
            if failed:
                self._put_aside(failed)

    def _sort_out(self, waiting: Sequence[Glance], now: Instant) -> list[int]:
        """Put what may start into its lane; return the numbers of those that have expired.

        `now` is that of the popping: if the clock has been stepped back since, the claim will see that it is early.
        """
        expired, due = [], []
        for job in waiting:
            if job.expires_at is not None and job.expires_at <= now:
                expired.append(job.seq)
            elif job.due_at <= now:
                due.append(job)
                if job.expires_at is not None:
                    self._agenda.add(job.expires_at, job.seq)
        self._lanes.put(*due)
        return expired

    async def _expire(self, seqs: Sequence[int]) -> None:
        now = self._now()
        jobs = await self._store.get(seqs)
        over = [job for job in jobs.values() if job.state is State.SCHEDULED and _is_over(job, now)]
        expired = [job.expire(now) for job in over]
        for before, after, verdict in zip(over, expired, await self._store.save(expired), strict=True):
            if verdict.is_saved:
                self._changes.changed(before, after)
        if len(jobs) < len(seqs) > 1:
            raise StoreRefused("some of these jobs cannot be read")  # asked alone, each says why
        self.aside.remove(seqs)

    def _put_aside(self, failed: Sequence[tuple[int, Exception]]) -> None:
        """Look again later at jobs that cannot be read or written, each by itself."""
        now = self._now()
        self._agenda.extend([(now + round(self.aside.add(seq, error) * SECOND), seq) for seq, error in failed])

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


def _is_over(job: Job, now: Instant) -> bool:
    return job.expires_at is not None and job.expires_at <= now
