"""The spread of one job: fixed by its id, counted by its expiry, kept by changes, not added to a retry."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from erelong.model.conflict import OnConflict, settle
from erelong.model.extras import Extras
from erelong.model.job import SECOND, Job
from erelong.model.outcome import End, Outcome
from erelong.model.times.spread import MAX_SPREAD
from tests.support.builders import NOW, make_failure, make_job

SPREAD = 3600.0
SPREADS: Extras = {"spread": SPREAD}


def share_of(job: Job) -> float:
    """Return the share that the contract derives from the id of a job."""
    return int(job.id[-16:], 16) / 2**64


@given(spread=st.floats(0.001, MAX_SPREAD), delay=st.floats(-100, 100_000))
def test_due_at_is_execute_at_and_the_share_of_the_spread(spread: float, delay: float) -> None:
    job = make_job(delay=delay, extras={"spread": spread})

    expected = job.execute_at + (round(spread * SECOND) * int(job.id[-16:], 16) >> 64)
    assert job.due_at == max(expected, NOW)
    assert job.due_at >= job.execute_at


def test_expiry_counts_from_the_later_of_the_spread_time_and_now() -> None:
    waiting = make_job(delay=10, extras=SPREADS, expires_after=60)
    past = make_job(delay=-7200, extras=SPREADS, expires_after=60)

    assert waiting.expires_at == waiting.execute_at + waiting.offset + 60 * SECOND
    assert (past.due_at, past.expires_at) == (NOW, NOW + 60 * SECOND)


def test_moved_job_keeps_its_share() -> None:
    job = make_job(delay=10, extras=SPREADS, expires_after=60)

    moved = job.move(NOW + 500 * SECOND, NOW)

    assert moved.due_at == NOW + 500 * SECOND + job.offset
    assert moved.expires_at == moved.due_at + 60 * SECOND


def test_another_expiry_counts_from_the_spread_time() -> None:
    job = make_job(delay=10, extras=SPREADS)

    assert job.expire_after(5.0, NOW).expires_at == job.execute_at + job.offset + 5 * SECOND


def test_run_is_now_and_a_retry_is_not_spread() -> None:
    job = make_job(delay=10, extras=SPREADS)
    running = job.start(NOW)

    retried = running.finish(make_failure(), NOW + SECOND, backoff=30.0)
    released = running.finish(Outcome(End.RELEASED), NOW + SECOND)
    revived = running.finish(make_failure(retryable=False), NOW).revive(NOW + 2 * SECOND)

    assert job.run_now(NOW + SECOND).due_at == NOW + SECOND
    assert retried.due_at == NOW + 31 * SECOND
    assert released.due_at == NOW + SECOND
    assert revived.due_at == NOW + 2 * SECOND
    assert {after.extras for after in (retried, released, revived)} == {job.extras}


def test_replaced_job_is_spread_by_the_id_that_it_keeps() -> None:
    holder = make_job(key="k", seq=7)
    incoming = make_job(key="k", delay=100, extras=SPREADS, expires_after=60)

    replaced = settle(holder, incoming, OnConflict.REPLACE, NOW)

    assert replaced is not None
    assert (replaced.id, replaced.version) == (holder.id, 2)
    assert replaced.due_at == incoming.execute_at + replaced.offset != incoming.due_at
    assert replaced.expires_at == replaced.due_at + 60 * SECOND


def test_rescheduled_job_takes_the_spread_of_the_new_submit() -> None:
    holder = make_job(key="k", seq=7, extras={"spread": 10.0, "callback_of": "7"})

    spread = settle(holder, make_job(key="k", delay=100, extras=SPREADS), OnConflict.RESCHEDULE, NOW)
    plain = settle(holder, make_job(key="k", delay=100), OnConflict.RESCHEDULE, NOW)

    assert spread is not None
    assert plain is not None
    assert spread.due_at == NOW + 100 * SECOND + int(share_of(holder) * SPREAD * SECOND)
    assert spread.extras == b'{"spread":3600.0,"callback_of":"7"}'
    assert plain.due_at == NOW + 100 * SECOND
    assert plain.extras == b'{"callback_of":"7"}'
