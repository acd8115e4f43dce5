"""Instants (microseconds since 1970, UTC) and durations (seconds): parsing, formatting and the current time."""

from __future__ import annotations

import json
import math
import re
import time
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Final, TypeAlias

Instant: TypeAlias = int
Now: TypeAlias = Callable[[], Instant]
Tick: TypeAlias = Callable[[], float]
"""The monotonic clock, in seconds."""

SECOND: Final = 1_000_000
LONGEST_DURATION: Final = 36_525 * 86_400.0  # 100 years: a larger value is in milliseconds or a mistake
DEEPEST_PAST: Final = 3_652 * 86_400 * SECOND  # 10 years
LATEST_VIRTUAL: Final = 7_258_118_400 * SECOND  # the year 2200, at which virtual clocks end
FIRST_MILLISECONDS: Final = 10**11  # as seconds this is the year 5138, as milliseconds 1973

_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_IN_UTC: Final = _EPOCH.replace(tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_FIRST_SECOND: Final = (datetime.min - _EPOCH) // timedelta(seconds=1)
_LAST_SECOND: Final = (datetime.max - _EPOCH) // timedelta(seconds=1)
_AS_INSTANT: Final = 'send RFC 3339 with an offset, such as "2026-12-01T09:00:00Z", or Unix seconds as a number'
_AS_DURATION: Final = 'send seconds as a number, or text such as "90s", "1h30m", "250ms", "PT5M" or "P1DT2H"'

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))?"
)
_LOST_PLUS = re.compile("[0-9]:[0-9.]+ [0-9]{2}:[0-9]{2}")  # at its end: a query string makes a space of a +
# The usual form. Not everything that `fromisoformat` reads is RFC 3339.
_USUAL = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_SHORT = re.compile("".join(rf"(?:([0-9]+(?:\.[0-9]+)?){unit})?" for unit in ("w", "d", "h", "m", "s", "ms")))
_ISO8601 = re.compile(
    r"P(?!$)(?:([0-9]+(?:[.,][0-9]+)?)W)?(?:([0-9]+(?:[.,][0-9]+)?)D)?"
    r"(?:T(?=[0-9])(?:([0-9]+(?:[.,][0-9]+)?)H)?(?:([0-9]+(?:[.,][0-9]+)?)M)?(?:([0-9]+(?:[.,][0-9]+)?)S)?)?"
)
_MILLISECONDS: Final = tuple(f".{ms:03d}Z" for ms in range(1000))
_UNITS: Final = tuple(Decimal(text) for text in ("604800", "86400", "3600", "60", "1", "0.001"))


def now() -> Instant:
    return time.time_ns() // 1000


