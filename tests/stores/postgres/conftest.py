"""PostgreSQL stores on an emptied database, with or without a proxy before it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from erelong.stores.postgres import session
from erelong.stores.postgres.store import PostgresStore
from tests.support.postgres import PostgresServer
from tests.support.postgres_proxy import Proxy


@pytest.fixture
def server(postgres_server: PostgresServer) -> PostgresServer:
    """Return the server, without jobs."""
    postgres_server.empty()
    return postgres_server


@pytest.fixture
def proxy(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Return a proxy before the server; sessions through it give up soon."""
    monkeypatch.setattr(session, "PATIENCE", 0.5)
    home = Path(tempfile.mkdtemp(prefix="erelong-proxy-"))  # the path of a socket must be short
    proxy = Proxy(home=home, server=server.home)
    yield proxy
    proxy.close()
    shutil.rmtree(home)


@pytest_asyncio.fixture
async def postgres(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    """Return a store, open and empty."""
    store = PostgresStore(url=server.url, durability="normal")
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture
async def distant(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """Return a store behind the proxy, open and empty."""
    store = PostgresStore(url=proxy.url, durability="normal")
    await store.open()
    yield store
    await store.close()
