"""The PostgreSQL store: one fenced session writes, readers beside it."""

from __future__ import annotations

import asyncio
from operator import add, or_
from typing import TYPE_CHECKING, Any

from erelong.errors import DocumentChanged, IdempotencyMismatch, NotLeading
from erelong.model.submission import AddStatus
from erelong.stores.base import FINISHED, Claim, Saved, peeks_of
from erelong.stores.cache import MAX_AT_ONCE, JobCache
from erelong.stores.group_thread import GroupThread, Split
from erelong.stores.postgres.connection import connect
from erelong.stores.postgres.counts import Counts
from erelong.stores.postgres.failures import TAKEN_OVER, TermLost, Unsettled, as_exit, as_problem
from erelong.stores.postgres.migrations import prepare
from erelong.stores.postgres.operations import (
    Add,
    ClaimJobs,
    Delete,
    DeleteAll,
    Finish,
    ForgetRecords,
    Purge,
    Save,
    SaveWhole,
    SetOverride,
    Settle,
)
from erelong.stores.postgres.readers import QuickReads, SlowReads
from erelong.stores.postgres.server_checks import check_server
from erelong.stores.postgres.session import WriteSession
from erelong.stores.postgres.terms import TTL, Term
from erelong.stores.postgres.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.clock.remote import RemoteClock
    from erelong.errors import Exit
    from erelong.model.document import Document
    from erelong.model.job import Job, State
    from erelong.model.query import Query
    from erelong.model.submission import IdempotencyRecord, NewJob, Receipt
    from erelong.stores.base import (
        Also,
        Bins,
        Documents,
        Ending,
        Found,
        Group,
        Instants,
        Override,
        Peeks,
        Seqs,
        Spread,
        Tally,
        Verdicts,
    )
    from erelong.telemetry.metrics import GroupTimer

WRITTEN = (AddStatus.ADDED, AddStatus.CHANGED)
QUICK_PATIENCE = 3.0
_ONE = Split(or_, None, lambda jobs, seqs, _: {seq: jobs[seq] for seq in seqs if seq in jobs})
_SOME = Split(or_, {})
_PEEKS = Split(add, [])
_VERDICTS = Split(add, [Saved(False, None)])
_PURGED = Split(add, [])
_CLAIMS = Split(lambda one, other: Claim._make(map(add, one, other)), Claim([], [], []))