def parse_instant(value: object, now: Instant, max_horizon: float) -> Instant:
    """Parse an instant from the wire, rounded up to the microsecond; a time in the past stays as it is.

    Raise ValueError, naming a valid form, for anything doubtful: no offset, milliseconds, more than 10 years ago, or
    more than `max_horizon` seconds ahead.
    """
    if isinstance(value, str):
        instant = _from_text_fast(value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        instant = _from_number(value)
    else:
        raise ValueError(f"{_shown(value)} is not an instant: {_AS_INSTANT}")
    earliest, latest = now - DEEPEST_PAST, now + math.ceil(max_horizon * SECOND)
    if instant < earliest:
        raise ValueError(f"{_shown(value)} is more than 10 years ago: send a time after {format_instant(earliest)}")
    if instant > latest:
        raise ValueError(f"{_shown(value)} is too far ahead: send a time before {format_instant(latest)}")
    return instant


def parse_start(text: str) -> Instant:
    """Parse the instant at which a virtual clock starts, from 1970 to 2200. Raise ValueError, naming a valid form."""
    instant = _from_text(text)
    if not 0 < instant < LATEST_VIRTUAL:
        raise ValueError(f"{_shown(text)} is out of range: give an instant from 1970 to 2200")
    return instant


def format_instant(us: Instant) -> str:
    """Format an instant as RFC 3339 in UTC, rounded up to the millisecond so that it is never early.

    An instant outside the years 1 to 9999 is shown as their first or last second: it must not keep a job from being
    shown.
    """
    ms = -(-us // 1000)
    seconds = ms // 1000
    return _second(seconds) + _MILLISECONDS[ms - seconds * 1000]


def format_exactly(us: Instant) -> str:
    """Format an instant as RFC 3339 in UTC, to the microsecond."""
    seconds, microseconds = divmod(us, SECOND)
    return f"{_second(seconds)}.{microseconds:06d}Z"


def parse_duration(value: object) -> float:
    """Parse a duration into seconds; raise ValueError, naming a valid form, if it is invalid or out of range."""
    if type(value) in (int, float) and value == value:  # no bool
        seconds: float = value  # type: ignore[assignment]  # it is one of these
    elif isinstance(value, str):
        seconds = _seconds_of_text(value)
    else:
        raise ValueError(f"{_shown(value)} is not a duration: {_AS_DURATION}")
    if seconds < 0:
        raise ValueError(f"{_shown(value)} is negative: send a duration of 0 or more")
    if seconds > LONGEST_DURATION:
        raise ValueError(f"{_shown(value)} is more than 100 years: is it in milliseconds? {_AS_DURATION}")
    return float(seconds) + 0.0  # not -0.0


def _from_text_fast(text: str) -> Instant:  # hot: submit
    if _USUAL.fullmatch(text):
        try:
            return (datetime.fromisoformat(text) - _EPOCH_IN_UTC) // _MICROSECOND
        except ValueError:  # a leap second, or a time that does not exist
            pass
    return _from_text(text)


def _from_text(text: str) -> Instant:
    match = _RFC3339.fullmatch(text)
    if match is None:
        remedy = "write the + of the offset as %2B in a URL" if _LOST_PLUS.search(text) else _AS_INSTANT
        raise ValueError(f"{_shown(text)} is not an instant: {remedy}")
    year, month, day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = match.groups()
    if sign is None and text[-1] not in "Zz":
        raise ValueError(f"{_shown(text)} has no offset: append Z for UTC, or an offset such as +02:00")
    leap = second == "60"
    try:
        local = datetime(int(year), int(month), int(day), int(hour), int(minute), 59 if leap else int(second))
    except ValueError:
        raise ValueError(f"{_shown(text)} does not exist: {why_missing(text)}") from None
    seconds = (local - _EPOCH) // timedelta(seconds=1)
    if sign is not None:
        seconds -= int(f"{sign}1") * (int(offset_hours) * 3600 + int(offset_minutes) * 60)
    if leap:
        seconds += 1  # Unix time has no second 60: the first second of the next minute is never early
        if seconds % 86_400:
            raise ValueError(f"{_shown(text)} does not exist: a leap second is the last of a day in UTC")
    return seconds * SECOND + _microseconds(fraction)


def why_missing(text: str) -> str:
    """Return why there is no date, or no time of day, such as in this text: YYYY-MM-DD, a character, hh:mm:ss."""
    year, month, hour, minute = int(text[:4]), int(text[5:7]), int(text[11:13]), int(text[14:16])
    if not year:
        return "years begin with 0001"
    if not 1 <= month <= 12:
        return "months go from 01 to 12"
    days = monthrange(year, month)[1]
    if not 1 <= int(text[8:10]) <= days:
        return f"this month has {days} days"
    return "hours go from 00 to 23" if hour > 23 else f"{'minutes' if minute > 59 else 'seconds'} go from 00 to 59"


def _microseconds(fraction: str | None) -> int:
    if fraction is None:
        return 0
    digits = fraction[1:]
    return int(digits[:6].ljust(6, "0")) + (1 if digits[6:].strip("0") else 0)


def _from_number(value: float) -> Instant:
    if value != value or abs(value) == math.inf:  # math.isfinite raises on an int beyond all floats
        raise ValueError(f"{_shown(value)} is not an instant: {_AS_INSTANT}")
    if value >= FIRST_MILLISECONDS:
        raise ValueError(f"{_shown(value)} looks like milliseconds: divide by 1000 and send Unix seconds")
    if isinstance(value, int):
        return value * SECOND
    # From its shortest text: 1764579600.123 must not be rounded up because of the float's error.
    return math.ceil(Decimal(repr(value)) * SECOND)


@lru_cache(maxsize=4096)
def _second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=min(max(seconds, _FIRST_SECOND), _LAST_SECOND))).isoformat()


def _seconds_of_text(text: str) -> float:
    if text.startswith("-"):
        raise ValueError(f"{_shown(text)} is negative: send a duration of 0 or more")
    if re.match(r"P[0-9.,]+[YM]", text):
        raise ValueError(f"{_shown(text)} has years or months, whose length varies: send days, such as P30D")
    match = (_ISO8601.fullmatch(text) or _SHORT.fullmatch(text)) if 0 < len(text) <= 100 else None
    if match is None:
        raise ValueError(f"{_shown(text)} is not a duration: {_AS_DURATION}")
    # Decimals make "1.1s100ms" exactly 1.2. ISO 8601 has no milliseconds: its five groups leave that unit unused.
    counted = zip(match.groups("0"), _UNITS, strict=False)
    return float(sum(Decimal(number.replace(",", ".")) * unit for number, unit in counted))


def _shown(value: object) -> str:
    """Return a value as its sender wrote it, shortened to a bounded length."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):  # not a JSON type, or an int of thousands of digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
