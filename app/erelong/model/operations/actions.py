"""What an operation does to one job: the step of the single call, decided from values alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, assert_never

from erelong.clock.instants import format_instant
from erelong.errors import Fault, Invalid, Problem
from erelong.model.extras import LOCAL, patched, read_extras
from erelong.model.operations.operation import Action, JobError
from erelong.model.times.spread import job_offset

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from erelong.clock.instants import Instant
    from erelong.model.job import Job
    from erelong.model.operations.operation import Request

KEY_TAKEN = "key_taken"


class Changer(Protocol):
    """Applies the changes of a PATCH."""

    def change(self, job: Job, change: Mapping[str, object], now: Instant) -> Job:
        """Return the job with a change that was stored as JSON. Raise a `Problem` if the job refuses it."""
        ...

    def latest(self, now: Instant) -> Instant:
        """Return the latest due time that a change may set."""
        ...


class Decided(NamedTuple):
    """What becomes of some jobs: those to save, each before and after; those to delete; those that refuse."""

    saved: list[tuple[Job, Job]]
    deleted: list[Job]
    failures: list[JobError]
    unchanged: int = 0
    """How many are as the operation would make them."""

    @property
    def done(self) -> int:
        return len(self.saved) + len(self.deleted) + self.unchanged

    def joined(self, other: Decided) -> Decided:
        return Decided(
            self.saved + other.saved,
            self.deleted + other.deleted,
            self.failures + other.failures,
            self.unchanged + other.unchanged,
        )


def decide(
    request: Request, jobs: Iterable[Job], held: Collection[tuple[str, str]], changer: Changer, now: Instant
) -> Decided:
    """Apply the action to jobs that match. `held` has the queues and keys of live jobs, which no other may revive."""
    taken = set(held)
    saved: list[tuple[Job, Job]] = []
    deleted: list[Job] = []
    failures: list[JobError] = []
    unchanged = 0
    for job in jobs:
        if request.action is Action.DELETE:
            deleted.append(job)
            continue
        if request.action is Action.RETRY and job.key is not None:
            if (job.queue, job.key) in taken:
                failures.append(JobError(job.id, KEY_TAKEN))
                continue
            taken.add((job.queue, job.key))
        try:
            after = apply(request, job, changer, now)
        except Problem as problem:
            failures.append(JobError(job.id, problem.code))
            continue
        if after is job:
            unchanged += 1
        else:
            saved.append((job, after))
    return Decided(saved, deleted, failures, unchanged)


def apply(request: Request, job: Job, changer: Changer, now: Instant) -> Job:
    """Return a job after the action, which is not a delete. Raise a `Problem` if the job refuses it."""
    match request.action:
        case Action.CANCEL:
            return job.cancel(now, request.reason)
        case Action.RUN:
            return job.run_now(_spread(job, request.spread, now))
        case Action.RETRY:
            revived = job.revive(now)
            return revived._replace(due_at=_spread(job, request.spread, now)) if request.spread else revived
        case Action.PATCH if request.shift is not None:
            return _shift(job, request.shift, now, changer.latest(now))
        case Action.PATCH:
            return changer.change(job, request.change or {}, now)
        case Action.DELETE | Action.BACKFILL:
            raise ValueError(f"{request.action} is not a step of a job")
        case _:
            assert_never(request.action)


def _shift(job: Job, by: int, now: Instant, latest: Instant) -> Job:
    """Move the due time and the expiry by so many microseconds, but to no time before now. A local time is void.

    Raise `Invalid` for a move beyond `latest`.
    """
    due_at = now if job.due_at is None else job.due_at
    moved = max(due_at + by, now)
    if moved > max(latest, due_at):
        detail = f"would move the due time to {format_instant(moved)}; the latest is {format_instant(latest)}"
        raise Invalid("the job is not shifted", faults=[Fault("/shift", f"{detail} (max_horizon)")])
    expires_at = None if job.expires_at is None else job.expires_at + moved - due_at
    after = job._replace(due_at=moved, expires_at=expires_at, version=job.version + 1)
    if job.extras is None:
        return after
    return after.with_extras(patched(read_extras(job.extras), dict.fromkeys(LOCAL)))


def _spread(job: Job, spread: float, now: Instant) -> Instant:
    """Return now and a share of `spread` that follows from the id."""
    return now + (job_offset(job.token, spread) if spread else 0)
