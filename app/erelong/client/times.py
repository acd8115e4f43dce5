"""Durations and instants as the service reads and writes them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

Duration: TypeAlias = float | str | timedelta
"""Seconds, a text such as "1h30m" or "PT5M", or a timedelta."""

Instant: TypeAlias = datetime | float | str
"""A datetime with a time zone, Unix seconds, or RFC 3339 text with an offset."""


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_TEXT: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+")
_PART: Final = re.compile(r"([\d.]+)([a-z]+)")


Zone: TypeAlias = "str | ZoneInfo"
"""The name of a time zone, or the zone."""


def seconds_of(value: Duration) -> float:
    """Return the seconds of a duration that the client measures itself; raise ValueError for other text."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if not isinstance(value, str):
        return value
    if not _TEXT.fullmatch(value):
        raise ValueError(f'{value!r} is not a duration: write seconds, a timedelta, or text such as "300ms" or "1h30m"')
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))


def shown(value: Duration | None) -> str:
    """Return a duration for a message."""
    return f"{value:g} s" if isinstance(value, int | float) else str(value)


def write_zone(value: Zone) -> str:
    return value if isinstance(value, str) else str(value)  # that of a ZoneInfo is its name


def write_duration(value: Duration) -> float | str:
    return value.total_seconds() if isinstance(value, timedelta) else value


def write_instant(value: Instant, name: str) -> float | str:
    """Return an instant for a request; raise ValueError for a naive datetime, which could mean any time zone."""
    if not isinstance(value, datetime):
        return value
    if value.utcoffset() is None:
        parts = ", ".join(str(part) for part in value.timetuple()[: 6 if value.second else 5])
        raise ValueError(
            f"{name}={value!r} has no time zone; write "
            f'{name}=datetime({parts}, tzinfo=ZoneInfo("Europe/Berlin")), or {name}=….astimezone() for the zone of '
            "this machine"
        )
    return value.isoformat()


def write_local_time(value: datetime | str) -> str:
    """Return a local time for a request; raise ValueError if it has an offset, which would contradict its zone."""
    if not isinstance(value, datetime):
        return value
    if value.tzinfo is not None:
        raise ValueError(f"local_time={value!r} has a time zone; write at=… for an instant, or name the zone in zone=…")
    return value.isoformat()


def read_instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
