"""Writes an embedded store from rows: a file that gets its name when it is complete."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import apsw

from erelong.errors import Exit, StoreFailed
from erelong.stores.copying.tables import JOBS, Facts, Table, Target
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.backup import name_file, sync_file, verify
from erelong.stores.sqlite.database import has_checksum_vfs, open_connection
from erelong.stores.sqlite.failures import FailureKind, described, diagnose
from erelong.stores.sqlite.files.claim_log import ClaimFile
from erelong.stores.sqlite.files.lock import FileLock, refuse_network
from erelong.stores.sqlite.files.watermark import Watermark, WatermarkFile, sync_folder
from erelong.stores.sqlite.rows import ROWS_AT_ONCE, write_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from erelong.stores.rows import Row

# The file has another name until it is complete, so it needs no journal. The cache bounds the memory of index builds.
_PRAGMAS = "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -65536"
_INDEXES = [text for text in sql.SCHEMA.split(";") if "CREATE INDEX" in text or "CREATE UNIQUE INDEX" in text]
_TABLES = [text for text in sql.SCHEMA.split(";") if text not in _INDEXES]
_COUNT = "INSERT INTO counts SELECT queue, kind, state, count(*) FROM jobs GROUP BY queue, kind, state"


class SqliteTarget(Target):
    """A new database file. The lock of the store keeps a service from making another one meanwhile."""

    def __init__(self, *, path: Path) -> None:
        self._path = path
        self._fresh = path.with_name(f"{path.name}.copying")
        self._mark = WatermarkFile(path=path.with_name(f"{path.name}.mark"))
        self._lock = FileLock(path=path.with_name(f"{path.name}.lock"))
        self._connection: apsw.Connection | None = None
        self._identity = secrets.token_hex(16)

    def __str__(self) -> str:
        return str(self._path)

    def open(self, facts: Facts) -> None:
        if not self._path.parent.is_dir():
            raise Exit(f"there is no folder {self._path.parent}; create it, or name a file in another folder")
        refuse_network(self._path.parent)
        self._facts = facts
        with self._exits():
            self._lock.take()
            for path in (self._path, self._mark.path):
                if path.exists():
                    raise Exit(f"{path} already exists; name a new file")
            self._fresh.unlink(missing_ok=True)  # of a copy that was killed
            self._connection = open_connection(self._fresh)
            self._make_tables(self._connection)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None
            self._fresh.unlink(missing_ok=True)
        self._lock.give_up()

    def write(self, table: Table, rows: Iterable[Row]) -> None:
        with self._exits():
            if table is JOBS:
                rows = iter(rows)
                while group := [*islice(rows, ROWS_AT_ONCE[0])]:
                    write_rows(self._connected, sql.insert, group)
            else:
                places = ", ".join("?" * len(table.columns))
                statement = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({places})"
                self._connected.executemany(statement, rows)

    def complete(self) -> None:
        with self._exits():
            for index in _INDEXES:
                self._connected.execute(index)
            self._connected.execute(_COUNT)
            self._connected.execute(sql.ADD_COUNT, (*sql.COMMITS, 1))
            self._connected.execute(sql.ADD_COUNT, (*sql.NUMBERS, self._facts.last_seq))
            self._connected.execute("COMMIT")

    def rows(self, table: Table) -> Iterator[Row]:
        with self._exits():
            yield from self._connected.execute(table.select)

    def commit(self) -> None:
        with self._exits():
            self._connected.close()
            verify(self._fresh)
            sync_file(self._fresh)
            claims = ClaimFile(path=self._path.with_name(f"{self._path.name}.claims"))
            claims.open(self._identity)
            claims.renew(self._facts.claims)
            claims.close()
            name_file(self._fresh, self._path)
            try:
                sync_folder(self._path.parent)
                self._mark.create(Watermark(self._identity, 1, self._facts.last_seq))
            except BaseException:
                self._path.unlink()
                raise
            finally:
                self._mark.close()

    @property
    def _connected(self) -> apsw.Connection:
        assert self._connection is not None
        return self._connection

    def _make_tables(self, connection: apsw.Connection) -> None:
        has_checksums = has_checksum_vfs()
        if has_checksums:
            connection.reserve_bytes("main", sql.CHECKSUM_BYTES)
        connection.execute(_PRAGMAS).fetchall()
        for text in _TABLES:
            connection.execute(text).fetchall()
        connection.pragma("application_id", sql.VIRTUAL_ID if self._facts.is_virtual else sql.APPLICATION_ID)
        connection.execute(sql.INSERT_LEDGER, (self._identity, has_checksums))
        connection.execute("BEGIN")  # after the first page, which declares the checksums, has been written

    @contextmanager
    def _exits(self) -> Iterator[None]:
        try:
            yield
        except (apsw.Error, OSError) as error:
            if diagnose(error) is FailureKind.FULL:
                raise StoreFailed(f"{self} cannot be written: the disk is full; free some space") from error
            raise StoreFailed(f"{self} cannot be written: {described(error)}; check the disk") from error
