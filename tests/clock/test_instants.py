"""Instants and durations: parsing, errors with a remedy, and formatting."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from erelong.clock import instants as instants_module
from erelong.clock.instants import LONGEST_DURATION, format_instant, now, parse_duration, parse_instant
from erelong.settings.types import Duration, PositiveDuration

NOW = 1_796_115_600_000_000  # 2026-12-01T09:00:00Z
HORIZON = 315_360_000.0
UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=timezone(timedelta(0)))

instants = st.integers(NOW - 9 * 365 * 86_400_000_000, NOW + 9 * 365 * 86_400_000_000)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-12-01T09:00:00Z", NOW),
        ("2026-12-01t09:00:00z", NOW),
        ("2026-12-01 09:00:00Z", NOW),
        ("2026-12-01T11:30:00+02:30", NOW),
        ("2026-11-30T23:00:00-10:00", NOW),
        ("2026-12-01T09:00:00-00:00", NOW),
        ("2026-12-01T09:00:00.5Z", NOW + 500_000),
        ("2026-12-01T09:00:00.000001Z", NOW + 1),
        ("2026-12-01T09:00:00.0000000Z", NOW),
        ("2026-12-01T09:00:00.0000001Z", NOW + 1),
        ("2026-12-01T09:00:00.9999999Z", NOW + 1_000_000),
        pytest.param("2026-12-01T09:00:00." + "0" * 5_000 + "1Z", NOW + 1, id="long fraction"),
        ("2024-02-29T00:00:00Z", 1_709_164_800_000_000),
        ("2026-12-31T23:59:60Z", 1_798_761_600_000_000),
        ("2027-01-01T01:59:60.25+02:00", 1_798_761_600_250_000),
        (1_796_115_600, NOW),
        (1_796_115_600.0, NOW),
        (1_796_115_600.123, NOW + 123_000),
        (1_796_115_600.1234567, NOW + 123_457),
    ],
)
def test_instant_is_read(value: object, expected: int) -> None:
    assert parse_instant(value, NOW, HORIZON) == expected


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ("2026-12-01T09:00:00", "no offset: append Z"),
        ("2026-12-01 09:00:00.5", "no offset: append Z"),
        ("2026-13-01T09:00:00Z", "does not exist"),
        ("2026-02-29T09:00:00Z", "does not exist"),
        ("2026-12-01T24:00:00Z", "does not exist"),
        ("2026-12-01T09:00:61Z", "does not exist"),
        ("2026-12-01T09:00:60Z", "a leap second is the last of a day in UTC"),
        ("2026-12-31T23:59:60+01:00", "a leap second is the last of a day in UTC"),
        ("0000-01-01T00:00:00Z", "does not exist"),
        ("2026-12-01", "send RFC 3339"),
        ("2026-12-01T09:00Z", "send RFC 3339"),
        ("2026-12-01T09:00:00+2", "send RFC 3339"),
        ("2026-12-01T09:00:00+24:00", "send RFC 3339"),
        ("2026-12-01T09:00:00Z\n", "send RFC 3339"),
        ("\u0662026-12-01T09:00:00Z", "send RFC 3339"),
        ("2026-12-01T09:00:00 02:00", "write the + of the offset as %2B"),
        ("2026-12-01T09:00:00.5 02:00", "write the + of the offset as %2B"),
        ("2026-12-01 09:00", "send RFC 3339"),
        ("1796115600", "send RFC 3339"),
        ("NaN", "send RFC 3339"),
        ("", "send RFC 3339"),
        (None, "null is not an instant"),
        (True, "true is not an instant"),
        ([], "a list is not an instant"),
        ({}, "an object is not an instant"),
        (math.nan, "NaN is not an instant"),
        (math.inf, "Infinity is not an instant"),
        (-math.inf, "-Infinity is not an instant"),
        (1_796_115_600_000, "divide by 1000"),
        (100_000_000_000, "divide by 1000"),
        pytest.param(10**5_000, "divide by 1000", id="5000 digits"),
        (1e300, "divide by 1000"),
        (0, "more than 10 years ago"),
        pytest.param(-(10**5_000), "more than 10 years ago", id="minus 5000 digits"),
        ("1996-12-01T09:00:00Z", "more than 10 years ago: send a time after 2016-12-01T09:00:00.000Z"),
        ("2036-11-28T09:00:00.001Z", "too far ahead: send a time before 2036-11-28T09:00:00.000Z"),
        (99_999_999_999, "too far ahead"),
        ("9999-12-31T23:59:60Z", "too far ahead"),
    ],
)
def test_doubtful_instant_is_refused_with_a_remedy(value: object, advice: str) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)) as caught:
        parse_instant(value, NOW, HORIZON)

    assert len(str(caught.value)) < 250


def test_bounds_of_the_horizon_are_inside_it() -> None:
    assert parse_instant("2036-11-28T09:00:00Z", NOW, HORIZON) == NOW + 315_360_000_000_000
    assert parse_instant("2016-12-01T09:00:00Z", NOW, HORIZON) == NOW - 3_652 * 86_400_000_000


def test_past_instant_is_not_moved_to_now() -> None:
    assert parse_instant("2026-11-30T09:00:00Z", NOW, HORIZON) == NOW - 86_400_000_000


@given(instants, st.integers(-23 * 60, 23 * 60))
def test_instant_is_the_same_at_every_offset(instant: int, minutes: int) -> None:
    local = (UNIX_EPOCH + timedelta(microseconds=instant)).astimezone(timezone(timedelta(minutes=minutes)))

    assert parse_instant(local.isoformat(), NOW, HORIZON) == instant


NEARLY = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["2026-12-01", "2028-02-29", "2027-02-29", "2026-12-31", "2026-13-01", "0000-01-01", "261201"]),
        st.sampled_from(["T", "t", " ", "", "W"]),
        st.sampled_from(["09:00:00", "23:59:59", "23:59:60", "24:00:00", "09:60:00", "09:00", "090000", "9:00:00"]),
        st.sampled_from(["", ".5", ".123456", ".1234567", ".", ",5", ".٣"]),
        st.sampled_from(["Z", "z", "", "+02:00", "-23:59", "+24:00", "+02:60", "+0200", "+02:00:30", "Z ", "\n"]),
    ),
)


@given(NEARLY)
def test_text_is_read_alike_by_the_fast_parser(text: str) -> None:
    def read(parse: Callable[[str], int]) -> int | str:
        try:
            return parse(text)
        except ValueError as error:
            return str(error)

    assert read(instants_module._from_text_fast) == read(instants_module._from_text)


@given(st.floats(NOW / 1e6 - 1e8, NOW / 1e6 + 1e8))
def test_unix_seconds_are_rounded_up_from_their_shortest_text(seconds: float) -> None:
    exact = Fraction(json.dumps(seconds)) * 1_000_000

    assert 0 <= parse_instant(seconds, NOW, HORIZON) - exact < 1


@given(instants)
def test_written_instant_is_the_next_millisecond(instant: int) -> None:
    printed = format_instant(instant)

    assert len(printed) == len("2026-12-01T09:00:00.000Z")
    assert parse_instant(printed, NOW, HORIZON) == math.ceil(Fraction(instant, 1000)) * 1000


@pytest.mark.parametrize(
    ("instant", "expected"),
    [
        (NOW, "2026-12-01T09:00:00.000Z"),
        (NOW + 1, "2026-12-01T09:00:00.001Z"),
        (NOW + 999_001, "2026-12-01T09:00:01.000Z"),
        (NOW - 1, "2026-12-01T09:00:00.000Z"),
        (0, "1970-01-01T00:00:00.000Z"),
        (-1_500_000, "1969-12-31T23:59:58.500Z"),
        (10**18, "9999-12-31T23:59:59.000Z"),
        (-(10**18), "0001-01-01T00:00:00.000Z"),
    ],
)
def test_instant_is_written_in_milliseconds_rounded_up(instant: int, expected: str) -> None:
    assert format_instant(instant) == expected


@given(st.one_of(st.text(), st.none(), st.booleans(), st.integers(), st.floats(), st.lists(st.integers())))
def test_anything_is_read_or_refused_with_a_value_error(value: object) -> None:
    for parse in (lambda: parse_instant(value, NOW, HORIZON), lambda: parse_duration(value)):
        try:
            assert parse() is not None
        except ValueError as error:
            assert "send" in str(error)  # noqa: PT017 - most values are refused, some are not


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0.0),
        (-0.0, 0.0),
        (90, 90.0),
        (0.25, 0.25),
        (3_155_760_000, 3_155_760_000.0),
        ("90s", 90.0),
        ("250ms", 0.25),
        ("1h30m", 5_400.0),
        ("1.5h", 5_400.0),
        ("2d", 172_800.0),
        ("1w", 604_800.0),
        ("1w2d3h4m5s6ms", 788_645.006),
        ("1.1s100ms", 1.2),
        ("5m", 300.0),
        ("0s", 0.0),
        ("PT5M", 300.0),
        ("PT0S", 0.0),
        ("PT1.5S", 1.5),
        ("PT1,5S", 1.5),
        ("PT36H", 129_600.0),
        ("P1D", 86_400.0),
        ("P1DT2H", 93_600.0),
        ("P1W", 604_800.0),
        ("P1W2DT3H4M5S", 788_645.0),
    ],
)
def test_duration_is_read(value: object, expected: float) -> None:
    seconds = parse_duration(value)

    assert seconds == expected
    assert isinstance(seconds, float)
    assert math.copysign(1, seconds) == 1


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (-1, "negative"),
        (-0.001, "negative"),
        ("-5m", "negative"),
        ("-PT5M", "negative"),
        ("P1M", "send days"),
        ("P1Y2M3D", "send days"),
        ("P0.5Y", "send days"),
        ("", "send seconds"),
        ("90", "send seconds"),
        ("5M", "send seconds"),
        ("1m1h", "send seconds"),
        ("1h 30m", "send seconds"),
        ("1 hour", "send seconds"),
        ("1h30", "send seconds"),
        (".5h", "send seconds"),
        ("1e3s", "send seconds"),
        ("\u0665s", "send seconds"),
        ("P", "send seconds"),
        ("PT", "send seconds"),
        ("P1DT", "send seconds"),
        ("P5M1D", "send days"),
        ("pt5m", "send seconds"),
        ("5s\n", "send seconds"),
        pytest.param("9" * 1_000_000 + "s", "send seconds", id="1 MB"),
        (None, "null is not a duration"),
        (True, "true is not a duration"),
        ([], "a list is not a duration"),
        (math.nan, "NaN is not a duration"),
        (math.inf, "more than 100 years"),
        (1e300, "more than 100 years"),
        pytest.param(10**5_000, "more than 100 years", id="5000 digits"),
        (1_796_115_600_000, "is it in milliseconds"),
        ("36526d", "more than 100 years"),
        ("9" * 90 + "s", "more than 100 years"),
    ],
)
def test_doubtful_duration_is_refused_with_a_remedy(value: object, advice: str) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)) as caught:
        parse_duration(value)

    assert len(str(caught.value)) < 250


@given(st.integers(0, 1_000), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_duration_means_the_same_in_every_form(days: int, hours: int, minutes: int, seconds: int) -> None:
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    assert parse_duration(total) == total
    assert parse_duration(f"{days}d{hours}h{minutes}m{seconds}s") == total
    assert parse_duration(f"P{days}DT{hours}H{minutes}M{seconds}S") == total


class _Delays(BaseModel):
    any: Duration = 1.0
    positive: PositiveDuration | None = None


def test_model_with_durations_takes_every_form_and_gives_seconds() -> None:
    delays = _Delays.model_validate({"any": "1h30m", "positive": "PT5M"})

    assert delays.model_dump() == {"any": 5_400.0, "positive": 300.0}


def test_model_refuses_a_duration_with_the_error_of_the_clock() -> None:
    with pytest.raises(ValidationError) as caught:
        _Delays.model_validate({"any": "5M", "positive": 0})

    assert [error["msg"] for error in caught.value.errors()] == [
        '"5M" is not a duration: send seconds as a number, or text such as "90s", "1h30m", "250ms", "PT5M" or "P1DT2H"',
        "Input should be greater than 0",
    ]


def test_schema_of_a_duration_takes_numbers_and_text_and_gives_numbers() -> None:
    taken = TypeAdapter(Duration).json_schema()
    given_out = TypeAdapter(PositiveDuration).json_schema(mode="serialization")

    assert taken["anyOf"] == [{"type": "number", "minimum": 0}, {"type": "string"}]
    assert given_out == {"type": "number", "exclusiveMinimum": 0}


def test_now_is_in_microseconds_and_longest_duration_fits_behind_it() -> None:
    read = now()

    assert 1_700_000_000_000_000 < read < 10_000_000_000_000_000
    assert read + LONGEST_DURATION * 1e6 < 2**63
