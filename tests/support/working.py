"""A pull worker of this process, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Self

from erelong import AsyncClient, Worker
from erelong.client.kinds import Kind


class WorkerThread:
    """Runs the jobs of kinds until the block ends, which lets running functions end."""

    def __init__(self, *kinds: Kind[..., Any, Any], url: str, queue: str, concurrency: int) -> None:
        self._url = url
        self._worker = Worker(*kinds, queues=[queue], concurrency=concurrency, drain=5.0)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="worker of the test")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async with AsyncClient(self._url) as client:
            await self._worker.serve(client)
