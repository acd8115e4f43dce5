"""Requests that are held until something happens: bounded in number, told of every change, let go at a drain."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager


class Client(Protocol):
    """Who asked, and may leave before there is an answer."""

    @property
    def is_gone(self) -> bool: ...

    def wakes(self, event: asyncio.Event) -> AbstractContextManager[None]:
        """Set the event when the client leaves."""
        ...


class _Stays:
    """Who asks from within, and never leaves."""

    is_gone = False

    def wakes(self, event: asyncio.Event) -> AbstractContextManager[None]:
        return nullcontext()


STAYS: Final[Client] = _Stays()


class Places:
    """How many requests may be held at once, whatever they wait for."""

    def __init__(self, number: int) -> None:
        self._left = number

    @contextmanager
    def take(self) -> Iterator[bool]:
        """A place, given back afterwards; whether there was one left."""
        has_place = self._left > 0
        self._left -= has_place
        try:
            yield has_place
        finally:
            self._left += has_place


class Watchers:
    """Wakes those who watch a job; they look for themselves at what it has become."""

    def __init__(self, *, places: Places) -> None:
        self._places = places
        self._events: dict[int, list[asyncio.Event]] = {}
        self.is_closed = False

    def __bool__(self) -> bool:
        """Whether anybody watches: asked for all that begins or ends, so it is not counted."""
        return bool(self._events)

    def __len__(self) -> int:
        return sum(len(events) for events in self._events.values())

    @contextmanager
    def watch(self, seq: int, client: Client = STAYS) -> Iterator[asyncio.Event | None]:
        """An event set at every change of the job, and when the client leaves; None when too many are held already."""
        with self._places.take() as has_place:
            if self.is_closed or not has_place:
                yield None
                return
            event = asyncio.Event()
            self._events.setdefault(seq, []).append(event)
            try:
                with client.wakes(event):
                    yield event
            finally:
                events = self._events[seq]
                events.remove(event)
                if not events:
                    del self._events[seq]

    def tell(self, *seqs: int) -> None:
        for seq in seqs if self._events else ():
            for event in self._events.get(seq, ()):
                event.set()

    def close(self) -> None:
        """Let everybody go, and nobody in any more."""
        self.is_closed = True
        self.tell(*self._events)
