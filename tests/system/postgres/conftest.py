"""Services on an emptied PostgreSQL database, with or without a proxy before it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.postgres import PostgresServer
from tests.support.postgres_proxy import Proxy
from tests.support.process import ServiceProcess

MakeNode = Callable[..., ServiceProcess]
KINDS = '[kinds.note]\npython = "functions:note"\n'


@pytest.fixture
def server(postgres_server: PostgresServer) -> PostgresServer:
    """Return the server, without jobs."""
    postgres_server.empty()
    return postgres_server


@pytest.fixture
def make_node(make_service: Callable[..., ServiceProcess], server: PostgresServer) -> MakeNode:
    """Return a function that makes services on the database."""

    def make(url: str = server.url, *, kinds: str = "", **given: str) -> ServiceProcess:
        config = f'[store]\nkind = "postgres"\ndurability = "normal"\nurl = "{url}"\n'
        return make_service(config=config + kinds, **given)

    return make


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[Proxy]:
    """Return a proxy before the server."""
    home = Path(tempfile.mkdtemp(prefix="erelong-proxy-"))  # the path of a socket must be short
    proxy = Proxy(home=home, server=server.home)
    yield proxy
    proxy.close()
    shutil.rmtree(home)
