"""The latest events, once for all readers. Each reader holds a position, and none slows the service down."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from typing import TYPE_CHECKING, NamedTuple

from erelong.engine.events.bell import Bell
from erelong.model.events.event import Event, EventType, end_or, light

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from erelong.clock.instants import Now
    from erelong.model.job import Job

MEAN_SIZE = 4_096  # bytes an event: if the events are larger, fewer than `max_events` are kept
LINGER = 300.0  # seconds that a type is kept after its last reader has left, so that it can continue


class Place(NamedTuple):
    """A position: the epoch of the ring, and the number of the last event before it."""

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch:08x}-{self.number}"


class EventRing:
    """Keeps the latest `max_events` events of the types that open readers want, or fewer if they are large.

    `types` is empty while there are no readers: callers check it first, so that a change then costs no call. A change
    must be told once, and only after it is stored.
    """

    def __init__(self, *, max_events: int, now: Now) -> None:
        self.types: frozenset[EventType] = frozenset()
        self.bell = Bell()
        self._now = now
        self._max_events = max_events
        self._events: deque[Event] = deque()
        self._size = 0  # of the kept events
        self._epoch = _new_epoch()
        self._number = 0
        self._wanted: Counter[EventType] = Counter()
        self._complete_from: dict[EventType, int] = {}

    # changes

    def tell(self, type: EventType, job: Job) -> None:
        """Tell what happened to a job."""
        if type in self.types:
            self._append(Event(type, self._now(), light(job)))

    def tell_end(self, job: Job, otherwise: EventType) -> None:
        """Tell the end of a job, or `otherwise` if it has not ended."""
        self.tell(end_or(job, otherwise), job)

    def tell_other(
        self, type: EventType, body: Mapping[str, Any], *, queue: str = "", owner: str | None = None, weight: int = 0
    ) -> None:
        """Tell what happened to something else, which belongs to a queue or to a caller, and takes `weight` bytes."""
        if type in self.types:
            self._append(Event(type, self._now(), body=body, queue=queue, owner=owner, weight=weight))

    def break_off(self) -> None:
        """Forget everything, since a change may not have been told; all readers start over."""
        self._epoch = _new_epoch()
        self._clear()
        self.bell.ring()

    def _append(self, event: Event) -> None:
        events = self._events
        events.append(event)
        self._size += event.size
        while len(events) > self._max_events or (self._size > self._max_events * MEAN_SIZE and len(events) > 1):
            self._size -= events.popleft().size
        self._number += 1
        self.bell.ring()

    def _clear(self) -> None:
        self._events.clear()
        self._size = 0

    # readers

    @property
    def end(self) -> Place:
        """The position after the latest event."""
        return Place(self._epoch, self._number)

    def open(self, types: Collection[EventType]) -> None:
        """Keep events of these types from here on."""
        added = [type for type in types if type not in self.types]
        if added:
            self._append(Event(EventType.NOW, 0))  # no reader gets it: positions from before it lack the new types
            self._complete_from |= dict.fromkeys(added, self._number)
        self._wanted.update(types)
        self.types = self.types.union(types)
        self.bell.join()

    def close(self, types: Collection[EventType]) -> None:
        """Let the types of a reader go in a while, unless other readers want them."""
        self.bell.leave()
        asyncio.get_running_loop().call_later(LINGER, self._forget, types)

    def is_current(self, place: Place) -> bool:
        """Return whether a position belongs to this ring and has been reached."""
        return place.epoch == self._epoch and place.number <= self._number

    def covers(self, place: Place, types: Iterable[EventType]) -> bool:
        """Return whether all events of these types after a position are kept."""
        first = max(self._number - len(self._events), *(self._complete_from[type] for type in types))
        return first <= place.number

    def after(self, number: int, limit: int) -> list[Event]:
        """Return up to `limit` events after a position that the ring covers."""
        left = self._number - number
        start = len(self._events) - left
        return [self._events[index] for index in range(start, start + min(left, limit))]

    def _forget(self, types: Iterable[EventType]) -> None:
        self._wanted.subtract(types)
        self.types = frozenset(type for type in self.types if self._wanted[type] > 0)
        if not self.types:
            self._clear()


def _new_epoch() -> int:
    return random.getrandbits(32)
