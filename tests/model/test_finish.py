"""The end of an attempt, and the state of its job afterwards."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from erelong.clock.instants import format_instant
from erelong.errors import WrongState
from erelong.model.job import SECOND, Job, State
from erelong.model.outcome import End, Error, Outcome
from tests.support.builders import NOW, make_ended, make_failure, make_job, make_retry, make_running

LATER = NOW + 100 * SECOND
FAILURES = [End.ERROR, End.TIMEOUT, End.CRASHED]
LOST = Outcome(End.LOST)


def test_success_ends_the_job_with_its_result() -> None:
    job = make_running().finish(Outcome(End.SUCCEEDED, result=b'"done"', result_truncated=True), LATER)

    assert (job.state, job.due_at, job.finished_at, job.version) == (State.SUCCEEDED, None, LATER, 3)
    assert (job.result, job.result_truncated, job.error) == (b'"done"', True, None)


def test_success_clears_the_error_of_earlier_attempts() -> None:
    second = make_running().finish(make_failure(), NOW).start(NOW)

    assert second.finish(Outcome(End.SUCCEEDED), LATER).error is None


@pytest.mark.parametrize("end", FAILURES)
def test_failed_attempt_is_repeated_after_the_backoff(end: End) -> None:
    job = make_running().finish(make_failure(end=end, type="crashed"), LATER, backoff=7.5)

    assert (job.state, job.due_at, job.finished_at) == (State.SCHEDULED, LATER + 7_500_000, None)
    assert (job.attempt, job.failures, job.version) == (1, 1, 3)
    assert _error(job)["type"] == "crashed"


@pytest.mark.parametrize(
    ("end", "type"), [(End.ERROR, "exception"), (End.TIMEOUT, "timeout"), (End.CRASHED, "crashed"), (End.LOST, "lost")]
)
def test_unexplained_end_has_an_error(end: End, type: str) -> None:
    job = make_running().finish(Outcome(end), LATER)

    assert _error(job)["type"] == type
    assert _attempts(job)[-1]["error"] == _error(job)


@pytest.mark.parametrize(("backoff", "delay", "wait"), [(5, 60, 60), (60, 5, 60), (5, 0, 5), (0, 0, 0)])
def test_next_attempt_waits_for_the_longer_of_backoff_and_delay(backoff: float, delay: float, wait: int) -> None:
    job = make_running().finish(make_failure(delay=delay), LATER, backoff=backoff)

    assert job.due_at == LATER + wait * SECOND


def test_give_up_fails_the_job() -> None:
    job = make_running().finish(make_failure(retryable=False), LATER, backoff=5)

    assert (job.state, job.due_at, job.finished_at) == (State.FAILED, None, LATER)


def test_job_fails_after_max_attempts() -> None:
    job = make_job(retry=make_retry(max_attempts=3))

    states = []
    for _ in range(3):
        job = job.start(LATER).finish(make_failure(), LATER)
        states.append(job.state)

    assert states == [State.SCHEDULED, State.SCHEDULED, State.FAILED]
    assert (job.attempt, job.failures) == (3, 3)


def test_cancel_request_turns_a_failure_into_cancelled() -> None:
    job = make_running().cancel(NOW).finish(make_failure(), LATER, backoff=5)

    assert (job.state, job.due_at, job.finished_at, job.failures) == (State.CANCELLED, None, LATER, 1)
    assert _error(job)["type"] == "cancelled"
    assert _attempts(job)[-1]["error"]["type"] == "exception"


@pytest.mark.parametrize("outcome", [LOST, Outcome(End.RELEASED)], ids=lambda outcome: outcome.end.value)
def test_cancel_request_is_honoured_when_the_attempt_is_lost_or_released(outcome: Outcome) -> None:
    job = make_running().cancel(NOW).finish(outcome, LATER)

    assert (job.state, job.due_at, job.finished_at) == (State.CANCELLED, None, LATER)
    assert _error(job)["type"] == "cancelled"


def test_success_stays_a_success_after_a_cancel_request() -> None:
    job = make_running().cancel(NOW, "too slow").finish(Outcome(End.SUCCEEDED, result=b"1"), LATER)

    assert (job.state, job.result, job.error) == (State.SUCCEEDED, b"1", None)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(End.CANCELLED, error=Error("cancelled", "cancelled while it ran", False)),
        make_failure(),
        LOST,
        Outcome(End.RELEASED),
    ],
    ids=lambda outcome: outcome.end.value,
)
def test_reason_given_for_a_cancel_is_kept_until_the_attempt_ends(outcome: Outcome) -> None:
    job = make_running().cancel(NOW, "customer left").finish(outcome, LATER)

    assert job.state is State.CANCELLED
    assert _error(job) == {"type": "cancelled", "message": "customer left", "retryable": False}


def test_stopped_attempt_cancels_its_job() -> None:
    job = make_running().cancel(NOW).finish(Outcome(End.CANCELLED), LATER)

    assert (job.state, job.due_at, job.finished_at) == (State.CANCELLED, None, LATER)
    assert _error(job) == {"type": "cancelled", "message": "cancelled while it ran", "retryable": False}


def test_error_of_an_earlier_attempt_is_no_cancel_reason() -> None:
    second = make_running().finish(make_failure(), NOW).start(NOW)

    job = second.cancel(NOW).finish(Outcome(End.CANCELLED), LATER)

    assert _error(job)["message"] == "cancelled while it ran"


def test_released_attempt_is_not_counted() -> None:
    job = make_running(delay=0).finish(Outcome(End.RELEASED), LATER)

    assert (job.state, job.due_at, job.attempt, job.failures) == (State.SCHEDULED, LATER, 0, 0)
    assert _attempts(job)[-1]["outcome"] == "released"


def test_number_of_a_released_attempt_is_reused() -> None:
    job = make_running().finish(Outcome(End.RELEASED), NOW).start(NOW).finish(Outcome(End.SUCCEEDED), LATER)

    assert [attempt["number"] for attempt in _attempts(job)] == [1, 1]


def test_lost_attempt_is_due_again_at_once() -> None:
    job = make_running().finish(LOST, LATER, backoff=60)

    assert (job.state, job.due_at, job.attempt, job.losses) == (State.SCHEDULED, LATER, 1, 1)
    assert _error(job)["type"] == "lost"


def test_lost_attempts_do_not_count_against_max_attempts() -> None:
    once = make_job(retry=make_retry(max_attempts=1))

    lost = once.start(NOW).finish(LOST, NOW).start(NOW).finish(LOST, NOW)

    assert (lost.state, lost.attempt, lost.failures) == (State.SCHEDULED, 2, 0)


def test_three_losses_in_a_row_fail_the_job() -> None:
    job = make_job()

    for _ in range(3):
        job = job.start(NOW).finish(LOST, LATER)

    assert (job.state, job.due_at, job.finished_at) == (State.FAILED, None, LATER)
    assert _error(job)["type"] == "lost"
    assert _error(job)["retryable"] is False


def test_failure_between_losses_resets_their_count() -> None:
    job = make_job()

    for outcome in (LOST, LOST, make_failure(), LOST, LOST):
        job = job.start(NOW).finish(outcome, NOW)

    assert (job.state, job.losses) == (State.SCHEDULED, 2)


def test_release_between_losses_keeps_their_count() -> None:
    job = make_job()

    for outcome in (LOST, LOST, Outcome(End.RELEASED), LOST):
        job = job.start(NOW).finish(outcome, NOW)

    assert job.state is State.FAILED


def test_three_crashes_in_a_row_fail_the_job_despite_attempts_left() -> None:
    job = make_job(retry=make_retry(max_attempts=100))

    for _ in range(3):
        job = job.start(NOW).finish(make_failure(end=End.CRASHED, type="crashed", message="killed"), LATER)

    assert (job.state, job.due_at, job.finished_at) == (State.FAILED, None, LATER)
    assert (_error(job)["type"], _error(job)["retryable"]) == ("crashed", False)
    assert "3 times in a row" in _error(job)["message"]
    assert "killed" in _error(job)["message"]


def test_crashes_and_losses_count_together() -> None:
    job = make_job(retry=make_retry(max_attempts=100))

    for outcome in (LOST, Outcome(End.CRASHED), LOST):
        job = job.start(NOW).finish(outcome, NOW)

    assert job.state is State.FAILED


def test_loss_with_an_error_counts_as_a_failure() -> None:
    lease_ran_out = Outcome(End.LOST, error=Error("lost", "its lease ran out"))
    twice = make_job(retry=make_retry(max_attempts=2))

    first = twice.start(NOW).finish(lease_ran_out, LATER, backoff=5)
    second = first.start(LATER).finish(lease_ran_out, LATER, backoff=5)

    assert (first.state, first.due_at, first.failures, first.losses) == (State.SCHEDULED, LATER + 5 * SECOND, 1, 0)
    assert (second.state, second.failures) == (State.FAILED, 2)
    assert _attempts(second)[-1]["outcome"] == "lost"


def test_history_has_an_entry_for_each_attempt() -> None:
    job = make_job(delay=1).start(NOW + 3 * SECOND).finish(make_failure(type="connection", message="refused"), LATER)

    assert _attempts(job) == [
        {
            "number": 1,
            "started_at": format_instant(NOW + 3 * SECOND),
            "finished_at": format_instant(LATER),
            "late_by": 2.0,
            "outcome": "error",
            "error": {"type": "connection", "message": "refused", "retryable": True},
        }
    ]


def test_history_of_a_success_has_no_error() -> None:
    job = make_running().finish(Outcome(End.SUCCEEDED), LATER)

    assert (_attempts(job)[0]["outcome"], _attempts(job)[0]["error"]) == ("succeeded", None)


def test_history_keeps_the_latest_output_whole_and_shortens_earlier_ones() -> None:
    job = make_job()

    for _ in range(2):
        job = job.start(NOW).finish(make_failure()._replace(output="x" * 5_000 + "y"), NOW)

    assert [attempt["output"] for attempt in _attempts(job)] == ["x" * 1_999 + "y", "x" * 5_000 + "y"]


def test_output_with_a_lone_surrogate_can_be_stored() -> None:
    job = make_running().finish(Outcome(End.SUCCEEDED, output="\udcff"), NOW)

    assert _attempts(job)[0]["output"] == "?"


def test_history_keeps_the_last_20_attempts() -> None:
    job = make_job(retry=make_retry(max_attempts=1_000))

    for _ in range(25):
        job = job.start(NOW).finish(make_failure(), NOW)

    assert [attempt["number"] for attempt in _attempts(job)] == list(range(6, 26))


@pytest.mark.parametrize("end", End)
@pytest.mark.parametrize("job", [make_job(), *(make_ended(state) for state in State if state.is_final)])
def test_only_a_running_job_can_finish(job: Job, end: End) -> None:
    with pytest.raises(WrongState, match=f"cannot finish job {job.id}: it is {job.state.word}") as caught:
        job.finish(Outcome(end), LATER)

    assert caught.value.job is job


def _error(job: Job) -> dict[str, Any]:
    assert job.error is not None
    error: dict[str, Any] = orjson.loads(job.error)
    return error


def _attempts(job: Job) -> list[dict[str, Any]]:
    attempts: list[dict[str, Any]] = orjson.loads(job.history)
    return attempts
