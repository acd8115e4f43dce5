"""The embedded store: one SQLite file, one writer thread with group commit, readers beside it."""

from __future__ import annotations

from functools import partial
from operator import add, or_
from typing import TYPE_CHECKING, Any, TypeVar

from erelong.errors import DocumentChanged, IdempotencyMismatch
from erelong.model.job import Job, State
from erelong.model.query import Query
from erelong.model.submission import AddStatus, IdempotencyRecord, NewJob, Receipt
from erelong.stores.base import FINISHED, Claim, Override, Peek, Peeks, Saved, Spread, peeks_of
from erelong.stores.cache import MAX_AT_ONCE, JobCache
from erelong.stores.group_thread import Split
from erelong.stores.json_columns import read_pause, read_spec, sound_labels
from erelong.stores.rows import Row
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.claims import ClaimedJobs
from erelong.stores.sqlite.counters import Counters
from erelong.stores.sqlite.database import DatabaseFile
from erelong.stores.sqlite.documents import read_document, read_documents, read_named
from erelong.stores.sqlite.executor import SqliteThreads
from erelong.stores.sqlite.failures import as_exit
from erelong.stores.sqlite.listing.histogram import count_due
from erelong.stores.sqlite.listing.instants import select_due, select_ended
from erelong.stores.sqlite.listing.pages import search_jobs, select_jobs, tally_jobs
from erelong.stores.sqlite.lookups import find_holder, find_replay
from erelong.stores.sqlite.rows import listed
from erelong.stores.sqlite.transactions import Writes
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from erelong.clock.instants import Instant
    from erelong.errors import Exit
    from erelong.model.document import Document
    from erelong.stores.base import Also, Bins, Documents, Ending, Found, Group, Instants, Jobs, Seqs, Tally, Verdicts
    from erelong.telemetry.metrics import GroupTimer

T = TypeVar("T")

log = get_logger(__name__)

WRITTEN = (AddStatus.ADDED, AddStatus.CHANGED)
_MAKE_PEEK = partial(tuple.__new__, Peek)  # skips the Python-level constructor
_ONE = Split(or_, None, lambda jobs, seqs, _: {seq: jobs[seq] for seq in seqs if seq in jobs})
_SOME = Split(or_, {})
_PEEKS = Split(add, [])
_VERDICTS = Split(add, [Saved(False, None)])
_PURGED = Split(add, [])
_SINGLES = Split(add, None, lambda entries, items, start: entries[start : start + len(items)])
_CLAIMS = Split(lambda one, other: Claim._make(map(add, one, other)), Claim([], [], []))


