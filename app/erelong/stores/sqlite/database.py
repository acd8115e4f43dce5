"""The database file of the embedded store: its lock, its connections, and the integrity checks at a start."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

import apsw
import apsw.sqlite_extra

from erelong.errors import StoreCorrupt, WrongClock
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.failures import RESTORE, FailureKind, as_exit, described, diagnose
from erelong.stores.sqlite.files.claim_log import ClaimFile
from erelong.stores.sqlite.files.disk_reserve import DiskReserve
from erelong.stores.sqlite.files.lock import FileLock, refuse_network
from erelong.stores.sqlite.files.watermark import Watermark, WatermarkFile
from erelong.stores.sqlite.migrations import migrate, must_be_readable
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from pathlib import Path

CHECKSUMS = "cksmvfs"

log = get_logger(__name__)


class DatabaseFile:
    """Connections to a locked and verified database: one for writes, one for quick reads, one for slow reads."""

    write: apsw.Connection
    quick: apsw.Connection
    slow: apsw.Connection

    def __init__(self, *, path: Path, durability: str, reserve: int, is_virtual: bool = False) -> None:
        self.path = path
        self._application = sql.VIRTUAL_ID if is_virtual else sql.APPLICATION_ID
        self.synchronous = "FULL" if durability == "full" else "NORMAL"
        self.mark = WatermarkFile(path=path.with_name(path.name + ".mark"))
        self.claims = ClaimFile(path=path.with_name(path.name + ".claims"))
        self.reserve = DiskReserve(path=path.with_name(path.name + ".reserve"), size=reserve)
        self.identity = ""
        self.floor = 0
        """The last job number in the watermark."""
        self._lock = FileLock(path=path.with_name(path.name + ".lock"))
        self._connections: list[apsw.Connection] = []

    def open(self) -> None:
        """Lock the file and open it; raise an `Exit` if it is in use, foreign, damaged or unreadable."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            refuse_network(self.path.parent)
            self._lock.take()
            self._hold_reserve()
            self._connect_with_room()
        except Exception as error:
            self.close()
            raise as_exit(error, self.path) from error

    def reopen(self) -> None:
        """Reopen after a disk failure and test the disk.

        The log is copied into the database again, since pages that the system reports as written may not be on disk.
        """
        self._disconnect()
        self._connect()
        self.write.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self.write.execute(sql.PROVE)

    def close(self) -> None:
        self._disconnect()
        self._lock.give_up()

    # connections

    def _connect_with_room(self) -> None:
        """Connect; on a full disk, spend the reserve first, since even reading needs a small file."""
        try:
            self._connect()
        except (apsw.Error, OSError) as error:
            if diagnose(error) is FailureKind.DAMAGE or not self.reserve.spend():
                raise
            self._disconnect()
            self._connect()
        try:
            self.write.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.FullError as error:
            log.warning("checkpoint_postponed", reason=described(error))

    def _connect(self) -> None:
        mark = self._read_mark()
        if mark is not None and not self.path.exists():
            raise StoreCorrupt(f"{self.path} is missing, but {self.mark.path} shows that it held jobs; {RESTORE}")
        self.write = self._new_connection()
        try:
            self._must_be_ours()
            self._configure(self.write)
            self._must_be_whole(mark)
            migrate(self.write, self.path)
        except BaseException:
            self.write.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # keep the files for an investigation
            raise
        self.quick, self.slow = self._new_connection(), self._new_connection()
        self._configure(self.quick)
        self._configure(self.slow)
        self.slow.execute(sql.CLAIMS)
        self.claims.open(self.identity)

    def _new_connection(self) -> apsw.Connection:
        connection = open_connection(self.path)
        self._connections.append(connection)
        return connection

    def _configure(self, connection: apsw.Connection) -> None:
        connection.execute(sql.PRAGMAS).fetchall()  # without the fetch, the later ones do not run
        connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        # Plans do not depend on bound values. Otherwise SQLite prepares many listings again each time they run.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)

    def _disconnect(self) -> None:
        for connection in self._connections:
            with suppress(apsw.Error):  # closing checkpoints; the log keeps the rest
                connection.close(True)
        self._connections.clear()
        for beside in (self.mark, self.claims):
            with suppress(OSError):
                beside.close()

    def _hold_reserve(self) -> None:
        if not self.reserve.hold():
            log.warning("storage_full", effect="submits are refused until there is room for the reserve")

    # integrity

    def _must_be_ours(self) -> None:
        """Check the file before any change; even setting the journal mode writes to it."""
        application = self.write.pragma("application_id")
        version = self.write.pragma("user_version")
        if not application and self.write.execute("SELECT count(*) FROM sqlite_schema").get == 0:
            self._create()
        elif application not in sql.OURS:
            raise StoreCorrupt(f"{self.path} belongs to another program; name another file in [store] path")
        elif application == sql.VIRTUAL_ID != self._application:
            raise WrongClock(f"{self.path} was made under a virtual clock; add --virtual-clock, or name another file")
        elif application != self._application:
            raise WrongClock(f"{self.path} holds jobs of real time; remove --virtual-clock, or name a new file")
        else:
            must_be_readable(version, self.path)

    def _create(self) -> None:
        if self.mark.path.exists():
            raise StoreCorrupt(f"{self.path} is empty, but {self.mark.path} shows that it held jobs; {RESTORE}")
        has_checksums = has_checksum_vfs()
        if has_checksums:
            self.write.reserve_bytes("main", sql.CHECKSUM_BYTES)
        else:
            log.warning("checksums_unavailable", effect="changed bytes on the disk go unnoticed")
        self._configure(self.write)
        self.write.execute("PRAGMA synchronous = FULL")  # as its watermark is synced
        with self.write:
            self.write.execute(sql.SCHEMA)
            self.write.pragma("application_id", self._application)
            self.write.execute(sql.INSERT_LEDGER, (secrets.token_hex(16), has_checksums))
            self.write.execute(sql.ADD_COUNT, (*sql.COMMITS, 1))

    def _must_be_whole(self, mark: Watermark | None) -> None:
        """Compare the database with its watermark. SQLite silently drops the commits after damage in the log."""
        self.identity, commits, last_seq, has_checksums = sql.read_ledger(self.write)
        if has_checksums and not has_checksum_vfs():
            raise StoreCorrupt(f"{self.path} has checksums, which this apsw does not support; reinstall apsw")
        if has_checksums and not self.write.pragma("checksum_verification"):
            raise StoreCorrupt(f"{self.path} no longer declares its page checksums; {RESTORE}")
        if mark is None:
            self.floor = last_seq
            self.mark.create(Watermark(self.identity, 0, last_seq))  # the log may not be on disk yet
            return
        if mark.identity != self.identity:
            raise StoreCorrupt(f"{self.path} is not the database that {self.mark.path} belongs to; {self._remedies}")
        if mark.commits > commits:
            lost = mark.commits - commits
            raise StoreCorrupt(f"{self.path} has lost its last {lost} commits, or is an older copy; {self._remedies}")
        self.floor = mark.last_seq
        self.mark.open()

    @property
    def _remedies(self) -> str:
        return f"{RESTORE}; or, to continue with this database, remove {self.mark.path}"

    def _read_mark(self) -> Watermark | None:
        try:
            mark = self.mark.read()
        except ValueError:
            mark = None
        if mark is None and self.path.exists() and self.path.stat().st_size:
            reason = "unreadable" if self.mark.path.exists() else "missing"
            log.warning("mark_recreated", file=self.mark.path, reason=reason, effect="earlier losses go unnoticed")
        return mark


def has_checksum_vfs() -> bool:
    """Return whether SQLite supports page checksums; load the extension on first use."""
    if CHECKSUMS in apsw.vfs_names():
        return True
    with suppress(apsw.Error, apsw.sqlite_extra.NotAvailable, LookupError):
        connection = apsw.Connection(":memory:")
        apsw.sqlite_extra.load(connection, "cksumvfs")
        connection.close()
    return CHECKSUMS in apsw.vfs_names()


def open_connection(path: Path, flags: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> apsw.Connection:
    """Open a connection for one thread at a time. It verifies page checksums, if the file has them."""
    flags |= apsw.SQLITE_OPEN_NOMUTEX
    return apsw.Connection(str(path), flags=flags, vfs=CHECKSUMS if has_checksum_vfs() else None)
