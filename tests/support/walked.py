"""Occurrences found by walking through every minute or second of a zone: slow, and not the way of the code."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import NamedTuple

from erelong.model.times.local_time import Fold, Gap

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAY = timedelta(days=1)

IsDay = Callable[[date], bool]


class Spec(NamedTuple):
    """A cron as text, and what it means as sets of numbers and a rule for days."""

    text: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    is_day: IsDay

    def matches(self, local: datetime) -> bool:
        return (
            local.second in self.seconds
            and local.minute in self.minutes
            and local.hour in self.hours
            and local.month in self.months
            and self.is_day(local.date())
        )


class Change(NamedTuple):
    """Clocks that are set: the first instant after it, in seconds, and by how much."""

    at: int
    width: int


def local_at(second: int, zone: tzinfo) -> datetime:
    return (EPOCH + timedelta(seconds=second)).astimezone(zone).replace(tzinfo=None, fold=0)


@lru_cache
def changes(zone: tzinfo, first_year: int, last_year: int) -> list[Change]:
    """All changes of a zone's offset in these years, found hour by hour and then second by second."""
    first, last = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (first_year, last_year))
    found = []
    for day in range(first, last, 86_400):
        if _offset(day, zone) != _offset(day + 86_400, zone):
            low, high = day, day + 86_400
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(middle, zone) == _offset(day, zone) else (low, middle)
            found.append(Change(high, abs(_offset(high, zone) - _offset(low, zone))))
    return found


def _offset(second: int, zone: tzinfo) -> int:
    return int((local_at(second, zone) - local_at(second, UTC)).total_seconds())


@lru_cache(maxsize=4)
def ticks(zone: tzinfo, first: int, last: int, step: int) -> list[tuple[int, datetime]]:
    """Every minute or second from `first` to `last`, with its local time."""
    return [(second, local_at(second, zone)) for second in range(first, last, step)]


def walk(
    walked: list[tuple[int, datetime]], matches: Callable[[datetime], bool], gap: Gap, fold: Fold
) -> dict[int, str | None]:
    """Find the occurrences among all ticks; those of a gap count on from the last local time before it."""
    times: defaultdict[datetime, list[int]] = defaultdict(list)
    for second, local in walked:
        if matches(local):
            times[local].append(second)
    wanted = {Fold.FIRST: slice(0, 1), Fold.SECOND: slice(-1, None), Fold.BOTH: slice(None)}[fold]
    found: dict[int, str | None] = {}
    for seconds in times.values():
        found |= dict.fromkeys(seconds[wanted], "fold" if len(seconds) > 1 else None)
    step = timedelta(seconds=walked[1][0] - walked[0][0])
    for (before, local), (_, following) in pairwise(walked):
        lost = local + step
        while gap is Gap.SHIFT and lost < following:
            if matches(lost):
                found[before + int((lost - local).total_seconds())] = "gap"
            lost += step
    return dict(sorted(found.items()))


def draw_spec(random: Random, hours: list[int], *, has_seconds: bool) -> Spec:
    """Draw a cron that has a good chance to come in these hours."""
    second, seconds = draw_field(random, 0, 59) if has_seconds else ("", frozenset({0}))
    minute, minutes = draw_field(random, 0, 59)
    hour, hour_set = (str(random.choice(hours)), None) if random.random() < 0.6 else draw_field(random, 0, 23)
    month, months = ("*", frozenset(range(1, 13))) if random.random() < 0.8 else draw_field(random, 1, 12)
    days, is_day = draw_days(random) if random.random() < 0.4 else (("*", "*"), lambda _: True)
    text = f"{second} {minute} {hour} {days[0]} {month} {days[1]}"
    return Spec(text, seconds, minutes, hour_set or frozenset({int(hour)}), months, is_day)


def draw_field(random: Random, least: int, most: int) -> tuple[str, frozenset[int]]:
    """Draw the text of a field, and the values it stands for."""
    low, high = sorted((random.randint(least, most), random.randint(least, most)))
    step = random.randint(1, 20 if most > 20 else 5)
    match random.randrange(7):
        case 0:
            return "*", frozenset(range(least, most + 1))
        case 1:
            return f"*/{step}", frozenset(range(least, most + 1, step))
        case 2:
            return f"{low}-{high}", frozenset(range(low, high + 1))
        case 3:
            return f"{low}-{high}/{step}", frozenset(range(low, high + 1, step))
        case 4 if low < most:
            return f"{low}/{step}", frozenset(range(low, most + 1, step))
        case 5:
            return f"{high},{low}", frozenset({low, high})
        case _:
            return str(low), frozenset({low})


def draw_days(random: Random) -> tuple[tuple[str, str], IsDay]:
    """Draw day of month and day of week, and the rule that both make: one of them, or both if one begins with *."""
    of_month, is_of_month = random.choice([_every_day, _drawn_date, _last_day, _last_weekday])(random)
    of_week, is_of_week = random.choice([_every_day, _drawn_weekday, _last_of_week, _nth_of_week])(random)
    if of_month.startswith("*") or of_week.startswith("*"):
        return (of_month, of_week), lambda day: is_of_month(day) and is_of_week(day)
    return (of_month, of_week), lambda day: is_of_month(day) or is_of_week(day)


def _every_day(_: Random) -> tuple[str, IsDay]:
    return "*", lambda _: True


def _drawn_date(random: Random) -> tuple[str, IsDay]:
    text, dates = draw_field(random, 1, 28)
    if text.startswith(("*", "28")) or "/" in text:  # the field goes on to 31
        return "*/2", lambda day: day.day % 2 == 1
    return text, lambda day: day.day in dates


def _last_day(_: Random) -> tuple[str, IsDay]:
    return "L", lambda day: (day + DAY).day == 1


def _last_weekday(_: Random) -> tuple[str, IsDay]:
    def is_last(day: date) -> bool:
        later = [day + n * DAY for n in range(1, 7) if (day + n * DAY).month == day.month]
        return day.isoweekday() < 6 and all(other.isoweekday() > 5 for other in later)

    return "LW", is_last


def _drawn_weekday(random: Random) -> tuple[str, IsDay]:
    low, high = sorted((random.randrange(7), random.randrange(7)))
    text = random.choice([f"{low}-{high}", f"{DAYS[low]}-{DAYS[high].lower()}", f"{low}-{high}/1"])
    if random.random() < 0.3:
        text, low, high = "5-7", 5, 7
    return text, lambda day: low <= day.isoweekday() % 7 <= high or (high == 7 and day.isoweekday() == 7)


def _last_of_week(random: Random) -> tuple[str, IsDay]:
    number = random.randrange(8)
    return f"{number}L", lambda day: day.isoweekday() % 7 == number % 7 and (day + 7 * DAY).month != day.month


def _nth_of_week(random: Random) -> tuple[str, IsDay]:
    number, nth = random.randrange(7), random.randint(1, 5)
    return f"{DAYS[number]}#{nth}", lambda day: day.isoweekday() % 7 == number and (day.day - 1) // 7 == nth - 1
