"""The in-memory store: for tests and demonstrations, and the reference model for other stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from erelong.errors import IdempotencyMismatch
from erelong.model.conflict import settle
from erelong.model.document import must_follow
from erelong.model.job import Job, State
from erelong.model.matching.residue import NO_RESIDUE
from erelong.model.query import PREVIEW, Order, Query
from erelong.model.reports.callback import linked
from erelong.model.submission import AddResult, AddStatus, IdempotencyRecord, NewJob, Receipt, are_written
from erelong.stores.base import REFUSED, Claim, Found, Override, Peeks, Saved, Spread, Tally, peeks_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.errors import Exit
    from erelong.model.document import Document
    from erelong.stores.base import Also, Bins, Documents, Ending, Group, Instants, Jobs, Seqs, Verdicts


class MemoryStore:
    """Keeps jobs in a dict; nothing survives the process."""

    is_trusted = True

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._counts: Counter[Group] = Counter()
        self._overrides: dict[str, Override] = {}
        self._records: dict[tuple[str, str], tuple[bytes, list[Job], Instant]] = {}  # the instant is the expiry
        self._documents: dict[tuple[str, str], Document] = {}
        self._last_seq = 0

    async def trust(self) -> None:
        pass

    async def open(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""

    async def settle(self) -> None:
        """Do nothing."""

    def status(self) -> str | None:
        return None

    async def end(self) -> Exit:
        never: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        return await never

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
        if record is not None and (receipt := self._find_replay(record, now)) is not None:
            return receipt
        self._must_follow(beside)
        before = self._jobs.copy() if is_whole else self._jobs
        entries = [self._add(new_job, now) for new_job in new_jobs]
        has_conflict = any(entry.status is AddStatus.CONFLICT for entry in entries)
        if is_whole and has_conflict:
            self._jobs = before
            self._recount()
        elif record is not None and not has_conflict:
            self._records[record.caller, record.key] = (
                record.digest,
                [entry.job for entry in entries],
                now + record.life,
            )
        added = self._store_with(are_written(entries, is_whole=is_whole), beside, also)
        return Receipt([*entries], also=tuple(job for _, job in added))

    async def find_replay(self, record: IdempotencyRecord, *, now: Instant) -> Receipt | None:
        return self._find_replay(record, now)

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        return {seq: self._jobs[seq] for seq in seqs if seq in self._jobs}

    async def holder(self, queue: str, key: str) -> Job | None:
        return self._holder(queue, key)

    async def peek(self, seqs: Sequence[int]) -> Peeks:
        jobs = (self._jobs[seq] for seq in seqs if seq in self._jobs)
        return peeks_of(jobs)

    async def list(self, query: Query) -> list[Job]:
        return [_viewed(job, query) for job in self._listed(query)[: query.limit]]

    async def search(self, query: Query, within: int) -> Found:
        listed = self._listed(replace(query, residue=NO_RESIDUE))
        jobs: list[Job] = []
        scanned = 0
        for job in listed[:within]:
            if len(jobs) == query.limit:
                break
            scanned += 1
            if query.residue.matches(job):
                jobs.append(_viewed(job, query))
        return Found(jobs, scanned, query.position(listed[scanned - 1]) if scanned < len(listed) else None)

    async def tally(self, query: Query, within: int) -> Tally:
        if query.is_counted:
            return Tally(len(self._listed(query)), 0, None)
        listed = self._listed(replace(query, residue=NO_RESIDUE))
        read = listed[:within]
        after = query.position(read[-1]) if len(read) < len(listed) else None
        return Tally(sum(map(query.residue.matches, read)), len(read), after)

    def _listed(self, query: Query) -> Jobs:
        """Return all jobs of a listing behind its position."""
        jobs = [job for job in self._jobs.values() if query.matches(job)]
        jobs.sort(key=query.position, reverse=query.is_descending)
        after = query.after
        if after is None:
            return jobs
        if query.order is Order.CREATED:
            after = (0, after[1])
        if query.is_descending:
            return [job for job in jobs if query.position(job) < after]
        return [job for job in jobs if query.position(job) > after]

    async def label_values(self, name: str) -> Sequence[str]:
        every = (orjson.loads(job.labels) for job in self._jobs.values() if job.labels)
        return sorted({labels[name] for labels in every if name in labels})

    async def due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        instants = [(job.due_at, job.seq) for job in self._jobs.values() if job.wakes_at is not None]
        instants += [
            (job.expires_at, job.seq)
            for job in self._jobs.values()
            if job.wakes_at is not None and job.wakes_at != job.due_at
        ]
        return sorted((at, seq) for at, seq in instants if at is not None and after < (at, seq) and at < before)[:limit]

    async def spread(self, bins: Bins, query: Query) -> Spread:
        counts, overdue, later = [0] * bins.number, 0, 0
        for job in self._jobs.values():
            if job.state is not State.SCHEDULED or job.due_at is None or not query.matches(job):
                continue
            if job.due_at < bins.start:
                overdue += 1
            elif job.due_at >= bins.end:
                later += 1
            else:
                counts[(job.due_at - bins.start) // bins.step] += 1
        return Spread(counts, overdue, later)

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        taken: list[Job] = []
        early: list[tuple[Instant, int]] = []
        for seq in dict.fromkeys(seqs):
            job = self._jobs.get(seq)
            if job is None or job.state is not State.SCHEDULED or job.due_at is None:
                continue
            if job.due_at > now:
                early.append((job.due_at, seq))
            elif job.expires_at is None or job.expires_at > now:
                taken.append(job.start(now))
                self._put(taken[-1])
        return Claim(taken, early, [])

    async def save(
        self, jobs: Sequence[Job], *, is_whole: bool = False, beside: Sequence[Document] = (), also: Also = ()
    ) -> Verdicts:
        self._must_follow(beside)
        if is_whole and not self._are_savable(jobs):
            return [REFUSED] * len(jobs)
        jobs, also = self._linked(jobs, also)
        return self._with_others([self._save(job) for job in jobs], beside, also)

    async def finish(self, endings: Sequence[Ending], *, beside: Sequence[Document] = (), also: Also = ()) -> Verdicts:
        self._must_follow(beside)
        jobs, also = self._linked([ending.after for ending in endings], also)
        return self._with_others([self._save(job) for job in jobs], beside, also)

    async def delete(self, job: Job, *, beside: Sequence[Document] = (), also: Also = ()) -> Saved:
        self._must_follow(beside)
        stored = self._jobs.get(job.seq)
        if stored is None or (stored.token, stored.version) != (job.token, job.version):
            return Saved(False, stored)
        self._forget(stored)
        return self._with_others([Saved(True, None)], beside, also)[0]

    async def delete_all(self, jobs: Sequence[Job], *, beside: Sequence[Document] = ()) -> bool:
        self._must_follow(beside)
        stored = [self._jobs.get(job.seq) for job in jobs]
        pairs = zip(stored, jobs, strict=True)
        if not all(now and (now.token, now.version) == (job.token, job.version) for now, job in pairs):
            return False
        for job in jobs:
            self._forget(self._jobs[job.seq])
        self._store_with([], beside, ())
        return True

    async def ended(
        self, queue: str, state: State, *, after: tuple[Instant, int], before: Instant, limit: int
    ) -> Instants:
        jobs = [job for job in self._jobs.values() if (job.queue, job.state) == (queue, state)]
        ended = [(job.finished_at, job.seq) for job in jobs if job.finished_at is not None]
        return sorted(entry for entry in ended if entry > after and entry[0] < before)[:limit]

    async def purge(self, seqs: Sequence[int], *, before: Instant) -> Seqs:
        jobs = [self._jobs[seq] for seq in dict.fromkeys(seqs) if seq in self._jobs]
        ended = [job for job in jobs if job.finished_at is not None and job.finished_at < before]
        for job in ended:
            self._forget(job)
        return sorted(job.seq for job in ended)

    async def forget_records(self, *, now: Instant, limit: int) -> int:
        records = self._records.items()
        expired = sorted((expires_at, name) for name, (_, _, expires_at) in records if expires_at <= now)[:limit]
        for _, name in expired:
            del self._records[name]
        return len(expired)

    async def document(self, sort: str, name: str) -> Document | None:
        return self._documents.get((sort, name))

    async def documents(self, sort: str, *, after: str = "", limit: int) -> Documents:
        names = sorted(name for kind, name in self._documents if kind == sort and name > after)
        return [self._documents[sort, name] for name in names[:limit]]

    async def named(self, sort: str, names: Sequence[str]) -> Documents:
        return [self._documents[sort, name] for name in names if (sort, name) in self._documents]

    def counts(self) -> Mapping[Group, int]:
        return self._counts

    def waiting(self, queue: str) -> int:
        return sum(
            jobs for (name, _, state), jobs in self._counts.items() if name == queue and state is State.SCHEDULED
        )

    async def overrides(self) -> dict[str, Override]:
        return self._overrides.copy()

    async def override(self, queue: str, override: Override | None) -> None:
        if override is None:
            self._overrides.pop(queue, None)
        else:
            self._overrides[queue] = override

    def _add(self, new_job: NewJob, now: Instant) -> AddResult:
        holder = self._holder(new_job.job.queue, new_job.job.key)
        if holder is None:
            return AddResult(AddStatus.ADDED, self._insert(new_job.job))
        settled = settle(holder, new_job.job, new_job.on_conflict, now)
        if settled is None:
            return AddResult(AddStatus.CONFLICT, holder)
        if settled is holder:
            return AddResult(AddStatus.EXISTS, holder)
        self._put(settled)
        if settled.superseded:
            return AddResult(AddStatus.ADDED, self._insert(new_job.job), settled)
        return AddResult(AddStatus.CHANGED, settled)

    def _must_follow(self, documents: Sequence[Document]) -> None:
        must_follow(documents, lambda sort, name: self._documents.get((sort, name)))

    def _linked(self, jobs: Sequence[Job], also: Also) -> tuple[Jobs, Also]:
        """Number the further jobs of a call, and link the callbacks among them to the jobs that they report."""
        ended, added = [*jobs], []
        for item, job in also:
            self._last_seq += 1
            ended[item], callback = linked(ended[item], job._replace(seq=self._last_seq))
            added.append((item, callback))
        return ended, added

    def _with_others(self, verdicts: Verdicts, beside: Sequence[Document], also: Also) -> Verdicts:
        for item, job in self._store_with([verdict.is_saved for verdict in verdicts], beside, also):
            verdicts[item] = verdicts[item]._replace(also=(*verdicts[item].also, job))
        return verdicts

    def _store_with(self, written: Sequence[bool], beside: Sequence[Document], also: Also) -> Also:
        for document in beside if any(written) or not written else ():
            if document.text is None:
                self._documents.pop((document.sort, document.name), None)
            else:
                self._documents[document.sort, document.name] = document
        added = []
        for item, job in also:
            if written[item] and job.seq:  # `_linked` has numbered it
                self._put(job)
                added.append((item, job))
            elif written[item]:
                added.append((item, self._insert(job)))
        return added

    def _save(self, job: Job) -> Saved:
        stored = self._jobs.get(job.seq)
        if stored is None or stored.version != job.version - 1 or stored.token != job.token:
            return Saved(False, stored)
        if stored.is_final and not job.is_final and (holder := self._holder(job.queue, job.key)) is not None:
            return Saved(False, holder)
        self._put(job)
        return Saved(True, job)

    def _are_savable(self, jobs: Sequence[Job]) -> bool:
        """Return whether `_save` would write all of these jobs."""
        keys: set[tuple[str, str]] = set()
        for job in jobs:
            stored = self._jobs.get(job.seq)
            if stored is None or stored.version != job.version - 1 or stored.token != job.token:
                return False
            if job.key is not None and stored.is_final and not job.is_final:
                if (job.queue, job.key) in keys or self._holder(job.queue, job.key) is not None:
                    return False
                keys.add((job.queue, job.key))
        return True

    def _insert(self, job: Job) -> Job:
        self._last_seq += 1
        job = job._replace(seq=self._last_seq)
        self._put(job)
        return job

    def _holder(self, queue: str, key: str | None) -> Job | None:
        if key is None:
            return None
        held = (job for job in self._jobs.values() if job.key == key and job.queue == queue)
        return next((job for job in held if not job.is_final), None)

    def _put(self, job: Job) -> None:
        stored = self._jobs.get(job.seq)
        self._counts[job.group] += 1
        self._jobs[job.seq] = job
        if stored is not None:
            self._count_off(stored)

    def _forget(self, job: Job) -> None:
        del self._jobs[job.seq]
        self._count_off(job)

    def _count_off(self, job: Job) -> None:
        """Uncount a job; drop the groups of a queue and kind without jobs."""
        self._counts[job.group] -= 1
        groups = [(job.queue, job.kind, state) for state in State]
        if not any(self._counts.get(group) for group in groups):
            for group in groups:
                self._counts.pop(group, None)

    def _find_replay(self, record: IdempotencyRecord, now: Instant) -> Receipt | None:
        digest, jobs, expires_at = self._records.get((record.caller, record.key), (b"", [], now))
        if expires_at <= now:
            return None
        if digest != record.digest:
            raise IdempotencyMismatch(f"Idempotency-Key {record.key!r} was used for another request; use a new key")
        current = [self._jobs.get(job.seq) for job in jobs]
        return Receipt([AddResult(AddStatus.EXISTS, job) if job else None for job in current], replayed=True)

    def _recount(self) -> None:
        self._counts = Counter(dict.fromkeys(self._counts, 0))
        self._counts.update(job.group for job in self._jobs.values())


def _viewed(job: Job, query: Query) -> Job:
    if query.is_full:
        return job
    return job._replace(params=job.params[:PREVIEW] if query.is_line else b"{}", result=None, attempts=b"[]")