class SqliteStore:
    """Keeps jobs in one file, owned by one process. Every write except a claim is fsynced before it is answered."""

    is_trusted = True

    def __init__(
        self,
        *,
        path: Path,
        durability: str = "full",
        reserve: int = 0,
        timeout: float = 30.0,
        timer: GroupTimer | None = None,
        is_virtual: bool = False,
    ) -> None:
        """Open only a file made under a virtual clock if `is_virtual`, and otherwise none that was."""
        self._file = DatabaseFile(path=path, durability=durability, reserve=reserve, is_virtual=is_virtual)
        self._running = ClaimedJobs(file=self._file.claims)
        self._counters = Counters(running=self._running)
        self._cache = JobCache()
        self._writes = Writes(file=self._file, counters=self._counters)
        self._threads = SqliteThreads(
            file=self._file, counters=self._counters, writes=self._writes, timer=timer, timeout=timeout
        )
        self._writer, self._reader = self._threads.writer, self._threads.reader
        self._lister = self._threads.lister

    async def trust(self) -> None:
        pass

    async def open(self) -> None:
        self._file.open()
        try:
            self._running.load(self._file.write)
            self._counters.load(self._file.write, last_seq=self._file.floor)
        except Exception as error:
            self._file.close()
            raise as_exit(error, self._file.path) from error
        self._threads.start()

    async def close(self) -> None:
        await self._threads.stop()
        self._cache.drop_all()
        self._file.close()

    def status(self) -> str | None:
        return self._threads.status()

    async def end(self) -> Exit:
        return await self._threads.end()

    async def settle(self) -> None:
        await self._writer.call(_come_last)

    # the boundary

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
        if len(new_jobs) == 1 and not (record or beside or also):  # hot: submit
            added = await self._change(self._writes.add_in_turn, [(new_jobs[0], now)], split=_SINGLES)
            receipt = Receipt([*added])
        else:
            receipt = await self._change(self._writes.add, new_jobs, now, is_whole, record, beside, also)
        entries = [entry for entry in receipt.entries if entry is not None]
        # With `is_whole` a conflict has undone the whole add.
        if not (is_whole and any(entry.status is AddStatus.CONFLICT for entry in entries)):
            written = [job for status, job, _ in entries if status in WRITTEN]
            for _, _, superseded in entries:
                if superseded is not None:
                    written.append(superseded)
            self._cache.keep(written, epoch=epoch)
        return receipt

    async def find_replay(self, record: IdempotencyRecord, *, now: Instant) -> Receipt | None:
        return await self._reader.call(self._find_replay, record, now)

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        if (cached := self._cache.find(seqs)) is not None:
            return cached
        return await self._reader.call(self._get, seqs, split=_ONE if len(seqs) == 1 else _SOME)

    async def holder(self, queue: str, key: str) -> Job | None:
        return await self._reader.call(self._holder, queue, key)

    async def peek(self, seqs: Sequence[int]) -> Peeks:
        if (cached := self._cache.find(seqs)) is not None:
            return peeks_of(cached.values())
        return await self._reader.call(self._peek, seqs, split=_PEEKS)

    async def list(self, query: Query) -> list[Job]:
        return await self._lister.call(self._list, query)

    async def search(self, query: Query, within: int) -> Found:
        return await self._lister.call(self._search, query, within)

    async def tally(self, query: Query, within: int) -> Tally:
        return await self._lister.call(self._tally, query, within)

    async def label_values(self, name: str) -> Sequence[str]:
        return await self._lister.call(self._label_values, name)

    async def due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        return await self._lister.call(self._due, after, before, limit)

    async def spread(self, bins: Bins, query: Query) -> Spread:
        return await self._lister.call(self._spread, bins, query)

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        claim = await self._change(self._writes.claim, seqs, now, split=_CLAIMS)
        self._cache.drop(seqs)
        return claim

    async def save(
        self, jobs: Sequence[Job], *, is_whole: bool = False, beside: Sequence[Document] = (), also: Also = ()
    ) -> Verdicts:
        epoch = self._cache.epoch
        if is_whole:
            verdicts = await self._change(self._writes.save_whole, jobs, beside, also)
        else:
            split = None if beside or also else _VERDICTS
            verdicts = await self._change(self._writes.save, jobs, beside, also, split=split)
        self._cache.keep([verdict.job for verdict in verdicts if verdict.is_saved and verdict.job], epoch=epoch)
        return verdicts

    async def finish(self, endings: Sequence[Ending], *, beside: Sequence[Document] = (), also: Also = ()) -> Verdicts:
        epoch = self._cache.epoch
        split = None if beside or also else _VERDICTS
        verdicts = await self._change(self._writes.finish, endings, beside, also, split=split)
        if len(endings) > MAX_AT_ONCE:
            # A job that has not changed since its claim is not cached, since the claim dropped it.
            pairs = zip(endings, verdicts, strict=True)
            self._cache.drop([ending.job.seq for ending, verdict in pairs if verdict is not FINISHED])
        else:
            ended = [pair for pair in zip(endings, verdicts, strict=True) if pair[1].is_saved]
            self._cache.keep([verdict.job or ending.after for ending, verdict in ended], epoch=epoch)
        return verdicts

    async def delete(self, job: Job, *, beside: Sequence[Document] = (), also: Also = ()) -> Saved:
        saved = await self._change(self._writes.delete, job, beside, also)
        self._cache.drop([job.seq])
        return saved

    async def delete_all(self, jobs: Sequence[Job], *, beside: Sequence[Document] = ()) -> bool:
        are_deleted = await self._change(self._writes.delete_all, jobs, beside)
        self._cache.drop([job.seq for job in jobs])
        return are_deleted

    async def ended(
        self, queue: str, state: State, *, after: tuple[Instant, int], before: Instant, limit: int
    ) -> Instants:
        return await self._lister.call(self._ended, queue, state, after, before, limit)

    async def purge(self, seqs: Sequence[int], *, before: Instant) -> Seqs:
        purged = await self._change(self._writes.purge, seqs, before, split=_PURGED)
        if purged:
            self._cache.drop_all()
        return purged

    async def _change(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Run a write; drop the cache if it fails, since the write may still have taken effect."""
        try:
            return await self._writer.call(function, *arguments, **options)
        except (IdempotencyMismatch, DocumentChanged):  # raised before any write
            raise
        except BaseException:
            self._cache.drop_all()
            raise

    async def forget_records(self, *, now: Instant, limit: int) -> int:
        return await self._writer.call(self._writes.forget_records, now, limit)

    async def document(self, sort: str, name: str) -> Document | None:
        return await self._reader.call(self._document, sort, name)

    async def documents(self, sort: str, *, after: str = "", limit: int) -> Documents:
        return await self._lister.call(self._documents, sort, after, limit)

    async def named(self, sort: str, names: Sequence[str]) -> Documents:
        return await self._reader.call(self._named, sort, names)

    def counts(self) -> Mapping[Group, int]:
        return self._counters.counts

    def waiting(self, queue: str) -> int:
        return self._counters.waiting.get(queue, 0)

    async def overrides(self) -> dict[str, Override]:
        return await self._reader.call(self._overrides)

    async def override(self, queue: str, override: Override | None) -> None:
        await self._writer.call(self._writes.override, queue, override)

    # reads, in the reader threads

    def _find_replay(self, record: IdempotencyRecord, now: Instant) -> Receipt | None:
        return find_replay(self._file.quick, self._running, record, now)

    def _get(self, seqs: Sequence[int]) -> dict[int, Job]:
        return self._running.read(self._file.quick, seqs)

    def _holder(self, queue: str, key: str) -> Job | None:
        return find_holder(self._file.quick, self._running, queue, key)

    def _peek(self, seqs: Sequence[int]) -> Peeks:
        if self._running.find(seqs):
            return self._peek_in_full(seqs)
        rows: list[Row] = self._file.quick.execute(sql.SELECT_PEEK, (listed(seqs),)).fetchall()
        specs = {text: read_spec(text) for text in {text for _, _, _, _, text in rows}}
        if None in specs.values():
            return self._peek_in_full(seqs)
        return [
            _MAKE_PEEK((seq, due_at, expires_at, labels and sound_labels(labels), specs[text]))
            for seq, due_at, expires_at, labels, text in rows
        ]

    def _peek_in_full(self, seqs: Sequence[int]) -> Peeks:
        return peeks_of(self._get(seqs).values())

    def _list(self, query: Query) -> Jobs:
        return select_jobs(self._file.slow, self._running, query, self._threads.note_damage)

    def _search(self, query: Query, within: int) -> Found:
        return search_jobs(self._file.slow, self._running, query, within, self._threads.note_damage)

    def _tally(self, query: Query, within: int) -> Tally:
        return tally_jobs(self._file.slow, self._running, query, within, self._threads.note_damage)

    def _label_values(self, name: str) -> Sequence[str]:
        return [value for (value,) in self._file.slow.execute(sql.SELECT_LABEL_VALUES, (name,))]

    def _due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        return select_due(self._file.slow, self._running, after, before, limit)

    def _spread(self, bins: Bins, query: Query) -> Spread:
        return count_due(self._file.slow, self._running, bins, query)

    def _ended(self, queue: str, state: State, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        return select_ended(self._file.slow, queue, state, after, before, limit)

    def _overrides(self) -> dict[str, Override]:
        rows = self._file.quick.execute(sql.SELECT_OVERRIDES)
        return {queue: Override(settings, read_pause(pause)) for queue, settings, pause in rows}

    def _document(self, sort: str, name: str) -> Document | None:
        return read_document(self._file.quick, sort, name)

    def _named(self, sort: str, names: Sequence[str]) -> Documents:
        return read_named(self._file.quick, sort, names)

    def _documents(self, sort: str, after: str, limit: int) -> Documents:
        return read_documents(self._file.slow, sort, after, limit)


def _come_last() -> None:
    """Do nothing, after all that the writer was handed before."""
