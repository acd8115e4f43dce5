"""The http handler, open, and the server that it calls."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from app.config import HttpSection
from app.handlers.http import HttpHandler
from tests.handlers.receiver import Receiver
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
async def http(clock: VirtualClock) -> AsyncIterator[HttpHandler]:
    handler = HttpHandler(config=HttpSection(connect_timeout=5.0), now=clock.now)
    await handler.open()
    yield handler
    await handler.close()
