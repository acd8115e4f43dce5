"""Local times: which instants they are, also where clocks are set, and how they are read and written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from erelong.clock.instants import SECOND, format_instant
from erelong.model.times.local_time import (
    Fold,
    Gap,
    Note,
    Occurrence,
    first_local,
    format_local,
    instant_of,
    occurrences,
    parse_local,
)
from tests.support.recurring import at, zones


@pytest.mark.parametrize(
    ("local", "zone", "expected"),
    [
        ("2027-01-15T09:00:00", "UTC", "2027-01-15T09:00:00.000Z"),
        ("2027-01-15T09:00:00", "Europe/Berlin", "2027-01-15T08:00:00.000Z"),
        ("2027-07-15T09:00:00", "Europe/Berlin", "2027-07-15T07:00:00.000Z"),
        ("2027-07-15T09:00:00.25", "Asia/Kolkata", "2027-07-15T03:30:00.250Z"),
        # gaps: by the offset before
        ("2027-03-28T01:59:59", "Europe/Berlin", "2027-03-28T00:59:59.000Z"),
        ("2027-03-28T02:30:00", "Europe/Berlin", "2027-03-28T01:30:00.000Z"),
        ("2027-03-28T03:30:00", "Europe/Berlin", "2027-03-28T01:30:00.000Z"),
        ("2026-10-04T02:15:00", "Australia/Lord_Howe", "2026-10-03T15:45:00.000Z"),
        ("2011-12-30T12:00:00", "Pacific/Apia", "2011-12-30T22:00:00.000Z"),
        # folds: the first
        ("2027-10-31T02:30:00", "Europe/Berlin", "2027-10-31T00:30:00.000Z"),
        ("2026-11-01T01:30:00", "America/New_York", "2026-11-01T05:30:00.000Z"),
        ("2026-04-05T01:45:00", "Australia/Lord_Howe", "2026-04-04T14:45:00.000Z"),
    ],
)
def test_local_time_is_one_instant_in_gaps_and_folds_too(local: str, zone: str, expected: str) -> None:
    assert format_instant(instant_of(parse_local(local), zones().find(zone))) == expected


@pytest.mark.parametrize("text", ["2027-03-28T09:00:00", "2027-03-28 09:00:00.000", "2027-03-28t09:00:00"])
def test_local_time_is_read_with_or_without_a_fraction(text: str) -> None:
    assert parse_local(text) == datetime(2027, 3, 28, 9)


AS_LOCAL = 'is not a local time: send a local time without an offset, such as "2027-03-28T09:00:00"'


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("2027-03-28T09:00:00Z", f'"2027-03-28T09:00:00Z" {AS_LOCAL}'),
        ("2027-03-28T09:00:00+02:00", f'"2027-03-28T09:00:00+02:00" {AS_LOCAL}'),
        ("2027-03-28T09:00", f'"2027-03-28T09:00" {AS_LOCAL}'),
        ("2027-03-28", f'"2027-03-28" {AS_LOCAL}'),
        ("tomorrow", f'"tomorrow" {AS_LOCAL}'),
        (1_800_000_000, f"1800000000 {AS_LOCAL}"),
        (None, f"null {AS_LOCAL}"),
        ("2027-02-29T09:00:00", '"2027-02-29T09:00:00" does not exist: this month has 28 days'),
        ("2027-03-28T24:00:00", '"2027-03-28T24:00:00" does not exist: hours go from 00 to 23'),
        ("2027-03-28T09:00:60", '"2027-03-28T09:00:60" does not exist: seconds go from 00 to 59'),
    ],
)
def test_invalid_local_time_is_refused_with_a_remedy(value: object, fault: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - its whole text is compared
        parse_local(value)

    assert str(refused.value) == fault


@pytest.mark.parametrize(
    ("instant", "zone", "expected"),
    [
        (at("2027-03-28T00:59:59Z"), "Europe/Berlin", "2027-03-28T01:59:59+01:00"),
        (at("2027-03-28T01:00:00Z"), "Europe/Berlin", "2027-03-28T03:00:00+02:00"),
        (at("2027-03-28T01:00:00Z"), "America/St_Johns", "2027-03-27T22:30:00-02:30"),
        (at("2027-03-28T01:00:00Z"), "UTC", "2027-03-28T01:00:00+00:00"),
        (at("2027-03-28T01:00:00Z") + 1, "UTC", "2027-03-28T01:00:00.001+00:00"),
    ],
)
def test_instant_is_written_with_the_offset_of_its_zone(instant: int, zone: str, expected: str) -> None:
    assert format_local(instant, zones().find(zone)) == expected


def test_occurrence_that_is_held_is_given_when_no_local_time_follows() -> None:
    zone, start = zones().find("Europe/Berlin"), at("2027-03-28T00:00:00Z")

    local_times = [datetime(2027, 3, 28, 2, 30)]
    found = occurrences(lambda _: iter(local_times), datetime(2027, 3, 28), zone, Gap.SHIFT, Fold.FIRST, start)

    assert [*found] == [Occurrence(at("2027-03-28T01:30:00Z"), Note.GAP)]


def test_search_begins_early_only_beside_a_change() -> None:
    berlin = zones().find("Europe/Berlin")
    change = at("2027-03-28T01:00:00Z")

    starts = [first_local(change + hours * 3600 * SECOND, berlin) for hours in (-3, 0, 2)]

    # Within an hour of it the lost hour is searched too; else a cron of seconds would walk through it for nothing.
    assert starts == [datetime(2027, 3, 27, 23), datetime(2027, 3, 28, 2), datetime(2027, 3, 28, 5)]
    assert first_local(change, UTC) == datetime(2027, 3, 28, 1)
