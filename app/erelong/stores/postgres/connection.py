"""Connections to PostgreSQL: their settings, their deadlines, and what the server must be."""

from __future__ import annotations

import os
import re
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import conninfo, errors, pq

from erelong.errors import PlaceRefused
from erelong.stores.postgres.arrays import register_arrays
from erelong.stores.postgres.failures import Doubtful, TooSlow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg.abc import RV, PQGen
    from psycopg.errors import Diagnostic

CONNECT_TIMEOUT = 2
OLDEST_VERSION = 14_00_00
SCHEMA_NAME = "erelong"
"""All tables are in a schema of their own, so that a database may be shared with other programs."""

Row = tuple[Any, ...]

_SETTINGS = {
    "search_path": SCHEMA_NAME,
    "lock_timeout": "1500ms",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "1s",
    "default_transaction_isolation": "read committed",
    "jit": "off",
    "timezone": "UTC",
    # Plans must not depend on statistics, which a fresh or quickly growing table does not have.
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
}
_BY_NUMBER = {"plan_cache_mode": "force_generic_plan"}
_IN_ORDER = {"enable_sort": "off", "idle_in_transaction_session_timeout": "60s"}
_DEFAULTS = {
    "connect_timeout": str(CONNECT_TIMEOUT),
    "target_session_attrs": "read-write",
    "keepalives_idle": "10",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
}
_FIXED = {"client_encoding": "UTF8"}
_MALFORMED = "[store] url cannot be read; write it as postgresql://user@host/database"
_UNENCODED = f"{_MALFORMED}, and encode special characters of a password: @ as %40, / as %2F, ? as %3F, % as %25"


class Connection(psycopg.Connection[Row]):
    """A connection whose every operation ends within `patience` seconds, even when the server is frozen.

    Requests are never cancelled: a cancelled commit that waits for a standby would seem to have succeeded.
    """

    patience = 2.0
    doubts: list[str]

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        patience = self.patience if timeout is None else timeout
        try:
            return super().wait(gen, interval, patience)
        except errors._WaitTimeout:  # nothing more can be sent on this connection
            self.drop()
            with suppress(psycopg.Error):  # on a dropped connection; the collector would print it
                gen.close()
            raise TooSlow(f"no answer within {patience:g} s") from None

    @contextmanager
    def within(self, patience: float) -> Iterator[None]:
        """Give each operation this many seconds instead."""
        before, self.patience = self.patience, patience
        try:
            yield
        finally:
            self.patience = before

    def run(self, statement: str, *values: Any, prepare: bool = True) -> psycopg.Cursor[Row]:
        """Execute a statement."""
        return self.execute(statement, values, prepare=prepare, binary=True)

    def rows(self, statement: str, *values: Any) -> list[Row]:
        return self.run(statement, *values).fetchall()

    def row(self, statement: str, *values: Any) -> Row:
        """Return the single row of a result."""
        (row,) = self.rows(statement, *values)
        return row

    def script(self, statements: str) -> None:
        """Execute several statements without values."""
        self.execute(statements, prepare=False)

    def check_doubts(self) -> None:
        """Raise if the server has committed something that its standbys may not have."""
        if self.doubts:
            raise Doubtful(self.doubts.pop())

    def drop(self) -> None:
        """Close the socket at once, whatever state the connection is in."""
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.pgconn.socket)) as copy:
            copy.shutdown(socket.SHUT_RDWR)
        with suppress(psycopg.Error):
            self.close()


def connect(url: str, *, role: str, by_number: bool = True, patience: float = 2.0) -> Connection:
    """Open a connection for statements that find rows by number and are planned once, or for listings."""
    options = {**_DEFAULTS, **_parts_of(url), **_FIXED, "application_name": f"erelong/{role}"}
    connection = Connection.connect(autocommit=True, **options)
    try:
        connection.patience = patience
        connection.doubts = []
        connection.add_notice_handler(lambda notice: _note_doubt(connection, notice))
        register_arrays(connection)
        must_fit(connection)
        settings = _SETTINGS | (_BY_NUMBER if by_number else _IN_ORDER | {"statement_timeout": f"{patience + 1:g}s"})
        calls = ", ".join([f"set_config('{name}', '{value}', false)" for name, value in settings.items()])
        connection.script(f"SELECT {calls}")
    except BaseException:
        connection.drop()
        raise
    return connection


def _parts_of(url: str) -> dict[str, Any]:
    """Return the options in a URL. Nothing of a password may get into a host, a port or a name, which errors quote."""
    try:
        given = conninfo.conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeDecodeError):  # the text of the first quotes the URL
        raise PlaceRefused(_MALFORMED) from None
    host, port, name = (str(given.get(part) or "") for part in ("host", "port", "dbname"))
    if "@" in host + name or not re.fullmatch(r"[0-9,]*", port):
        raise PlaceRefused(_UNENCODED)
    return given


def must_fit(connection: Connection) -> None:
    """Raise `PlaceRefused` if the server cannot be used."""
    version = connection.info.server_version
    if version < OLDEST_VERSION:
        found, needed = version // 10_000, OLDEST_VERSION // 10_000
        raise PlaceRefused(f"PostgreSQL {found} is too old; erelong needs version {needed} or later")
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        remedy = "create the database with ENCODING 'UTF8' TEMPLATE template0"
        raise PlaceRefused(f"the database has the encoding {encoding}; {remedy}")


def is_alive(connection: Connection) -> bool:
    return connection.pgconn.status == pq.ConnStatus.OK


def _note_doubt(connection: Connection, notice: Diagnostic) -> None:
    # "The transaction has already committed locally, but might not have been replicated to the standby."
    if notice.severity_nonlocalized == "WARNING" and notice.source_function == "SyncRepWaitForLSN":
        connection.doubts.append(notice.message_primary or "a commit was not confirmed by the standbys")
