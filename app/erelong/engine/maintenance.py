"""Duties that remove old jobs, idempotency records, stale agenda entries and idle queues."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside, in_halves
from erelong.errors import StoreRefused
from erelong.model.job import SECOND, State
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.engine.agenda import Agenda
    from erelong.engine.changes import Changes
    from erelong.lanes.lanes import Lanes
    from erelong.model.job import Job
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

PURGE_SLICE = 500
MANY_STALE = 100_000  # 1.6 MB
TIDY_AFTER = 60 * SECOND

log = get_logger(__name__)


class Sweep:
    """Work that runs every `interval` seconds."""

    def __init__(self, *, interval: float) -> None:
        self._interval = interval

    async def ready(self) -> None:
        await asyncio.sleep(self._interval)


class Retention(Sweep):
    """Deletes final jobs when the retention of their queue is over.

    Each queue is swept by itself. A queue whose sweep failed is swept last the next time.
    """

    name = "retention"

    def __init__(
        self, *, store: Store, lanes: Lanes, changes: Changes, metrics: Metrics, now: Now, interval: float
    ) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._lanes = lanes
        self._changes = changes
        self._metrics = metrics
        self._now = now
        self._failed: set[tuple[str, State]] = set()
        self.aside: SetAside[object] = SetAside(name=self.name, metrics=metrics)

    async def lap(self) -> None:
        await self.sweep(self._now())

    async def sweep(self, now: Instant) -> int:
        """Delete the jobs past their retention, in slices that let other writes through; return their number."""
        purged = self._metrics.purged.values[()]

        async def purge(groups: Sequence[tuple[str, State]]) -> None:
            for group in groups:
                self._failed.add(group)
                await self._purge(*group, now)
                self._failed.discard(group)

        counts = dict(self._store.counts())
        groups = sorted({(queue, state) for (queue, _, state), jobs in counts.items() if jobs and state.is_final})
        self._failed.intersection_update(groups)
        groups.sort(key=self._failed.__contains__)
        for (queue, state), error in await in_halves(groups, purge):
            self.aside.add(f"queue {queue}, {state.word}", error)
        return self._metrics.purged.values[()] - purged

    async def _purge(self, queue: str, state: State, now: Instant) -> None:
        retention = self._lanes.settings(queue).retention
        kept = retention.succeeded if state is State.SUCCEEDED else retention.other
        before = now - round(kept * SECOND)

        async def purge(seqs: Sequence[int]) -> None:
            purged = await self._delete(seqs, before)
            self._metrics.purged.values[()] += purged
            self._lanes.departures.deleted[queue, state] += purged
            self.aside.remove(seqs)

        after = (-1, -1)
        while ended := await self._store.ended(queue, state, after=after, before=before, limit=PURGE_SLICE):
            for seq, error in await in_halves([seq for _, seq in ended], purge):
                self.aside.add(seq, error)
            after = ended[-1]
            await asyncio.sleep(0)
        self.aside.remove([f"queue {queue}, {state.word}"])

    async def _delete(self, seqs: Sequence[int], before: Instant) -> int:
        """Delete jobs; return their number. Read them first if a reader of events wants to know."""
        jobs: dict[int, Job] = {}
        is_told = self._changes.tells_deleted
        if is_told:
            with suppress(StoreRefused):  # a single unreadable job is deleted without an event
                jobs = await self._store.get(seqs)
        deleted = await self._store.purge(seqs, before=before)
        self._changes.purged([jobs[seq] for seq in deleted if seq in jobs])
        if deleted and not is_told and self._changes.tells_deleted:
            self._changes.untold()  # a reader has opened meanwhile
        return len(deleted)


class IdempotencyRecords(Sweep):
    """Deletes idempotency keys that are older than a day."""

    name = "idempotency_records"

    def __init__(self, *, store: Store, now: Now, interval: float) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._now = now

    async def lap(self) -> None:
        await self.sweep(self._now())

    async def sweep(self, now: Instant) -> None:
        deleted = PURGE_SLICE
        while deleted == PURGE_SLICE:
            deleted = await self._store.forget_records(now=now, limit=PURGE_SLICE)
            await asyncio.sleep(0)


class AgendaTidying(Sweep):
    """Drops stale agenda entries when they are the majority: each move of a job leaves one.

    Entries of the next minute stay. No valid entry is lost: an entry is added after its row is written, so the row read
    here is never older than the entry.
    """

    name = "agenda_tidying"

    def __init__(
        self, *, store: Store, agenda: Agenda, rechecks: Agenda, max_entries: int, now: Now, interval: float
    ) -> None:
        super().__init__(interval=interval)
        self._store = store
        self._agenda = agenda
        self._rechecks = rechecks
        self._max_entries = max_entries
        self._now = now

    async def lap(self) -> None:
        await self.tidy(self._now())

    async def tidy(self, now: Instant) -> int:
        """Return how many entries were dropped."""
        waiting = sum(jobs for (_, _, state), jobs in dict(self._store.counts()).items() if state is State.SCHEDULED)
        near = min(waiting, self._max_entries)
        return await self._tidy(self._agenda, near, now) + await self._tidy(self._rechecks, waiting, now)

    async def _tidy(self, agenda: Agenda, jobs: int, now: Instant) -> int:
        before = len(agenda)
        if before <= 2 * jobs + MANY_STALE:  # a job may have two: due time and expiry
            return 0
        soon = now + TIDY_AFTER
        for snapshot in agenda.snapshots(soon):
            waiting = await self._store.peek(list({seq for _, seq in snapshot.entries}))
            valid = {(instant, job.seq) for job in waiting for instant in (job.due_at, job.expires_at)}
            kept = dict.fromkeys(entry for entry in snapshot.entries if entry[0] <= soon or entry in valid)
            agenda.retain(snapshot, kept)
            await asyncio.sleep(0)
        log.info("agenda_tidied", before=before, after=len(agenda))
        return before - len(agenda)


class IdleQueues(Sweep):
    """Forgets idle queues in memory, since clients may invent any number of names."""

    name = "idle_queues"

    def __init__(self, *, lanes: Lanes, interval: float) -> None:
        super().__init__(interval=interval)
        self._lanes = lanes

    async def lap(self) -> None:
        self._lanes.forget_idle()
