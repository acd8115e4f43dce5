"""Open handlers: the http handler with a server for its requests, and handlers with processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from erelong.handlers.http.runner import Webhooks
from erelong.handlers.registry import make_kinds
from erelong.settings.kinds import KindSettings
from erelong.settings.sections import Config, WebhooksSection, WorkersSection
from tests.handlers.attempts import Handler, handler_of
from tests.handlers.process_runs import Handlers, OpenKind, OpenKinds, in_process
from tests.handlers.receiver import LOOPBACK, Receiver
from tests.support.alive import alive
from tests.support.virtual import VirtualClock


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.receive)
    async with TestServer(app) as server:
        receiver.url = str(server.make_url("/"))
        yield receiver


@pytest_asyncio.fixture
async def http(clock: VirtualClock) -> AsyncIterator[Webhooks]:
    config = WebhooksSection(connect_timeout=5.0, allow_networks=list(LOOPBACK))
    handler = Webhooks(config=config, now=clock.now)
    await handler.open()
    yield handler
    await handler.close()


@pytest.fixture
def pids(tmp_path: Path) -> Path:
    """Return the file in which processes record their pids."""
    return tmp_path / "pids"


@pytest_asyncio.fixture
async def open_kinds(pids: Path) -> AsyncIterator[OpenKinds]:
    """Open the handlers of kinds with processes; after their close, no recorded process may be left."""
    opened: list[Handler] = []

    async def open_kinds(kinds: dict[str, KindSettings], *, grace: float = 0.2, processes: int = 1) -> Handlers:
        config = Config(kinds=kinds, workers=WorkersSection(grace=grace, processes=processes))
        handlers = {name: handler_of(kind) for name, kind in make_kinds(config).items() if name in kinds}
        for handler in handlers.values():
            await handler.open()
            opened.append(handler)
        return handlers

    yield open_kinds
    for handler in reversed(opened):
        await handler.close()
    assert alive(pids) == []


@pytest_asyncio.fixture
async def open_functions(open_kinds: OpenKinds) -> OpenKinds:
    """Open the handlers of functions that share processes, by function name."""

    async def open_functions(*functions: str, processes: int = 1, **settings: Any) -> Handlers:
        kinds = {function: in_process(function, **settings) for function in functions}
        return await open_kinds(kinds, processes=processes)

    return open_functions


@pytest_asyncio.fixture
async def open_function(open_kinds: OpenKinds) -> OpenKind:
    """Open the handler of one kind, named call, whose function runs in a process."""

    async def open_function(function: str, *, grace: float = 0.2, processes: int = 1, **settings: Any) -> Handler:
        return (await open_kinds({"call": in_process(function, **settings)}, grace=grace, processes=processes))["call"]

    return open_function


@pytest_asyncio.fixture
async def open_command(open_kinds: OpenKinds) -> OpenKind:
    """Open the handler of one command kind, named call."""

    async def open_command(*command: str, grace: float = 0.2, **settings: Any) -> Handler:
        return (await open_kinds({"call": KindSettings(command=list(command), **settings)}, grace=grace))["call"]

    return open_command
