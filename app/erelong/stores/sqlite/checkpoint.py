"""The writer's work between groups: checkpoint the log, move the watermark, restore the disk reserve."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import apsw

from erelong.stores.sqlite.files.watermark import Watermark
from erelong.stores.sqlite.statements import BUSY_TIMEOUT
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.stores.sqlite.counters import Counters
    from erelong.stores.sqlite.database import DatabaseFile

CHECKPOINT_PAGES = 2_000
LONG_LOG = 4 * CHECKPOINT_PAGES
READER_PATIENCE = 20  # milliseconds
SYNC_EVERY = 1.0
CHECK_ROOM_EVERY = 5.0

log = get_logger(__name__)


class Checkpointer:
    """Runs after the previous group has been answered, so that no caller waits for it."""

    def __init__(self, *, file: DatabaseFile, counters: Counters) -> None:
        self._file = file
        self._counters = counters
        self._is_full = file.synchronous == "FULL"
        self.begin()

    def begin(self) -> None:
        """Reset the state for new connections."""
        self.log_pages = 0
        self._tried_at_pages = 0
        self._sure = self._marked = 0
        self._synced_at = self._room_checked_at = time.monotonic()
        self._has_unsynced = False

    def attach(self) -> None:
        """Track the size of the log after each commit. SQLite's automatic checkpoints, inside commits, are off."""
        self._file.write.set_wal_hook(self._note_log)

    def committed(self) -> None:
        """Move the watermark after a synced commit, which makes all earlier ones durable.

        It moves before any call is answered, so that the loss of an answered write is noticed. After
        the answers it would cost more.
        """
        if self._is_full:
            self._sure = self._counters.commits
            try:
                self._move_mark()
            except OSError:  # tried again and reported between groups
                return

    def run(self) -> float | None:
        """Do the work that is due; return the seconds until more is due without a group (None: nothing is)."""
        self._counters.running.tidy()
        if self.log_pages - self._tried_at_pages >= CHECKPOINT_PAGES:
            self._checkpoint()
        if self._sure > self._marked:
            self._move_mark()
        if not (self._has_unsynced or self._file.reserve.is_spent):
            return None
        now = time.monotonic()
        if self._has_unsynced and now - self._synced_at >= SYNC_EVERY:
            self._file.mark.sync()
            self._synced_at, self._has_unsynced = now, False
        if self._file.reserve.is_spent and now - self._room_checked_at >= CHECK_ROOM_EVERY:
            self._room_checked_at = now
            if self._file.reserve.hold():
                log.info("storage_recovered")
        return SYNC_EVERY

    def end(self) -> None:
        """Checkpoint the log and sync the watermark."""
        self._checkpoint()
        if self._sure > self._marked:
            self._move_mark()
        self._file.mark.sync()

    def _note_log(self, _: apsw.Connection, __: str, pages: int) -> int:
        self.log_pages = pages
        if pages < self._tried_at_pages:  # the log restarted from the beginning
            self._tried_at_pages = 0
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Copy the log into the database. If a reader blocks part of it, try again once the log has grown.

        On a long log, wait briefly for readers, so that the log can restart from the beginning.
        """
        commits, connection = self._counters.commits, self._file.write
        try:
            if self.log_pages >= LONG_LOG:
                connection.set_busy_timeout(READER_PATIENCE)
                pages, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            else:
                pages, done = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.BusyError:
            self._tried_at_pages = self.log_pages
            return
        finally:
            connection.set_busy_timeout(BUSY_TIMEOUT)
        self._tried_at_pages = pages
        if pages == done:
            self._sure = commits
            self.log_pages = self._tried_at_pages = 0

    def _move_mark(self) -> None:
        self._file.mark.write(Watermark(self._file.identity, self._sure, self._counters.last_seq))
        self._marked, self._has_unsynced = self._sure, True
