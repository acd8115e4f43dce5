"""Missed occurrences: which are made late and which are counted, however many there are."""

from __future__ import annotations

import pytest

from erelong.clock.instants import SECOND
from erelong.model.times.catchup import MAX_CATCHUP, MAX_COUNTED, MAX_MADE, Missed, MissedPolicy, check_missed
from tests.support.recurring import CountedCron, at, catch_up, counted, make_recurrence

ONCE, SKIP, ALL = MissedPolicy
MIDNIGHT = at("2027-01-02T00:00:00Z")
HOUR = 3600 * SECOND
YEAR = 365 * 24 * HOUR


def test_nothing_is_made_or_missed_when_nothing_was_due() -> None:
    hourly = make_recurrence("@hourly")

    assert catch_up(hourly, ONCE, None, cursor=MIDNIGHT, now=MIDNIGHT + HOUR - 1) == ((), None)
    assert catch_up(hourly, ALL, 60.0, cursor=MIDNIGHT + HOUR, now=MIDNIGHT) == ((), None)


@pytest.mark.parametrize(
    ("policy", "catchup", "made", "missed"),
    [
        (ONCE, None, [3], (2, 1, 2)),
        (ONCE, 1200.0, [3], (2, 1, 2)),
        (ONCE, 1199.0, [], (3, 1, 3)),
        (ONCE, 0.0, [], (3, 1, 3)),
        (SKIP, None, [], (3, 1, 3)),
        (ALL, 86_400.0, [1, 2, 3], None),
        (ALL, 3600 + 1200.0, [2, 3], (1, 1, 1)),
        (ALL, 60.0, [], (3, 1, 3)),
    ],
)
def test_policy_says_what_is_made_of_three_missed_hours(
    policy: MissedPolicy, catchup: float | None, made: list[int], missed: tuple[int, int, int] | None
) -> None:
    now = MIDNIGHT + 3 * HOUR + 1200 * SECOND

    caught_up = catch_up(make_recurrence("@hourly"), policy, catchup, cursor=MIDNIGHT, now=now)

    assert [(instant - MIDNIGHT) // HOUR for instant in caught_up.made] == made
    expected = missed and Missed(missed[0], MIDNIGHT + missed[1] * HOUR, MIDNIGHT + missed[2] * HOUR, more=False)
    assert caught_up.missed == expected


def test_occurrence_at_the_cursor_is_done_and_one_at_this_very_instant_is_due() -> None:
    caught_up = catch_up(make_recurrence("@hourly"), SKIP, None, cursor=MIDNIGHT, now=MIDNIGHT + HOUR)

    assert caught_up == ((MIDNIGHT + HOUR,), None)


@pytest.mark.parametrize(("late", "is_made"), [(60 * SECOND, True), (60 * SECOND + 1, False)])
def test_skip_makes_what_is_late_by_a_minute_at_most(late: int, is_made: bool) -> None:
    caught_up = catch_up(make_recurrence("@hourly"), SKIP, None, cursor=MIDNIGHT, now=MIDNIGHT + HOUR + late)

    assert bool(caught_up.made) is is_made


def test_all_makes_the_latest_thousand_and_counts_the_others() -> None:
    now = MIDNIGHT + 1500 * 60 * SECOND

    caught_up = catch_up(make_recurrence(every=60.0), ALL, MAX_CATCHUP, cursor=MIDNIGHT, now=now)

    assert caught_up.made == tuple(MIDNIGHT + minute * 60 * SECOND for minute in range(501, 1501))
    assert len(caught_up.made) == MAX_MADE
    assert caught_up.missed == Missed(500, MIDNIGHT + 60 * SECOND, MIDNIGHT + 500 * 60 * SECOND, more=False)


@pytest.mark.parametrize(
    ("seconds", "more"), [(MAX_COUNTED + 1, False), (MAX_COUNTED + 2, True), (3 * MAX_COUNTED, True)]
)
def test_missed_ones_are_counted_up_to_ten_thousand(seconds: int, more: bool) -> None:
    now = MIDNIGHT + seconds * SECOND

    caught_up = catch_up(make_recurrence(every=1.0), ONCE, None, cursor=MIDNIGHT, now=now)

    assert caught_up.made == (now,)
    assert caught_up.missed == Missed(MAX_COUNTED, MIDNIGHT + SECOND, now - SECOND, more)


@pytest.mark.parametrize("policy", MissedPolicy)
@pytest.mark.parametrize("text", ["* * * * * *", "* * * * 1 *", "*/2 * 0 * * *"])
def test_year_of_seconds_is_never_walked_through(policy: MissedPolicy, text: str) -> None:
    recurrence = counted(text, "UTC")

    caught_up = catch_up(
        recurrence, policy, MAX_CATCHUP if policy is ALL else None, cursor=MIDNIGHT, now=MIDNIGHT + YEAR
    )

    assert caught_up.missed is not None
    assert caught_up.missed.more
    assert CountedCron.counted < 20_000


@pytest.mark.parametrize(
    ("policy", "catchup", "may_overlap", "expected"),
    [
        (ONCE, None, False, {}),
        (ONCE, 5.0, False, {}),
        (SKIP, None, False, {}),
        (SKIP, 5.0, False, {"/catchup": "cannot be combined with missed skip (60 s): remove it"}),
        (ALL, MAX_CATCHUP, True, {}),
        (ALL, None, True, {"/catchup": 'is required with missed all: how old an occurrence may be, such as "1d"'}),
        (ALL, MAX_CATCHUP + 1, True, {"/catchup": 'should be at most 366 days with missed all, such as "1d"'}),
        (ALL, 5.0, False, {"/missed": "all makes jobs that overlap: set overlap to allow, or missed to once"}),
    ],
)
def test_policy_that_does_not_fit_is_refused_in_its_field(
    policy: MissedPolicy, catchup: float | None, may_overlap: bool, expected: dict[str, str]
) -> None:
    faults = check_missed(policy, catchup, may_overlap=may_overlap)

    assert {fault.pointer: fault.detail for fault in faults} == expected
