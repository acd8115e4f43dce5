"""The embedded store: one SQLite file, one writer thread with group commit, readers beside it."""

from __future__ import annotations

from collections import Counter
from operator import add, or_
from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from app.conflict import settle
from app.errors import IdempotencyMismatch
from app.ids import parse_id
from app.job import Job, State
from app.log import get_logger
from app.stores import sqlite_schema as sql
from app.stores.base import (
    MEMO_LIFE,
    Added,
    Claim,
    Fate,
    Glance,
    Glances,
    Memo,
    Offer,
    Override,
    Query,
    Receipt,
    Saved,
    glance_at,
)
from app.stores.recent import Recent
from app.stores.sqlite_faults import as_exit
from app.stores.sqlite_file import DatabaseFile
from app.stores.sqlite_ledger import Ledger
from app.stores.sqlite_listing import select_jobs
from app.stores.sqlite_threads import SqliteThreads
from app.stores.threads import Split

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import apsw

    from app.clock import Instant
    from app.errors import Exit
    from app.metrics import GroupTimer
    from app.stores.base import Group, Instants, Jobs, Verdicts

T = TypeVar("T")

log = get_logger(__name__)

WRITTEN = (Fate.ADDED, Fate.CHANGED)
_GLANCES = Split(add, [])
_VERDICTS = Split(add, [Saved(False, None)])
_CLAIMS = Split(lambda one, other: Claim._make(map(add, one, other)), Claim([], [], []))


