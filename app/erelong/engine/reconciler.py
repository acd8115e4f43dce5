"""Writes that failed and may have been done all the same: what they were about is looked at again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from erelong.duties.duty import SetAside, in_halves
from erelong.errors import IdempotencyMismatch, StorageFull, StoreRefused
from erelong.model.ids import MAX_SEQ
from erelong.model.job import Job, State
from erelong.model.query import Query

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from erelong.clock.instants import Instant
    from erelong.model.submission import Memo, Offer, Receipt
    from erelong.stores.base import Claim, Ending, Override, Store, Verdicts
    from erelong.telemetry.metrics import Metrics

STORE_PAUSE = 0.5
PAGE = 500
MAX_KEYS = 1_000
SURELY_UNDONE = (StorageFull, IdempotencyMismatch)
LIVE = frozenset({State.SCHEDULED, State.RUNNING})
WAITING = frozenset({State.SCHEDULED})

T = TypeVar("T")


class Doubts:
    """Jobs and queues of which memory may know less than the store.

    When the store answers again `on_begun` hears of each attempt that began and that nobody runs, `on_look` of each
    job as it is now (None: gone), and `on_override` reads anew what is set for a queue.
    """

    name = "reconciler"

    def __init__(
        self,
        *,
        store: Store,
        metrics: Metrics,
        on_begun: Callable[[Job], None],
        on_look: Callable[[str, int, Job | None], None],
        on_override: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)
        self._on_begun = on_begun
        self._on_look = on_look
        self._on_override = on_override
        self._begun: dict[int, Instant] = {}
        self._changed: dict[int, str] = {}  # the queue of each job
        self._keys: set[tuple[str, str]] = set()
        self._since: int | None = None  # jobs with a higher number may be new
        self._queues: set[str] = set()
        self.newest = 0  # the highest number that is known to be taken
        self._has_some = asyncio.Event()

    async def load(self) -> None:
        self.newest = max([job.seq for job in await self._store.list(Query(limit=1))], default=0)

    # what is in doubt

    def begun(self, seqs: Sequence[int], now: Instant) -> None:
        """A claim failed."""
        self._begun |= dict.fromkeys(seqs, now)
        self._has_some.set()

    def changed(self, jobs: Sequence[Job]) -> None:
        """A save, a finish or a delete failed."""
        self._changed |= {job.seq: job.queue for job in jobs}
        self._has_some.set()

    def added(self, offers: Sequence[Offer], newest: int) -> None:
        """An add failed; `newest` is a number that no job of it can have."""
        self._keys |= {(offer.job.queue, offer.job.key) for offer in offers if offer.job.key is not None}
        self._doubt_all_since(newest)
        if len(self._keys) > MAX_KEYS:
            self._keys.clear()
            self._since = 0  # all that waits: cheaper than so many questions
        self._has_some.set()

    def overridden(self, queue: str) -> None:
        """An override failed."""
        self._queues.add(queue)
        self._has_some.set()

    # looking again

    async def ready(self) -> None:
        """Wait for a write in doubt, and a moment longer."""
        await self._has_some.wait()
        await asyncio.sleep(STORE_PAUSE)

    async def lap(self) -> None:
        """Ask the store about everything in doubt; what it does not answer stays so, and what comes into doubt
        while it answers is asked for again."""
        if self._begun or self._changed:
            await self._look_at_jobs()
        await self._look_at_each(self._keys, self._look_at_key)
        await self._look_at_new()
        await self._look_at_each(self._queues, self._on_override)
        if not (self._begun or self._changed or self._keys or self._queues or self._since is not None):
            self._has_some.clear()

    async def _look_at_each(self, doubted: set[T], look: Callable[[T], Awaitable[None]]) -> None:
        while doubted:
            one = doubted.pop()
            try:
                await look(one)
            except BaseException:
                doubted.add(one)
                raise

    async def _look_at_key(self, held: tuple[str, str]) -> None:
        queue, key = held
        self._look_at(await self._store.list(Query(states=LIVE, queues=frozenset({queue}), key=key, limit=1)))

    async def _look_at_jobs(self) -> None:
        begun, changed = self._begun, self._changed
        self._begun, self._changed = {}, {}

        async def look(seqs: Sequence[int]) -> None:
            jobs = await self._store.get(seqs)
            if len(jobs) < len(seqs) > 1:
                raise StoreRefused("some of these jobs cannot be read")  # asked alone, each says why
            for seq in seqs:
                self._look_at_job(seq, jobs.get(seq), begun.pop(seq, None), changed.pop(seq, None))
            self.aside.remove(seqs)

        try:
            for seq, error in await in_halves([*{**begun, **changed}], look):
                pause = self.aside.add(seq, error)
                asyncio.get_running_loop().call_later(
                    pause, self._try_again, seq, begun.pop(seq, None), changed.pop(seq, None)
                )
        finally:
            self._begun, self._changed = {**begun, **self._begun}, {**changed, **self._changed}

    def _look_at_job(self, seq: int, job: Job | None, started_at: Instant | None, queue: str | None) -> None:
        if queue is not None:
            self._on_look(queue, seq, job)
        if job is not None and (job.state, job.started_at, job.lease) == (State.RUNNING, started_at, None):
            self._on_begun(job)

    def _try_again(self, seq: int, started_at: Instant | None, queue: str | None) -> None:
        if started_at is not None:
            self._begun.setdefault(seq, started_at)
        if queue is not None:
            self._changed.setdefault(seq, queue)
        self._has_some.set()

    async def _look_at_new(self) -> None:
        """Walk over what waits from the newest down to what was known before."""
        since, self._since = self._since, None
        if since is None:
            return
        after, page = (0, MAX_SEQ), PAGE
        try:
            while page == PAGE and after[1] > since:
                jobs = await self._store.list(Query(states=WAITING, after=after, limit=PAGE))
                self._look_at([job for job in jobs if job.seq > since])
                page = len(jobs)
                after = (0, jobs[-1].seq) if jobs else after
        except BaseException:
            self._doubt_all_since(since)
            raise

    def _doubt_all_since(self, seq: int) -> None:
        self._since = seq if self._since is None else min(seq, self._since)

    def _look_at(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._on_look(job.queue, job.seq, job)


class DoubtedStore:
    """A store before another, which notes the writes that fail. A full disk leaves no doubt: nothing was done."""

    def __init__(self, *, store: Store, doubts: Doubts) -> None:
        self._store = store
        self._doubts = doubts
        self.open, self.close, self.ailment, self.end = store.open, store.close, store.ailment, store.end
        self.ended, self.purge, self.forget_memos = store.ended, store.purge, store.forget_memos  # done again anyway
        self.recall, self.get, self.glance, self.list = store.recall, store.get, store.glance, store.list
        self.due, self.counts, self.overrides = store.due, store.counts, store.overrides

    async def add(
        self, offers: Sequence[Offer], *, now: Instant, is_whole: bool = False, memo: Memo | None = None
    ) -> Receipt:
        newest = self._doubts.newest
        try:
            receipt = await self._store.add(offers, now=now, is_whole=is_whole, memo=memo)
        except SURELY_UNDONE:
            raise
        except BaseException:
            self._doubts.added(offers, newest)
            raise
        last = receipt.entries[-1] if receipt.entries else None
        if last is not None and last.job.seq > newest:
            self._doubts.newest = max(last.job.seq, self._doubts.newest)
        return receipt

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        try:
            return await self._store.claim(seqs, now=now)
        except SURELY_UNDONE:
            raise
        except BaseException:
            self._doubts.begun(seqs, now)
            raise

    async def save(self, jobs: Sequence[Job]) -> Verdicts:
        try:
            return await self._store.save(jobs)
        except SURELY_UNDONE:
            raise
        except BaseException:
            self._doubts.changed(jobs)
            raise

    async def finish(self, endings: Sequence[Ending]) -> Verdicts:
        try:
            return await self._store.finish(endings)
        except SURELY_UNDONE:
            raise
        except BaseException:
            self._doubts.changed([ending.job for ending in endings])
            raise

    async def delete(self, job: Job) -> bool:
        try:
            return await self._store.delete(job)
        except SURELY_UNDONE:
            raise
        except BaseException:
            self._doubts.changed([job])
            raise

    async def override(self, queue: str, override: Override | None) -> None:
        try:
            await self._store.override(queue, override)
        except SURELY_UNDONE:
            raise
        except BaseException:
            self._doubts.overridden(queue)
            raise
