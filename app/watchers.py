"""Who waits for a job to change: long-polls, bounded in number, told of every change and let go at a drain."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Watchers:
    """Wakes those who watch a job; they look for themselves at what it has become."""

    def __init__(self, *, max_watchers: int) -> None:
        self._max_watchers = max_watchers
        self._events: dict[int, list[asyncio.Event]] = {}
        self._count = 0
        self.is_closed = False

    def __len__(self) -> int:
        return self._count

    @contextmanager
    def watch(self, seq: int) -> Iterator[asyncio.Event | None]:
        """An event set at every change of the job from now on; None when too many watch already."""
        if self.is_closed or self._count >= self._max_watchers:
            yield None
            return
        event = asyncio.Event()
        self._events.setdefault(seq, []).append(event)
        self._count += 1
        try:
            yield event
        finally:
            self._count -= 1
            events = self._events[seq]
            events.remove(event)
            if not events:
                del self._events[seq]

    def tell(self, seq: int) -> None:
        for event in self._events.get(seq, ()):
            event.set()

    def close(self) -> None:
        """Let everybody go, and nobody in any more."""
        self.is_closed = True
        for seq in self._events:
            self.tell(seq)
