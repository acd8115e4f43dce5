"""The invariants of a job hold for any order of allowed and refused steps."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from erelong.errors import WrongState
from erelong.model.conflict import OnConflict, settle
from erelong.model.history import MAX_ATTEMPTS_KEPT
from erelong.model.job import MAX_LOSSES, SECOND, Job, State
from erelong.model.outcome import End, Error, Outcome
from tests.support.builders import NOW, make_job, make_retry
from tests.support.examples import examples

WAITING = frozenset({State.SCHEDULED})
RUNNING = frozenset({State.RUNNING})
ENDED_BADLY = frozenset({State.FAILED, State.CANCELLED, State.EXPIRED})
ALL = frozenset(State)

DURATIONS = st.sampled_from([0.0, 0.000001, 1.0, 30.0, 3600.0])
ERRORS = st.builds(Error, st.sampled_from(["exception", "timeout", "cancelled"]), st.just("boom"), st.booleans())
OUTCOMES = st.builds(
    Outcome,
    st.sampled_from([*End, End.LOST, End.ERROR]),
    result=st.none() | st.just(b"1"),
    error=st.none() | ERRORS,
    delay=DURATIONS,
)


class Lifecycle(RuleBasedStateMachine):
    """Runs steps on one job and counts the numbers that it must agree with."""

    @initialize(delay=DURATIONS, expires_after=st.none() | DURATIONS, max_attempts=st.integers(1, 4))
    def submit(self, delay: float, expires_after: float | None, max_attempts: int) -> None:
        self.now = NOW
        self.max_attempts = max_attempts
        self.retry = make_retry(max_attempts=max_attempts)
        self.job = make_job(delay=delay, expires_after=expires_after, retry=self.retry, key="k", seq=1)
        self.first = self.job
        self.has_lost_its_key = False
        self.forget_counts()

    def forget_counts(self) -> None:
        self.starts = self.released = self.failed = self.lost_in_a_row = 0

    @rule(seconds=DURATIONS)
    def pass_time(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)

    @rule()
    def start(self) -> None:
        if self.take(lambda job: job.start(self.now), WAITING):
            self.starts += 1
            assert self.job.state is State.RUNNING
            assert self.job.started_at == self.now

    @rule(outcome=OUTCOMES, backoff=DURATIONS)
    def finish(self, outcome: Outcome, backoff: float) -> None:
        before = self.job
        if not self.take(lambda job: job.finish(outcome, self.now, backoff=backoff), RUNNING):
            return
        self.count(outcome)
        assert self.job.state in ALL - RUNNING
        assert (self.job.state is State.SUCCEEDED) == (outcome.end is End.SUCCEEDED)
        if before.cancel_requested and outcome.end is not End.SUCCEEDED:
            assert self.job.state is State.CANCELLED
        elif before.superseded:
            gives_way = outcome.end in (End.RELEASED, End.LOST, End.CANCELLED)
            assert self.job.state is {End.SUCCEEDED: State.SUCCEEDED}.get(
                outcome.end, State.CANCELLED if gives_way else State.FAILED
            )
        if before.superseded and not before.cancel_requested and outcome.end in (End.RELEASED, End.LOST):
            assert orjson.loads(self.job.error or b"")["type"] == "superseded"
        if self.job.state is State.SCHEDULED:
            assert self.job.due_at is not None
            assert self.job.due_at >= self.now
            assert self.job.failures < self.max_attempts
            assert self.job.losses < MAX_LOSSES
        last = orjson.loads(self.job.history)[-1]
        assert (last["number"], last["outcome"]) == (before.attempt, outcome.end)

    @rule(outcome=OUTCOMES)
    @precondition(lambda self: self.job.state is State.SCHEDULED)
    def run(self, outcome: Outcome) -> None:
        """Run a whole attempt, since random single steps rarely form several."""
        self.start()
        self.finish(outcome, 0.0)

    def count(self, outcome: Outcome) -> None:
        if outcome.end is End.RELEASED:
            self.released += not self.job.cancel_requested
        elif outcome.end is End.LOST and outcome.error is None:
            self.lost_in_a_row += 1
        elif outcome.end not in (End.SUCCEEDED, End.CANCELLED):
            self.failed += 1
            self.lost_in_a_row = self.lost_in_a_row + 1 if outcome.end is End.CRASHED else 0

    @rule(seconds=st.integers(-100, 100))
    def move(self, seconds: int) -> None:
        if self.take(lambda job: job.move(self.now + seconds * SECOND, self.now), WAITING):
            assert self.job.due_at == max(self.job.execute_at, self.now)

    @rule(expires_after=st.none() | DURATIONS)
    def expire_after(self, expires_after: float | None) -> None:
        self.take(lambda job: job.expire_after(expires_after, self.now), WAITING)

    @rule(params=st.sampled_from([b"{}", b'{"a":1}']), priority=st.integers(-100, 100))
    def rewrite(self, params: bytes, priority: int) -> None:
        self.take(
            lambda job: job.rewrite(params=params, labels=None, priority=priority, timeout=1.0, retry=self.retry),
            WAITING,
        )

    @rule()
    def run_now(self) -> None:
        if self.job.state is State.SCHEDULED and (self.job.due_at or 0) <= self.now:
            assert self.job.run_now(self.now) is self.job
        elif self.take(lambda job: job.run_now(self.now), WAITING):
            assert self.job.due_at == self.now

    @rule()
    def expire(self) -> None:
        if self.take(lambda job: job.expire(self.now), WAITING):
            assert self.job.state is State.EXPIRED

    @rule()
    def drop(self) -> None:
        if self.take(lambda job: job.drop(self.now), WAITING):
            assert self.job.state is State.CANCELLED

    @rule(reason=st.none() | st.just("why not"))
    @precondition(lambda self: self.job.state is not State.CANCELLED and not self.job.cancel_requested)
    def cancel(self, reason: str | None) -> None:
        if self.take(lambda job: job.cancel(self.now, reason), WAITING | RUNNING):
            assert self.job.state is State.CANCELLED or self.job.cancel_requested

    @rule()
    @precondition(lambda self: self.job.state is State.CANCELLED)
    def cancel_again(self) -> None:
        assert self.job.cancel(self.now) is self.job

    @rule()
    def mark_unreadable(self) -> None:
        before = self.job
        self.take(lambda job: job.mark_unreadable(self.now, "its stored params cannot be read"), ALL)
        assert self.job.state is (before.state if before.is_final else State.FAILED)

    @rule()
    def again(self) -> None:
        if self.take(lambda job: job.revive(self.now), ENDED_BADLY):
            self.forget_counts()
            assert (self.job.state, self.job.due_at) == (State.SCHEDULED, self.now)

    @rule(on_conflict=st.sampled_from([OnConflict.REPLACE, OnConflict.RESCHEDULE]), delay=DURATIONS)
    @precondition(lambda self: not self.job.is_final and self.job.key is not None)
    def settle(self, on_conflict: OnConflict, delay: float) -> None:
        before = self.job
        incoming = make_job(delay=delay, key="k", retry=self.retry, now=self.now)
        settled = settle(before, incoming, on_conflict, self.now)
        assert settled is not None
        assert settled.superseded == (before.state is State.RUNNING) == (settled.key is None)
        self.take(lambda _: settled, WAITING | RUNNING)
        if settled.superseded:
            self.has_lost_its_key = True
            assert settled == before._replace(key=None, superseded=True, version=before.version + 1)
        elif on_conflict is OnConflict.REPLACE:
            self.forget_counts()

    def take(self, step: Callable[[Job], Job], allowed: frozenset[State]) -> bool:
        """Take a step if it is allowed; otherwise check that it is refused."""
        before = self.job
        if before.state not in allowed:
            with pytest.raises(WrongState) as caught:
                step(before)
            assert caught.value.job is before
            return False
        self.job = step(before)
        assert self.job.version == before.version + 1
        if before.is_final:
            assert self.job.state in (before.state, State.SCHEDULED)
        return True

    @invariant()
    def identity_is_kept(self) -> None:
        assert (self.job.id, self.job.created_at) == (self.first.id, NOW)
        assert self.job.key == "k" or (self.job.key is None and self.has_lost_its_key)

    @invariant()
    def superseded_job_does_not_wait(self) -> None:
        if self.job.superseded:
            assert self.job.state is not State.SCHEDULED
            assert self.job.key is None

    @invariant()
    def is_due_unless_it_has_ended(self) -> None:
        assert (self.job.due_at is None) == self.job.is_final
        assert (self.job.finished_at is not None) == self.job.is_final
        assert (self.job.wakes_at is not None) == (self.job.state is State.SCHEDULED)

    @invariant()
    def expires_only_if_requested(self) -> None:
        assert (self.job.expires_at is None) == (self.job.expires_after is None)

    @invariant()
    def counts_agree(self) -> None:
        assert self.job.attempt == self.starts - self.released
        assert self.job.failures == self.failed
        assert self.job.losses == self.lost_in_a_row
        assert len(orjson.loads(self.job.history)) <= MAX_ATTEMPTS_KEPT

    @invariant()
    def running_attempt_has_a_start(self) -> None:
        if self.job.state is State.RUNNING:
            assert self.job.attempt >= 1
            assert self.job.started_at is not None
            assert self.job.late_by is not None
            assert self.job.late_by >= 0

    @invariant()
    def bad_end_has_an_error(self) -> None:
        if self.job.state in ENDED_BADLY:
            assert self.job.error is not None
            assert orjson.loads(self.job.error)["message"]

    @invariant()
    def only_running_jobs_have_a_cancel_request(self) -> None:
        if self.job.state is State.SCHEDULED:
            assert not self.job.cancel_requested


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
