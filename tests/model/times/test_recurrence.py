"""Recurrences: in ascending order, each instant once, by the policies for gaps and folds, within their bounds."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erelong.clock.instants import SECOND
from erelong.model.times.local_time import Fold, Gap
from erelong.model.times.recurrence import Interval, Preview, Recurrence
from tests.support.recurring import CountedCron, after, at, counted, make_recurrence, zones
from tests.support.virtual import EPOCH

BERLIN = "Europe/Berlin"
SPRING = "2027-03-28T00:00:00Z"  # 02:00 → 03:00 at 01:00Z
AUTUMN = "2027-10-30T23:30:00Z"  # 03:00 → 02:00 at 01:00Z
SHIFT, SKIP = Gap.SHIFT, Gap.SKIP
FIRST, SECOND_TIME, BOTH = Fold.FIRST, Fold.SECOND, Fold.BOTH


@pytest.mark.parametrize(
    ("cron", "gap", "expected"),
    [
        ("30 2 * * *", SHIFT, ["2027-03-28T01:30:00", "2027-03-29T00:30:00"]),
        ("30 2 * * *", SKIP, ["2027-03-29T00:30:00", "2027-03-30T00:30:00"]),
        # 02:30 becomes 03:30, which is after 03:00
        ("0,30 2,3 * * *", SHIFT, ["2027-03-28T01:00:00", "2027-03-28T01:30:00", "2027-03-29T00:00:00"]),
        ("59 2,3 * * *", SHIFT, ["2027-03-28T01:59:00", "2027-03-29T00:59:00"]),
        ("15 2 * * *", SHIFT, ["2027-03-28T01:15:00", "2027-03-29T00:15:00"]),
        ("59 59 2 * * *", SHIFT, ["2027-03-28T01:59:59", "2027-03-29T00:59:59"]),
    ],
)
def test_time_in_a_gap_is_shifted_or_skipped(cron: str, gap: Gap, expected: list[str]) -> None:
    recurrence = make_recurrence(cron, zone=BERLIN, gap=gap)

    assert after(recurrence, SPRING, len(expected)) == expected


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        (FIRST, ["2027-10-31T00:00:00", "2027-10-31T00:30:00", "2027-11-01T01:00:00"]),
        (SECOND_TIME, ["2027-10-31T01:00:00", "2027-10-31T01:30:00", "2027-11-01T01:00:00"]),
        (BOTH, ["2027-10-31T00:00:00", "2027-10-31T00:30:00", "2027-10-31T01:00:00", "2027-10-31T01:30:00"]),
    ],
)
def test_time_in_a_fold_comes_first_second_or_both_times(fold: Fold, expected: list[str]) -> None:
    recurrence = make_recurrence("0,30 2 * * *", zone=BERLIN, fold=fold)

    assert after(recurrence, AUTUMN, len(expected)) == expected


def test_beat_stays_steady_through_both_changes_by_default() -> None:
    recurrence = make_recurrence("*/30 * * * *", zone=BERLIN)

    for start in (SPRING, AUTUMN):
        instants = [*islice(recurrence.after(at(start)), 100)]
        assert {later - earlier for earlier, later in pairwise(instants)} == {1800 * SECOND}


def test_time_of_day_comes_once_a_day_through_both_changes_by_default() -> None:
    recurrence = make_recurrence("30 2 * * *", zone=BERLIN)

    assert len([*recurrence.between(at("2027-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z"))]) == 365


@pytest.mark.parametrize(
    ("zone", "cron", "start", "expected"),
    [
        # the change is at midnight: the day begins at 01:00
        ("America/Santiago", "0 0 * * *", "2024-09-07T12:00:00Z", ["2024-09-08T04:00:00", "2024-09-09T03:00:00"]),
        # by half an hour
        ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00Z", ["2026-10-03T15:45:00", "2026-10-04T15:15:00"]),
        # a day that was left out: the 30th is shifted by 24 hours, onto the 31st
        ("Pacific/Apia", "0 12 30,31 12 *", "2011-12-01T00:00:00Z", ["2011-12-30T22:00:00", "2012-12-29T22:00:00"]),
        # no change at all
        ("Asia/Kolkata", "30 2 * * *", "2026-10-03T12:00:00Z", ["2026-10-03T21:00:00", "2026-10-04T21:00:00"]),
        # summer time around Ramadan
        ("Africa/Casablanca", "30 2 * * *", "2024-03-09T12:00:00Z", ["2024-03-10T01:30:00", "2024-03-11T02:30:00"]),
    ],
)
def test_zones_of_the_world_keep_their_own_rules(zone: str, cron: str, start: str, expected: list[str]) -> None:
    recurrence = make_recurrence(cron, zone=zone, gap=SHIFT, fold=FIRST)

    assert after(recurrence, start, 2) == expected


def test_time_shifted_by_a_whole_day_is_found_from_late_in_that_day() -> None:
    recurrence = make_recurrence("30 23 30 12 *", zone="Pacific/Apia", gap=SHIFT)

    assert after(recurrence, "2011-12-31T09:00:00Z", 1) == ["2011-12-31T09:30:00"]


def test_occurrences_are_strictly_after_the_instant() -> None:
    recurrence = make_recurrence("0 9 * * *")

    assert after(recurrence, "2027-01-01T09:00:00Z", 1) == ["2027-01-02T09:00:00"]
    assert next(recurrence.after(at("2027-01-01T09:00:00Z") - 1)) == at("2027-01-01T09:00:00Z")


def test_occurrences_are_those_from_starts_at_and_before_ends_at() -> None:
    bounds = {"starts_at": at("2027-01-02T09:00:00Z"), "ends_at": at("2027-01-04T09:00:00Z")}
    for timing in ({"cron": "0 9 * * *"}, {"every": 86_400.0, "anchor": at("2000-01-01T09:00:00Z")}):
        recurrence = make_recurrence(**timing, **bounds)  # type: ignore[arg-type]  # of different types

        assert after(recurrence, "2026-01-01T00:00:00Z", 5) == ["2027-01-02T09:00:00", "2027-01-03T09:00:00"]
        assert after(recurrence, "2027-01-03T09:00:00Z", 5) == []
        assert [*recurrence.latest(0, at("2028-01-01T00:00:00Z"))] == [
            at("2027-01-03T09:00:00Z"),
            at("2027-01-02T09:00:00Z"),
        ]


@pytest.mark.parametrize(
    ("every", "anchor", "expected"),
    [
        (3600.0, None, ["2027-01-01T01:00:00", "2027-01-01T02:00:00"]),
        (3600.0, at("2026-06-01T00:10:00Z"), ["2027-01-01T00:10:00", "2027-01-01T01:10:00"]),
        (3600.0, at("2030-06-01T00:10:00Z"), ["2027-01-01T00:10:00", "2027-01-01T01:10:00"]),
        (86_400.0 * 7, None, ["2027-01-07T00:00:00", "2027-01-14T00:00:00"]),  # 1970 began with a Thursday
    ],
)
def test_interval_counts_from_its_anchor(every: float, anchor: int | None, expected: list[str]) -> None:
    assert after(make_recurrence(every=every, anchor=anchor), "2027-01-01T00:00:00Z", 2) == expected


@given(every=st.integers(SECOND, 10**15), anchor=st.integers(-(10**16), 10**16), instant=st.integers(0, 2 * 10**15))
def test_next_of_an_interval_is_the_first_multiple_after_the_instant(every: int, anchor: int, instant: int) -> None:
    due_at = next(Interval(every=every, anchor=anchor).after(instant)).instant

    assert (due_at - anchor) % every == 0
    assert instant < due_at <= instant + every


def test_preview_shows_local_times_and_what_is_special_about_them() -> None:
    spring = make_recurrence("30 2,3 * * *", zone=BERLIN).preview(at(SPRING))
    autumn = make_recurrence("30 2 * * *", zone=BERLIN, fold=BOTH).preview(at(AUTUMN))
    interval = make_recurrence(every=0.5 + 86_400).preview(at("1970-01-01T00:00:00Z"))

    assert [*islice(spring, 2)] == [
        Preview(at("2027-03-28T01:30:00Z"), "2027-03-28T03:30:00+02:00", "gap"),  # of 02:30 and 03:30
        Preview(at("2027-03-29T00:30:00Z"), "2027-03-29T02:30:00+02:00", None),
    ]
    assert [*islice(autumn, 3)] == [
        Preview(at("2027-10-31T00:30:00Z"), "2027-10-31T02:30:00+02:00", "fold"),
        Preview(at("2027-10-31T01:30:00Z"), "2027-10-31T02:30:00+01:00", "fold"),
        Preview(at("2027-11-01T01:30:00Z"), "2027-11-01T02:30:00+01:00", None),
    ]
    assert next(interval) == Preview(86_400_500_000, "1970-01-02T00:00:00.500+00:00", None)


@pytest.mark.parametrize(
    ("timing", "described"),
    [
        ({"cron": "0 9 * * MON-FRI", "zone": BERLIN}, "At 09:00 on Monday through Friday"),
        ({"every": 600.0}, "Every 10m"),
        ({"every": 5400.0}, "Every 1h30m"),
        ({"every": 1.5}, "Every 1.5s"),
        ({"every": 14 * 86_400.0}, "Every 2w"),
        ({"every": 86_461.25}, "Every 1d1m1.25s"),
    ],
)
def test_rhythm_is_described_in_english(timing: dict[str, object], described: str) -> None:
    assert make_recurrence(**timing).rhythm.describe() == described  # type: ignore[arg-type]  # of different types


@pytest.mark.parametrize(
    ("cron", "latest"),
    [
        ("* * * * * *", "2027-12-31T23:59:59"),
        ("* * * * 1 *", "2027-01-31T23:59:59"),  # 2,678,400 of them, eleven months ago
        ("@yearly", "2027-01-01T00:00:00"),
        ("0 0 29 2 *", "2024-02-29T00:00:00"),
    ],
)
def test_latest_is_found_without_walking_through_all(cron: str, latest: str) -> None:
    recurrence = make_recurrence(cron)

    found = recurrence.latest(at("2020-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z"))

    assert next(found) == at(f"{latest}Z")


def test_latest_of_many_are_the_same_as_all_in_the_other_direction() -> None:
    recurrence = make_recurrence("*/7 * 2-3 * * *", zone=BERLIN, gap=SHIFT, fold=BOTH)
    bounds = (at("2027-10-29T00:00:00Z"), at("2027-11-02T00:00:00Z"))

    assert [*recurrence.latest(*bounds)] == [*recurrence.between(*bounds)][::-1]


def test_recurrence_that_is_always_skipped_ends_after_fifty_years() -> None:
    recurrence = counted("30 2 * 3 7L", BERLIN, gap=SKIP)  # the last Sunday of March

    assert [*recurrence.after(EPOCH)] == []
    assert 50 <= CountedCron.counted <= 52


@pytest.mark.parametrize("cron", ["* * 2 * 3 7L", "*/7 * 2 * 3 7L", "* 59 2 * 3 7L"])
def test_gap_that_is_skipped_costs_one_local_time(cron: str) -> None:
    recurrence = counted(cron, BERLIN, gap=SKIP)

    assert [*recurrence.after(EPOCH)] == []
    assert 50 <= CountedCron.counted <= 52


def test_first_time_after_a_gap_that_is_skipped_is_found() -> None:
    recurrence = make_recurrence("*/7 * * * * *", zone=BERLIN, gap=SKIP)

    assert after(recurrence, "2027-03-28T00:59:55Z", 2) == ["2027-03-28T00:59:56", "2027-03-28T01:00:00"]


def test_recurrence_ends_with_the_last_year_that_can_be_written() -> None:
    *_, interval = make_recurrence(every=10 * 365 * 86_400.0).preview(EPOCH)
    *_, cron = make_recurrence("0 23 31 12 *", zone="America/New_York").preview(at("9990-01-01T00:00:00Z"))

    assert interval.local[:4] == "9994"
    assert cron.local == "9998-12-31T23:00:00-05:00"


def test_recurrence_that_goes_on_does_not_end_after_fifty_years() -> None:
    assert len([*islice(make_recurrence("@yearly").after(EPOCH), 120)]) == 120


@pytest.mark.parametrize("cron", ["* * * * * *", "0 9 * * *", "@yearly"])
def test_next_occurrence_costs_one_local_time_away_from_changes(cron: str) -> None:
    assert next(counted(cron, BERLIN).after(at("2027-03-26T12:00:00Z")))

    assert CountedCron.counted == 1


def test_same_timing_makes_equal_recurrences() -> None:
    assert make_recurrence("0 9 * * *", zone=BERLIN) == make_recurrence("0 9 * * *", zone=BERLIN)
    assert isinstance(make_recurrence(every=60.0), Recurrence)
    assert zones().find(BERLIN) is zones().find(BERLIN)
