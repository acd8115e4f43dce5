"""Writes a store in PostgreSQL from rows, in one transaction."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import psycopg

from erelong.errors import Exit
from erelong.stores.copying.postgres.database import PostgresDatabase, types_of
from erelong.stores.copying.tables import Facts, Table, Target
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.arrays import bigints, ints
from erelong.stores.postgres.connection import SCHEMA_NAME
from erelong.stores.postgres.failures import FailureKind, diagnose
from erelong.stores.postgres.migrations import is_ours, locked_tables, make_rows, make_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from erelong.stores.rows import Row

NODE = "copy"  # that claimed the running jobs, for the node that takes over
SET_NUMBERS = "UPDATE terms SET next_seq = %s"
COUNT = "INSERT INTO counts SELECT queue, kind, state, count(*) FROM jobs GROUP BY queue, kind, state"
IS_COMMITTED = "SELECT count(*) FROM meta WHERE identity = %s"
_INDEXES = [text for text in sql.SCHEMA.split(";") if "CREATE INDEX" in text or "CREATE UNIQUE INDEX" in text]
_TABLES = [text for text in sql.SCHEMA.split(";") if text not in _INDEXES]


class PostgresTarget(Target):
    """A database without tables of erelong. A service that starts meanwhile waits, and then gives up."""

    def __init__(self, *, url: str, durability: str) -> None:
        self._database = PostgresDatabase(url=url, durability=durability)
        self._identity = secrets.token_hex(16)

    def __str__(self) -> str:
        return str(self._database)

    def open(self, facts: Facts) -> None:
        self._facts = facts
        connection = self._database.connect()
        with self._database.exits():
            connection.script("BEGIN")
            tables = locked_tables(connection)
            if tables:
                whose = "a store of erelong" if is_ours(tables) else "another program"
                raise Exit(
                    f"the schema {SCHEMA_NAME} of the target holds the tables of {whose} already; name another "
                    f"database, or drop them: DROP SCHEMA {SCHEMA_NAME} CASCADE"
                )
            make_schema(connection)
            connection.script(";".join(_TABLES))

    def close(self) -> None:
        self._database.drop()

    def write(self, table: Table, rows: Iterable[Row]) -> None:
        # The table is of this transaction, so its rows need no later VACUUM.
        statement = f"COPY {table.name} ({', '.join(table.columns)}) FROM STDIN (FORMAT binary, FREEZE)"
        with (
            self._database.exits(),
            self._database.connection.cursor() as cursor,
            cursor.copy(statement.encode()) as copy,
        ):
            copy.set_types(types_of(table))
            write = copy.write_row
            for row in rows:
                write(row)

    def complete(self) -> None:
        connection, claims = self._database.connection, self._facts.claims
        with self._database.exits():
            for index in _INDEXES:
                connection.script(index)
            make_rows(connection, identity=self._identity, is_virtual=self._facts.is_virtual)
            connection.run(SET_NUMBERS, self._facts.last_seq + 1)
            connection.run(COUNT)
            seqs, versions, instants = zip(*claims, strict=True) if claims else ((), (), ())
            statement = sql.INSERT_CLAIMS.format(half="claims_0", fence="")
            connection.run(statement, NODE, bigints(seqs), ints(versions), bigints(instants))

    def rows(self, table: Table) -> Iterator[Row]:
        return self._database.rows(table)

    def commit(self) -> None:
        with self._database.exits():
            try:
                self._database.connection.script("COMMIT")
                self._database.connection.check_doubts()
            except psycopg.Error as error:
                if diagnose(error) is not FailureKind.SESSION or not self._is_committed():
                    raise

    def _is_committed(self) -> bool:
        """Return whether the commit took effect although its connection was lost."""
        self._database.drop()
        try:
            connection = self._database.connect()
            locked_tables(connection)  # waits for the end of the transaction
            return bool(connection.row(IS_COMMITTED, self._identity)[0])
        except (psycopg.Error, Exit):
            return False
