"""The store as the engine uses it: adds callbacks to writes, and records writes whose result is unknown."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.duties.signal import Signal
from erelong.errors import DocumentChanged, IdempotencyMismatch, StorageFull
from erelong.model.extras import end_plainly
from erelong.model.job import PLACES
from erelong.model.query import Query
from erelong.model.submission import ADDED, AddResult

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.engine.callbacks import Callbacks
    from erelong.engine.changes import Changes
    from erelong.model.document import Document
    from erelong.model.job import Job
    from erelong.model.submission import IdempotencyRecord, NewJob, Receipt
    from erelong.stores.base import Also, Claim, Ending, Override, Saved, Store, Verdicts

MAX_KEYS = 1_000
NOTHING_WRITTEN = (StorageFull, IdempotencyMismatch, DocumentChanged)

_job_of, _extras_of = itemgetter(0), itemgetter(PLACES["extras"])  # of an ending; of a job


@dataclass(slots=True, eq=False)
class Doubts:
    """Jobs and queues whose stored state is unknown."""

    claimed: set[int] = field(default_factory=set)
    claims: set[Instant] = field(default_factory=set)  # when: the first one may take effect after others have failed
    changed: dict[int, str] = field(default_factory=dict)  # job to queue
    keys: set[tuple[str, str]] = field(default_factory=set)
    since: int | None = None  # jobs with a higher seq may be new
    queues: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.claimed or self.changed or self.keys or self.queues or self.since is not None)

    @property
    def seqs(self) -> list[int]:
        """The jobs that may have been claimed or changed."""
        return sorted(self.claimed | self.changed.keys())

    def pop(self, seq: int) -> Doubts:
        """Remove and return the doubts about one of these jobs."""
        alone = Doubts(claimed=self.claimed & {seq}, claims=self.claims)
        self.claimed.discard(seq)
        if (queue := self.changed.pop(seq, None)) is not None:
            alone.changed[seq] = queue
        return alone

    def add(self, other: Doubts) -> None:
        if other.claimed:
            self.claimed |= other.claimed
            self.claims |= other.claims
        self.changed |= other.changed
        self.keys |= other.keys
        self.queues |= other.queues
        if other.since is not None:
            self.add_all_since(other.since)

    def add_all_since(self, seq: int) -> None:
        self.since = seq if self.since is None else min(seq, self.since)


class UnknownWrites:
    """The doubts that failed writes leave, until the reconciler has re-read what they are about.

    `has_some` is set when one is added.
    """

    def __init__(self) -> None:
        self.doubts = Doubts()
        self.newest = 0  # the highest known seq
        self.has_some = Signal()

    def __bool__(self) -> bool:
        return bool(self.doubts)

    def take(self) -> Doubts:
        """Remove and return all doubts."""
        taken, self.doubts = self.doubts, Doubts()
        return taken

    def note(self, doubts: Doubts) -> None:
        """Record doubts that could not be settled."""
        self.doubts.add(doubts)
        self.has_some.set()

    def note_claim(self, seqs: Sequence[int], now: Instant) -> None:
        """Record a failed claim."""
        self.doubts.claimed.update(seqs)
        self.doubts.claims.add(now)
        self.has_some.set()

    def note_change(self, jobs: Sequence[Job], also: Also = (), newest: int = 0) -> None:
        """Record a failed save, finish or delete; further jobs that it was to add have a higher seq than `newest`."""
        self.doubts.changed |= {job.seq: job.queue for job in jobs}
        if also:
            self.doubts.add_all_since(newest)
        self.has_some.set()

    def note_add(self, new_jobs: Sequence[NewJob], newest: int) -> None:
        """Record a failed add, perhaps only of documents; its jobs have a higher seq than `newest`."""
        doubts = self.doubts
        doubts.keys |= {(new_job.job.queue, new_job.job.key) for new_job in new_jobs if new_job.job.key is not None}
        doubts.add_all_since(newest)
        if len(doubts.keys) > MAX_KEYS:
            doubts.keys.clear()
            doubts.since = 0  # re-reading all waiting jobs is cheaper than so many lookups
        self.has_some.set()

    def note_override(self, queue: str) -> None:
        """Record a failed override."""
        self.doubts.queues.add(queue)
        self.has_some.set()


class EngineStore:
    """Wraps a store. Whatever ends a job passes here, so its callback is in the same commit, on every way.

    It applies the further jobs of a call (`also`), and records failed writes, except errors that mean nothing was
    written.
    """

    def __init__(self, *, store: Store, unknown_writes: UnknownWrites, callbacks: Callbacks, changes: Changes) -> None:
        self._store = store
        self._unknown_writes = unknown_writes
        self._callbacks = callbacks
        self._changes = changes
        self.open, self.close, self.status, self.end = store.open, store.close, store.status, store.end
        self.ended, self.purge, self.forget_records = (
            store.ended,
            store.purge,
            store.forget_records,
        )  # repeated anyway
        self.find_replay, self.get, self.peek, self.list = store.find_replay, store.get, store.peek, store.list
        self.search, self.tally = store.search, store.tally
        self.holder, self.label_values = store.holder, store.label_values
        self.due, self.counts, self.waiting, self.overrides = store.due, store.counts, store.waiting, store.overrides
        self.spread, self.trust, self.settle = store.spread, store.trust, store.settle
        self.document, self.documents, self.named = store.document, store.documents, store.named

    @property
    def is_trusted(self) -> bool:
        return self._store.is_trusted

    async def load(self) -> None:
        """Read the highest seq in the store."""
        self._unknown_writes.newest = max([job.seq for job in await self._store.list(Query(limit=1))], default=0)

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
        newest = self._unknown_writes.newest
        try:
            receipt = await self._store.add(
                new_jobs, now=now, is_whole=is_whole, record=record, beside=beside, also=also
            )
        except BaseException as error:
            if may_be_written(error):
                self._unknown_writes.note_add(new_jobs, newest)
            raise
        last = receipt.entries[-1] if receipt.entries else None
        if last is not None and last.job.seq > newest:
            self._unknown_writes.newest = max(last.job.seq, self._unknown_writes.newest)
        if also:
            self._apply(receipt.also)
        return receipt

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        try:
            return await self._store.claim(seqs, now=now)
        except BaseException as error:
            if may_be_written(error):
                self._unknown_writes.note_claim(seqs, now)
            raise

    async def save(
        self, jobs: Sequence[Job], *, is_whole: bool = False, beside: Sequence[Document] = (), also: Also = ()
    ) -> Verdicts:
        newest = self._unknown_writes.newest
        if any(map(_extras_of, jobs)) and not all(map(end_plainly, map(_extras_of, jobs))):
            also = (*also, *self._callbacks.of(enumerate(jobs)))
        try:
            verdicts = await self._store.save(jobs, is_whole=is_whole, beside=beside, also=also)
        except BaseException as error:
            if may_be_written(error):
                self._unknown_writes.note_change(jobs, also, newest)
            raise
        if also:
            self._apply([job for verdict in verdicts for job in verdict.also])
        return verdicts

    async def finish(self, endings: Sequence[Ending], *, beside: Sequence[Document] = (), also: Also = ()) -> Verdicts:
        newest = self._unknown_writes.newest
        extras = [*map(_extras_of, map(_job_of, endings))]  # hot: drain
        if any(extras) and not all(map(end_plainly, extras)):
            ended = [(index, ending.after) for index, ending in enumerate(endings) if extras[index] is not None]
            also = (*also, *self._callbacks.of(ended))
        try:
            verdicts = await self._store.finish(endings, beside=beside, also=also)
        except BaseException as error:
            if may_be_written(error):
                self._unknown_writes.note_change([ending.job for ending in endings], also, newest)
            raise
        if also:
            self._apply([job for verdict in verdicts for job in verdict.also])
        return verdicts

    async def delete(self, job: Job, *, beside: Sequence[Document] = (), also: Also = ()) -> Saved:
        newest = self._unknown_writes.newest
        try:
            saved = await self._store.delete(job, beside=beside, also=also)
        except BaseException as error:
            if may_be_written(error):
                self._unknown_writes.note_change([job], also, newest)
            raise
        if also:
            self._apply(saved.also)
        return saved

    async def delete_all(self, jobs: Sequence[Job], *, beside: Sequence[Document] = ()) -> bool:
        try:
            return await self._store.delete_all(jobs, beside=beside)
        except BaseException as error:
            if may_be_written(error):
                self._unknown_writes.note_change(jobs)
            raise

    async def override(self, queue: str, override: Override | None) -> None:
        try:
            await self._store.override(queue, override)
        except BaseException as error:
            if may_be_written(error):
                self._unknown_writes.note_override(queue)
            raise

    def _apply(self, added: Sequence[Job]) -> None:
        self._unknown_writes.newest = max([self._unknown_writes.newest, *(job.seq for job in added)])
        self._changes.added([AddResult(ADDED, job) for job in added])


def may_be_written(error: BaseException) -> bool:
    """Return whether a write that raised this may be on disk nevertheless."""
    return not isinstance(error, NOTHING_WRITTEN)
