"""Reads a store in PostgreSQL for a copy, in one snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.errors import StoreCorrupt, StoreInUse
from erelong.stores.copying.postgres.database import PostgresDatabase
from erelong.stores.copying.tables import JOBS, TABLES, Claimed, Facts, Source, Table
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.connection import SCHEMA_NAME
from erelong.stores.postgres.migrations import TABLES as NAMES_OF_TABLES
from erelong.stores.postgres.migrations import is_ours, prepare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.stores.rows import Row

IS_VIRTUAL = "SELECT is_virtual FROM meta"
FENCE = "SELECT FROM fences WHERE slice = 0 FOR UPDATE"
"""Held to the end: no node can begin an epoch, or write."""
TERM = """
SELECT node IS NOT NULL AND until > clock_timestamp(), coalesce(address, 'this machine'), next_seq FROM terms
WHERE slice = 0
"""
CLAIMS = f"SELECT claims.seq, claims.version, claims.started_at FROM {sql.OF_CLAIMS} ORDER BY claims.seq"


class PostgresSource(Source):
    """A database that no node writes."""

    damaged = ()

    def __init__(self, *, url: str, durability: str) -> None:
        self._database = PostgresDatabase(url=url, durability=durability)

    def __str__(self) -> str:
        return str(self._database)

    def open(self) -> Facts:
        connection = self._database.connect()
        with self._database.exits():
            if not is_ours({name for (name,) in connection.rows(NAMES_OF_TABLES, SCHEMA_NAME)}):
                raise StoreCorrupt("the database holds no jobs of erelong; correct [store] url")
            (is_virtual,) = connection.row(IS_VIRTUAL)
            prepare(connection, is_virtual=is_virtual, must_exist=True)
            connection.script("BEGIN ISOLATION LEVEL REPEATABLE READ")
            connection.row(FENCE)
            is_led, address, next_seq = connection.row(TERM)
            if is_led:
                raise StoreInUse(f"a node at {address} leads and writes this store; stop all nodes, then copy")
            claims = [Claimed(*claim) for claim in connection.rows(CLAIMS)]
        return Facts(is_virtual, next_seq - 1, claims)

    def close(self) -> None:
        self._database.drop()

    def sizes(self) -> dict[Table, int]:
        with self._database.exits():
            sizes = {
                table: self._database.connection.row(f"SELECT count(*) FROM {table.name}")[0] for table in TABLES[1:]
            }
            jobs = sum(jobs for *_, jobs in self._database.connection.rows(sql.SELECT_COUNTS))
        return {JOBS: jobs, **sizes}

    def rows(self, table: Table) -> Iterator[Row]:
        return self._database.rows(table)
