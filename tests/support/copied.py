"""Stores of both kinds at a place, opened by a test, or read and made by a copy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from erelong.model.query import Query
from erelong.stores.base import Store
from erelong.stores.copying.copy import Copied, copy_store
from erelong.stores.copying.postgres.source import PostgresSource
from erelong.stores.copying.postgres.target import PostgresTarget
from erelong.stores.copying.sqlite.source import SqliteSource
from erelong.stores.copying.sqlite.target import SqliteTarget
from erelong.stores.copying.tables import Source, Target
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, NOW
from tests.support.schema_file import RECORD

SORTS = ("schedule", "s")


class Silent:
    """A progress that nobody sees."""

    def begin(self, phase: str, total: int) -> None:
        """Learn of a phase."""

    def advance(self, rows: int) -> None:
        """Learn of rows."""


class Place(NamedTuple):
    """Where a store is: the path of a database file, or the URL of a database."""

    path: Path | None = None
    url: str = ""

    def store(self, *, is_virtual: bool = False) -> SqliteStore | PostgresStore:
        if self.path is not None:
            return SqliteStore(path=self.path, durability="normal", is_virtual=is_virtual)
        return PostgresStore(url=self.url, durability="normal", is_virtual=is_virtual)

    def source(self) -> Source:
        if self.path is not None:
            return SqliteSource(path=self.path)
        return PostgresSource(url=self.url, durability="normal")

    def target(self) -> Target:
        if self.path is not None:
            return SqliteTarget(path=self.path)
        return PostgresTarget(url=self.url, durability="normal")

    @asynccontextmanager
    async def opened(self, **options: Any) -> AsyncIterator[SqliteStore | PostgresStore]:
        store = self.store(**options)
        await store.open()
        try:
            yield store
        finally:
            await store.close()


def copy_between(source: Place, target: Place, **options: Any) -> Copied:
    return copy_store(source.source(), target.target(), Silent(), **options)


async def contents(store: Store) -> dict[str, Any]:
    """Return everything that a store returns."""
    jobs = await store.list(ALL)
    label_names = ("tenant", "env")
    return {
        "jobs": jobs,
        "full jobs": await store.get([job.seq for job in jobs]),
        "labels": {name: await store.label_values(name) for name in label_names},
        "labelled": await store.list(Query(labels={"tenant": "t1"}, limit=1_000)),
        "due": await store.due((-1, -1), 1 << 62, 1_000),
        "counts": {group: number for group, number in store.counts().items() if number},
        "overrides": await store.overrides(),
        "documents": {sort: await store.documents(sort, limit=1_000) for sort in SORTS},
        "replay": await store.find_replay(RECORD, now=NOW),
    }
