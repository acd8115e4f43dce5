"""Decides whether a change was made whose answer was lost, by the object as it was and as it is now. Without I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from erelong.client.records import FINAL
from erelong.client.times import read_instant
from erelong.client.values import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.client.records import JobRecord, ScheduleRecord

EXACT: Final = frozenset({"params", "labels", "priority", "local_time", "zone", "cron", "paused"})
ROUNDED: Final = 0.001  # seconds by which the service shows an instant later


def is_run(before: JobRecord, now: JobRecord) -> bool:
    """Return whether a waiting job has been made due: that moves `due_at` alone, or the job has begun."""
    is_moved = now.raw["due_at"] != before.raw["due_at"] and now.raw["execute_at"] == before.raw["execute_at"]
    return now.version > before.version and (now.state != "scheduled" or is_moved)


def is_cancelled(before: JobRecord, now: JobRecord) -> bool:
    return now.version > before.version and (now.state == "cancelled" or now.cancel_requested)


def is_retried(before: JobRecord, now: JobRecord, changes: Mapping[str, Any]) -> bool:
    """Return whether a job that was over runs again, with the changes."""
    return before.state in FINAL and now.version > before.version and False not in _compare(now.raw, changes)


def is_edited(before: JobRecord, now: JobRecord, changes: Mapping[str, Any]) -> bool:
    return shows(now, changes, before.version)


def shows(now: JobRecord | ScheduleRecord, changes: Mapping[str, Any], version: int) -> bool:
    """Return whether a change was made to this version, as far as the fields of the request can be compared.

    A duration such as "2h" or a due time by `delay` cannot: then only the very next version counts.
    """
    seen = _compare(now.raw, changes)
    if False in seen or now.version <= version:
        return False
    return now.version == version + 1 or None not in seen


def _compare(now: Mapping[str, Any], changes: Mapping[str, Any]) -> set[bool | None]:
    """Return whether each field of a request is as the object shows it; None where that cannot be said."""
    return {_is_shown(now, name, value) for name, value in changes.items()}


def _is_shown(now: Mapping[str, Any], name: str, value: Any) -> bool | None:
    if name == "execute_at" and value is not None and now.get(name):
        return abs((read_instant(now[name]) - _instant(value)).total_seconds()) <= ROUNDED
    return bool(now.get(name) == plain(value)) if name in EXACT and name in now else None


def _instant(value: str | float) -> datetime:
    return read_instant(value) if isinstance(value, str) else datetime.fromtimestamp(value, UTC)
