"""The writes of the embedded store, which its writer thread runs inside a transaction."""

from __future__ import annotations

from collections import Counter
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING

import orjson

from erelong.model.conflict import settle
from erelong.model.extras import end_plainly
from erelong.model.history import NO_ATTEMPTS
from erelong.model.job import PLACES, Job, State
from erelong.model.reports.callback import linked
from erelong.model.submission import ADDED, AddResult, AddStatus, IdempotencyRecord, NewJob, Receipt, are_written
from erelong.stores.base import FINISHED, REFUSED, Claim, Ending, Override, Saved
from erelong.stores.json_columns import read_labels, write_pause
from erelong.stores.rows import Row, as_rows, begin_jobs, group_of, mend, move
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.documents import check_documents, write_documents
from erelong.stores.sqlite.lookups import find_held_keys, find_holder, find_replay
from erelong.stores.sqlite.rows import listed, select_rows, write_rows
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    import apsw

    from erelong.clock.instants import Instant
    from erelong.model.document import Document
    from erelong.stores.base import Also, Group, Verdicts
    from erelong.stores.sqlite.counters import Counters
    from erelong.stores.sqlite.database import DatabaseFile

_key_of = itemgetter(PLACES["key"])
_MAKE_ADDED = partial(tuple.__new__, AddResult)  # skips the Python-level constructor

FINAL = State.SUCCEEDED
"""The first of the final states."""

log = get_logger(__name__)


