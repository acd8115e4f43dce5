"""What every store provides: durable reads and writes of many jobs at once. Its callers decide, and read the clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from erelong.errors import StoreRefused
from erelong.model.document import Document
from erelong.model.job import Job, State, spec_of
from erelong.model.spec import JobSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from erelong.clock.instants import Instant
    from erelong.clock.remote import RemoteClock
    from erelong.errors import Exit
    from erelong.model.outcome import Outcome
    from erelong.model.query import Query
    from erelong.model.submission import IdempotencyRecord, NewJob, Receipt

Group = tuple[str, str, State]
"""Queue, kind and state: the key under which jobs are counted."""


class Peek(NamedTuple):
    """The fields of a waiting job that the lanes need; far cheaper to read than the whole job."""

    seq: int
    due_at: Instant
    expires_at: Instant | None
    labels: bytes | None
    spec: JobSpec


def peek_at(job: Job) -> Peek:
    return Peek(job.seq, job.due_at or 0, job.expires_at, job.labels, JobSpec._make(spec_of(job)))


def peeks_of(jobs: Iterable[Job]) -> Peeks:
    """Peek at those of these jobs that are scheduled."""
    return [peek_at(job) for job in jobs if job.state is State.SCHEDULED]


class Claim(NamedTuple):
    """The claimed jobs, which are running; waiting jobs that are not due; unreadable jobs, which are failed."""

    jobs: list[Job]
    early: list[tuple[Instant, int]]
    unreadable: list[Job]


class Ending(NamedTuple):
    """An attempt that is over: its job as it ran, the outcome, the time, and the seconds until a retry."""

    job: Job
    outcome: Outcome
    at: Instant
    backoff: float = 0.0

    @property
    def seq(self) -> int:
        return self.job.seq

    @property
    def after(self) -> Job:
        """The job after this ending. Made on demand, since the store needs it for few successes."""
        return self.job.finish(self.outcome, self.at, backoff=self.backoff)


class Saved(NamedTuple):
    """Whether a job was saved or deleted, and the job as it is stored then.

    The job may be missing from a verdict of `finish`, and is missing after a delete. If the job was not saved, `job` is
    the one that prevented it (None: the job is gone).
    """

    is_saved: bool
    job: Job | None
    also: Sequence[Job] = ()
    """The further jobs added with it, with their numbers."""


FINISHED = Saved(True, None)
REFUSED = Saved(False, None)

# After the method `list`, the body of a store class cannot use the type of that name.
Jobs = list[Job]
Peeks = list[Peek]
Seqs = list[int]
Instants = list[tuple[int, int]]
"""Pairs of an instant and the `seq` of the job."""
Documents = list[Document]
Verdicts = list[Saved]
"""One for each job to be saved, in order."""


class Pause(NamedTuple):
    """When a queue was paused, by which API key (None: by an anonymous client), and why."""

    at: Instant
    by: str | None = None
    reason: str | None = None


class Override(NamedTuple):
    """The settings that a queue got over HTTP, as JSON (None: none), and its pause (None: not paused)."""

    settings: bytes | None = None
    pause: Pause | None = None


class Bins(NamedTuple):
    """Consecutive spans of due times: the first begins at `start`, each lasts `step` microseconds."""

    start: Instant
    step: int
    number: int

    @property
    def end(self) -> Instant:
        return self.start + self.step * self.number


class Spread(NamedTuple):
    """How many waiting jobs are due in each bin, before and after them. Of many jobs only every n-th was read."""

    counts: list[int]
    overdue: int
    later: int
    sampled: int = 1


class Found(NamedTuple):
    """A page of a search: jobs, how many were read to find them, and where the search goes on (None: it is over)."""

    jobs: list[Job]
    scanned: int
    after: tuple[Instant, int] | None


class Tally(NamedTuple):
    """How many jobs match, how many were read to count them, and where the count goes on (None: it is complete)."""

    matches: int
    scanned: int
    after: tuple[Instant, int] | None


Also = Sequence[tuple[int, Job]]
"""New jobs without a key, each with the index of the item that it is added with."""


class Store(Protocol):
    """Stores jobs. A method returns only when its changes are durable.

    `open` may raise `errors.Exit`; the other methods raise `errors.StorageFull` or `errors.StoreUnavailable`.

    `add`, `save`, `finish` and the deletes can store more in the same commit. A job of `also` is added if its item is
    written; `save` and `finish` link callbacks among them to their items, as `model/reports/callback.linked` says. The
    documents of `beside` are stored unless every item is refused. If one of them is not the next version of the stored
    document, the call raises `errors.DocumentChanged` and stores nothing.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def settle(self) -> None:
        """Wait until no earlier write can still take effect, also of those that failed. Reads then find what they did.

        A write that has failed by a timeout, or that nobody awaits, may still be under way.
        """
        ...

    def status(self) -> str | None:
        """Return the problem of the store for operators, or None. It starts with "ok" if the service can still run."""
        ...

    async def end(self) -> Exit:
        """Wait until the store has failed for good; return the reason."""
        ...

    @property
    def is_trusted(self) -> bool:
        """Whether this process certainly still owns the store. Another one may take over while this one is frozen."""
        ...

    async def trust(self) -> None:
        """Wait until the store is trusted; raise `errors.StoreUnavailable` if another process may have taken over."""

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
        """Add jobs atomically; a live key is unique per queue. With `is_whole`, one conflict rejects all jobs.

        If the record is stored and has not expired, add nothing and return the current state of the earlier jobs. A
        different digest under the same key raises `errors.IdempotencyMismatch`.
        """
        ...

    async def find_replay(self, record: IdempotencyRecord, *, now: Instant) -> Receipt | None:
        """Return the receipt that `add` would replay for this record; None if the record is not stored."""
        ...

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        """Return jobs by number, without unknown and unreadable ones.

        Raise `errors.StoreRefused` if a single job is requested and cannot be read.
        """
        ...

    async def holder(self, queue: str, key: str) -> Job | None:
        """Return the live job that holds a key of a queue."""
        ...

    async def peek(self, seqs: Sequence[int]) -> Peeks:
        """Peek at those of these jobs that are scheduled."""
        ...

    async def list(self, query: Query) -> list[Job]:
        """Return a page of a listing, however many jobs must be read to find it."""
        ...

    async def search(self, query: Query, within: int) -> Found:
        """Return a page of a listing. To check its residue, read at most `within` jobs: the page may be short."""
        ...

    async def tally(self, query: Query, within: int) -> Tally:
        """Count the jobs of a listing behind its position. Read at most `within` jobs."""
        ...

    async def label_values(self, name: str) -> Sequence[str]:
        """Return the values that a label has in any job, ascending."""
        ...

    async def due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        """Return one page of the due times and earlier expiries of waiting jobs, ascending, strictly after `after`."""
        ...

    async def spread(self, bins: Bins, query: Query) -> Spread:
        """Count the waiting jobs of these queues and kinds, with these labels, by their due times."""
        ...

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        """Start those of these jobs that are waiting, due and not expired, in this order.

        A claim survives the process, not a power cut.
        """
        ...

    async def save(
        self, jobs: Sequence[Job], *, is_whole: bool = False, beside: Sequence[Document] = (), also: Also = ()
    ) -> Verdicts:
        """Write each job whose stored version is the preceding one and, for a revived job, whose key is free.

        With `is_whole`, one job that cannot be written rejects all of them. The verdict on a saved job has the job as
        it is stored: only there is its callback named.
        """
        ...

    async def finish(self, endings: Sequence[Ending], *, beside: Sequence[Document] = (), also: Also = ()) -> Verdicts:
        """End running jobs, as `save` would with `Ending.after`. The verdict on a success may leave out the job."""
        ...

    async def delete(self, job: Job, *, beside: Sequence[Document] = (), also: Also = ()) -> Saved:
        """Delete a job if it still has this version."""
        ...

    async def delete_all(self, jobs: Sequence[Job], *, beside: Sequence[Document] = ()) -> bool:
        """Delete jobs and store documents if all of the jobs still have these versions; return whether they had."""
        ...

    async def ended(
        self, queue: str, state: State, *, after: tuple[Instant, int], before: Instant, limit: int
    ) -> Instants:
        """Return one page of the end times of final jobs, ascending: strictly after `after` and before `before`."""
        ...

    async def purge(self, seqs: Sequence[int], *, before: Instant) -> Seqs:
        """Delete those of these jobs that ended before an instant; return these in order."""
        ...

    async def forget_records(self, *, now: Instant, limit: int) -> int:
        """Delete up to `limit` expired idempotency records; return their number."""
        ...

    async def document(self, sort: str, name: str) -> Document | None: ...

    async def documents(self, sort: str, *, after: str = "", limit: int) -> Documents:
        """Return one page of the documents of a sort, ordered by name, strictly after `after`."""
        ...

    async def named(self, sort: str, names: Sequence[str]) -> Documents:
        """Return those of these documents of a sort that exist, in any order."""
        ...

    def counts(self) -> Mapping[Group, int]:
        """Return the number of jobs in each group; an empty group may be absent or 0."""
        ...

    def waiting(self, queue: str) -> int:
        """Return the number of scheduled jobs in a queue."""
        ...

    async def overrides(self) -> dict[str, Override]: ...

    async def override(self, queue: str, override: Override | None) -> None:
        """Set or remove the override of a queue."""
        ...


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that several nodes have open. One of them leads and alone writes; the others can read.

    `open` leads if no other node does. A write of a node that does not lead raises `errors.NotLeading`.
    """

    @property
    def clock(self) -> RemoteClock:
        """The clock that all nodes share."""
        ...

    @property
    def may_lead(self) -> bool:
        """Whether this node takes over if no other one leads."""
        ...

    @property
    def is_vacant(self) -> bool:
        """Whether no other node leads, by the last look."""
        ...

    @property
    def looks(self) -> int:
        """How often this node has looked who leads."""
        ...

    @property
    def snapshot_age(self) -> float:
        """For how many seconds another session has kept the database from removing dead rows."""
        ...

    def standby(self) -> str | None:
        """Return why this node does not lead, or None if it does."""
        ...

    async def lead(self) -> None:
        """Wait until this node leads; raise `errors.Exit` if it cannot."""
        ...

    async def resign(self) -> None:
        """Store what has been submitted, and let another node lead. The store can still be read."""
        ...


async def get_readable(store: Store, seqs: Sequence[int]) -> dict[int, Job]:
    """Return jobs by number, without unknown and unreadable ones, also if only one is requested."""
    try:
        return await store.get(seqs) if seqs else {}
    except StoreRefused:
        return {}
