"""A durable store through several processes, which end in order or by a crash."""

from __future__ import annotations

import shutil
from pathlib import Path

from erelong.stores.base import Store
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.sqlite.store import SqliteStore
from tests.support.postgres import PostgresServer


class Lives:
    """The stores that one process after another opens on the same data: files in a folder, or a database."""

    def __init__(self, *, folder: Path, server: PostgresServer | None) -> None:
        self._folder = folder
        self._server = server
        self._opened: list[SqliteStore | PostgresStore] = []

    async def begin(self) -> Store:
        """Open the store, after an earlier process has closed it."""
        if self._opened:
            await self._opened[-1].close()
        return await self._open()

    async def crash(self) -> Store:
        """Open what a process killed at this moment leaves."""
        before = self._opened[-1]
        if isinstance(before, PostgresStore):
            lose_connections(before)
        else:
            crashed = self._folder.with_name(self._folder.name + "-crashed")
            shutil.copytree(self._folder, crashed, ignore=shutil.ignore_patterns("*-shm", "*.lock"))
            self._folder = crashed
        return await self._open()

    async def end(self) -> None:
        for store in self._opened:
            await store.close()

    async def _open(self) -> Store:
        store: SqliteStore | PostgresStore
        if self._server is not None:
            store = PostgresStore(url=self._server.url, durability="normal")
        else:
            store = SqliteStore(path=self._folder / "erelong.db")
        self._opened.append(store)
        await store.open()
        if isinstance(store, PostgresStore) and store.standby() is not None:
            await store.lead()
        return store


def lose_connections(store: PostgresStore) -> None:
    """Lose all connections of a node at once, as when its process is killed."""
    store._term.halt()
    for part in (store._term, store._session):
        if part._connection is not None:
            part._connection.drop()


def empty(store: PostgresStore) -> None:
    """Make a store as empty as it was when its tables were made. To be called in its lister thread."""
    tables = ("jobs", "labels", "counts", "tallies_0", "tallies_1", "claims_0", "claims_1")
    for table in (*tables, "idempotency_records", "overrides", "documents"):
        store._slow.connection.script(f"DELETE FROM {table}")
    store._writes._numbers.next, store._writes._numbers.end = 1, 1 << 40
    store._cache.drop_all()
    store._writes.load()
