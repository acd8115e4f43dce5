"""Clients of a service on virtual time, directly and through a proxy that breaks connections."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from erelong import AsyncClient
from tests.support.cuts import CuttingProxy
from tests.support.process import ServiceProcess
from tests.support.served import Served


@pytest.fixture(autouse=True)
def _no_profile(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """Hide the profiles of the developer."""
    for name in ("ERELONG_URL", "ERELONG_KEY", "ERELONG_KEY_FILE", "ERELONG_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest_asyncio.fixture
async def client(service: Served) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"http://127.0.0.1:{service.port}") as client:
        yield client


@pytest_asyncio.fixture
async def proxy(service: Served) -> AsyncIterator[CuttingProxy]:
    async with CuttingProxy(service.port) as proxy:
        yield proxy


@pytest_asyncio.fixture
async def cut_client(proxy: CuttingProxy) -> AsyncIterator[AsyncClient]:
    """A client behind the proxy."""
    async with AsyncClient(proxy.url) as client:
        yield client


@pytest.fixture(scope="session")
def real_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service in a process, for clients that block. Its tests share it."""
    service = ServiceProcess(
        folder=tmp_path_factory.mktemp("service"), config='[store]\nkind = "memory"\n[kinds.pulled]\npull = true\n'
    )
    service.start()
    yield service.url
    service.kill()


@pytest.fixture
def free_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port
