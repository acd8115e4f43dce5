"""Rows read by number and by name: for groups of writes, and for the readers, which see claims too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.model.document import Document
from erelong.model.job import Job, State
from erelong.stores.base import Override, Peek, Peeks, peek_at
from erelong.stores.json_columns import read_pause, read_spec, sound_labels
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.arrays import bigints, texts
from erelong.stores.postgres.draft import Name, Needs, Stored, StoredRecord
from erelong.stores.postgres.operations import read_ids, replay
from erelong.stores.rows import begin_jobs, flaw_of, mend, read_job, take_job

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.model.submission import IdempotencyRecord, Receipt
    from erelong.stores.postgres.connection import Connection, Row


# for groups of writes


def read_stored(connection: Connection, needs: Needs, running: Mapping[int, Job]) -> Stored:
    """Read what a group needs. Jobs that are running are in memory."""
    stored = Stored()
    if needs.records:
        stored.records = _read_records(connection, needs.records)
        ids = [seq for record in stored.records.values() for seq, _ in read_ids(record.ids)]
        needs.seqs.update(ids)
    if needs.keys:
        for row in connection.rows(sql.SELECT_HOLDERS, *_transposed(needs.keys)):
            job = _note(stored, row)
            stored.holders[job.queue, job.key or ""] = job.seq
    _read_rows(connection, stored, needs.seqs, running)
    for now, seqs in needs.claims.items():
        _read_claimable(connection, stored, [seq for seq in seqs if seq not in running], now)
    if needs.documents:
        stored.documents = _read_documents(connection, needs.documents)
    for now, limit in needs.expired:
        stored.expired[now, limit] = [
            (row[0], row[1]) for row in connection.rows(sql.SELECT_EXPIRED_RECORDS, now, limit)
        ]
    return stored


def _read_rows(connection: Connection, stored: Stored, seqs: Iterable[int], running: Mapping[int, Job]) -> None:
    missing = [seq for seq in seqs if seq not in running and seq not in stored.jobs]
    for row in connection.rows(sql.SELECT_STORED, bigints(missing)) if missing else ():
        _note(stored, row)


def _read_claimable(connection: Connection, stored: Stored, seqs: Sequence[int], now: Instant) -> None:
    """Read jobs that can be claimed as they start; of the others, and those that another call needs, read the rows."""
    free = [seq for seq in seqs if seq not in stored.jobs]
    if not free:
        return
    jobs, _ = begin_jobs(connection.rows(sql.SELECT_CLAIMABLE, now, bigints(free), now, now), now)
    stored.claimable |= {job.seq: job for job in jobs}
    if len(jobs) < len(free):
        _read_rows(connection, stored, free, stored.claimable)


def _note(stored: Stored, row: Row) -> Job:
    job = take_job(row)
    if (flaw := flaw_of(job)) is not None:
        stored.flaws[job.seq] = flaw
        job = mend(job)
    stored.jobs[job.seq] = job
    return job


def _read_records(connection: Connection, names: Collection[Name]) -> dict[Name, StoredRecord]:
    rows = connection.rows(sql.SELECT_RECORDS, *_transposed(names))
    return {(caller, key): StoredRecord(*record) for caller, key, *record in rows}


def _read_documents(connection: Connection, names: Collection[Name]) -> dict[Name, Document]:
    rows = connection.rows(sql.SELECT_NAMED_DOCUMENTS, *_transposed(names))
    return {(row[0], row[1]): Document._make(row) for row in rows}


def _transposed(names: Iterable[Name]) -> tuple[bytes, bytes]:
    first, second = zip(*names, strict=True)
    return texts(first), texts(second)


# for readers


def read_jobs(connection: Connection, seqs: Collection[int]) -> dict[int, Job]:
    """Return jobs by number, without unknown ones."""
    return {row[0]: read_current(row) for row in connection.rows(sql.SELECT, bigints(seqs))}


def read_current(row: Row) -> Job:
    """Make a job from a row that is followed by the start of its claim, or None."""
    job = read_job(row[:-1])
    return job if row[-1] is None else job.start(row[-1])


def read_holder(connection: Connection, queue: str, key: str) -> Job | None:
    rows = connection.rows(sql.SELECT_HOLDER, texts([queue]), texts([key]))
    return read_current(rows[0]) if rows else None


def find_replay(connection: Connection, record: IdempotencyRecord, now: Instant) -> Receipt | None:
    name = (record.caller, record.key)
    stored = _read_records(connection, [name]).get(name)
    jobs = {} if stored is None else read_jobs(connection, [seq for seq, _ in read_ids(stored.ids)])
    return replay(record, stored, jobs.get, now)


def peek(connection: Connection, seqs: Sequence[int]) -> Peeks:
    peeks = []
    for seq, due_at, expires_at, labels, text in connection.rows(sql.SELECT_PEEK, bigints(seqs)):
        spec = read_spec(text)
        if spec is None:  # the stand-ins of an unreadable spec are made with the whole job
            spec = peek_at(read_jobs(connection, [seq])[seq]).spec
        peeks.append(Peek(seq, due_at, expires_at, labels and sound_labels(labels), spec))
    return peeks


def read_overrides(connection: Connection) -> dict[str, Override]:
    rows = connection.rows(sql.SELECT_OVERRIDES)
    return {queue: Override(settings, read_pause(pause)) for queue, settings, pause in rows}


def read_document(connection: Connection, sort: str, name: str) -> Document | None:
    return _read_documents(connection, [(sort, name)]).get((sort, name))


def read_named(connection: Connection, sort: str, names: Sequence[str]) -> list[Document]:
    return [*_read_documents(connection, [(sort, name) for name in names]).values()] if names else []


def read_documents(connection: Connection, sort: str, after: str, limit: int) -> list[Document]:
    return [Document._make(row) for row in connection.rows(sql.SELECT_DOCUMENTS, sort, after, limit)]


# at a start


def read_running(connection: Connection) -> dict[int, Job]:
    """Return the jobs that were running when the last term ended.

    A claim before the due time cannot be true; its job waits.
    """
    jobs = [(read_job(row[:-1]), row[-1]) for row in connection.rows(sql.SELECT_RUNNING)]
    return {job.seq: job.start(at) for job, at in jobs if job.due_at is not None and job.due_at <= at}


def read_counts(connection: Connection, running: Iterable[Job]) -> dict[tuple[str, str, State], int]:
    """Return the number of jobs in each group; a running job may be counted as scheduled on disk."""
    rows = connection.rows(sql.SELECT_COUNTS)
    counts = {(queue, kind, State(state)): jobs for queue, kind, state, jobs in rows if jobs}
    for job in running:
        counts[job.queue, job.kind, State.SCHEDULED] -= 1
        counts[job.group] = counts.get(job.group, 0) + 1
    return counts
