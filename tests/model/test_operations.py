"""Operations on many jobs: which jobs match, what becomes of each, and how progress is counted and stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from erelong.clock.instants import SECOND, Instant
from erelong.errors import Invalid
from erelong.model.job import Job, State
from erelong.model.operations.actions import decide
from erelong.model.operations.filters import read_filter
from erelong.model.operations.operation import (
    APPLICABLE,
    MAX_ERRORS,
    Action,
    JobError,
    Operation,
    Phase,
    Request,
    as_document,
    read_operation,
)
from tests.support.builders import NOW, make_ended, make_job, make_running

HOUR = 3_600 * SECOND


class Refusing:
    """Refuses jobs of priority 1, and raises the priority of others."""

    def change(self, job: Job, change: Any, now: Instant) -> Job:
        if job.priority == 1:
            raise Invalid("no", faults=[])  # pragma: no cover - the text needs a fault
        return job._replace(priority=change["priority"], version=job.version + 1)

    def latest(self, now: Instant) -> Instant:
        return now + 24 * HOUR


def make_request(action: Action = Action.RUN, **fields: Any) -> Request:
    return Request(action=action, **{"filter": {"all": True}, **fields})


def make_operation(request: Request | None = None, **fields: Any) -> Operation:
    return Operation(id="1", request=request or make_request(), cursor=10, created_at=NOW, **fields)


def matches(job: Job, **given: Any) -> bool:
    return read_filter(given, frozenset(State), frozenset()).matches(job)


# filters


@pytest.mark.parametrize(
    ("job", "given", "wanted"),
    [
        (make_job(), {}, True),
        (make_job(), {"state": ["scheduled", "failed"]}, True),
        (make_job(), {"state": ["failed"]}, False),
        (make_job(queue="a"), {"queue": ["a", "b"]}, True),
        (make_job(queue="a"), {"queue": ["b"]}, False),
        (make_job(kind="a"), {"kind": ["b"]}, False),
        (make_job(key="k"), {"key": "k"}, True),
        (make_job(), {"key": "k"}, False),
        (make_job(labels={"a": "1", "b": "2"}), {"labels": {"a": "1"}}, True),
        (make_job(labels={"a": "1"}), {"labels": {"a": "1", "b": "2"}}, False),
        (make_job(), {"labels": {"a": "1"}}, False),
        (make_job(extras={"schedule": "s"}), {"schedule": ["s", "t"]}, True),
        (make_job(extras={"schedule": "u"}), {"schedule": ["s", "t"]}, False),
        (make_job(labels={"schedule": "s"}), {"schedule": ["s"]}, False),
        (make_job(delay=60), {"due_after": NOW + 60 * SECOND}, True),
        (make_job(delay=60), {"due_after": NOW + 60 * SECOND + 1}, False),
        (make_job(delay=60), {"due_before": NOW + 60 * SECOND + 1}, True),
        (make_job(delay=60), {"due_before": NOW + 60 * SECOND}, False),
        (make_ended(State.FAILED), {"due_before": NOW + HOUR}, False),
        (make_job(), {"created_after": NOW, "created_before": NOW + 1}, True),
        (make_job(), {"created_before": NOW}, False),
        (make_job(), {"finished_after": 0}, False),
        (make_ended(State.FAILED), {"finished_after": NOW, "finished_before": NOW + 1}, True),
        (make_job(seq=7)._replace(token="a" * 16), {"jobs": [f"{7:010x}{'a' * 16}", "nonsense"]}, True),
        (make_job(seq=7)._replace(token="b" * 16), {"jobs": [f"{7:010x}{'a' * 16}"]}, False),
        (make_job(), {"jobs": ["nonsense"]}, False),
    ],
)
def test_job_matches_if_all_conditions_hold(job: Job, given: dict[str, Any], wanted: bool) -> None:
    assert matches(job, **given) is wanted


@pytest.mark.parametrize("action", Action)
def test_filter_without_a_state_selects_the_states_to_which_the_action_applies(action: Action) -> None:
    conditions = make_request(action).conditions()

    assert conditions.query.states == APPLICABLE[action]


def test_key_limited_to_queues_reaches_only_their_jobs() -> None:
    conditions = make_request(within=("mail", "other")).conditions()

    assert conditions.matches(make_job(queue="mail"))
    assert not conditions.matches(make_job(queue="default"))


def test_named_jobs_are_taken_newest_first() -> None:
    ids = [f"{seq:010x}{'a' * 16}" for seq in (3, 9, 5)]

    assert [*(read_filter({"jobs": ids}, frozenset(State), frozenset()).jobs or ())] == [9, 5, 3]


# actions


def after(request: Request, job: Job, now: Instant = NOW) -> Job:
    decided = decide(request, [job], (), Refusing(), now)
    assert not decided.failures
    ((before, changed),) = decided.saved
    assert (before, changed.version) == (job, job.version + 1)
    return changed


def test_cancel_keeps_the_reason() -> None:
    job = after(make_request(Action.CANCEL, reason="paid"), make_job())

    assert (job.state, b'"paid"' in (job.error or b"")) == (State.CANCELLED, True)


def test_running_job_is_asked_to_stop_only_once() -> None:
    request = make_request(Action.CANCEL)
    asked = after(request, make_running())

    assert asked.cancel_requested
    assert decide(request, [asked], (), Refusing(), NOW) == ([], [], [], 1)


def test_run_makes_a_job_due_now() -> None:
    assert after(make_request(), make_job(delay=60)).due_at == NOW


def test_run_with_spread_makes_no_job_later_than_it_is() -> None:
    request = make_request(spread=3_600.0)
    far, near, late = make_job(delay=7_200), make_job(delay=0.001), make_job(now=NOW - HOUR)

    due = after(request, far).due_at or 0

    assert NOW <= due < NOW + HOUR
    assert after(request, far).due_at == due
    assert decide(request, [near, late], (), Refusing(), NOW) == ([], [], [], 2)


def test_retry_with_spread_is_due_within_the_window_by_the_id() -> None:
    jobs = [make_ended(State.FAILED) for _ in range(50)]
    dues = [after(make_request(Action.RETRY, spread=3_600.0), job).due_at or 0 for job in jobs]

    assert all(NOW <= due < NOW + HOUR for due in dues)
    assert len({*dues}) == 50


@pytest.mark.parametrize(("by", "due", "expires"), [(7_200, 10_800, 10_810), (-1_800, 1_800, 1_810), (-7_200, 0, 10)])
def test_shift_moves_the_due_time_and_the_expiry_but_not_before_now(by: int, due: int, expires: int) -> None:
    job = after(make_request(Action.PATCH, shift=by * SECOND), make_job(delay=3_600, expires_after=10))

    assert (job.due_at, job.expires_at) == (NOW + due * SECOND, NOW + expires * SECOND)
    assert job.execute_at == NOW + HOUR


@pytest.mark.parametrize(
    ("delay", "by", "is_moved"), [(3_600, 23, True), (3_601, 23, False), (25 * 3_600, -1, True), (25 * 3_600, 1, False)]
)
def test_job_is_not_shifted_beyond_the_horizon(delay: float, by: int, is_moved: bool) -> None:
    job = make_job(delay=delay)

    decided = decide(make_request(Action.PATCH, shift=by * HOUR), [job], (), Refusing(), NOW)

    assert (len(decided.saved), decided.failures) == ((1, []) if is_moved else (0, [JobError(job.id, "invalid")]))


def test_shift_drops_a_local_time() -> None:
    extras: Any = {"local_time": "2026-01-01T01:00:00", "zone": "UTC", "schedule": "s"}

    job = after(make_request(Action.PATCH, shift=SECOND), make_job(delay=3_600, extras=extras, labels={"a": "b"}))

    assert job.extras == b'{"schedule":"s"}'
    assert job.labels == b'{"a":"b","@schedule":"s"}'


def test_delete_deletes() -> None:
    job = make_job()

    decided = decide(make_request(Action.DELETE), [job], (), Refusing(), NOW)

    assert (decided.deleted, decided.saved, decided.done) == ([job], [], 1)


def test_job_whose_key_is_held_is_not_revived() -> None:
    one, other = make_ended(State.FAILED, key="k"), make_ended(State.FAILED, key="k", queue="other")

    decided = decide(make_request(Action.RETRY), [one, other], {("default", "k")}, Refusing(), NOW)

    assert [job.id for job, _ in decided.saved] == [other.id]
    assert decided.failures == [JobError(one.id, "key_taken")]


def test_of_two_jobs_with_one_key_only_the_first_is_revived() -> None:
    one, other = make_ended(State.FAILED, key="k"), make_ended(State.CANCELLED, key="k")

    decided = decide(make_request(Action.RETRY), [one, other], (), Refusing(), NOW)

    assert [job.id for job, _ in decided.saved] == [one.id]
    assert decided.failures == [JobError(other.id, "key_taken")]


# progress


def test_more_matches_than_allowed_refuse_the_operation() -> None:
    operation = make_operation(make_request(at_most=2)).begin(NOW)

    refused = operation.counted(3, NOW + 1)

    assert (refused.state, refused.matches, refused.skipped, refused.finished_at) == (Phase.REFUSED, 3, 0, NOW + 1)
    assert refused.errors == (JobError(None, "too_many_match"),)
    assert operation.counted(2, NOW).state is Phase.RUNNING


def test_operation_that_may_change_no_job_is_over_once_none_matches() -> None:
    operation = Operation(id="o", request=make_request(at_most=0), cursor=9, created_at=NOW)

    after = operation.begin(NOW).counted(0, NOW)

    assert (after.state, after.finished_at) == (Phase.SUCCEEDED, NOW)


def test_jobs_that_had_gone_are_skipped() -> None:
    operation = make_operation().begin(NOW).counted(10, NOW)

    ended = operation.advance(5, 4, [JobError("a", "key_taken")]).finish(Phase.SUCCEEDED, NOW)
    more = operation.advance(5, 12).finish(Phase.SUCCEEDED, NOW)

    assert (ended.done, ended.failed, ended.skipped, ended.remaining) == (4, 1, 5, 0)
    assert (more.skipped, more.remaining) == (0, 0)


@pytest.mark.parametrize("state", [Phase.CANCELLED, Phase.FAILED])
def test_jobs_that_an_operation_has_not_come_to_remain(state: Phase) -> None:
    running = make_operation().begin(NOW).counted(10, NOW).advance(5, 4, [JobError("a", "key_taken")], 1)

    ended = running.finish(state, NOW)

    assert (running.skipped, running.remaining) == (ended.skipped, ended.remaining) == (1, 4)


def test_nothing_is_known_to_remain_before_the_jobs_are_counted() -> None:
    assert make_operation().begin(NOW).finish(Phase.CANCELLED, NOW).remaining is None


def test_jobs_beyond_at_most_remain() -> None:
    operation = make_operation(make_request(at_most=4)).begin(NOW).counted(4, NOW)

    ended = replace(operation, matches=6).advance(5, 4).finish(Phase.SUCCEEDED, NOW)

    assert (ended.skipped, ended.remaining) == (0, 2)


def test_only_the_first_errors_are_kept() -> None:
    operation = make_operation().advance(5, 0, [JobError(str(number), "invalid") for number in range(30)])

    assert (operation.failed, len(operation.errors), operation.errors[-1].job) == (30, MAX_ERRORS, "19")


def test_operation_survives_its_document() -> None:
    request = make_request(
        Action.PATCH,
        filter={"queue": ["a"], "labels": {"x": "y"}, "due_after": 5},
        within=("a", "b"),
        at_most=7,
        set={"priority": 1},
        change={"given": ["priority"], "priority": 1},
        by="ops",
    )
    operation = make_operation(request, key="k").begin(NOW).counted(3, NOW).advance(4, 1, [JobError("a", "b")])

    assert read_operation(as_document(operation, NOW)) == operation.stored()
