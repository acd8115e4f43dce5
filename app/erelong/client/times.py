"""Durations and instants as the service reads and writes them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeAlias

Duration: TypeAlias = float | str | timedelta
"""Seconds, a text such as "1h30m" or "PT5M", or a timedelta."""

Instant: TypeAlias = datetime | float | str
"""A datetime with a time zone, Unix seconds, or RFC 3339 text with an offset."""


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
