"""Places for stores of both kinds, without a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.copied import Place
from tests.support.postgres import PostgresServer

MakePlace = Callable[[str], Place]


@pytest.fixture
def make_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakePlace]:
    """Return a function that makes places of a kind; databases are dropped after the test."""
    server: PostgresServer | None = None
    made: list[str] = []

    def make(kind: str) -> Place:
        nonlocal server
        if kind == "sqlite":
            folder = tmp_path / f"place{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return Place(path=folder / "erelong.db")
        server = request.getfixturevalue("postgres_server")
        made.append(f"copying{len(made)}")
        return Place(url=server.make_database(made[-1]))

    yield make
    if server is not None:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for name in made:
                connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
