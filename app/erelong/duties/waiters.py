"""Held requests: limited in number, woken by topic, released at a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from contextlib import AbstractContextManager

    from erelong.duties.lifecycle import Lifecycle

K = TypeVar("K", bound=Hashable)


class Client(Protocol):
    """The client of a held request, which may disconnect before the response."""

    @property
    def is_gone(self) -> bool: ...

    def wakes(self, event: asyncio.Event) -> AbstractContextManager[None]:
        """Set the event when the client disconnects."""
        ...


class _NeverLeaves:
    """A caller inside the process."""

    is_gone = False

    def wakes(self, event: asyncio.Event) -> AbstractContextManager[None]:
        return nullcontext()


NEVER_LEAVES: Final[Client] = _NeverLeaves()


class _Left(_NeverLeaves):
    """A caller inside the process that does not wait."""

    is_gone = True


LEFT: Final[Client] = _Left()


class Waiter:
    """One held request, and the keys woken for it, in order. Without a slot (`has_slot`) it must not wait."""

    __slots__ = ("event", "has_slot", "number", "woken")

    def __init__(self, number: int, has_slot: bool) -> None:
        self.event = asyncio.Event()
        self.has_slot = has_slot
        self.number = number
        self.woken: dict[Hashable, None] = {}


class Topic(Generic[K]):
    """The held requests of one topic, by key."""

    def __init__(self) -> None:
        self.held: dict[K, list[Waiter]] = {}

    def __len__(self) -> int:
        return len({waiter for waiters in self.held.values() for waiter in waiters if waiter.has_slot})

    def add(self, waiter: Waiter, keys: Collection[K]) -> None:
        for key in keys:
            self.held.setdefault(key, []).append(waiter)

    def remove(self, waiter: Waiter, keys: Collection[K]) -> None:
        for key in keys:
            waiters = self.held[key]
            waiters.remove(waiter)
            if not waiters:
                del self.held[key]

    def wake(self, keys: Iterable[K]) -> None:
        """Wake all requests that wait for one of these keys."""
        for key in keys if self.held else ():
            for waiter in self.held.get(key, ()):
                waiter.woken[key] = None
                waiter.event.set()

    def wake_first(self, *keys: K) -> None:
        """Wake the longest-waiting request for any of these keys that is not woken yet."""
        waiting = [waiter for key in keys for waiter in self.held.get(key, ()) if not waiter.event.is_set()]
        if waiting:
            min(waiting, key=lambda waiter: waiter.number).event.set()

    def wake_all(self) -> None:
        self.wake(list(self.held))


class Waiters:
    """All held requests, at most `limit`. The topics are changes of jobs by `seq`, room in queues by name, jobs of pull
    kinds by kind and queue (None: any queue), the ends of operations by id, and a node that leads.
    """

    def __init__(self, *, limit: int, lifecycle: Lifecycle) -> None:
        self._left = limit
        self._lifecycle = lifecycle
        self._number = 0
        self.jobs: Topic[int] = Topic()
        self.rooms: Topic[str] = Topic()
        self.polls: Topic[tuple[str, str | None]] = Topic()
        self.operations: Topic[str] = Topic()
        self.leaders: Topic[None] = Topic()

    @contextmanager
    def hold(self, topic: Topic[K], keys: Collection[K], client: Client = NEVER_LEAVES) -> Iterator[Waiter]:
        """Hold a request. Its event is set when a key is woken, its client disconnects, or the drain starts."""
        self._number += 1
        waiter = Waiter(self._number, self._left > 0 and not self._lifecycle.is_draining)
        self._left -= waiter.has_slot
        topic.add(waiter, keys)
        try:
            with client.wakes(waiter.event):
                yield waiter
        finally:
            topic.remove(waiter, keys)
            self._left += waiter.has_slot

    def release_all(self) -> None:
        """Wake all requests, because the service drains."""
        for topic in (self.jobs, self.rooms, self.polls, self.operations, self.leaders):
            topic.wake_all()
