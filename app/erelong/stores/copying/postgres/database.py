"""The database of PostgreSQL that a copy reads or makes: its connection, and its failures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

from erelong.errors import BadCopy, Exit, StoreFailed
from erelong.stores.postgres.connection import Connection, connect
from erelong.stores.postgres.failures import FailureKind, as_exit, described, diagnose
from erelong.stores.postgres.server_checks import check_server
from erelong.stores.postgres.statements import TYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.stores.copying.tables import Table
    from erelong.stores.rows import Row

PATIENCE = 3_600.0
"""Seconds that one step may take, such as an index of all jobs. Ctrl-C ends it sooner."""
DAMAGES = ("XX001", "XX002")
SETTINGS = "SET idle_in_transaction_session_timeout = 0; SET statement_timeout = 0"
"""A row may take as long to come as the other database needs."""

_TYPES = {
    **TYPES,
    **dict.fromkeys(("name", "value", "caller", "sort"), "text"),
    **dict.fromkeys(("settings", "pause", "digest", "ids", "text"), "bytea"),
    "changed_at": "bigint",
}
_NAMES = {"bigint": "int8", "int": "int4", "float8": "float8", "text": "text", "bytea": "bytea"}


class PostgresDatabase:
    """One connection with a single transaction, which is rolled back unless it is committed."""

    def __init__(self, *, url: str, durability: str) -> None:
        self._url = url
        self._durability = durability
        self._connection: Connection | None = None
        self._name = "the database"

    def __str__(self) -> str:
        return self._name

    @property
    def connection(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def connect(self) -> Connection:
        with self.exits():
            connection = self._connection = connect(self._url, role="0/copy")
            self._name = f"the database {connection.info.dbname} at {connection.info.host}"
            check_server(connection, url=self._url, durability=self._durability)
            connection.patience = PATIENCE
            connection.script(SETTINGS)
        return connection

    def drop(self) -> None:
        """Close the connection, which rolls back an open transaction."""
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def rows(self, table: Table) -> Iterator[Row]:
        statement = f"COPY ({table.select}) TO STDOUT (FORMAT binary)"
        with self.exits(), self.connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            copy.set_types(types_of(table))
            yield from copy.rows()

    @contextmanager
    def exits(self) -> Iterator[None]:
        """Turn failures into an `Exit`."""
        try:
            yield
        except Exit as error:
            raise _reworded(error) from error
        except psycopg.Error as error:
            if error.sqlstate in DAMAGES:
                raise BadCopy(f"{self} is damaged: {described(error)}; restore a backup") from error
            if diagnose(error) is FailureKind.FULL:
                raise StoreFailed("the disk of PostgreSQL is full; nothing was copied. Free some space") from error
            raise _reworded(as_exit(error)) from error


def types_of(table: Table) -> list[str]:
    return [_NAMES[_TYPES[name]] for name in table.columns]


def _reworded(error: Exit) -> Exit:
    """Return the error without the name of a setting, since the URL may have been given to the command."""
    return type(error)(str(error).replace("[store] url", "the URL"))
