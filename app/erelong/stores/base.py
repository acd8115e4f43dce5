"""The store boundary: small, batched, without policy; `now` is always an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from erelong.model.document import Document
from erelong.model.job import Job, State, spec_of
from erelong.model.spec import JobSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant
    from erelong.errors import Exit
    from erelong.model.outcome import Outcome
    from erelong.model.query import Query
    from erelong.model.submission import IdempotencyRecord, NewJob, Receipt

Group = tuple[str, str, State]
"""Queue, kind and state: what jobs are counted by."""


class Peek(NamedTuple):
    """As much of a waiting job as says where and until when it waits: a fraction of the cost of reading it all."""

    seq: int
    due_at: Instant
    expires_at: Instant | None
    labels: bytes | None
    spec: JobSpec


def peek_at(job: Job) -> Peek:
    return Peek(job.seq, job.due_at or 0, job.expires_at, job.labels, JobSpec._make(spec_of(job)))


class Claim(NamedTuple):
    """The jobs taken, now running; those that wait and are not due (any more); those unreadable, now failed."""

    jobs: list[Job]
    early: list[tuple[Instant, int]]
    unreadable: list[Job]


class Ending(NamedTuple):
    """An attempt that is over: its job as it ran, what came of it, when, and the seconds until another may follow."""

    job: Job
    outcome: Outcome
    at: Instant
    backoff: float = 0.0

    @property
    def seq(self) -> int:
        return self.job.seq

    @property
    def after(self) -> Job:
        """What it makes of the job: made when it is asked for, which it never is of most successes."""
        return self.job.finish(self.outcome, self.at, backoff=self.backoff)


class Saved(NamedTuple):
    """Whether a job was saved or deleted; if not, the job that stood in the way (None: it is gone)."""

    is_saved: bool
    job: Job | None
    also: Sequence[Job] = ()
    """The jobs that were added with it, with their numbers."""


FINISHED = Saved(True, None)

# A store has a method of the name `list`: behind it in the class the type cannot be said.
Jobs = list[Job]
Peeks = list[Peek]
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
    """What was set over HTTP for a queue: its settings as JSON (None: none) and its pause (None: it is not paused)."""

    settings: bytes | None = None
    pause: Pause | None = None


Also = Sequence[tuple[int, Job]]
"""New jobs without a key, each with the index of the item of the call that it is added with."""


class Store(Protocol):
    """Where jobs live. A method returns only when what it says is durable.

    `open` may raise `errors.Exit`; the rest raise `errors.StorageFull` or `errors.StoreUnavailable`.

    `add`, `save`, `finish` and `delete` store more in the same commit. A job of `also` is added if its item is written.
    The documents of `beside` are stored unless every item is refused; if one does not follow on the stored version,
    the call raises `errors.DocumentChanged` and stores nothing.
    """

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def status(self) -> str | None:
        """What keeps it from doing all its work, for people; it begins with "ok" if the service is fit all the same."""
        ...

    async def end(self) -> Exit:
        """Wait until it can never store anything again; why comes back."""
        ...

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
        """Add jobs atomically; a live key is unique per queue. `is_whole`: one conflict and nothing is stored.

        With a memo that is stored and has not expired, nothing is added and the jobs of then are returned as they are
        now; another digest under the same key raises `errors.IdempotencyMismatch`.
        """
        ...

    async def find_replay(self, record: IdempotencyRecord, *, now: Instant) -> Receipt | None:
        """The answer to an add that had this memo, as `add` would give it again; None if there was none."""
        ...

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        """Read jobs by number; the unknown are absent, and those that cannot be read.

        Asked for one job that cannot be read, it raises `errors.StoreRefused`.
        """
        ...

    async def holder(self, queue: str, key: str) -> Job | None:
        """Return the live job of a queue that holds a key."""
        ...

    async def peek(self, seqs: Sequence[int]) -> Peeks:
        """Look at those of these jobs that are scheduled."""
        ...

    async def list(self, query: Query) -> list[Job]: ...

    async def due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        """One page of the instants at which waiting jobs must be looked at, ascending, strictly after `after`."""
        ...

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        """Start those that wait, are due and have not expired, in this order.

        A claim survives the process, not a power cut.
        """
        ...

    async def save(self, jobs: Sequence[Job], *, beside: Sequence[Document] = (), also: Also = ()) -> Verdicts:
        """Write each job whose stored version is the one before its own, and whose key is free if it comes alive."""
        ...

    async def finish(self, endings: Sequence[Ending], *, beside: Sequence[Document] = (), also: Also = ()) -> Verdicts:
        """End running jobs, each as `save` would write what comes after it; what came of a success need not be told."""
        ...

    async def delete(self, job: Job, *, beside: Sequence[Document] = (), also: Also = ()) -> Saved:
        """Forget a job, if it still has this version."""
        ...

    async def ended(
        self, queue: str, state: State, *, after: tuple[Instant, int], before: Instant, limit: int
    ) -> Instants:
        """Return one page of when final jobs ended, ascending: strictly after `after`, and earlier than `before`."""
        ...

    async def purge(self, seqs: Sequence[int], *, before: Instant) -> int:
        """Delete those of these jobs that ended before an instant; return how many."""
        ...

    async def forget_records(self, *, now: Instant, limit: int) -> int:
        """Delete some of the idempotency_records that have expired; return how many."""
        ...

    async def document(self, sort: str, name: str) -> Document | None: ...

    async def documents(self, sort: str, *, after: str = "", limit: int) -> Documents:
        """Return one page of the documents of a sort in the order of their names, strictly after `after`."""
        ...

    def counts(self) -> Mapping[Group, int]:
        """How many jobs there are of each group; one that is empty may be there, at 0, or not."""
        ...

    def waiting(self, queue: str) -> int:
        """Return how many jobs of a queue are scheduled."""
        ...

    async def overrides(self) -> dict[str, Override]: ...

    async def override(self, queue: str, override: Override | None) -> None:
        """Set or drop what was set over HTTP for a queue."""
        ...
