"""Cron expressions: those supported, those refused with a remedy, and their descriptions."""

from __future__ import annotations

from datetime import datetime
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erelong.model.times.cron import MAX_CRON, NEVER, parse_cron

NOON = datetime(2027, 1, 1, 12)  # a Friday


def next_times(text: str, count: int = 3) -> list[str]:
    return [f"{local:%m-%d %H:%M:%S}" for local in islice(parse_cron(text).after(NOON), count)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 9 * * *", ["01-02 09:00:00", "01-03 09:00:00"]),
        ("30 0 9 * * *", ["01-02 09:00:30", "01-03 09:00:30"]),
        ("*/20 * * * * *", ["01-01 12:00:20", "01-01 12:00:40"]),
        ("5-6 * * * *", ["01-01 12:05:00", "01-01 12:06:00"]),
        ("10/25 * * * *", ["01-01 12:10:00", "01-01 12:35:00"]),
        ("7-7/2 13 * * *", ["01-01 13:07:00", "01-02 13:07:00"]),
        ("0 0 * * mon-Fri", ["01-04 00:00:00", "01-05 00:00:00"]),
        ("0 0 * * 7", ["01-03 00:00:00", "01-10 00:00:00"]),
        ("0 0 * * 0", ["01-03 00:00:00", "01-10 00:00:00"]),
        ("0 0 * * SUN-SUN/2", ["01-03 00:00:00", "01-10 00:00:00"]),
        ("0 0 1 feb,APR *", ["02-01 00:00:00", "04-01 00:00:00"]),
        ("0 0 L * *", ["01-31 00:00:00", "02-28 00:00:00"]),
        ("0 0 l,15 * *", ["01-15 00:00:00", "01-31 00:00:00"]),
        ("0 0 LW * *", ["01-29 00:00:00", "02-26 00:00:00"]),
        ("0 0 * * 5L", ["01-29 00:00:00", "02-26 00:00:00"]),
        ("0 0 * * FRI#2", ["01-08 00:00:00", "02-12 00:00:00"]),
        ("@hourly", ["01-01 13:00:00", "01-01 14:00:00"]),
        ("@daily", ["01-02 00:00:00", "01-03 00:00:00"]),
        ("@Weekly", ["01-03 00:00:00", "01-10 00:00:00"]),
        ("@monthly", ["02-01 00:00:00", "03-01 00:00:00"]),
        ("@yearly", ["01-01 00:00:00", "01-01 00:00:00"]),
        ("  0   9 * *\t* ", ["01-02 09:00:00", "01-03 09:00:00"]),
        ("*/60 * * * *", ["01-01 13:00:00", "01-01 14:00:00"]),
    ],
)
def test_cron_gives_its_local_times_in_order(text: str, expected: list[str]) -> None:
    assert next_times(text, 2) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0 0 13 * FRI", ["01-08 00:00:00", "01-13 00:00:00", "01-15 00:00:00"]),
        ("0 0 1-7,20 * FRI", ["01-02 00:00:00", "01-03 00:00:00", "01-04 00:00:00"]),
        ("0 0 13 * *", ["01-13 00:00:00", "02-13 00:00:00", "03-13 00:00:00"]),
        ("0 0 */2 * MON", ["01-11 00:00:00", "01-25 00:00:00", "02-01 00:00:00"]),
        ("0 0 1-7 * */7", ["01-03 00:00:00", "02-07 00:00:00", "03-07 00:00:00"]),
        ("0 0 *,13 * FRI", ["01-08 00:00:00", "01-15 00:00:00", "01-22 00:00:00"]),
    ],
)
def test_either_day_matches_unless_a_field_of_days_begins_with_a_star(text: str, expected: list[str]) -> None:
    assert next_times(text) == expected


@pytest.mark.parametrize(
    ("text", "is_steady"),
    [
        ("*/15 9 * * *", True),
        ("0 * * * *", True),
        ("0 */2 * * *", True),
        ("@hourly", True),
        ("* 0 * * * *", True),
        ("0 9 * * *", False),
        ("* 30 2 * * *", False),
        ("0-59 2 * * *", False),
        ("@daily", False),
    ],
)
def test_beat_is_steady_where_minute_or_hour_begins_with_a_star(text: str, is_steady: bool) -> None:
    assert parse_cron(text).is_steady is is_steady


