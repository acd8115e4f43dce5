"""The changes of one group of calls, worked out in memory before anything is sent.

Only this process writes, so what a group has read still holds when its changes are written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.job import Job, State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.model.document import Document
    from erelong.stores.base import Ending, Group, Override

Name = tuple[str, str]


class StoredRecord(NamedTuple):
    """An idempotency record as it is stored: the digest of the body, the ids as JSON, and when it expires."""

    digest: bytes
    ids: bytes
    expires_at: Instant


@dataclass(slots=True)
class Needs:
    """What the calls of a group must know of the database, and how many job numbers they may take."""

    seqs: set[int] = field(default_factory=set)
    claims: dict[Instant, list[int]] = field(default_factory=dict)
    keys: set[Name] = field(default_factory=set)
    records: set[Name] = field(default_factory=set)
    documents: set[Name] = field(default_factory=set)
    expired: dict[tuple[Instant, int], list[Name]] = field(default_factory=dict)
    numbers: int = 0
    size: int = 0  # about how many bytes of jobs they write

    @property
    def is_empty(self) -> bool:
        return not (self.seqs or self.claims or self.keys or self.records or self.documents or self.expired)


@dataclass(slots=True)
class Stored:
    """What was read of the database."""

    jobs: dict[int, Job] = field(default_factory=dict)  # as their rows say, whether they are claimed or not
    flaws: dict[int, str] = field(default_factory=dict)  # the first unreadable column of a row
    claimable: dict[int, Job] = field(default_factory=dict)  # started; only those that no other call of the group needs
    holders: dict[Name, int] = field(default_factory=dict)
    records: dict[Name, StoredRecord] = field(default_factory=dict)
    documents: dict[Name, Document] = field(default_factory=dict)
    expired: dict[tuple[Instant, int], list[Name]] = field(default_factory=dict)


@dataclass(slots=True)
class Numbers:
    """A block of job numbers that only this term may use."""

    next: int = 0
    end: int = 0

    def take(self, jobs: int) -> int:
        """Take consecutive numbers; return the first."""
        first = self.next
        self.next += jobs
        assert self.next <= self.end, "the numbers of a group are reserved before it is drafted"
        return first


@dataclass(slots=True, kw_only=True)
class Draft:
    """The database as the calls of a group leave it."""

    running: Mapping[int, Job]
    stored: Stored
    numbers: Numbers
    rows: dict[int, Job | None] = field(default_factory=dict)  # None: deleted
    added: set[int] = field(default_factory=set)
    claims: dict[int, Job] = field(default_factory=dict)
    successes: dict[int, Ending] = field(default_factory=dict)  # of jobs unchanged since their claim
    holders: dict[Name, int | None] = field(default_factory=dict)
    records: dict[Name, StoredRecord | None] = field(default_factory=dict)
    documents: dict[Name, Document] = field(default_factory=dict)  # without text: deleted
    overrides: dict[str, Override | None] = field(default_factory=dict)

    # reads

    def find(self, seq: int) -> Job | None:
        if (job := self.claims.get(seq)) is not None:
            return job
        if seq in self.rows:
            return self.rows[seq]
        if (ending := self.successes.get(seq)) is not None:
            return ending.after
        return self.running.get(seq) or self.stored.jobs.get(seq)

    def unchanged(self, seq: int) -> Job | None:
        """Return a job that was claimed before this group and has not changed since."""
        return None if seq in self.rows or seq in self.successes else self.running.get(seq)

    def holder(self, queue: str, key: str | None) -> Job | None:
        if key is None:
            return None
        name = (queue, key)
        seq = self.holders[name] if name in self.holders else self.stored.holders.get(name)
        return None if seq is None else self.find(seq)

    def record(self, name: Name) -> StoredRecord | None:
        return self.records[name] if name in self.records else self.stored.records.get(name)

    def document(self, sort: str, name: str) -> Document | None:
        found = self.documents.get((sort, name)) or self.stored.documents.get((sort, name))
        return None if found is None or found.text is None else found

    # changes

    def add(self, jobs: Sequence[Job]) -> list[Job]:
        """Add new jobs; return them with their numbers."""
        first = self.numbers.take(len(jobs))
        numbered = [tuple.__new__(Job, (seq, *job[1:])) for seq, job in enumerate(jobs, first)]
        self.add_numbered(numbered)
        return numbered

    def add_numbered(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.rows[job.seq] = job
            self.added.add(job.seq)
            if job.key is not None and not job.is_final:
                self.holders[job.queue, job.key] = job.seq

    def claim_some(self, seqs: Sequence[int]) -> Iterable[Job]:
        """Claim what no other call of the group needs; return the started jobs."""
        claimable, claims = self.stored.claimable, self.claims
        started = {seq: claimable[seq] for seq in seqs if seq in claimable and seq not in claims}
        claims |= started
        return started.values()

    def claim(self, job: Job) -> None:
        self.claims[job.seq] = job

    def succeed(self, endings: Mapping[int, Ending]) -> None:
        for ending in endings.values():
            self._free(ending.job)
        self.successes |= endings

    def put(self, job: Job) -> None:
        """Overwrite a job."""
        self._overwrite(job.seq, job)
        if job.key is not None and not job.is_final:
            self.holders[job.queue, job.key] = job.seq

    def drop(self, seq: int) -> None:
        """Delete a job."""
        self._overwrite(seq, None)

    def _overwrite(self, seq: int, job: Job | None) -> None:
        if (before := self.find(seq)) is not None:
            self._free(before)
        self.claims.pop(seq, None)
        self.successes.pop(seq, None)
        self.rows[seq] = job

    def _free(self, job: Job) -> None:
        if job.key is not None and not job.is_final:
            self.holders[job.queue, job.key] = None

    # for the writer

    def before(self, seq: int) -> Job | None:
        """Return a job as it was before this group."""
        return None if seq in self.added else self.running.get(seq) or self.stored.jobs.get(seq)

    def row_version(self, seq: int) -> int:
        """Return the version that the row of a job has. A claim raises the version without writing the row."""
        running = self.running.get(seq)
        return self.stored.jobs[seq].version if running is None else running.version - 1

    def row_group(self, seq: int) -> Group | None:
        """Return the group in which the row of a job was counted; that of a claimed job still waits."""
        if (job := self.before(seq)) is None:
            return None
        return (job.queue, job.kind, State.SCHEDULED) if seq in self.running else job.group

    @property
    def changed(self) -> set[int]:
        return self.rows.keys() | self.successes.keys() | self.claims.keys()

    def copy(self) -> Draft:
        copied = Draft(running=self.running, stored=self.stored, numbers=self.numbers)
        for name in ("rows", "added", "claims", "successes", "holders", "records", "documents", "overrides"):
            setattr(copied, name, getattr(self, name).copy())
        return copied

    def restore(self, copied: Draft) -> None:
        """Return to an earlier state of the draft."""
        for name in ("rows", "added", "claims", "successes", "holders", "records", "documents", "overrides"):
            setattr(self, name, getattr(copied, name))