class PostgresStore:
    """Keeps jobs in PostgreSQL, which this process alone writes while its term lasts. Before, it can read."""

    def __init__(
        self,
        *,
        url: str,
        durability: str = "full",
        must_exist: bool = False,
        timeout: float = 30.0,
        timer: GroupTimer | None = None,
        is_virtual: bool = False,
        may_lead: bool = True,
        ttl: float = TTL,
    ) -> None:
        """`ttl` is how many seconds a term lasts without a renewal."""
        self._url = url
        self._durability = durability
        self._must_exist = must_exist
        self._is_virtual = is_virtual
        self._term = Term(url=url, may_lead=may_lead, ttl=ttl)
        self._counts = Counts()
        self._session = WriteSession(url=url, node=self._term.node)
        self._writes = Writer(session=self._session, counts=self._counts, node=self._term.node)
        self._quick = QuickReads(url=url, role="0/reader", by_number=True, patience=QUICK_PATIENCE)
        self._slow = SlowReads(url=url, role="0/lister", by_number=False, patience=timeout)
        self._writer = GroupThread(name="store-writer", work=self._writes, timer=timer, timeout=timeout)
        self._reader = GroupThread(name="store-reader", work=self._quick, timeout=timeout)
        self._lister = GroupThread(name="store-lister", work=self._slow, timeout=timeout)
        self._cache = JobCache()
        self.leads = False

    @property
    def clock(self) -> RemoteClock:
        """The clock of the database, by which jobs are due."""
        return self._term.clock

    @property
    def is_vacant(self) -> bool:
        return self._term.is_vacant

    @property
    def snapshot_age(self) -> float:
        return self._slow.snapshots.age

    @property
    def looks(self) -> int:
        return self._term.looks

    @property
    def may_lead(self) -> bool:
        return self._term.may_lead

    async def open(self) -> None:
        """Open for reading; lead if no other node does."""
        self._writes.start()
        await asyncio.get_running_loop().run_in_executor(None, self._open)
        self._term.start()
        self._reader.start()
        self._lister.start()
        if self._term.is_mine:
            await self.lead()

    def _open(self) -> None:
        try:
            connection = connect(self._url, role="0/start")
            try:
                check_server(connection, url=self._url, durability=self._durability)
                prepare(connection, is_virtual=self._is_virtual, must_exist=self._must_exist)
            finally:
                connection.drop()
            for part in (self._quick, self._slow):
                part.open()
            if self.may_lead:
                self._session.prepare()
            self._term.look()
        except Exception as error:
            self._resign()
            self._close()
            raise as_exit(error) from error

    async def lead(self) -> None:
        """Wait until this node leads."""
        await self._term.began()
        try:
            await asyncio.get_running_loop().run_in_executor(None, self._begin)
        except Exception as error:
            await self.close()
            raise as_exit(error) from error
        self._writer.start()
        self.leads = True

    def _begin(self) -> None:
        self._session.begin()
        self._writes.load()

    async def resign(self) -> None:
        """Store what has been submitted, and let another node lead. The store can still be read."""
        self.leads = False
        await self._writer.stop()
        self._cache.drop_all()
        await asyncio.get_running_loop().run_in_executor(None, self._resign)

    def _resign(self) -> None:
        self._writes.close()
        self._term.resign()

    async def close(self) -> None:
        await self.resign()
        for thread in (self._reader, self._lister):
            await thread.stop()
        await asyncio.get_running_loop().run_in_executor(None, self._close)

    def _close(self) -> None:
        self._quick.close()
        self._slow.close()

    def standby(self) -> str | None:
        """Return why this node does not lead, or None if it does."""
        if self.leads:
            return None
        if self._term.failure is not None:
            return f"PostgreSQL cannot be reached: {self._term.failure}"
        leader = self._term.leader
        where = f" at {leader.address}" if leader is not None and leader.address else ""
        return f"another node{where} leads" if leader is not None and leader.node else "no node leads yet"

    def status(self) -> str | None:
        if not self.leads:
            return None  # `standby` reports it
        for thread in (self._writer, self._reader, self._lister):
            if (problem := thread.status()) is not None:
                return problem
        return self._writes.status() or self._term.status() or self._slow.snapshots.status()

    async def end(self) -> Exit:
        writes, term = asyncio.ensure_future(self._writes.end()), asyncio.ensure_future(self._term.ended())
        try:
            await asyncio.wait((writes, term), return_when=asyncio.FIRST_COMPLETED)
            return writes.result() if writes.done() else TAKEN_OVER
        finally:
            writes.cancel()
            term.cancel()

    # the boundary

    async def settle(self) -> None:
        await self._change(Settle)

    async def add(
        self,
        new_jobs: Sequence[NewJob],
        *,
        now: Instant,
        is_whole: bool = False,
        record: IdempotencyRecord | None = None,
        beside: Sequence[Document] = (),
        also: Also = (),
    ) -> Receipt:
        epoch = self._cache.epoch
        receipt: Receipt = await self._change(Add, new_jobs, now, is_whole, record, beside, also)
        entries = [entry for entry in receipt.entries if entry is not None]
        # With `is_whole` a conflict has undone the whole add.
        if not (is_whole and any(entry.status is AddStatus.CONFLICT for entry in entries)):
            written = [job for status, job, _ in entries if status in WRITTEN]
            superseded = [job for _, _, job in entries if job is not None]
            self._cache.keep(written + superseded, epoch=epoch)
        return receipt

    async def find_replay(self, record: IdempotencyRecord, *, now: Instant) -> Receipt | None:
        return await self._reader.call(self._quick.find_replay, record, now)

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        if self._term.is_trusted and (cached := self._cache.find(seqs)) is not None:
            return cached
        return await self._reader.call(self._quick.get, seqs, split=_ONE if len(seqs) == 1 else _SOME)

    async def holder(self, queue: str, key: str) -> Job | None:
        return await self._reader.call(self._quick.holder, queue, key)

    async def peek(self, seqs: Sequence[int]) -> Peeks:
        if self._term.is_trusted and (cached := self._cache.find(seqs)) is not None:
            return peeks_of(cached.values())
        return await self._reader.call(self._quick.peek, seqs, split=_PEEKS)

    async def list(self, query: Query) -> list[Job]:
        return await self._lister.call(self._slow.list, query)

    async def search(self, query: Query, within: int) -> Found:
        return await self._lister.call(self._slow.search, query, within)

    async def tally(self, query: Query, within: int) -> Tally:
        return await self._lister.call(self._slow.tally, query, within)

    async def label_values(self, name: str) -> Sequence[str]:
        return await self._lister.call(self._slow.label_values, name)

    async def due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        return await self._lister.call(self._slow.due, after, before, limit)

    async def spread(self, bins: Bins, query: Query) -> Spread:
        return await self._lister.call(self._slow.spread, bins, query)

    @property
    def is_trusted(self) -> bool:
        return self._term.is_trusted

    async def trust(self) -> None:
        try:
            await self._term.trust()
        except (TermLost, Unsettled) as error:
            raise as_problem(error) from error

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        """Claim jobs for this node. If it was stopped in between, another one has taken over, and they must not run."""
        claim: Claim = await self._change(ClaimJobs, seqs, now, split=_CLAIMS)
        self._cache.drop(seqs)
        await self.trust()
        return claim

    async def save(
        self, jobs: Sequence[Job], *, is_whole: bool = False, beside: Sequence[Document] = (), also: Also = ()
    ) -> Verdicts:
        epoch = self._cache.epoch
        split = None if is_whole or beside or also else _VERDICTS
        verdicts: Verdicts = await self._change(SaveWhole if is_whole else Save, jobs, beside, also, split=split)
        self._cache.keep([verdict.job for verdict in verdicts if verdict.is_saved and verdict.job], epoch=epoch)
        return verdicts

    async def finish(self, endings: Sequence[Ending], *, beside: Sequence[Document] = (), also: Also = ()) -> Verdicts:
        epoch = self._cache.epoch
        split = None if beside or also else _VERDICTS
        verdicts: Verdicts = await self._change(Finish, endings, beside, also, split=split)
        pairs = zip(endings, verdicts, strict=True)
        if len(endings) > MAX_AT_ONCE:
            # A job that has not changed since its claim is not cached, since the claim dropped it.
            self._cache.drop([ending.job.seq for ending, verdict in pairs if verdict is not FINISHED])
        else:
            ended = [verdict.job or ending.after for ending, verdict in pairs if verdict.is_saved]
            self._cache.keep(ended, epoch=epoch)
        return verdicts

    async def delete(self, job: Job, *, beside: Sequence[Document] = (), also: Also = ()) -> Saved:
        saved: Saved = await self._change(Delete, job, beside, also)
        self._cache.drop([job.seq])
        return saved

    async def delete_all(self, jobs: Sequence[Job], *, beside: Sequence[Document] = ()) -> bool:
        are_deleted: bool = await self._change(DeleteAll, jobs, beside)
        self._cache.drop([job.seq for job in jobs])
        return are_deleted

    async def ended(
        self, queue: str, state: State, *, after: tuple[Instant, int], before: Instant, limit: int
    ) -> Instants:
        return await self._lister.call(self._slow.ended, queue, state, after, before, limit)

    async def purge(self, seqs: Sequence[int], *, before: Instant) -> Seqs:
        purged: Seqs = await self._change(Purge, seqs, before, split=_PURGED)
        if purged:
            self._cache.drop_all()
        return purged

    async def _change(self, operation: type[Any], *arguments: Any, **options: Any) -> Any:
        """Run a write; drop the cache if it fails, since the write may still have taken effect."""
        if not self.leads:
            raise NotLeading(f"{self.standby()}; send the request again")
        try:
            return await self._writer.call(operation, *arguments, **options)
        except (IdempotencyMismatch, DocumentChanged):  # raised before any write
            raise
        except BaseException:
            self._cache.drop_all()
            raise

    async def forget_records(self, *, now: Instant, limit: int) -> int:
        forgotten: int = await self._change(ForgetRecords, now, limit)
        return forgotten

    async def document(self, sort: str, name: str) -> Document | None:
        return await self._reader.call(self._quick.document, sort, name)

    async def documents(self, sort: str, *, after: str = "", limit: int) -> Documents:
        return await self._lister.call(self._slow.documents, sort, after, limit)

    async def named(self, sort: str, names: Sequence[str]) -> Documents:
        return await self._reader.call(self._quick.named, sort, names)

    def counts(self) -> Mapping[Group, int]:
        return self._counts.by_group

    def waiting(self, queue: str) -> int:
        return self._counts.waiting.get(queue, 0)

    async def overrides(self) -> dict[str, Override]:
        return await self._reader.call(self._quick.overrides)

    async def override(self, queue: str, override: Override | None) -> None:
        await self._change(SetOverride, queue, override)
