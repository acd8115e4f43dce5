"""Pull workers that wait for jobs, and which of them is woken for one."""

from __future__ import annotations

import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from erelong.clock.instants import Tick
    from erelong.duties.waiters import Client, Waiter, Waiters

RECENTLY = 10.0


class LeaseRequest(NamedTuple):
    """The jobs that a pull worker requests: kinds, queues (none: all), how many, for how long."""

    kinds: frozenset[str]
    queues: frozenset[str]
    max: int
    seconds: float


class Pollers:
    """Held lease requests. A due job wakes the longest-waiting request that accepts it."""

    def __init__(self, *, waiters: Waiters, tick: Tick) -> None:
        self._waiters = waiters
        self._tick = tick
        self._polled_at: dict[tuple[str, str | None], float] = {}  # earliest first

    def __len__(self) -> int:
        return len(self._waiters.polls)

    @contextmanager
    def poll(self, request: LeaseRequest, client: Client) -> Iterator[Waiter]:
        """Hold a request; its event is set when there may be a job for it."""
        queues: frozenset[str | None] = request.queues or frozenset({None})
        keys = [(kind, queue) for kind in request.kinds for queue in queues]
        try:
            with self._waiters.hold(self._waiters.polls, keys, client) as waiter:
                yield waiter
        finally:
            self._note(keys)

    def wake(self, kind: str, queue: str) -> None:
        """Wake the longest-waiting request that accepts a job of this kind and queue."""
        if self._waiters.polls.held:
            self._waiters.polls.wake_first((kind, queue), (kind, None))

    def is_held(self, kind: str, queue: str) -> bool:
        """Return whether a request waits for jobs of a kind in a queue."""
        held = self._waiters.polls.held
        return (kind, queue) in held or (kind, None) in held

    def is_polled(self, kind: str, queue: str) -> bool:
        """Return whether a request waits for jobs of a kind in a queue, or did recently."""
        if self.is_held(kind, queue):
            return True
        polled_at = max(self._polled_at.get((kind, name), -math.inf) for name in (queue, None))
        return self._tick() - polled_at < RECENTLY

    def _note(self, keys: Iterable[tuple[str, str | None]]) -> None:
        """Note a poll and forget old ones, since clients may invent any number of queues."""
        tick = self._tick()
        for key in keys:
            self._polled_at.pop(key, None)
            self._polled_at[key] = tick
        while tick - self._polled_at[earliest := next(iter(self._polled_at))] >= RECENTLY:
            del self._polled_at[earliest]
