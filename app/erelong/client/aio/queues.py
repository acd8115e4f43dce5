"""A queue: its state, its settings, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.client.calls import queues as calls
from erelong.client.records import QueueRecord

if TYPE_CHECKING:
    from erelong.client.aio.client import AsyncClient


class AsyncQueue:
    """One queue, by its name."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client = client
        self.name = name

    async def get(self) -> QueueRecord:
        """Return its state now."""
        return QueueRecord(await self._client.send(calls.read(self.name)))

    async def set(self, **settings: Any) -> QueueRecord:
        """Replace its settings: `concurrency=10, rate={"per_second": 50}`. Those not given are the configured ones."""
        return QueueRecord(await self._client.send(calls.put(self.name, settings)))

    async def reset(self) -> None:
        """Return to the configured settings."""
        await self._client.send(calls.reset(self.name))

    async def pause(self, reason: str | None = None) -> QueueRecord:
        """Start no more of its jobs."""
        return QueueRecord(await self._client.send(calls.pause(self.name, reason)))

    async def resume(self) -> QueueRecord:
        return QueueRecord(await self._client.send(calls.resume(self.name)))

    async def purge(self) -> int:
        """Cancel all its waiting jobs; return how many. After a lost answer, it is how many the next try has found."""
        cancelled: int = (await self._client.send(calls.purge(self.name)))["cancelled"]
        return cancelled
