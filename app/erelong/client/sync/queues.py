"""A queue: its state, its settings, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.client.calls import queues as calls
from erelong.client.records import QueueRecord

if TYPE_CHECKING:
    from erelong.client.sync.client import Client


class Queue:
    """One queue, by its name."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def get(self) -> QueueRecord:
        """Return its state now."""
        return QueueRecord(self._client.send(calls.read(self.name)))

    def set(self, **settings: Any) -> QueueRecord:
        """Replace its settings: `concurrency=10, rate={"per_second": 50}`. Those not given are the configured ones."""
        return QueueRecord(self._client.send(calls.put(self.name, settings)))

    def reset(self) -> None:
        """Return to the configured settings."""
        self._client.send(calls.reset(self.name))

    def pause(self, reason: str | None = None) -> QueueRecord:
        """Start no more of its jobs."""
        return QueueRecord(self._client.send(calls.pause(self.name, reason)))

    def resume(self) -> QueueRecord:
        return QueueRecord(self._client.send(calls.resume(self.name)))

    def purge(self) -> int:
        """Cancel all its waiting jobs; return how many. After a lost answer, it is how many the next try has found."""
        cancelled: int = (self._client.send(calls.purge(self.name)))["cancelled"]
        return cancelled
