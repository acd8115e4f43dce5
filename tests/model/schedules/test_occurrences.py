"""What becomes of an occurrence."""

from __future__ import annotations

import pytest

from erelong.model.schedules import occurrences as steps
from erelong.model.schedules.schedule import Counts, Overlap, Reason, Schedule
from erelong.model.times.recurrence import Interval, Recurrence
from tests.support.scheduled import MINUTE, make_schedule
from tests.support.virtual import EPOCH

AT = EPOCH + 5 * MINUTE
EVERY_MINUTE = Recurrence(rhythm=Interval(every=MINUTE))


def fates(schedule: Schedule) -> list[tuple[int, str, Reason | None]]:
    """Return minute, outcome and reason of the records, the first of them first."""
    return [((line.occurrence - EPOCH) // MINUTE, line.fate.value, line.reason) for line in reversed(schedule.recent)]


@pytest.mark.parametrize("overlap", Overlap)
def test_job_is_made_if_none_is_live(overlap: Overlap) -> None:
    schedule = make_schedule(overlap=overlap)

    assert steps.arrive(schedule, AT, has_live=False) == (schedule, True)


@pytest.mark.parametrize(
    ("overlap", "queued", "after", "lines"),
    [
        (Overlap.SKIP, None, None, [(5, "skipped", Reason.OVERLAP)]),
        (Overlap.QUEUE_ONE, None, AT, []),
        (Overlap.QUEUE_ONE, EPOCH + MINUTE, EPOCH + MINUTE, [(5, "skipped", Reason.OVERLAP)]),
        (Overlap.REPLACE, None, AT, []),
        (Overlap.REPLACE, EPOCH + MINUTE, AT, [(1, "skipped", Reason.REPLACED)]),
    ],
)
def test_live_job_skips_keeps_or_replaces(
    overlap: Overlap, queued: int | None, after: int | None, lines: list[tuple[int, str, Reason | None]]
) -> None:
    schedule = make_schedule(overlap=overlap, progress={"queued": queued})

    decided, is_made = steps.arrive(schedule, AT, has_live=True)

    assert (is_made, decided.queued, decided.cursor) == (False, after, AT)
    assert fates(decided) == lines


def test_jobs_may_overlap_if_that_is_allowed() -> None:
    schedule = make_schedule(overlap=Overlap.ALLOW)

    assert steps.arrive(schedule, AT, has_live=True) == (schedule, True)
    assert steps.make(schedule, AT, "token").live == ()


def test_kept_occurrence_goes_before_a_new_one() -> None:
    """The live job has ended, and the job of the kept occurrence is not made yet."""
    schedule = make_schedule(overlap=Overlap.QUEUE_ONE, progress={"queued": EPOCH + MINUTE})

    decided, is_made = steps.arrive(schedule, AT, has_live=False)

    assert (is_made, decided.queued) == (False, EPOCH + MINUTE)


def test_made_job_moves_the_cursor_and_is_live() -> None:
    made = steps.make(make_schedule(), AT, "token")

    assert (made.cursor, made.made_until, made.live, made.counts) == (AT, AT, ("token",), Counts(made=1))
    assert fates(made) == [(5, "made", None)]


def test_kept_occurrence_that_is_made_leaves_the_cursor() -> None:
    schedule = make_schedule(cursor=AT, progress={"queued": EPOCH + MINUTE})

    made = steps.make(schedule, EPOCH + MINUTE, "token")

    assert (made.queued, made.cursor) == (None, AT)


def test_triggered_job_moves_nothing() -> None:
    triggered = steps.trigger(make_schedule(), AT, "token")

    assert (triggered.cursor, triggered.made_until, triggered.counts) == (EPOCH, 0, Counts(made=1))
    assert fates(triggered) == [(5, "made", Reason.TRIGGER)]


def test_job_that_cannot_be_made_is_missed_and_no_longer_kept() -> None:
    schedule = make_schedule(progress={"queued": AT})

    missed = steps.miss(schedule, AT, Reason.BACKLOG_FULL)

    assert (missed.queued, missed.cursor, missed.counts) == (None, AT, Counts(missed=1))


def test_cursor_never_moves_back() -> None:
    schedule = make_schedule(cursor=AT)

    assert steps.pass_over(schedule, EPOCH) is schedule
    assert steps.make(schedule, EPOCH, "token").cursor == AT


def test_next_occurrence_is_strictly_after_the_cursor() -> None:
    assert steps.next_occurrence(make_schedule(cursor=AT), EVERY_MINUTE, AT + 1) == AT + MINUTE


def test_cursor_that_lies_ahead_counts_as_now() -> None:
    schedule = make_schedule(cursor=EPOCH + 10_000 * MINUTE)

    assert steps.next_occurrence(schedule, EVERY_MINUTE, AT) == AT + MINUTE
    assert steps.set_back(schedule, AT).cursor == AT


def test_paused_schedule_has_no_next_occurrence() -> None:
    schedule = make_schedule(progress={"is_paused": True})

    assert steps.next_occurrence(schedule, EVERY_MINUTE, AT) is None
    assert steps.upcoming(schedule, EVERY_MINUTE, AT, 5) == []
