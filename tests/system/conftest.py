"""Fixtures for tests of the real process: temporary services, and a record of figures."""

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
    """Return a function that makes services with their own folders; kill the running ones after the test."""
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
    """Return a function that records a measured value for the summary after the last test."""
    figures = request.config.stash.setdefault(FIGURES, [])
    name = request.node.name
    return lambda what, value: figures.append(f"{name}: {what}: {value}")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if figures := config.stash.get(FIGURES, []):
        terminalreporter.section("figures of the trials")
        for line in figures:
            terminalreporter.write_line(line)
