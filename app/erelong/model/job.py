"""One job: its fields, and every step of its life. No I/O, no clock.

                          ┌───────── run, patch, reschedule, replace
                          ▼         │
    submit ──────────► scheduled ───┴── cancel ──► cancelled ──┐
                        │  ▲  │                                │
                  start │  │  └──────── expire ──► expired ────┤
                        ▼  │ another attempt                   │
                      running ──────────────────► succeeded    │
                        │  └──── stopped ───────► cancelled ───┤
                        └─────── gave up ───────► failed ──────┤
                           ▲                                   │
                           └── (scheduled) ◄── retry ──────────┘

Only `retry` leaves a final state, and nothing leaves `succeeded`. A running job whose key a newer job has taken is
superseded: it is never scheduled again. A failure makes it failed; a loss or a release makes it cancelled.
"""

from __future__ import annotations

from enum import IntEnum
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, assert_never

import orjson

from erelong.errors import WrongState
from erelong.model.ended_leases import MAX_ENDED_LEASES, NO_LEASES, read_ended_leases, with_ended_lease
from erelong.model.extras import Extras, join_labels, offset_of, pop_lease, read_extras, rewritten, with_lease
from erelong.model.history import NO_ATTEMPTS, with_attempt
from erelong.model.ids import write_id
from erelong.model.outcome import DROPPED, SUPERSEDED, UNEXPLAINED, End, Error, Outcome, expired
from erelong.model.retry import RetryPolicy, read_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.clock.instants import Instant

MAX_LOSSES = 3
SECOND = 1_000_000
NOTHING = b"{}"


class State(IntEnum):
    """The state of a job; its wire word is the name in lower case."""

    SCHEDULED = 0
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    CANCELLED = 4
    EXPIRED = 5

    @property
    def word(self) -> str:
        return WORDS[self]

    @property
    def is_final(self) -> bool:
        return self >= State.SUCCEEDED


_SCHEDULED = State.SCHEDULED  # an enum looks its members up in Python. hot: submit
WORDS = tuple(state.name.lower() for state in State)
STATES = {state.name.lower(): state for state in State}


