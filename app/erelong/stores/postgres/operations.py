"""The writes of the store boundary, as changes of a draft. Each first names the rows that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import orjson

from erelong.errors import IdempotencyMismatch
from erelong.model.conflict import settle
from erelong.model.document import must_follow
from erelong.model.extras import end_plainly
from erelong.model.history import NO_ATTEMPTS
from erelong.model.ids import parse_id
from erelong.model.job import Job, State
from erelong.model.reports.callback import linked
from erelong.model.submission import ADDED, AddResult, AddStatus, IdempotencyRecord, NewJob, Receipt, are_written
from erelong.stores.base import FINISHED, REFUSED, Claim, Ending, Override, Saved
from erelong.stores.postgres.draft import Draft, Needs, StoredRecord
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from erelong.clock.instants import Instant
    from erelong.model.document import Document
    from erelong.stores.base import Also, Verdicts

ROW = 500  # bytes of a job beside its params

log = get_logger(__name__)


class Operation(Protocol):
    """A write. `apply` may raise a `Problem`, before its first change."""

    def gather(self, needs: Needs) -> None: ...

    def apply(self, draft: Draft) -> object: ...


class Add(NamedTuple):
    """`Store.add`."""

    new_jobs: Sequence[NewJob]
    now: Instant
    is_whole: bool
    record: IdempotencyRecord | None
    beside: Sequence[Document]
    also: Also

    def gather(self, needs: Needs) -> None:
        needs.numbers += len(self.new_jobs) + len(self.also)
        needs.size += sum([len(job.params) for job, _ in self.new_jobs]) + ROW * len(self.new_jobs)
        needs.keys.update((job.queue, job.key) for job, _ in self.new_jobs if job.key is not None)
        if self.record is not None:
            needs.records.add((self.record.caller, self.record.key))
        needs.documents.update((document.sort, document.name) for document in self.beside)

    def apply(self, draft: Draft) -> Receipt:
        record = self.record
        if record is not None:
            receipt = replay(record, draft.record((record.caller, record.key)), draft.find, self.now)
            if receipt is not None:
                return receipt
        must_follow(self.beside, draft.document)
        entries = self._add(draft)
        if record is not None and not any(entry.status is AddStatus.CONFLICT for entry in entries):
            ids = orjson.dumps([entry.job.id for entry in entries])
            stored = StoredRecord(record.digest, ids, self.now + record.life)
            draft.records[record.caller, record.key] = stored
        if not (self.beside or self.also):
            return Receipt([*entries])
        added = _write_others(draft, are_written(entries, is_whole=self.is_whole), self.beside, self.also)
        return Receipt([*entries], also=tuple(job for _, job in added))

    def _add(self, draft: Draft) -> list[AddResult]:
        if all(new_job.job.key is None for new_job in self.new_jobs):
            return [AddResult(ADDED, job) for job in draft.add([new_job.job for new_job in self.new_jobs])]
        before = draft.copy() if self.is_whole else draft
        entries = [_add_keyed(draft, new_job, self.now) for new_job in self.new_jobs]
        if self.is_whole and any(entry.status is AddStatus.CONFLICT for entry in entries):
            draft.restore(before)
        return entries


def _add_keyed(draft: Draft, new_job: NewJob, now: Instant) -> AddResult:
    job = new_job.job
    holder = draft.holder(job.queue, job.key)
    if holder is None:
        return AddResult(ADDED, draft.add([job])[0])
    settled = settle(holder, job, new_job.on_conflict, now)
    if settled is None:
        return AddResult(AddStatus.CONFLICT, holder)
    if settled is holder:
        return AddResult(AddStatus.EXISTS, holder)
    draft.put(settled)
    if settled.superseded:
        return AddResult(ADDED, draft.add([job])[0], settled)
    return AddResult(AddStatus.CHANGED, settled)


def replay(
    record: IdempotencyRecord, stored: StoredRecord | None, find: Callable[[int], Job | None], now: Instant
) -> Receipt | None:
    """Return the receipt of the add that stored this record; None if there was none."""
    if stored is None or stored.expires_at <= now:
        return None
    if stored.digest != record.digest:
        raise IdempotencyMismatch(f"Idempotency-Key {record.key!r} was used for another request; use a new key")
    found = [(find(seq), token) for seq, token in read_ids(stored.ids)]
    current = [job if job is not None and job.token == token else None for job, token in found]
    return Receipt([AddResult(AddStatus.EXISTS, job) if job else None for job in current], replayed=True)


def read_ids(ids: bytes) -> list[tuple[int, str]]:
    return [parse_id(id_) or (0, "") for id_ in orjson.loads(ids)]


class ClaimJobs(NamedTuple):
    """`Store.claim`."""

    seqs: Sequence[int]
    now: Instant

    def gather(self, needs: Needs) -> None:
        needs.claims.setdefault(self.now, []).extend(self.seqs)

    def apply(self, draft: Draft) -> Claim:
        claim, now = Claim([*draft.claim_some(self.seqs)], [], []), self.now
        if len(claim.jobs) == len(self.seqs):  # as nearly always
            return claim
        for seq in dict.fromkeys(self.seqs):
            job = draft.find(seq)
            if job is None or job.state is not State.SCHEDULED or job.due_at is None:
                continue
            if job.due_at > now:
                claim.early.append((job.due_at, seq))
            elif job.expires_at is None or job.expires_at > now:
                if (flaw := draft.stored.flaws.get(seq)) is not None and seq not in draft.rows:
                    claim.unreadable.append(_mark_unreadable(draft, job, flaw, now))
                else:
                    started = job.start(now)
                    draft.claim(started)
                    claim.jobs.append(started)
        return claim


def _mark_unreadable(draft: Draft, job: Job, flaw: str, now: Instant) -> Job:
    log.error("job_unreadable", job=job.id, field=flaw)
    unreadable = job.mark_unreadable(now, f"its stored {flaw} cannot be read")
    draft.put(unreadable)
    return unreadable


class Finish(NamedTuple):
    """`Store.finish`."""

    endings: Sequence[Ending]
    beside: Sequence[Document]
    also: Also

    def gather(self, needs: Needs) -> None:
        needs.seqs.update([ending.job.seq for ending in self.endings])
        _gather_others(needs, self.beside, self.also)

    def apply(self, draft: Draft) -> Verdicts:
        must_follow(self.beside, draft.document)
        plain, others = self._sort(draft)
        after = [self.endings[index].after for index in others]  # may raise, so it comes before any change
        after, also = _linked(draft, after, others, self.also) if self.also else (after, self.also)
        draft.succeed(plain)
        verdicts = [FINISHED] * len(self.endings)
        for index, job in zip(others, after, strict=True):
            verdicts[index] = _save(draft, job)
        return _with_others(draft, verdicts, self.beside, also) if self.beside or also else verdicts

    def _sort(self, draft: Draft) -> tuple[dict[int, Ending], list[int]]:
        """Return the jobs that succeed unchanged since their claim, so that few columns are written and no row is read,
        and the indexes of the other endings.
        """
        plain: dict[int, Ending] = {}
        others: list[int] = []
        earlier: set[int] = set()  # jobs of the others: an attempt may end twice in one call, and its first end counts
        last, is_plain = None, False
        for index, ending in enumerate(self.endings):
            job, outcome = ending.job, ending.outcome
            if outcome is not last:  # successes without a result share one object
                last, is_plain = outcome, outcome.is_plain
            if (
                is_plain
                and draft.unchanged(job.seq) is job
                and job.seq not in plain
                and job.seq not in earlier
                and job.attempts == NO_ATTEMPTS
                and (job.extras is None or end_plainly(job.extras))
            ):
                plain[job.seq] = ending
            else:
                others.append(index)
                earlier.add(job.seq)
        return plain, others


class Save(NamedTuple):
    """`Store.save`."""

    jobs: Sequence[Job]
    beside: Sequence[Document]
    also: Also

    def gather(self, needs: Needs) -> None:
        needs.seqs.update([job.seq for job in self.jobs])
        needs.keys.update((job.queue, job.key) for job in self.jobs if job.key is not None and not job.is_final)
        _gather_others(needs, self.beside, self.also)

    def apply(self, draft: Draft) -> Verdicts:
        must_follow(self.beside, draft.document)
        jobs, also = self.jobs, self.also
        if also:
            jobs, also = _linked(draft, jobs, range(len(jobs)), also)
        return _with_others(draft, [_save(draft, job) for job in jobs], self.beside, also)


class SaveWhole(Save):
    """`Store.save` of all jobs or none."""

    __slots__ = ()

    def apply(self, draft: Draft) -> Verdicts:
        must_follow(self.beside, draft.document)
        if not self._are_savable(draft):
            return [REFUSED] * len(self.jobs)
        return super().apply(draft)

    def _are_savable(self, draft: Draft) -> bool:
        keys: set[tuple[str, str]] = set()
        for job in self.jobs:
            stored = draft.find(job.seq)
            if stored is None or (stored.token, stored.version) != (job.token, job.version - 1):
                return False
            if job.key is not None and stored.is_final and not job.is_final:
                if (job.queue, job.key) in keys or draft.holder(job.queue, job.key) is not None:
                    return False
                keys.add((job.queue, job.key))
        return True


def _save(draft: Draft, job: Job) -> Saved:
    stored = draft.find(job.seq)
    if stored is None or (stored.token, stored.version) != (job.token, job.version - 1):
        return Saved(False, stored)
    if stored.is_final and not job.is_final and (holder := draft.holder(job.queue, job.key)) is not None:
        return Saved(False, holder)
    draft.put(job)
    return Saved(True, job)


class Delete(NamedTuple):
    """`Store.delete`."""

    job: Job
    beside: Sequence[Document]
    also: Also

    def gather(self, needs: Needs) -> None:
        needs.seqs.add(self.job.seq)
        _gather_others(needs, self.beside, self.also)

    def apply(self, draft: Draft) -> Saved:
        must_follow(self.beside, draft.document)
        stored = draft.find(self.job.seq)
        if stored is None or not _is_same(stored, self.job):
            return Saved(False, stored)
        draft.drop(stored.seq)
        return _with_others(draft, [Saved(True, None)], self.beside, self.also)[0]


class DeleteAll(NamedTuple):
    """`Store.delete_all`."""

    jobs: Sequence[Job]
    beside: Sequence[Document]

    def gather(self, needs: Needs) -> None:
        needs.seqs.update([job.seq for job in self.jobs])
        _gather_others(needs, self.beside, ())

    def apply(self, draft: Draft) -> bool:
        must_follow(self.beside, draft.document)
        pairs = [(draft.find(job.seq), job) for job in self.jobs]
        if not all(stored is not None and _is_same(stored, job) for stored, job in pairs):
            return False
        for job in self.jobs:
            draft.drop(job.seq)
        _write_others(draft, [], self.beside, ())
        return True


def _is_same(stored: Job, job: Job) -> bool:
    return (stored.token, stored.version) == (job.token, job.version)


class Purge(NamedTuple):
    """`Store.purge`."""

    seqs: Sequence[int]
    before: Instant

    def gather(self, needs: Needs) -> None:
        needs.seqs.update(self.seqs)

    def apply(self, draft: Draft) -> list[int]:
        jobs = [job for seq in dict.fromkeys(self.seqs) if (job := draft.find(seq)) is not None]
        ended = [job.seq for job in jobs if job.finished_at is not None and job.finished_at < self.before]
        for seq in ended:
            draft.drop(seq)
        return sorted(ended)


class ForgetRecords(NamedTuple):
    """`Store.forget_records`."""

    now: Instant
    limit: int

    def gather(self, needs: Needs) -> None:
        needs.expired[self.now, self.limit] = []

    def apply(self, draft: Draft) -> int:
        names = [name for name in draft.stored.expired[self.now, self.limit] if name not in draft.records]
        draft.records.update(dict.fromkeys(names))
        return len(names)


class SetOverride(NamedTuple):
    """`Store.override`."""

    queue: str
    override: Override | None

    def gather(self, needs: Needs) -> None:
        """Need nothing."""

    def apply(self, draft: Draft) -> None:
        draft.overrides[self.queue] = self.override


class Settle(NamedTuple):
    """`Store.settle`: the writer has done all earlier groups, and knows which of them are stored."""

    def gather(self, needs: Needs) -> None:
        """Need nothing."""

    def apply(self, draft: Draft) -> None:
        """Change nothing."""


def _gather_others(needs: Needs, beside: Iterable[Document], also: Also) -> None:
    needs.numbers += len(also)
    needs.documents.update((document.sort, document.name) for document in beside)


def _linked(draft: Draft, jobs: Sequence[Job], items: Sequence[int], also: Also) -> tuple[list[Job], Also]:
    """Number the further jobs of a call, and link the callbacks among them to these jobs, which are these items."""
    ended, added = [*jobs], []
    places = {item: place for place, item in enumerate(items)}
    for seq, (item, job) in enumerate(also, draft.numbers.take(len(also))):
        numbered = job._replace(seq=seq)
        if (place := places.get(item)) is not None:
            ended[place], numbered = linked(ended[place], numbered)
        added.append((item, numbered))
    return ended, added


def _with_others(draft: Draft, verdicts: Verdicts, beside: Sequence[Document], also: Also) -> Verdicts:
    """Write the documents and further jobs of a call; return the verdicts with the added jobs."""
    for item, job in _write_others(draft, [verdict.is_saved for verdict in verdicts], beside, also):
        verdicts[item] = verdicts[item]._replace(also=(*verdicts[item].also, job))
    return verdicts


def _write_others(
    draft: Draft, written: Sequence[bool], beside: Sequence[Document], also: Also
) -> list[tuple[int, Job]]:
    if any(written) or not written:
        draft.documents.update({(document.sort, document.name): document for document in beside})
    items = [item for item, _ in also if written[item]]
    jobs = [job for item, job in also if written[item]]
    if jobs and jobs[0].seq:  # `_linked` has numbered them
        draft.add_numbered(jobs)
    elif jobs:
        jobs = draft.add(jobs)
    return [*zip(items, jobs, strict=True)]
