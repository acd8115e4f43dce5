"""The one coroutine that owns the popping: sleep until due or changed, then hand over; and the keeping of promises
about time that follow from it: expiry and retention."""

from __future__ import annotations

import asyncio
import math
from operator import itemgetter
from typing import TYPE_CHECKING

from app.alarm import Wake
from app.errors import Problem, StorageFull
from app.job import SECOND, Job, State
from app.log import get_logger
from app.outcome import End, Outcome
from app.reports import report_loss
from app.stores.base import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.agenda import Agenda
    from app.alarm import Alarm
    from app.clock import Instant, Now
    from app.lanes import Lanes
    from app.metrics import Metrics
    from app.stores.base import Glance, Store

MAX_POP = 500  # a lap: more would keep the API waiting
LOAD_PAGE = 20_000
PURGE_SLICE = 500
STORE_PAUSE = 1.0
BUSY_LAP = 0.002  # seconds between two laps that found jobs, on average: more often is a rush
WAKE_FLOOR = 0.001  # what a job may be late in a rush, where each lap's way to the disk and back is shared by more
MANY_STALE = 100_000  # 1.6 MB
TIDY_AFTER = 60 * SECOND
MEMO_LIFE = 24 * 3600 * SECOND
FOREVER = 1 << 62

_seq_of = itemgetter(1)

log = get_logger(__name__)


