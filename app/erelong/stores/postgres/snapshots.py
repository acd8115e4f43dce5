"""Old snapshots of other sessions, which keep VACUUM from removing dead rows, so that reads become slower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

CHECK_INTERVAL = 60.0
OLD: Final = 600.0
"""Seconds after which a snapshot is reported."""

# Of other users, the start of the transaction is hidden, and a replication slot has none.
HOLDERS = """
SELECT 'session ' || pid || coalesce(' of ' || nullif(application_name, ''), ''), backend_xmin::text,
    extract(epoch FROM clock_timestamp() - xact_start)::float8
FROM pg_stat_activity
WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid()
    AND (datname = current_database() OR backend_type = 'walsender')
UNION ALL
SELECT 'prepared transaction ' || gid, transaction::text, extract(epoch FROM clock_timestamp() - prepared)::float8
FROM pg_prepared_xacts WHERE database = current_database()
UNION ALL
SELECT 'replication slot ' || slot_name, xmin::text, NULL FROM pg_replication_slots WHERE xmin IS NOT NULL
"""

log = get_logger(__name__)


class Snapshots:
    """The age of the oldest snapshot: as the database says, or since it was first seen."""

    def __init__(self) -> None:
        self.age = 0.0
        self._holder = ""
        self._seen: dict[tuple[str, str], float] = {}

    def note(self, holders: Iterable[tuple[str, str, float | None]], now: float) -> None:
        """Note the holders of snapshots as they are `now`, in monotonic seconds."""
        seen: dict[tuple[str, str], float] = {}
        ages = []
        for holder, xmin, seconds in holders:
            since = seen[holder, xmin] = self._seen.get((holder, xmin), now)
            ages.append((max(seconds or 0.0, now - since), holder))
        was_old, self._seen = self.age > OLD, seen
        self.age, self._holder = max(ages, default=(0.0, ""))
        if self.age > OLD and not was_old:
            log.warning("snapshot_old", holder=self._holder, seconds=round(self.age), remedy="end it")

    def status(self) -> str | None:
        if self.age <= OLD:
            return None
        minutes = f"{self.age / 60:.0f} min"
        return f"ok, but {self._holder} keeps dead rows for {minutes}: end it, or reads of jobs become slower"