class SqliteStore:
    """Keeps jobs in one file that one process owns. Every write is fsynced before it is answered."""

    def __init__(
        self, *, path: Path, durability: str = "full", reserve: int = 0, timer: GroupTimer | None = None
    ) -> None:
        self._file = DatabaseFile(path=path, durability=durability, reserve=reserve)
        self._ledger = Ledger()
        self._recent = Recent()
        self._threads = SqliteThreads(file=self._file, ledger=self._ledger, growing=self._add, timer=timer)
        self._writer, self._reader = self._threads.writer, self._threads.reader
        self._lister = self._threads.lister

    async def open(self) -> None:
        self._file.open()
        try:
            self._ledger.load(self._file.write, last_seq=self._file.floor)
        except Exception as error:
            self._file.close()
            raise as_exit(error, self._file.path) from error
        self._threads.start()

    async def close(self) -> None:
        await self._threads.stop()
        self._recent.drop_all()
        self._file.close()

    def ailment(self) -> str | None:
        return self._threads.ailment()

    async def end(self) -> Exit:
        return await self._threads.end()

    @property
    def _write(self) -> apsw.Connection:
        return self._file.write

    @property
    def _quick(self) -> apsw.Connection:
        return self._file.quick

    # the boundary

    async def add(
        self, offers: Sequence[Offer], *, now: Instant, is_whole: bool = False, memo: Memo | None = None
    ) -> Receipt:
        era = self._recent.era
        receipt = await self._change(self._add, offers, now, is_whole, memo)
        entries = [entry for entry in receipt.entries if entry is not None]
        if not (is_whole and any(entry.fate is Fate.CONFLICT for entry in entries)):  # which has undone the others
            self._recent.keep([entry.job for entry in entries if entry.fate in WRITTEN], era=era)
        return receipt

    async def recall(self, memo: Memo, *, now: Instant) -> Receipt | None:
        return await self._reader.call(self._recall, memo, now)

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        if (recent := self._recent.find(seqs)) is not None:
            return recent
        spare: dict[int, Job] | None = {} if len(seqs) > 1 else None
        return await self._reader.call(self._get, seqs, split=Split(or_, spare))

    async def glance(self, seqs: Sequence[int]) -> Glances:
        return await self._reader.call(self._glance, seqs, split=_GLANCES)

    async def list(self, query: Query) -> list[Job]:
        return await self._lister.call(self._list, query)

    async def due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        return await self._lister.call(self._due, after, before, limit)

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        claim = await self._change(self._claim, seqs, now, is_soft=True, split=_CLAIMS)
        self._recent.drop(seqs)
        return claim

    async def save(self, jobs: Sequence[Job]) -> Verdicts:
        era = self._recent.era
        verdicts = await self._change(self._save_all, jobs, split=_VERDICTS)
        self._recent.keep([job for job, verdict in zip(jobs, verdicts, strict=True) if verdict.is_saved], era=era)
        return verdicts

    async def delete(self, job: Job) -> bool:
        is_gone = await self._change(self._delete, job)
        self._recent.drop([job.seq])
        return is_gone

    async def purge(self, queue: str, state: State, *, before: Instant, limit: int) -> int:
        purged = await self._change(self._purge, queue, state, before, limit)
        if purged:
            self._recent.drop_all()
        return purged

    async def _change(self, function: Callable[..., T], *arguments: Any, **how: Any) -> T:
        """A write; one that does not come to its end here may come to it all the same."""
        try:
            return await self._writer.call(function, *arguments, **how)
        except IdempotencyMismatch:  # before anything was written
            raise
        except BaseException:
            self._recent.drop_all()
            raise

    async def forget_memos(self, *, before: Instant, limit: int) -> int:
        return await self._writer.call(self._forget_memos, before, limit)

    def counts(self) -> Mapping[Group, int]:
        return self._ledger.counts

    async def overrides(self) -> dict[str, Override]:
        return await self._reader.call(self._overrides)

    async def override(self, queue: str, override: Override | None) -> None:
        await self._writer.call(self._override, queue, override)

    # what the writer thread does

    def _add(self, offers: Sequence[Offer], now: Instant, is_whole: bool, memo: Memo | None) -> Receipt:
        if memo is not None and (receipt := self._recall(memo, now, self._write)) is not None:
            return receipt
        if all(offer.job.key is None for offer in offers):
            entries = [Added(Fate.ADDED, job) for job in self._insert([offer.job for offer in offers])]
        else:
            entries = [*self._settle(offers, now, is_whole)]
        if memo is not None and not any(entry.fate is Fate.CONFLICT for entry in entries):
            ids = orjson.dumps([entry.job.id for entry in entries])
            self._write.execute(sql.SET_MEMO, (memo.caller, memo.key, memo.digest, ids, now))
        return Receipt([*entries])

    def _settle(self, offers: Sequence[Offer], now: Instant, is_whole: bool) -> Sequence[Added]:
        """Add jobs of which some have keys; a conflict under `is_whole` undoes them all."""
        if not is_whole:
            return [self._add_keyed(offer, now) for offer in offers]
        deltas = self._ledger.deltas.copy()
        self._write.execute("SAVEPOINT whole")  # not apsw's, which hides that the disk is full
        entries = [self._add_keyed(offer, now) for offer in offers]
        if any(entry.fate is Fate.CONFLICT for entry in entries):
            self._write.execute("ROLLBACK TO whole")
            self._ledger.deltas = deltas
        self._write.execute("RELEASE whole")
        return entries

    def _add_keyed(self, offer: Offer, now: Instant) -> Added:
        job = offer.job
        holder = self._holder(job.queue, job.key) if job.key is not None else None
        if holder is None:
            return Added(Fate.ADDED, self._insert([job])[0])
        settled = settle(holder, job, offer.on_conflict, now)
        if settled is None:
            return Added(Fate.CONFLICT, holder)
        if settled is holder:
            return Added(Fate.EXISTS, holder)
        self._update(settled, holder.group, holder.labels)
        return Added(Fate.CHANGED, settled)

    def _insert(self, jobs: Sequence[Job]) -> Sequence[Job]:
        first = self._ledger.take_numbers(len(jobs))
        rows = [(*job[:-1], seq) for seq, job in enumerate(jobs, first)]
        self._write.executemany(sql.INSERT, rows)
        numbered = [*map(Job._make, rows)]
        self._ledger.deltas.update([job.group for job in numbered])
        for job in numbered:
            if job.labels is not None:
                self._label(job.seq, job.labels, sql.INSERT_LABEL)
        return numbered

    def _claim(self, seqs: Sequence[int], now: Instant) -> Claim:
        rows = sql.select_rows(self._write, sql.SELECT_CLAIMABLE, dict.fromkeys(seqs), now)
        claim = Claim([], [], [])
        for job in map(sql.take_job, rows):
            if (flaw := sql.flaw(job)) is None:
                claim.jobs.append(job.start(now))
            else:
                claim.spoiled.append(self._spoil(job, flaw, now))
        for (queue, kind), number in Counter([(job.queue, job.kind) for job in claim.jobs]).items():
            self._ledger.deltas[queue, kind, State.SCHEDULED] -= number
            self._ledger.deltas[queue, kind, State.RUNNING] += number
        self._write.execute(sql.START, (sql.listed(job.seq for job in claim.jobs), now))
        if len(rows) < len(seqs):
            self._look_at_losers(dict.fromkeys(seqs), claim, now)
        return claim

    def _look_at_losers(self, seqs: Iterable[int], claim: Claim, now: Instant) -> None:
        for seq in seqs:
            for state, due_at in self._write.execute(sql.SELECT_UNCLAIMED, (seq, now)):
                if state == State.SCHEDULED:
                    claim.early.append((due_at, seq))
                else:  # no state at all; it waited, or nobody would ask for it
                    job = self._get([seq], self._write)[seq]._replace(state=State.SCHEDULED)
                    claim.spoiled.append(self._spoil(job, "state", now))

    def _spoil(self, job: Job, flaw: str, now: Instant) -> Job:
        log.error("job_unreadable", job=job.id, field=flaw)
        spoiled = sql.mend(job).spoil(now, f"its stored {flaw} cannot be read")
        self._update(spoiled, job.group, job.labels)
        return spoiled

    def _save_all(self, jobs: Sequence[Job]) -> Verdicts:
        """Write all that stand as they were read by one statement; the others one by one, in their turn."""
        rows = self._write.execute(sql.SELECT_STANDING, (sql.listed(job.seq for job in jobs),))
        standing = {row[0]: row for row in rows}
        plain: list[tuple[Job, sql.Row]] = []
        verdicts = []
        for job in jobs:
            row = standing.pop(job.seq, None)
            if row is not None and _is_plain(job, row):
                plain.append((job, row))
                verdicts.append(Saved(True, job))
            else:
                self._write_over(plain)
                plain.clear()
                verdicts.append(self._save(job))
        self._write_over(plain)
        return verdicts

    def _write_over(self, plain: Sequence[tuple[Job, sql.Row]]) -> None:
        # Of a named tuple apsw asks first if it is a mapping, which takes 2 µs.
        self._write.executemany(sql.UPDATE, [tuple(job) for job, _ in plain])
        self._ledger.deltas.update([job.group for job, _ in plain])
        self._ledger.deltas.subtract(Counter([row[1:4] for _, row in plain]))

    def _save(self, job: Job) -> Saved:
        row = self._write.execute(sql.SELECT_STANDING, (sql.listed([job.seq]),)).fetchone()
        if row is None or row[5:] != (job.token, job.version - 1):
            return Saved(False, self._get([job.seq], self._write).get(job.seq))
        if job.key is not None and row[3] >= State.SUCCEEDED and not job.is_final:
            holder = self._holder(job.queue, job.key)
            if holder is not None:
                return Saved(False, holder)
        queue, kind, state, labels = row[1:5]
        self._update(job, (queue, kind, State(state)), labels)
        return Saved(True, job)

    def _update(self, job: Job, group: Group, labels: bytes | None) -> None:
        """Write a job over a row of which the group and labels are given."""
        self._write.execute(sql.UPDATE, tuple(job))
        self._ledger.deltas[group] -= 1
        self._ledger.deltas[job.group] += 1
        if job.labels != labels:
            self._label(job.seq, labels, sql.DELETE_LABEL)
            self._label(job.seq, job.labels, sql.INSERT_LABEL)

    def _delete(self, job: Job) -> bool:
        stored = self._get([job.seq], self._write).get(job.seq)
        if stored is None or (stored.token, stored.version) != (job.token, job.version):
            return False
        self._forget([(stored.seq, stored.kind, stored.labels)], stored.queue, stored.state)
        return True

    def _purge(self, queue: str, state: State, before: Instant, limit: int) -> int:
        rows = self._write.execute(sql.SELECT_ENDED, (queue, state, before, limit)).fetchall()
        self._forget(rows, queue, state)
        return len(rows)

    def _forget(self, rows: Iterable[sql.Row], queue: str, state: State) -> None:
        for seq, kind, labels in rows:
            self._write.execute(sql.DELETE, (seq,))
            self._ledger.deltas[queue, kind, state] -= 1
            self._label(seq, labels, sql.DELETE_LABEL)

    def _recall(self, memo: Memo, now: Instant, connection: apsw.Connection | None = None) -> Receipt | None:
        connection = connection or self._quick  # as it is when this is run: it may have been opened anew since
        row = connection.execute(sql.SELECT_MEMO, (memo.caller, memo.key, now - MEMO_LIFE)).fetchone()
        if row is None:
            return None
        digest, ids = row
        if digest != memo.digest:
            raise IdempotencyMismatch(f"Idempotency-Key {memo.key!r} was used for another body; take a new key")
        names = [parse_id(id_) or (0, "") for id_ in orjson.loads(ids)]
        jobs = self._get([seq for seq, _ in names], connection)
        found = [job if (job := jobs.get(seq)) and job.token == token else None for seq, token in names]
        return Receipt([Added(Fate.EXISTS, job) if job else None for job in found], replayed=True)

    def _forget_memos(self, before: Instant, limit: int) -> int:
        self._write.execute(sql.FORGET_MEMOS, (before, limit))
        return self._write.changes()

    def _override(self, queue: str, override: Override | None) -> None:
        if override is None:
            self._write.execute(sql.DROP_OVERRIDE, (queue,))
        else:
            self._write.execute(sql.SET_OVERRIDE, (queue, *override))

    def _holder(self, queue: str, key: str | None) -> Job | None:
        row = self._write.execute(sql.SELECT_HOLDER, (queue, key)).fetchone()
        return None if row is None else self._get(row, self._write)[row[0]]

    def _label(self, seq: int, labels: bytes | None, statement: str) -> None:
        for name, value in sql.read_labels(labels).items():
            self._write.execute(statement, (name, value, seq))

    # what the reader threads do

    def _get(self, seqs: Sequence[int], connection: apsw.Connection | None = None) -> dict[int, Job]:
        rows = sql.select_rows(connection or self._quick, sql.SELECT, seqs)
        return {job.seq: job for job in map(sql.read_job, rows)}

    def _glance(self, seqs: Sequence[int]) -> Glances:
        try:
            rows: list[sql.Row] = self._quick.execute(sql.SELECT_GLANCE, (sql.listed(seqs),)).fetchall()
        except UnicodeDecodeError:
            jobs = self._get(seqs).values()
            return [glance_at(job) for job in jobs if job.state is State.SCHEDULED]
        return [Glance._make((*row[:-1], sql.sound_labels(row[-1]))) for row in rows]

    def _list(self, query: Query) -> Jobs:
        return select_jobs(self._file.slow, query, self._ledger.counts)

    def _due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        return [(at, seq) for at, seq in self._file.slow.execute(sql.SELECT_DUE, (*after, before, limit))]

    def _overrides(self) -> dict[str, Override]:
        rows = self._quick.execute(sql.SELECT_OVERRIDES)
        return {queue: Override(settings, bool(paused)) for queue, settings, paused in rows}


def _is_plain(job: Job, standing: sql.Row) -> bool:
    """Whether it follows on what is stored and takes neither its key nor other labels."""
    is_next = standing[5:] == (job.token, job.version - 1)
    return is_next and standing[4] == job.labels and (job.key is None or job.is_final)