class Scheduler:
    """Moves jobs from the agenda into their lanes, on the dot. `on_change` hears of the jobs that expire."""

    def __init__(
        self,
        *,
        agenda: Agenda,
        store: Store,
        lanes: Lanes,
        alarm: Alarm,
        metrics: Metrics,
        now: Now,
        on_change: Callable[[*tuple[Job, ...]], None],
    ) -> None:
        self._agenda = agenda
        self._store = store
        self._lanes = lanes
        self._alarm = alarm
        self._metrics = metrics
        self._now = now
        self._on_change = on_change
        self._lost: list[Job] = []
        self._last_lap = -math.inf
        self._between_laps = 10 * BUSY_LAP
        self.lapped_at = 0.0  # when the last lap began, on the monotonic clock
        self.is_handing_over = False
        self.failures = 0  # laps in a row
        self.last_jump: float | None = None
        self.jumped_at = 0.0

    async def load(self) -> int:
        """Fill the agenda from the store, and see to what ran when the service last stopped."""
        self._lost = await self._running()
        try:
            await self._recover(self._now())
        except Problem as problem:  # a full disk: what can be read is served, the laps try again
            log.warning("recovery_put_off", problem=problem.code, jobs=len(self._lost))
        after, page = (-1, -1), LOAD_PAGE
        while page == LOAD_PAGE:
            instants = await self._store.due(after, FOREVER, LOAD_PAGE)
            self._agenda.extend(instants)
            page = len(instants)
            after = instants[-1] if instants else after
        return len(self._agenda)

    async def _running(self) -> list[Job]:
        """What the store has as running here; as nothing does at the start, all of it is lost."""
        running: list[Job] = []
        page, after = PURGE_SLICE, None
        while page == PURGE_SLICE:
            query = Query(states=frozenset({State.RUNNING}), limit=PURGE_SLICE, is_full=True, after=after)
            jobs = await self._store.list(query)
            running += [job for job in jobs if job.lease is None or not self._lanes.is_pull(job.kind)]  # or lent
            page = len(jobs)
            after = (0, jobs[-1].seq) if jobs else None
        return running

    async def _recover(self, now: Instant) -> None:
        """What was running is lost: due again at once."""
        while self._lost:
            lost = [job.finish(Outcome(End.LOST), now) for job in self._lost[:PURGE_SLICE]]
            for job, verdict in zip(lost, await self._store.save(lost), strict=True):
                if verdict.is_saved:
                    self._note_loss(job)
            del self._lost[:PURGE_SLICE]

    def _note_loss(self, job: Job) -> None:
        report_loss(job)
        self._metrics.ended.values[job.kind, End.LOST] += 1
        if (wakes_at := job.wakes_at) is not None:
            self._agenda.add(wakes_at, job.seq)
        else:
            self._metrics.finished.values[job.kind, job.state.word] += 1
        self._on_change(job)

    async def run(self) -> None:
        """Lap after lap, for ever; one that fails is logged, counted and repeated."""
        while True:
            try:
                await self._lap()
                self.failures = 0
            except Exception as error:
                self._metrics.laps_failed.values["schedule",] += 1
                if isinstance(error, Problem):
                    log.warning("lap_failed", problem=error.code, detail=error.detail)
                else:
                    log.error("lap_failed", exc_info=error)
                if not isinstance(error, StorageFull):  # which the store tells of, and reads go on
                    self.failures += 1
                await asyncio.sleep(STORE_PAUSE)

    async def _lap(self) -> None:
        now, self.lapped_at = self._now(), asyncio.get_running_loop().time()
        if self._lost:
            await self._recover(now)
        popped = self._agenda.pop(now, MAX_POP)
        if popped:
            await self._hand_over(popped, now)
            await asyncio.sleep(WAKE_FLOOR if self._is_rush(len(popped)) else 0)
        elif await self._alarm.wait(self._agenda.next_due()) is Wake.STEPPED:
            self._note_jump()

    def _is_rush(self, popped: int) -> bool:
        """Whether jobs come due so fast that to wait for a few is cheaper; not while there are more at hand."""
        tick = asyncio.get_running_loop().time()
        self._between_laps += (min(tick - self._last_lap, 10 * BUSY_LAP) - self._between_laps) / 16
        self._last_lap = tick
        return self._between_laps < BUSY_LAP and popped < MAX_POP

    async def _hand_over(self, popped: list[tuple[Instant, int]], now: Instant) -> None:
        """Jobs that are due go to their lanes; what was cancelled or moved meanwhile is dropped."""
        self.is_handing_over = True
        try:
            expired = self._sort_out(await self._store.glance(list(dict.fromkeys(map(_seq_of, popped)))), now)
            if expired:
                await self._expire(expired, now)
        except BaseException:
            self._agenda.extend(popped)
            raise
        finally:
            self.is_handing_over = False

    def _sort_out(self, waiting: Sequence[Glance], now: Instant) -> list[int]:
        """Put what may start into its lane; the numbers of those that have expired come back.

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

    async def _expire(self, seqs: Sequence[int], now: Instant) -> None:
        jobs = (await self._store.get(seqs)).values()
        expired = [job.expire(now) for job in jobs if job.state is State.SCHEDULED and _is_over(job, now)]
        for verdict in await self._store.save(expired):
            job = verdict.job
            if verdict.is_saved and job is not None:
                self._lanes.discard(job.queue, job.seq)
                self._metrics.finished.values[job.kind, job.state.word] += 1
                self._on_change(job)

    def _note_jump(self) -> None:
        jump = self._alarm.jump
        if abs(jump) < 1:
            return
        self.last_jump, self.jumped_at = jump, asyncio.get_running_loop().time()
        self._metrics.clock_jumps.values[()] += 1
        log.warning(
            "clock_jumped",
            seconds=round(jump, 3),
            effect="what waits is due sooner" if jump > 0 else "what waits, waits longer",
        )

    # retention

    async def retain(self, interval: float) -> None:
        """Forget, again and again, what has been kept long enough."""
        while True:
            await asyncio.sleep(interval)
            try:
                await self.purge_once(self._now())
                await self.tidy(self._now())
            except Exception as error:
                self._metrics.laps_failed.values["retain",] += 1
                log.error("retention_failed", exc_info=error)

    async def tidy(self, now: Instant) -> int:
        """Drop stale entries when they are most of the agenda: one job may be moved for ever, and each time leaves one.

        Those of the next minute stay. No entry is lost, as it is put in after its row is written: what was looked at
        before has another row by then, and comes as an entry of its own.
        """
        waiting = sum(jobs for (_, _, state), jobs in dict(self._store.counts()).items() if state is State.SCHEDULED)
        before = len(self._agenda)
        if before <= 2 * waiting + MANY_STALE:  # a job may have two: for its time and for its expiry
            return 0
        soon = now + TIDY_AFTER
        for stretch in self._agenda.stretches(soon):
            jobs = await self._store.glance(list({seq for _, seq in stretch.entries}))
            true = {(instant, job.seq) for job in jobs for instant in (job.due_at, job.expires_at)}
            kept = dict.fromkeys(entry for entry in stretch.entries if entry[0] <= soon or entry in true)
            self._agenda.sift(stretch, kept)
            await asyncio.sleep(0)
        log.info("agenda_tidied", before=before, after=len(self._agenda))
        return before - len(self._agenda)

    async def purge_once(self, now: Instant) -> int:
        """One sweep over all queues, in slices that leave the writer free for others."""
        purged = 0
        ended = {(queue, state) for (queue, _, state), jobs in dict(self._store.counts()).items() if jobs and state > 1}
        for queue, state in sorted(ended):
            retention = self._lanes.settings(queue).retention
            kept = retention.succeeded if state is State.SUCCEEDED else retention.other
            before = now - round(kept * SECOND)
            while gone := await self._store.purge(queue, state, before=before, limit=PURGE_SLICE):
                purged += gone
                await asyncio.sleep(0)
        forgotten = PURGE_SLICE
        while forgotten == PURGE_SLICE:
            forgotten = await self._store.forget_memos(before=now - MEMO_LIFE, limit=PURGE_SLICE)
        self._lanes.forget_idle()
        self._metrics.purged.values[()] += purged
        return purged


def _is_over(job: Job, now: Instant) -> bool:
    return job.expires_at is not None and job.expires_at <= now
