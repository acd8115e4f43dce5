"""Room for waiting jobs: how many a queue may hold, counting those that are on their way in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Store


class Backlog:
    """Counts waiting jobs of every kind, also of those that are no longer declared."""

    def __init__(self, *, store: Store, lanes: Lanes) -> None:
        self._store = store
        self._lanes = lanes
        self._incoming: dict[str, int] = {}

    def waiting(self, queue: str) -> int:
        """Return how many jobs of a queue wait, due or not."""
        return self._store.waiting(queue)

    def excess(self, queue: str, number: int) -> int:
        """Return by how many a queue would exceed its bound with so many more jobs; at most 0 if they fit."""
        bound = self._lanes.settings(queue).max_backlog
        return self._store.waiting(queue) + self._incoming.get(queue, 0) + number - bound if bound else 0

    def hold(self, queue: str, number: int) -> None:
        """Hold room for jobs while they are added."""
        self._incoming[queue] = self._incoming.get(queue, 0) + number

    def give_back(self, room: Mapping[str, int]) -> None:
        """Give held room back: the jobs are stored and counted now, or were refused."""
        for queue, number in room.items():
            left = self._incoming[queue] - number
            if left:
                self._incoming[queue] = left
            else:
                del self._incoming[queue]
