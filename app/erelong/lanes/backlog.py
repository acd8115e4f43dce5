"""Room for waiting jobs in each queue, counting jobs that are being added."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Store


class Backlog:
    """Counts waiting jobs of every kind, including kinds no longer declared."""

    def __init__(self, *, store: Store, lanes: Lanes) -> None:
        self._store = store
        self._lanes = lanes
        self._incoming: dict[str, int] = {}

    def waiting(self, queue: str) -> int:
        """Return how many jobs of a queue are waiting, due or not."""
        return self._store.waiting(queue)

    def excess(self, queue: str, number: int) -> int:
        """Return by how many `number` more jobs would exceed `max_backlog`; at most 0 if they fit."""
        bound = self._lanes.settings(queue).max_backlog
        return self._store.waiting(queue) + self._incoming.get(queue, 0) + number - bound if bound else -1

    def hold(self, queue: str, number: int) -> None:
        """Reserve room for jobs while they are added."""
        self._incoming[queue] = self._incoming.get(queue, 0) + number

    def release(self, room: Mapping[str, int]) -> None:
        """Release reserved room: its jobs are stored and counted, or were refused."""
        for queue, number in room.items():
            rest = self._incoming[queue] - number
            if rest:
                self._incoming[queue] = rest
            else:
                del self._incoming[queue]
