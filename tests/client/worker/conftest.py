"""Workers of a service on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest_asyncio

from erelong import AsyncClient, Worker
from erelong.settings.kinds import KindSettings
from tests.support.served import Serve, Served

Run = Callable[..., Awaitable[Worker]]


@pytest_asyncio.fixture
async def service(serve: Serve) -> Served:
    """A service with the pull kinds a and b."""
    return await serve(declared={name: KindSettings(pull=True) for name in ("a", "b")})


@pytest_asyncio.fixture
async def run(client: AsyncClient, cut_client: AsyncClient) -> AsyncIterator[Run]:
    """Starts workers, and stops them after the test."""
    started: list[tuple[Worker, asyncio.Task[None]]] = []

    async def start(worker: Worker, client: AsyncClient = client) -> Worker:
        started.append((worker, asyncio.create_task(worker.serve(client))))
        return worker

    yield start
    for worker, task in started:
        worker.drain = 0.0
        worker.stop()
        with suppress(asyncio.CancelledError):
            await task
