"""When each schedule is due next."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.clock.instants import Instant
    from erelong.duties.signal import Settable

_SPARE: Final = 1_000


class Plan:
    """The next occurrence of each schedule, the earliest first. A schedule has at most one.

    It sets `earlier` when an occurrence is before all others.
    """

    def __init__(self, *, earlier: Settable) -> None:
        self._earlier = earlier
        self._next: dict[str, Instant] = {}
        self._heap: list[tuple[Instant, str]] = []  # with stale entries, which `_next` does not confirm

    @property
    def earliest(self) -> Instant | None:
        """The earliest occurrence of all schedules."""
        heap = self._heap
        while heap and self._next.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def next_of(self, name: str) -> Instant | None:
        return self._next.get(name)

    def set(self, name: str, at: Instant | None) -> None:
        """Set the next occurrence of a schedule; None removes it."""
        if at is None:
            self._next.pop(name, None)
        elif self._next.get(name) != at:
            self._next[name] = at
            heappush(self._heap, (at, name))
            if self._heap[0][1] == name:
                self._earlier.set()
        if len(self._heap) > 2 * len(self._next) + _SPARE:
            self._heap = [(at, name) for name, at in self._next.items()]
            heapify(self._heap)

    def clear(self) -> None:
        self._next.clear()
        self._heap.clear()

    def due_by(self, instant: Instant, limit: int) -> list[str]:
        """Return schedules that are due by an instant, in any order."""
        heap, indices = self._heap, [0]
        found: list[str] = []
        while indices and len(found) < limit:
            index = indices.pop()
            if index < len(heap) and heap[index][0] <= instant:
                at, name = heap[index]
                if self._next.get(name) == at:
                    found.append(name)
                indices += (2 * index + 1, 2 * index + 2)
        return found

    def pop(self, now: Instant, limit: int) -> Iterator[tuple[str, Instant]]:
        """Remove and yield up to `limit` schedules that are due, the earliest first."""
        for _ in range(limit):
            earliest = self.earliest
            if earliest is None or earliest > now:
                return
            name = self._heap[0][1]
            del self._next[name]
            yield name, earliest
