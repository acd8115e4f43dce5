"""The steps of a job: creation, changes, the end, and a retry."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from erelong.clock.instants import format_instant
from erelong.errors import WrongState
from erelong.model.conflict import OnConflict, settle
from erelong.model.ids import parse_id
from erelong.model.job import SECOND, STATES, Job, State
from erelong.model.outcome import End, Error, Outcome
from tests.support.builders import NOW, make_ended, make_failure, make_job, make_retry, make_running

LATER = NOW + 100 * SECOND
FINAL = [state for state in State if state.is_final]


def test_new_job_waits_for_its_time() -> None:
    job = make_job(delay=5)

    assert job.state is State.SCHEDULED
    assert job.execute_at == job.due_at == NOW + 5 * SECOND
    assert (job.attempt, job.failures, job.losses, job.version) == (0, 0, 0, 1)


def test_new_job_for_the_past_is_due_now_and_keeps_its_execute_at() -> None:
    job = make_job(delay=-5)

    assert job.execute_at == NOW - 5 * SECOND
    assert job.due_at == NOW


@pytest.mark.parametrize(("delay", "expires_in"), [(5, 65), (0, 60), (-5, 60)])
def test_expiry_counts_from_the_later_of_execute_at_and_now(delay: float, expires_in: int) -> None:
    job = make_job(delay=delay, expires_after=60)

    assert job.expires_at == NOW + expires_in * SECOND


def test_new_job_without_expires_after_never_expires() -> None:
    assert make_job().expires_at is None


def test_ids_sort_by_creation() -> None:
    seqs = [1, 2, 9, 10, 15, 16, 255, 256, 65_535, 1 << 20, (1 << 40) - 1]

    ids = [make_job(seq=seq).id for seq in seqs]

    assert ids == sorted(ids)


def test_ids_of_the_same_seq_differ() -> None:
    assert make_job(seq=7).id != make_job(seq=7).id


def test_id_is_read_back() -> None:
    job = make_job(seq=123_456)

    assert parse_id(job.id) == (123_456, job.token)


def test_id_is_opaque_and_short_and_safe_in_a_url() -> None:
    job_id = make_job(seq=(1 << 40) - 1).id

    assert len(job_id) <= 40
    assert job_id.isascii()
    assert job_id.isalnum()


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "1",
        "0" * 25,
        "0" * 27,
        "g" + "0" * 25,
        "0" * 25 + "g",
        "0" * 12 + "g" + "0" * 13,
        "0" * 25 + "A",
        " " + "0" * 25,
        "0" * 25 + "\n",
        "0x" + "0" * 24,
        "+" + "0" * 25,
        "0_" + "0" * 24,
        "٣" * 26,  # digits that int() accepts
    ],
)
def test_invalid_id_is_rejected(garbage: str) -> None:
    assert parse_id(garbage) is None


def test_state_is_found_by_its_word() -> None:
    assert {STATES[state.word] for state in State} == set(State)


def test_waiting_job_wakes_at_the_earlier_of_due_and_expiry() -> None:
    job = make_job(delay=50, expires_after=60)

    assert job.wakes_at == job.due_at
    assert job.run_now(NOW).wakes_at == NOW
    assert job.expire_after(1, NOW)._replace(due_at=LATER).wakes_at == NOW + 51 * SECOND


@pytest.mark.parametrize("job", [make_running(), *map(make_ended, FINAL)], ids=lambda job: job.state.word)
def test_job_that_is_not_waiting_has_no_wake_time(job: Job) -> None:
    assert job.wakes_at is None


def test_start_counts_the_attempt_and_records_its_lateness() -> None:
    job = make_job(delay=5).start(NOW + 7 * SECOND)

    assert job.state is State.RUNNING
    assert (job.attempt, job.version) == (1, 2)
    assert job.started_at == NOW + 7 * SECOND
    assert job.late_by == 2.0


def test_running_job_keeps_the_due_time_of_its_attempt() -> None:
    waiting = make_job(delay=5)

    assert waiting.start(LATER).due_at == waiting.due_at


def test_late_by_is_never_negative() -> None:
    assert make_job(delay=5).start(NOW).late_by == 0.0


def test_move_sets_the_time_and_recomputes_the_expiry() -> None:
    job = make_job(expires_after=10).move(LATER, NOW)

    assert job.execute_at == job.due_at == LATER
    assert job.expires_at == LATER + 10 * SECOND
    assert job.version == 2


def test_move_into_the_past_means_now() -> None:
    job = make_job(delay=50, expires_after=10).move(NOW, LATER)

    assert job.execute_at == NOW
    assert job.due_at == LATER
    assert job.expires_at == LATER + 10 * SECOND


def test_move_also_moves_a_job_that_waits_for_a_retry() -> None:
    waiting = make_running().finish(make_failure(), NOW, backoff=5)

    assert waiting.move(LATER, NOW).due_at == LATER


@pytest.mark.parametrize(("delay", "expires_in"), [(200, 207), (0, 107)])
def test_new_expires_after_counts_from_the_later_of_execute_at_and_now(delay: float, expires_in: int) -> None:
    job = make_job(delay=delay).expire_after(7, LATER)

    assert job.expires_after == 7
    assert job.expires_at == NOW + expires_in * SECOND
    assert job.version == 2


def test_expires_after_can_be_removed() -> None:
    job = make_job(expires_after=7).expire_after(None, NOW)

    assert job.expires_after is None
    assert job.expires_at is None


def test_rewrite_changes_what_runs_and_leaves_its_time() -> None:
    before = make_job(delay=5)
    retry = make_retry(max_attempts=2)

    job = before.rewrite(params=b'{"a":1}', labels=b'{"b":"c"}', priority=3, timeout=7.5, retry=retry)

    assert (job.params, job.labels, job.priority, job.timeout, job.retry) == (b'{"a":1}', b'{"b":"c"}', 3, 7.5, retry)
    assert (job.execute_at, job.due_at, job.version) == (before.execute_at, before.due_at, 2)
    assert job.policy.max_attempts == 2


def test_run_now_moves_only_the_due_time() -> None:
    before = make_job(delay=50, expires_after=10)

    job = before.run_now(NOW)

    assert job == before._replace(due_at=NOW, version=2)


def test_run_now_leaves_a_due_job_in_its_place() -> None:
    job = make_job(delay=50)

    assert job.run_now(NOW + 50 * SECOND) is job
    assert job.run_now(NOW + 90 * SECOND) is job


def test_expired_job_has_an_error_and_keeps_its_attempts() -> None:
    waiting = make_running().finish(make_failure(), NOW, backoff=5)

    job = waiting.expire(LATER)

    assert (job.state, job.due_at, job.finished_at) == (State.EXPIRED, None, LATER)
    assert _error(job)["type"] == "expired"
    assert job.attempts == waiting.attempts
    assert job.version == waiting.version + 1


def test_dropped_job_is_cancelled_with_its_reason() -> None:
    job = make_job().drop(LATER)

    assert (job.state, job.due_at, job.finished_at) == (State.CANCELLED, None, LATER)
    assert _error(job)["type"] == "dropped"


def test_cancel_ends_a_waiting_job_at_once() -> None:
    job = make_job().cancel(LATER, "no longer needed")

    assert (job.state, job.due_at, job.finished_at, job.version) == (State.CANCELLED, None, LATER, 2)
    assert _error(job) == {"type": "cancelled", "message": "no longer needed", "retryable": False}


def test_cancel_asks_a_running_job_to_stop() -> None:
    running = make_running()

    job = running.cancel(LATER)

    assert job == running._replace(cancel_requested=True, version=running.version + 1)


@pytest.mark.parametrize("job", [make_running().cancel(NOW, "first"), make_job().cancel(NOW)], ids=["asked", "done"])
def test_repeated_cancel_changes_nothing(job: Job) -> None:
    assert job.cancel(LATER, "second") is job


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED, State.EXPIRED])
def test_retry_schedules_an_ended_job_again_under_its_id(state: State) -> None:
    ended = make_ended(state, delay=1, expires_after=9, key="k", params={"a": 1}, seq=5)

    job = ended.revive(LATER)

    fresh = make_job(delay=1, key="k", params={"a": 1}, seq=5)
    assert job == fresh._replace(due_at=LATER, token=ended.token, attempts=ended.attempts, version=ended.version + 1)


def test_retry_clears_losses_failures_and_the_cancel_request() -> None:
    ended = make_running()._replace(losses=2, failures=3).cancel(NOW).finish(make_failure(), NOW)

    job = ended.revive(LATER)

    assert (job.losses, job.failures, job.attempt, job.cancel_requested, job.error) == (0, 0, 0, False, None)


def test_unreadable_job_is_failed() -> None:
    job = make_job().mark_unreadable(LATER, "its stored params cannot be read")

    assert (job.state, job.due_at, job.finished_at, job.version) == (State.FAILED, None, LATER, 2)
    assert _error(job) == {"type": "unreadable", "message": "its stored params cannot be read", "retryable": False}


@pytest.mark.parametrize("state", FINAL)
def test_unreadable_job_that_has_ended_keeps_its_state(state: State) -> None:
    ended = make_ended(state)

    job = ended.mark_unreadable(LATER, "its stored result cannot be read")

    assert (job.state, job.finished_at, job.version) == (state, ended.finished_at, ended.version + 1)
    assert _error(job)["type"] == "unreadable"


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(lambda job: job.start(NOW), id="start"),
        pytest.param(lambda job: job.move(LATER, NOW), id="move"),
        pytest.param(lambda job: job.expire_after(None, NOW), id="expire_after"),
        pytest.param(
            lambda job: job.rewrite(params=b"{}", labels=None, priority=0, timeout=1.0, retry=b"{}"), id="rewrite"
        ),
        pytest.param(lambda job: job.run_now(NOW), id="run_now"),
        pytest.param(lambda job: job.expire(NOW), id="expire"),
        pytest.param(lambda job: job.drop(NOW), id="drop"),
    ],
)
@pytest.mark.parametrize("job", [make_running(), *map(make_ended, FINAL)], ids=lambda job: job.state.word)
def test_only_a_waiting_job_takes_a_step_of_waiting_jobs(step: Callable[[Job], Job], job: Job) -> None:
    with pytest.raises(WrongState, match=f"job {job.id}: it is {job.state.word}") as caught:
        step(job)

    assert caught.value.job is job


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.EXPIRED])
def test_ended_job_cannot_be_cancelled(state: State) -> None:
    job = make_ended(state)

    with pytest.raises(WrongState, match=f"cannot cancel job {job.id}: it is {state.word}") as caught:
        job.cancel(NOW)

    assert caught.value.job is job


@pytest.mark.parametrize(
    "job", [make_job(), make_running(), make_ended(State.SUCCEEDED)], ids=lambda job: job.state.word
)
def test_only_an_unsuccessful_job_can_be_retried(job: Job) -> None:
    with pytest.raises(WrongState, match=f"cannot retry job {job.id}: it is {job.state.word}") as caught:
        job.revive(NOW)

    assert caught.value.job is job


def test_superseded_job_that_is_retried_runs_like_any_other() -> None:
    superseded = make_running(key="k").supersede().finish(Outcome(End.RELEASED), NOW)

    job = superseded.revive(NOW).start(NOW).finish(Outcome(End.RELEASED), NOW)

    assert (superseded.state, superseded.superseded) == (State.CANCELLED, True)
    assert (job.state, job.superseded, job.key) == (State.SCHEDULED, False, None)


def test_keep_leaves_the_holder_of_the_key_as_it_is() -> None:
    holder = make_running(key="k")

    assert settle(holder, make_job(key="k"), OnConflict.KEEP, NOW) is holder


@pytest.mark.parametrize("holder", [make_job(key="k"), make_running(key="k")], ids=lambda job: job.state.word)
def test_reject_refuses_the_incoming_job(holder: Job) -> None:
    assert settle(holder, make_job(key="k"), OnConflict.REJECT, NOW) is None


@pytest.mark.parametrize("on_conflict", [OnConflict.REPLACE, OnConflict.RESCHEDULE])
def test_running_holder_is_superseded_and_runs_on(on_conflict: OnConflict) -> None:
    holder = make_running(key="k").lease_out("token", LATER)

    job = settle(holder, make_job(key="k", params={"new": 1}), on_conflict, NOW)

    assert job == holder._replace(key=None, superseded=True, version=holder.version + 1)


def test_reschedule_moves_only_the_time_of_the_holder() -> None:
    holder = make_job(key="k", params={"old": 1}, expires_after=5)
    incoming = make_job(key="k", params={"new": 1}, delay=100, expires_after=7)

    job = settle(holder, incoming, OnConflict.RESCHEDULE, NOW)

    assert job == holder._replace(execute_at=LATER, due_at=LATER, expires_at=LATER + 5 * SECOND, version=2)


def test_replace_gives_the_holder_all_the_new_content_and_keeps_its_id() -> None:
    holder = make_running(key="k", seq=9, params={"old": 1}).finish(make_failure(), NOW, backoff=1)
    incoming = make_job(key="k", kind="http", params={"new": 1}, delay=100, labels={"a": "b"}, priority=4, now=LATER)

    job = settle(holder, incoming, OnConflict.REPLACE, LATER)

    assert job == incoming._replace(
        seq=9, token=holder.token, created_at=NOW, attempts=holder.attempts, version=holder.version + 1
    )
    assert (job.attempt, job.failures) == (0, 0)


def test_error_message_is_cut_to_its_maximum_length() -> None:
    error = orjson.loads(Error("exception", "x" * 10_000).to_json())

    assert error == {"type": "exception", "message": "x" * 2_000, "retryable": True}


def test_error_with_a_lone_surrogate_can_be_stored() -> None:
    error = orjson.loads(Error("exception", "no file \udcff").to_json())

    assert error["message"] == "no file ?"


def _error(job: Job) -> dict[str, object]:
    assert job.error is not None
    error: dict[str, object] = orjson.loads(job.error)
    return error


# crashes: the process that ran the attempt ended


def _crash(job: Job) -> Job:
    return job.start(NOW).finish(make_failure(end=End.CRASHED, type="crashed", message="it ended by SIGSEGV"), LATER)


def test_crash_counts_as_a_failure_and_is_repeated() -> None:
    job = _crash(make_job())

    assert (job.state, job.failures, job.losses) == (State.SCHEDULED, 1, 1)


def test_three_crashes_in_a_row_fail_the_job_whatever_its_policy() -> None:
    job = make_job(retry=make_retry(max_attempts=20))

    for _ in range(3):
        job = _crash(job)

    error = orjson.loads(job.error or b"")
    assert (job.state, job.due_at, job.finished_at, job.failures) == (State.FAILED, None, LATER, 3)
    assert (error["type"], error["retryable"]) == ("crashed", False)
    assert error["message"] == "the process running it ended 3 times in a row; it may be the cause: it ended by SIGSEGV"
    assert orjson.loads(job.history)[-1]["error"]["message"] == "it ended by SIGSEGV"


def test_crashes_and_losses_share_one_count() -> None:
    job = _crash(_crash(make_job()))

    job = job.start(NOW).finish(Outcome(End.LOST), LATER)

    assert job.state is State.FAILED


def test_failure_between_crashes_resets_their_count() -> None:
    job = _crash(_crash(make_job(retry=make_retry(max_attempts=20))))

    job = _crash(_crash(job.start(NOW).finish(make_failure(), NOW)))

    assert (job.state, job.losses, job.failures) == (State.SCHEDULED, 2, 5)


def test_crash_honours_a_cancel_request() -> None:
    job = _crash(_crash(make_job())).start(NOW).cancel(NOW)

    assert job.finish(make_failure(end=End.CRASHED, type="crashed"), NOW).state is State.CANCELLED


# output


def test_output_is_kept_on_its_attempt_and_shortened_when_another_comes() -> None:
    job = make_job()
    texts = ["a" * 60_000 + "z", "b" * 60_000, "", "c"]

    for text in texts:
        job = job.start(NOW).finish(make_failure()._replace(output=text), NOW)

    kept = [attempt.get("output") for attempt in orjson.loads(job.history)]
    assert kept == ["a" * 1_999 + "z", "b" * 2_000, None, "c"]


def test_output_of_the_latest_attempt_is_kept_whole() -> None:
    job = make_running().finish(Outcome(End.SUCCEEDED, output="x" * 65_536), NOW)

    assert orjson.loads(job.history)[-1]["output"] == "x" * 65_536


@pytest.mark.parametrize("output", ["", "done"])
def test_history_of_a_success_has_its_times_and_output(output: str) -> None:
    job = make_job().start(NOW + 2_500).finish(Outcome(End.SUCCEEDED, output=output), NOW + 7_000)

    (attempt,) = orjson.loads(job.history)

    assert attempt == {
        "number": 1,
        "started_at": format_instant(NOW + 2_500),
        "finished_at": format_instant(NOW + 7_000),
        "late_by": 0.0025,
        "outcome": "succeeded",
        "error": None,
    } | ({"output": output} if output else {})


def test_history_of_a_success_after_a_failure_has_both() -> None:
    failed = make_job().start(NOW).finish(make_failure(), NOW, backoff=1)
    job = failed.start(NOW + SECOND).finish(Outcome(End.SUCCEEDED), NOW + SECOND)

    outcomes = [(attempt["number"], attempt["outcome"]) for attempt in orjson.loads(job.history)]

    assert outcomes == [(1, "error"), (2, "succeeded")]
