"""Re-reads jobs and queues after a write whose result is unknown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from erelong.duties.duty import SetAside, in_halves
from erelong.errors import StoreRefused
from erelong.model.ids import MAX_SEQ
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Query
from erelong.stores.base import Claim, Ending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from erelong.clock.instants import Now
    from erelong.engine.changes import Changes
    from erelong.engine.completer import Completer
    from erelong.engine.leases import HeldLeases
    from erelong.engine.overrides import Overrides
    from erelong.engine.unknown_writes import Doubts, UnknownWrites
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

STORE_PAUSE = 0.5
PAGE = 500
WAITING = frozenset({State.SCHEDULED})

T = TypeVar("T")


class Reconciler:
    """Applies the stored state as soon as the store answers. An attempt that was claimed but is not running is
    released.
    """

    name = "reconciler"

    def __init__(
        self,
        *,
        store: Store,
        unknown_writes: UnknownWrites,
        completer: Completer,
        changes: Changes,
        leases: HeldLeases,
        overrides: Overrides,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._store = store
        self._unknown_writes = unknown_writes
        self._completer = completer
        self._changes = changes
        self._leases = leases
        self._overrides = overrides
        self._now = now
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)

    def is_settled(self) -> bool:
        return not self._unknown_writes

    async def ready(self) -> None:
        """Wait for a write whose result is unknown, then pause so that the store can recover."""
        await self._unknown_writes.has_some.wait()
        await asyncio.sleep(STORE_PAUSE)

    async def lap(self) -> None:
        """Re-read jobs and keys after writes whose result is unknown. Failed reads stay queued.

        A write that failed while the store hung takes effect later, so reading waits until the store has done it. The
        lap leaves doubts that arise meanwhile to the next one.
        """
        doubts = self._unknown_writes.take()
        if not doubts:
            return
        try:
            await self._store.settle()
            await self._reread_jobs(doubts)
            await self._each(doubts.keys, self._reread_holder)
            await self._reread_new(doubts)
            await self._each(doubts.queues, self._overrides.reload)
        finally:
            if doubts:
                self._unknown_writes.note(doubts)

    async def _each(self, doubted: set[T], reread: Callable[[T], Awaitable[None]]) -> None:
        while doubted:
            item = doubted.pop()
            try:
                await reread(item)
            except BaseException:
                doubted.add(item)
                raise

    async def _reread_jobs(self, doubts: Doubts) -> None:
        async def reread(seqs: Sequence[int]) -> None:
            jobs = await self._store.get(seqs)
            if len(jobs) < len(seqs) > 1:
                raise StoreRefused("some of these jobs cannot be read")  # a single read raises the reason
            for seq in seqs:
                self._apply(seq, jobs.get(seq), doubts)
                doubts.pop(seq)
            self.aside.remove(seqs)

        for seq, error in await in_halves(doubts.seqs, reread):
            pause = self.aside.add(seq, error)
            asyncio.get_running_loop().call_later(pause, self._unknown_writes.note, doubts.pop(seq))

    def _apply(self, seq: int, job: Job | None, doubts: Doubts) -> None:
        if (queue := doubts.changed.get(seq)) is not None:
            self._reread(queue, seq, job)
        if job is None or seq not in doubts.claimed:
            return
        if job.state is State.RUNNING and job.lease is None and job.started_at in doubts.claims:
            self._changes.untold()
            self._completer.add(Ending(job, Outcome(End.RELEASED), self._now()))
        elif job.state is State.FAILED and job.finished_at in doubts.claims:  # the claim could not read it
            self._changes.not_claimed(Claim([], [], [job]))

    async def _reread_holder(self, held: tuple[str, str]) -> None:
        queue, key = held
        if (holder := await self._store.holder(queue, key)) is not None:
            self._reread(queue, holder.seq, holder)

    async def _reread_new(self, doubts: Doubts) -> None:
        """Re-read waiting jobs from the newest down to the last known one. Others may have begun since."""
        since = doubts.since
        if since is None:
            return
        after, page = (0, MAX_SEQ), PAGE
        while page == PAGE and after[1] > since:
            jobs = await self._store.list(Query(states=WAITING, after=after, limit=PAGE))
            self._reread_all([job for job in jobs if job.seq > since])
            page = len(jobs)
            after = (0, jobs[-1].seq) if jobs else after
        doubts.since = None
        self._changes.untold()

    def _reread_all(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._reread(job.queue, job.seq, job)

    def _reread(self, queue: str, seq: int, job: Job | None) -> None:
        self._changes.reread(queue, seq, job)
        self._leases.reread(seq, job)
