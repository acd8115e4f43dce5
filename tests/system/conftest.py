"""What the trials of the real process get: services that are gone when the test is over, and a place for figures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.process import ServiceProcess
from tests.system.client import Client

FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[Callable[..., ServiceProcess]]:
    """Makes services, each on a folder of its own; what still runs at the end of the test is killed."""
    made: list[ServiceProcess] = []

    def make(**given: Any) -> ServiceProcess:
        folder = tmp_path / f"service{len(made)}"
        folder.mkdir()
        made.append(ServiceProcess(folder=folder, **given))
        return made[-1]

    yield make
    for service in made:
        service.kill()


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=300)) as session:
        yield session


@pytest.fixture
def make_client(session: aiohttp.ClientSession) -> Callable[[ServiceProcess], Client]:
    return lambda service: Client(session=session, service=service)


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str, object], None]:
    """Notes a measured value, which is shown after the last test."""
    figures = request.config.stash.setdefault(FIGURES, [])
    name = request.node.name
    return lambda what, value: figures.append(f"{name}: {what}: {value}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if figures := config.stash.get(FIGURES, []):
        terminalreporter.section("figures of the trials")
        for line in figures:
            terminalreporter.write_line(line)
