"""The service that the tests of the API ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest_asyncio

from tests.support.served import Serve, Served
from tests.support.virtual import VirtualClock


@pytest_asyncio.fixture
async def serve(clock: VirtualClock) -> AsyncIterator[Serve]:
    """Starts services with other settings, kinds or stores: `await serve(server=ServerSection(max_waiters=1))`."""
    async with AsyncExitStack() as stack:

        async def start(**asked: Any) -> Served:
            return await stack.enter_async_context(Served(clock=clock, **asked))

        yield start


@pytest_asyncio.fixture
async def service(serve: Serve) -> Served:
    """A service with the default settings."""
    return await serve()
