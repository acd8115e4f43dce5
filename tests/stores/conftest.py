"""The stores under the contract. After each test the counts of a store must agree with its jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from erelong.stores import cache as recent
from erelong.stores.base import Store
from erelong.stores.memory import MemoryStore
from erelong.stores.postgres.store import PostgresStore
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import count_both
from tests.support.postgres import PostgresServer


@pytest_asyncio.fixture(params=["memory", "sqlite", "sqlite, all from disk", "postgres", "postgres, nothing cached"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    """Return each store in turn, open and empty."""
    if request.param in ("sqlite, all from disk", "postgres, nothing cached"):
        monkeypatch.setattr(recent, "MAX_BYTES", -1)
    store = _make(request, tmp_path)
    await store.open()
    yield store
    counted, stored = await count_both(store)
    await store.close()
    assert counted == stored


@pytest_asyncio.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    """Return the embedded store, open and empty, in `tmp_path / "erelong.db"`."""
    store = SqliteStore(path=tmp_path / "erelong.db")
    await store.open()
    yield store
    await store.close()


def _make(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore()
    if request.param.startswith("sqlite"):
        return SqliteStore(path=tmp_path / "erelong.db")
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.empty()
    return PostgresStore(url=server.url, durability="normal")