class Writes:
    """Every change of a job, with its labels, claim and counts."""

    def __init__(self, *, file: DatabaseFile, counters: Counters) -> None:
        self._file = file
        self._counters = counters
        self._running = counters.running
        self.growing = (self.add, self.add_in_turn)
        """The writes that need room on the disk."""

    @property
    def _write(self) -> apsw.Connection:
        return self._file.write  # a new one after a disk failure

    def add(
        self,
        new_jobs: Sequence[NewJob],
        now: Instant,
        is_whole: bool,
        record: IdempotencyRecord | None,
        beside: Sequence[Document],
        also: Also,
    ) -> Receipt:
        if record is not None and (receipt := find_replay(self._write, self._running, record, now)) is not None:
            return receipt
        if beside:
            check_documents(self._write, beside)
        jobs = [new_job.job for new_job in new_jobs]
        if not any(map(_key_of, jobs)):  # no key is empty
            entries = [_MAKE_ADDED((ADDED, job, None)) for job in self._insert(jobs)]
        else:
            entries = [*self._settle(new_jobs, now, is_whole)]
        if record is not None and not any(entry.status is AddStatus.CONFLICT for entry in entries):
            ids = orjson.dumps([entry.job.id for entry in entries])
            self._write.execute(sql.SET_RECORD, (record.caller, record.key, record.digest, ids, now + record.life))
        if not (beside or also):
            return Receipt([*entries])
        added = self._store_with(are_written(entries, is_whole=is_whole), beside, also)
        return Receipt([*entries], also=tuple(job for _, job in added))

    def _settle(self, new_jobs: Sequence[NewJob], now: Instant, is_whole: bool) -> Sequence[AddResult]:
        """Add jobs, some of them with keys; with `is_whole`, a conflict undoes the whole add."""
        if not is_whole:
            return self.add_in_turn([(new_job, now) for new_job in new_jobs])
        before = self._counters.savepoint()
        self._write.execute("SAVEPOINT whole")  # apsw's own savepoint hides a full disk
        entries = self.add_in_turn([(new_job, now) for new_job in new_jobs])
        if any(entry.status is AddStatus.CONFLICT for entry in entries):
            self._write.execute("ROLLBACK TO whole")
            self._counters.roll_back(before)
        self._write.execute("RELEASE whole")
        return entries

    def add_in_turn(self, new_jobs: Sequence[tuple[NewJob, Instant]]) -> list[AddResult]:
        """Add jobs in their order, each at its time; those in a row whose keys are free are written together."""
        if len(new_jobs) == 1:
            return [self._add_keyed(*new_jobs[0])]
        held = find_held_keys(self._write, [new_job.job for new_job, _ in new_jobs])
        entries: list[AddResult] = []
        run: list[Job] = []
        for new_job, now in new_jobs:
            job = new_job.job
            if job.key is None:
                run.append(job)
            elif (name := (job.queue, job.key)) not in held:
                held.add(name)
                run.append(job)
            else:  # by a stored job, or by one of this run
                entries += self._add_run(run)
                run = []
                entries.append(self._add_keyed(new_job, now))
        return entries + self._add_run(run)

    def _add_run(self, jobs: Sequence[Job]) -> list[AddResult]:
        return [_MAKE_ADDED((ADDED, job, None)) for job in self._insert(jobs)] if jobs else []

    def _add_keyed(self, new_job: NewJob, now: Instant) -> AddResult:
        job = new_job.job
        holder = find_holder(self._write, self._running, job.queue, job.key) if job.key is not None else None
        if holder is None:
            return AddResult(AddStatus.ADDED, self._insert([job])[0])
        settled = settle(holder, job, new_job.on_conflict, now)
        if settled is None:
            return AddResult(AddStatus.CONFLICT, holder)
        if settled is holder:
            return AddResult(AddStatus.EXISTS, holder)
        if settled.superseded:
            self._write.execute(sql.FREE_KEY, (holder.seq,))
        self._update(settled, holder.group, holder.labels)
        return (
            AddResult(ADDED, self._insert([job])[0], settled)
            if settled.superseded
            else AddResult(AddStatus.CHANGED, settled)
        )

    def _insert(self, jobs: Sequence[Job], numbered: Sequence[Job] = ()) -> Sequence[Job]:
        """Insert new jobs, and return them with their numbers, or insert `numbered` ones."""
        if not numbered:
            first = self._counters.take_numbers(len(jobs))
            numbered = [tuple.__new__(Job, (seq, *job[1:])) for seq, job in enumerate(jobs, first)]
        write = self._write
        write_rows(write, sql.insert, as_rows(numbered))
        self._counters.deltas.update(map(group_of, numbered))
        labels: list[tuple[str, str, int]] = []
        for job in numbered:
            if job.labels is not None:
                labels += [(name, value, job.seq) for name, value in read_labels(job.labels).items()]
        if labels:
            write_rows(write, sql.insert_labels, labels)
        return numbered

    def claim(self, seqs: Sequence[int], now: Instant) -> Claim:
        running = self._running.find(seqs)
        free = [seq for seq in dict.fromkeys(seqs) if seq not in running]
        rows = select_rows(self._write, sql.SELECT_CLAIMABLE, free, now)
        jobs, flawed = begin_jobs(rows, now)
        claim = Claim(jobs, [], [self._mark_unreadable(self._read([seq])[seq], flaw, now) for seq, flaw in flawed])
        if jobs:
            move(self._counters.moves, jobs, State.SCHEDULED, State.RUNNING)
            self._running.add(jobs, now)
        if len(rows) < len(free):
            self._add_unclaimed(free, claim, now)
        if running:
            unchanged = self._running.unchanged(running)
            claim.early.extend((now, seq) for seq in running if seq not in unchanged)  # they end in this transaction
        return claim

    def _add_unclaimed(self, seqs: Iterable[int], claim: Claim, now: Instant) -> None:
        for seq in seqs:
            for state, due_at in self._write.execute(sql.SELECT_UNCLAIMED, (seq, now)):
                if state == State.SCHEDULED:
                    claim.early.append((due_at, seq))
                else:  # not a valid state; it was scheduled, since only scheduled jobs are claimed
                    job = self._read([seq])[seq]._replace(state=State.SCHEDULED)
                    claim.unreadable.append(self._mark_unreadable(job, "state", now))

    def _mark_unreadable(self, job: Job, flaw: str, now: Instant) -> Job:
        log.error("job_unreadable", job=job.id, field=flaw)
        unreadable = mend(job).mark_unreadable(now, f"its stored {flaw} cannot be read")
        self._update(unreadable, job.group, job.labels)
        return unreadable

    def finish(self, endings: Sequence[Ending], beside: Sequence[Document], also: Also) -> Verdicts:
        """End running jobs. Nearly all succeed unchanged since their claim: these write few columns and read no row."""
        if beside:
            check_documents(self._write, beside)
        unchanged = self._running.unchanged([ending.job.seq for ending in endings])
        plain, others = [], []
        last, is_plain = None, False
        for index, (job, outcome, at, _) in enumerate(endings):
            if outcome is not last:  # successes without a result share one object
                last, is_plain = outcome, outcome.is_plain
            if (
                unchanged.pop(job.seq, None) is job
                and is_plain
                and job.attempts == NO_ATTEMPTS
                and (job.extras is None or end_plainly(job.extras))
            ):
                plain.append((job.seq, job.started_at, at, outcome.result))
            else:
                others.append(index)
        after = [endings[index].after for index in others]  # may raise, so it comes before any write
        if also:
            after, also = self._linked(after, others, also)
        self._succeed(plain)
        verdicts = [FINISHED] * len(endings)
        for index, verdict in zip(others, self._save(after) if others else (), strict=True):
            verdicts[index] = verdict
        return self._with_others(verdicts, beside, also) if beside or also else verdicts

    def _succeed(self, rows: Sequence[Row]) -> None:
        write_rows(self._write, sql.succeed, rows)
        jobs = self._end([seq for seq, _, _, _ in rows])
        move(self._counters.deltas, jobs, State.SCHEDULED, State.SUCCEEDED)

    def save(self, jobs: Sequence[Job], beside: Sequence[Document], also: Also) -> Verdicts:
        if beside:
            check_documents(self._write, beside)
        if also:
            jobs, also = self._linked(jobs, range(len(jobs)), also)
        verdicts = self._save(jobs)
        return self._with_others(verdicts, beside, also) if beside or also else verdicts

    def save_whole(self, jobs: Sequence[Job], beside: Sequence[Document], also: Also) -> Verdicts:
        """Save all of these jobs or none."""
        check_documents(self._write, beside)
        stored = self._read_stored([job.seq for job in jobs])
        if not all(job.seq in stored and stored[job.seq][5:] == (job.token, job.version - 1) for job in jobs):
            return [REFUSED] * len(jobs)
        revived = [job for job in jobs if job.key is not None and not job.is_final and stored[job.seq][3] >= FINAL]
        keys = {(job.queue, job.key) for job in revived}
        if len(keys) < len(revived) or (keys and find_held_keys(self._write, revived)):
            return [REFUSED] * len(jobs)
        return self.save(jobs, beside, also)

    def _save(self, jobs: Sequence[Job]) -> Verdicts:
        """Write jobs in order: runs of plain updates with few statements, the others one by one."""
        stored = self._read_stored([job.seq for job in jobs])
        plain: list[tuple[Job, Row]] = []
        verdicts = []
        for job in jobs:
            row = stored.pop(job.seq, None)
            if row is not None and _is_plain(job, row):
                plain.append((job, row))
                verdicts.append(Saved(True, job))
            else:
                self._write_over(plain)
                plain.clear()
                verdicts.append(self._save_one(job))
        self._write_over(plain)
        return verdicts

    def _write_over(self, plain: Sequence[tuple[Job, Row]]) -> None:
        write_rows(self._write, sql.update, as_rows(job for job, _ in plain))
        self._end([row[0] for _, row in plain])
        self._counters.deltas.update(map(group_of, [job for job, _ in plain]))
        self._counters.deltas.subtract(Counter([row[1:4] for _, row in plain]))

    def _save_one(self, job: Job) -> Saved:
        row = self._read_stored([job.seq]).get(job.seq)
        if row is None or row[5:] != (job.token, job.version - 1):
            return Saved(False, self._read([job.seq]).get(job.seq))
        if job.key is not None and row[3] >= State.SUCCEEDED and not job.is_final:
            holder = find_holder(self._write, self._running, job.queue, job.key)
            if holder is not None:
                return Saved(False, holder)
        queue, kind, state, labels = row[1:5]
        self._update(job, (queue, kind, State(state)), labels)
        return Saved(True, job)

    def _read_stored(self, seqs: Sequence[int]) -> dict[int, Row]:
        """Return the stored columns that a save compares, with the claimed version for a running job."""
        stored = {row[0]: row for row in self._write.execute(sql.SELECT_STORED, (listed(seqs),))}
        for seq, job in self._running.unchanged(seqs).items():
            if seq in stored:
                stored[seq] = (*stored[seq][:-1], job.version)
        return stored

    def _update(self, job: Job, group: Group, labels: bytes | None) -> None:
        """Overwrite a row that has this group and these labels."""
        write_rows(self._write, sql.update, as_rows([job]))
        self._count_off(job.seq, group)
        self._counters.deltas[job.group] += 1
        if job.labels != labels:
            self._label(job.seq, labels, sql.DELETE_LABEL)
            self._label(job.seq, job.labels, sql.insert_labels(1))

    def delete(self, job: Job, beside: Sequence[Document], also: Also) -> Saved:
        check_documents(self._write, beside)
        stored = self._read([job.seq]).get(job.seq)
        if stored is None or not _is_same(stored, job):
            return Saved(False, stored)
        self._forget(stored.seq, stored.group, stored.labels)
        return self._with_others([Saved(True, None)], beside, also)[0]

    def delete_all(self, jobs: Sequence[Job], beside: Sequence[Document]) -> bool:
        check_documents(self._write, beside)
        stored = self._read([job.seq for job in jobs])
        if not all(job.seq in stored and _is_same(stored[job.seq], job) for job in jobs):
            return False
        for job in stored.values():
            self._forget(job.seq, job.group, job.labels)
        write_documents(self._write, beside)
        return True

    def _with_others(self, verdicts: Verdicts, beside: Sequence[Document], also: Also) -> Verdicts:
        """Store the documents and further jobs of a call; return the verdicts with the added jobs."""
        added = self._store_with([verdict.is_saved for verdict in verdicts], beside, also)
        for item, job in added:
            verdicts[item] = verdicts[item]._replace(also=(*verdicts[item].also, job))
        return verdicts

    def _linked(self, jobs: Sequence[Job], items: Sequence[int], also: Also) -> tuple[list[Job], Also]:
        """Number the further jobs of a call, and link the callbacks among them to these jobs, which are these items."""
        ended, added = [*jobs], []
        places = {item: place for place, item in enumerate(items)}
        for seq, (item, job) in enumerate(also, self._counters.take_numbers(len(also))):
            numbered = job._replace(seq=seq)
            if (place := places.get(item)) is not None:
                ended[place], numbered = linked(ended[place], numbered)
            added.append((item, numbered))
        return ended, added

    def _store_with(self, written: Sequence[bool], beside: Sequence[Document], also: Also) -> list[tuple[int, Job]]:
        if any(written) or not written:
            write_documents(self._write, beside)
        items = [item for item, _ in also if written[item]]
        jobs = [job for item, job in also if written[item]]
        if jobs:
            jobs = [*self._insert(jobs, jobs if jobs[0].seq else ())]
        return [*zip(items, jobs, strict=True)]

    def purge(self, seqs: Sequence[int], before: Instant) -> list[int]:
        rows: list[Row] = self._write.execute(sql.SELECT_PURGEABLE, (listed(dict.fromkeys(seqs)), before)).fetchall()
        for seq, queue, kind, state, labels in rows:
            self._forget(seq, (queue, kind, State(state)), labels)
        return sorted(seq for seq, *_ in rows)

    def _forget(self, seq: int, group: Group, labels: bytes | None) -> None:
        self._write.execute(sql.DELETE, (seq,))
        self._count_off(seq, group)
        self._label(seq, labels, sql.DELETE_LABEL)

    def forget_records(self, now: Instant, limit: int) -> int:
        self._write.execute(sql.FORGET_RECORDS, (now, limit))
        return self._write.changes()

    def override(self, queue: str, override: Override | None) -> None:
        if override is None:
            self._write.execute(sql.DROP_OVERRIDE, (queue,))
        else:
            self._write.execute(sql.SET_OVERRIDE, (queue, override.settings, write_pause(override.pause)))

    def _read(self, seqs: Sequence[int]) -> dict[int, Job]:
        return self._running.read(self._write, seqs)

    def _count_off(self, seq: int, group: Group) -> None:
        """Uncount a row of this group. A running job that was only claimed still counts as scheduled on disk."""
        if self._end([seq]):
            group = (*group[:2], State.SCHEDULED)
        self._counters.deltas[group] -= 1

    def _end(self, seqs: Sequence[int]) -> Collection[Job]:
        """End the claims of these jobs, and count them as scheduled like their rows; return those that were claimed."""
        if ended := self._running.end(seqs):
            move(self._counters.moves, ended, State.RUNNING, State.SCHEDULED)
        return ended

    def _label(self, seq: int, labels: bytes | None, statement: str) -> None:
        for name, value in read_labels(labels).items():
            self._write.execute(statement, (name, value, seq))


def _is_same(stored: Job, job: Job) -> bool:
    return (stored.token, stored.version) == (job.token, job.version)


def _is_plain(job: Job, stored: Row) -> bool:
    """Return whether a job is the next version of the stored one, needs no check of its key, and keeps its labels."""
    is_next = stored[5:] == (job.token, job.version - 1)
    return is_next and stored[4] == job.labels and (job.key is None or job.is_final)
