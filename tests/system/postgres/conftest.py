"""Services on an emptied PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.postgres import PostgresServer
from tests.support.process import ServiceProcess

MakeNode = Callable[..., ServiceProcess]


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