NICKNAMES = "write @hourly, @daily, @weekly, @monthly, @yearly or five fields"
BESIDE_H = "write a number, and set spread to keep schedules apart"
NO_YEAR = "has a year: remove it, and bound the schedule with starts_at and ends_at"
FIVE_OR_SIX = "write 5 (minute, hour, day of month, month, day of week), or 6 with seconds first"
NO_WRAP = "a range cannot wrap around"
LAST = "write L for the last day of the month, or LW for its last weekday"
LAST_FRIDAY = "write a day before the L: 5L is the last Friday of the month"
SECOND_FRIDAY = "write one day and a number from 1 to 5: FRI#2 is the second Friday of the month"
SUN_TO_SAT = "write 0 to 7, or SUN to SAT"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("0 9 ? * MON", '"?" in day of month: write *'),
        ("0 9 * * ?", '"?" in day of week: write *'),
        (
            "0 9 15W * *",
            '"15W" in day of month: the nearest weekday is not supported; write 15, '
            "or LW for the last weekday of the month",
        ),
        ("0 9 32W * *", '"32W" in day of month: write 1 to 31'),
        ("H 9 * * *", f'"H" in minute: {BESIDE_H}'),
        ("H/15 * * * *", f'"H/15" in minute: {BESIDE_H}'),
        ("0 H(0-5) * * *", f'"H(0-5)" in hour: {BESIDE_H}'),
        ("0~30 9 * * *", f'"0~30" in minute: {BESIDE_H}'),
        (
            "CRON_TZ=Europe/Berlin 0 9 * * *",
            '"CRON_TZ=Europe/Berlin" before the fields: remove it and set zone to "Europe/Berlin"',
        ),
        ("tz=UTC 0 9 * * *", '"tz=UTC" before the fields: remove it and set zone to "UTC"'),
        ("@reboot", '"@reboot" is not supported: a schedule has only times; submit a job when your program starts'),
        ("@every 5m", '"@every 5m" is not supported: set every in place of cron'),
        ("@midnight", '"@midnight" is not supported: write @daily'),
        ("@annually", '"@annually" is not supported: write @yearly'),
        ("@fortnightly", f'"@fortnightly" is not supported: {NICKNAMES}'),
        ("@daily 5", f'"@daily 5" is not supported: {NICKNAMES}'),
        ("0 9 * * MON 2027", f'"0 9 * * MON 2027" {NO_YEAR}'),
        ("0 9 * * MON 2027-2029", f'"0 9 * * MON 2027-2029" {NO_YEAR}'),
        ("0 0 9 * * ? 2027", f'"0 0 9 * * ? 2027" {NO_YEAR}'),
        ("0 9 * *", f'"0 9 * *" has 4 fields: {FIVE_OR_SIX}'),
        ("", f'"" has 0 fields: {FIVE_OR_SIX}'),
        ("* * * * * * * *", f'"* * * * * * * *" has 8 fields: {FIVE_OR_SIX}'),
        ("0 9 30 2 *", f'"0 9 30 2 *" {NEVER}'),
        ("0 9 31 4,6 */2", f'"0 9 31 4,6 */2" {NEVER}'),
        ("60 0 9 * * *", '"60" in second: write 0 to 59'),
        ("60 * * * *", '"60" in minute: write 0 to 59'),
        ("0 24 * * *", '"24" in hour: write 0 to 23'),
        ("0 0 0 * *", '"0" in day of month: write 1 to 31'),
        ("0 0 * 13 *", '"13" in month: write 1 to 12, or JAN to DEC'),
        ("0 0 * JANUARY *", '"JANUARY" in month: write 1 to 12, or JAN to DEC'),
        ("0 0 * * 8", f'"8" in day of week: {SUN_TO_SAT}'),
        ("0 0 * * Monday", f'"MONDAY" in day of week: {SUN_TO_SAT}'),
        ("MON * * * *", '"MON" in minute: write 0 to 59'),
        ("1,,2 * * * *", '"" in minute: write 0 to 59'),
        ("1-2-3 * * * *", '"1-2-3" in minute: write 0 to 59'),
        ("-1 * * * *", '"-1" in minute: write 0 to 59'),
        ("1.5 * * * *", '"1.5" in minute: write 0 to 59'),
        ("0 22-6 * * *", f'"22-6" in hour: {NO_WRAP}; write 22-23,0-6'),
        ("0 0 * nov-jan *", f'"NOV-JAN" in month: {NO_WRAP}; write 11-12,1'),
        ("0 0 * * FRI-SUN", f'"FRI-SUN" in day of week: {NO_WRAP}; write 5-7'),
        ("0 0 * * SAT-TUE", f'"SAT-TUE" in day of week: {NO_WRAP}; write 6-7,1-2'),
        ("*/0 * * * *", '"*/0" in minute: a step is from 1 to 60; for a longer period set every in place of cron'),
        ("*/90 * * * *", '"*/90" in minute: a step is from 1 to 60; for a longer period set every in place of cron'),
        ("0 */25 * * *", '"*/25" in hour: a step is from 1 to 24; for a longer period set every in place of cron'),
        ("0 0 L-3 * *", f'"L-3" in day of month: {LAST}'),
        ("0 0 L/2 * *", f'"L/2" in day of month: {LAST}'),
        ("0 0 * * L", f'"L" in day of week: {LAST_FRIDAY}'),
        ("0 0 * * 8L", f'"8L" in day of week: {LAST_FRIDAY}'),
        ("0 0 * * FRIL", '"FRIL" in day of week: write 5L'),
        ("0 0 * * FRI#6", f'"FRI#6" in day of week: {SECOND_FRIDAY}'),
        ("0 0 * * MON-FRI#2", f'"MON-FRI#2" in day of week: {SECOND_FRIDAY}'),
        ("0 0 5L * *", '"5L" in day of month: write 1 to 31'),
        ("L * * * *", '"L" in minute: write 0 to 59'),
        ("0 0 * * FR\u0131", f'"0 0 * * FR\u0131" is not a cron expression: write at most {MAX_CRON} ASCII characters'),
        ("٣ * * * *", f'"٣ * * * *" is not a cron expression: write at most {MAX_CRON} ASCII characters'),
    ],
)
def test_unsupported_expression_is_refused_with_what_to_write_instead(text: str, fault: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - its whole text is compared
        parse_cron(text)

    assert str(refused.value) == fault


def test_endless_text_is_refused_in_a_bounded_length() -> None:
    with pytest.raises(ValueError, match="write at most 200 ASCII characters") as refused:
        parse_cron("0," * MAX_CRON)

    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "described"),
    [
        ("0 9 * * MON-FRI", "At 09:00 on Monday through Friday"),
        ("@daily", "At 00:00 every day"),
        ("*/15 * * * * *", "Every 15 seconds"),
        ("*/20 9-17 * * MON-FRI", "Every 20 minutes from 09:00 through 17:59 on Monday through Friday"),
        ("*/7 * * * *", "Every seventh minute of every hour"),
        ("*/30 */2 * * *", "Every 30th minute past every second hour"),
        ("0 0 LW * *", "At 00:00 on the last weekday of every month"),
    ],
)
def test_cron_is_described_in_english(text: str, described: str) -> None:
    assert parse_cron(text).describe() == described


def test_times_end_with_the_last_year_there_is() -> None:
    assert list(parse_cron("0 0 1 1 *").after(datetime(9998, 6, 1))) == [datetime(9999, 1, 1)]


ITEM = st.from_regex(r"(\*|[0-9A-Z]{1,3}(-[0-9A-Z]{1,3})?)(/[0-9]{1,2})?|[0-7]L|LW?|FRI#[0-9]", fullmatch=True)
FIELD = st.one_of(
    st.just("*"),
    st.integers(0, 59).map(str),
    st.lists(ITEM, min_size=1, max_size=3).map(",".join),
    st.text("0123456789*/-,LW#?H", max_size=5),
)


@given(st.lists(FIELD, min_size=5, max_size=6).map(" ".join))
def test_any_text_is_refused_with_a_reason_or_comes_in_order(text: str) -> None:
    try:
        cron = parse_cron(text)
    except ValueError as error:
        reason = str(error)
        assert reason.startswith('"')
    else:
        times = [NOON, *islice(cron.after(NOON), 5)]
        assert all(earlier < later for earlier, later in pairwise(times))
        assert cron.describe()