class Job(NamedTuple):
    """A job as it is stored. Every step returns a new job with a higher `version`.

    A named tuple, since a frozen dataclass of this width takes 13 times as long to make.
    """

    # identity: the store counts `seq`, `token` makes the id unguessable
    seq: int
    token: str
    created_at: Instant
    # submitted for this job alone; labels, extras and params are JSON text
    execute_at: Instant
    key: str | None
    labels: bytes | None
    extras: bytes | None  # see `Extras`
    params: bytes
    # progress
    due_at: Instant | None
    expires_at: Instant | None
    attempt: int
    version: int
    late_by: float | None
    # submitted, and shared with similar jobs (see `JobSpec`)
    kind: str
    queue: str
    priority: int
    timeout: float
    retry: bytes
    expires_after: float | None
    # earlier attempts, which few waiting jobs have; error and attempts (see `history`) are JSON text as clients read it
    error: bytes | None = None
    attempts: bytes = NO_ATTEMPTS
    failures: int = 0
    losses: int = 0
    ended_leases: bytes = NO_LEASES
    # the same in all waiting jobs, and in all jobs just claimed (see `begun`)
    state: State = State.SCHEDULED
    cancel_requested: bool = False
    superseded: bool = False  # a newer job took its key while it ran
    started_at: Instant | None = None
    finished_at: Instant | None = None
    result: bytes | None = None
    result_truncated: bool = False
    lease: str | None = None  # the token of the pull worker that holds it
    lease_until: Instant | None = None

    @property
    def id(self) -> str:
        return write_id(self.seq, self.token)

    @property
    def is_final(self) -> bool:
        return self.state >= State.SUCCEEDED

    @property
    def policy(self) -> RetryPolicy:
        return read_policy(self.retry)

    def was_leased_by(self, token: str) -> bool:
        """Whether the token is or was a lease of this job. Once older tokens are dropped, any token may have been."""
        ended = read_ended_leases(self.ended_leases)
        return self.lease == token or len(ended) >= MAX_ENDED_LEASES or any(token == earlier for earlier, _ in ended)

    def is_same_attempt(self, running: Job) -> bool:
        """Whether this job is still in the same attempt as `running`."""
        return self.state is _RUNNING and self.started_at == running.started_at

    @property
    def history(self) -> bytes:
        """The attempts as clients read them.

        A first success without output or worker is not stored, since the other fields imply it: less work in two
        threads, and a row that is a third smaller.
        """
        if self.state is not State.SUCCEEDED or self.attempts != NO_ATTEMPTS or self.finished_at is None:
            return self.attempts
        started_at = self.started_at or self.finished_at
        return with_attempt(NO_ATTEMPTS, self.attempt, started_at, self.finished_at, self.late_by, Outcome(_WELL))

    def _implies_history(self, outcome: Outcome) -> bool:
        """Whether `history` can be derived from the other fields after this outcome."""
        return outcome.end is _WELL and not outcome.output and self.attempts == NO_ATTEMPTS

    @property
    def group(self) -> tuple[str, str, State]:
        """The key under which the job is counted."""
        return (self.queue, self.kind, self.state)

    @property
    def wakes_at(self) -> Instant | None:
        """When the scheduler must read this job again: at its due time or its expiry."""
        due_at, expires_at = self.due_at, self.expires_at
        if due_at is None or self.state is not _SCHEDULED:
            return None
        return due_at if expires_at is None else min(due_at, expires_at)

    @property
    def offset(self) -> int:
        """By how many microseconds its `spread` delays the first attempt."""
        return 0 if self.extras is None else offset_of(read_extras(self.extras), self.token)

    def alike(
        self,
        *,
        params: bytes,
        execute_at: Instant,
        now: Instant,
        token: str,
        key: str | None = None,
        labels: bytes | None = None,
    ) -> Job:
        """Return a new job with the spec and extras of this unstarted one. These imply no labels and no time."""
        due_at = execute_at if execute_at > now else now
        expires_at = None if self.expires_after is None else expiry(due_at, self.expires_after)
        own = (0, token, now, execute_at, key, labels, self.extras, params, due_at, expires_at, 0, 1, None)
        return tuple.__new__(Job, own + shared_of(self))

    def with_extras(self, extras: Extras) -> Job:
        """Return this version of the job with other extras and their system labels; lost extras stay lost."""
        return self._with(rewritten(self.extras, self.labels, extras))

    # steps of a waiting job

    def start(self, now: Instant) -> Job:
        """Begin the next attempt."""
        self._must_wait("start")
        late = 0 if self.due_at is None else max(0, now - self.due_at)
        changes = {"state": _RUNNING, "attempt": self.attempt + 1, "started_at": now, "late_by": late / SECOND}
        return self._with(changes | {"version": self.version + 1})

    def move(self, execute_at: Instant, now: Instant) -> Job:
        """Move the job to another time, to which its spread is added; a time in the past means now."""
        self._must_wait("change")
        due_at = max(execute_at + self.offset, now)
        return self._replace(
            execute_at=execute_at,
            due_at=due_at,
            expires_at=expiry(due_at, self.expires_after),
            version=self.version + 1,
        )

    def expire_after(self, expires_after: float | None, now: Instant) -> Job:
        """Set another `expires_after`, counted from the later of now and the time that `move` would set."""
        self._must_wait("change")
        expires_at = expiry(max(self.execute_at + self.offset, now), expires_after)
        return self._replace(expires_after=expires_after, expires_at=expires_at, version=self.version + 1)

    def rewrite(self, *, params: bytes, labels: bytes | None, priority: int, timeout: float, retry: bytes) -> Job:
        """Change the content of a job; its due time and its system labels stay."""
        self._must_wait("change")
        if self.extras is not None and labels != self.labels:
            labels = join_labels(labels, read_extras(self.extras))
        return self._replace(
            params=params, labels=labels, priority=priority, timeout=timeout, retry=retry, version=self.version + 1
        )

    def run_now(self, now: Instant) -> Job:
        """Make the job due at once, unless it is due already; `execute_at` keeps the requested time."""
        self._must_wait("run")
        return self if (self.due_at or now) <= now else self._replace(due_at=now, version=self.version + 1)

    def expire(self, now: Instant) -> Job:
        self._must_wait("expire")
        return self._end(State.EXPIRED, now, expired(self.attempt, self.error))

    def drop(self, now: Instant) -> Job:
        self._must_wait("drop")
        return self._end(State.CANCELLED, now, DROPPED)

    # steps of a running job

    def lease_out(self, token: str, until: Instant, worker: str | None = None, seconds: float | None = None) -> Job:
        """Lease the running attempt to a pull worker, which may have a name."""
        extras = with_lease(self.extras, seconds, worker)
        return self._replace(lease=token, lease_until=until, extras=extras, version=self.version + 1)

    def extend(self, until: Instant, seconds: float | None = None) -> Job:
        return self._replace(lease_until=until, extras=with_lease(self.extras, seconds), version=self.version + 1)

    def supersede(self) -> Job:
        """Give the key up to a newer job; the attempt continues."""
        return self._replace(key=None, superseded=True, version=self.version + 1)

    def finish(self, outcome: Outcome, now: Instant, *, backoff: float = 0.0, answer: str = "") -> Job:
        """End the running attempt: the job is final, or scheduled again in `backoff` seconds. `answer` ended a lease.

        A loss without an error is the fault of the service; with one (a lease that ran out) it is a failed attempt.
        """
        if self.state is not _RUNNING:
            raise self._wrong("finish")
        job = self._record(outcome, now, answer)
        match outcome.end:
            case End.SUCCEEDED:
                return job
            case End.CANCELLED:
                return job._stop(now, outcome.error)
            case End.RELEASED:
                return job._release(now)
            case End.LOST if outcome.error is None:
                return job._lose(now)
            case End.ERROR | End.TIMEOUT | End.CRASHED | End.LOST:
                return job._fail(outcome, now, backoff)
            case _:
                assert_never(outcome.end)

    def _record(self, outcome: Outcome, now: Instant, answer: str) -> Job:
        """Apply the changes that every outcome makes, and those of a success."""
        changes: dict[str, Any] = {"version": self.version + 1}
        worker = None
        if self.lease is not None:
            worker, extras = pop_lease(self.extras)
            changes |= {"lease": None, "lease_until": None, "extras": extras}
            changes["ended_leases"] = with_ended_lease(self.ended_leases, self.lease, answer)
        if worker is not None or not self._implies_history(outcome):
            attempt = (self.attempt, self.started_at or now, now, self.late_by, outcome, worker)
            changes["attempts"] = with_attempt(self.attempts, *attempt)
        if outcome.end is _WELL:
            changes |= {"state": _SUCCEEDED, "due_at": None, "finished_at": now, "error": None}
            changes |= {"result": outcome.result, "result_truncated": outcome.result_truncated}
        return self._with(changes)

    def _fail(self, outcome: Outcome, now: Instant, backoff: float) -> Job:
        error = outcome.error or UNEXPLAINED[outcome.end]
        losses = self.losses + 1 if outcome.end is End.CRASHED else 0
        job = self._replace(failures=self.failures + 1, losses=losses)
        if self.cancel_requested:
            return job._stop(now, error)
        if self.superseded and outcome.end is End.LOST:
            return job._give_way(now)
        if losses >= MAX_LOSSES:
            message = f"the process running it ended {losses} times in a row; it may be the cause: {error.message}"
            error = Error(error.type, message, retryable=False)
        job = job._replace(error=error.to_json())
        if self.superseded or not error.retryable or job.failures >= self.policy.max_attempts:
            return job._replace(state=State.FAILED, due_at=None, finished_at=now)
        return job._again(now + round(max(backoff, outcome.delay) * SECOND))

    def _release(self, now: Instant) -> Job:
        if self.cancel_requested:
            return self._stop(now)
        job = self._replace(attempt=self.attempt - 1)
        return job._give_way(now) if self.superseded else job._again(now)

    def _lose(self, now: Instant) -> Job:
        """Count an attempt that the service lost. It is no failure of the job unless it happens every time."""
        job = self._replace(losses=self.losses + 1)
        if self.cancel_requested:
            return job._stop(now)
        if self.superseded:
            return job._give_way(now)
        if job.losses >= MAX_LOSSES:
            message = f"the service stopped {job.losses} times in a row while it ran; it may be the cause"
            error = Error("lost", message, retryable=False)
            return job._replace(state=State.FAILED, due_at=None, finished_at=now, error=error.to_json())
        return job._again(now)._replace(error=UNEXPLAINED[End.LOST].to_json())

    def _again(self, due_at: Instant) -> Job:
        return self._replace(state=State.SCHEDULED, due_at=due_at)

    def _stop(self, now: Instant, error: Error | None = None) -> Job:
        """End as cancelled; the reason of the cancel request takes precedence over the error of the attempt."""
        if self.cancel_requested and self.error is not None and orjson.loads(self.error)["type"] == "cancelled":
            return self._replace(state=State.CANCELLED, due_at=None, finished_at=now)
        if error is None or error.type != "cancelled":
            error = Error("cancelled", "cancelled while it ran", retryable=False)
        return self._replace(state=State.CANCELLED, due_at=None, finished_at=now, error=error.to_json())

    def _give_way(self, now: Instant) -> Job:
        """End without another attempt, since a newer job has the key."""
        return self._replace(state=State.CANCELLED, due_at=None, finished_at=now, error=SUPERSEDED.to_json())

    # steps of waiting and running jobs

    def cancel(self, now: Instant, reason: str | None = None) -> Job:
        """End a waiting job, or request that a running one stop. A repeated request changes nothing."""
        if self.state is State.CANCELLED or (self.state is State.RUNNING and self.cancel_requested):
            return self
        error = Error("cancelled", reason or "cancelled on request", retryable=False)
        if self.state is State.RUNNING:
            kept = error.to_json() if reason else self.error
            return self._replace(cancel_requested=True, error=kept, version=self.version + 1)
        self._must_wait("cancel")
        return self._end(State.CANCELLED, now, error)

    def mark_unreadable(self, now: Instant, why: str) -> Job:
        """Fail a job whose stored form cannot be read; a final state stays."""
        error = Error("unreadable", why, retryable=False)
        if self.is_final:
            return self._replace(error=error.to_json(), version=self.version + 1)
        return self._end(State.FAILED, now, error)

    def revive(self, now: Instant) -> Job:
        """Schedule a job again that did not succeed, with the same id and history."""
        if self.state not in (State.FAILED, State.CANCELLED, State.EXPIRED):
            raise self._wrong("retry")
        changes = {"due_at": now, "expires_after": None, "expires_at": None, "attempt": 0, "late_by": None}
        return self._with(AFRESH | changes | {"version": self.version + 1})

    def _with(self, changes: Mapping[str, Any]) -> Job:
        """Do what `_replace` does at half its cost, for the steps of every job."""
        fields = list(self)
        for name, value in changes.items():
            fields[PLACES[name]] = value
        return tuple.__new__(Job, fields)

    def _end(self, state: State, now: Instant, error: Error) -> Job:
        return self._replace(state=state, due_at=None, finished_at=now, error=error.to_json(), version=self.version + 1)

    def _must_wait(self, verb: str) -> None:
        if self.state is not State.SCHEDULED:
            raise self._wrong(verb)

    def _wrong(self, verb: str) -> WrongState:
        return WrongState(f"cannot {verb} job {self.id}", state=self.state.word, job=self)


PLACES = {name: index for index, name in enumerate(Job._fields)}
_RUNNING, _SUCCEEDED, _WELL = State.RUNNING, State.SUCCEEDED, End.SUCCEEDED  # hot: drain
SPEC = slice(PLACES["kind"], PLACES["error"])
spec_of, shared_of = itemgetter(SPEC), itemgetter(slice(SPEC.start, None))
UNBEGUN = tuple(Job._field_defaults.values())  # the last fields of a new job, after the spec
AFRESH = {name: value for name, value in Job._field_defaults.items() if name not in ("attempts", "ended_leases")}


def begun(now: Instant) -> tuple[State, bool, bool, Instant, None, None, bool, None, None]:
    """Return the last fields, from `state` on, of a job whose attempt starts now."""
    return (_RUNNING, False, False, now, None, None, False, None, None)


def expiry(start: Instant, expires_after: float | None) -> Instant | None:
    """Return the instant at which a job expires that may start from `start`."""
    return None if expires_after is None else start + round(expires_after * SECOND)
