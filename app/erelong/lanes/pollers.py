"""Pull workers that wait for jobs, and which of them is woken for one."""

from __future__ import annotations

import math
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from erelong.clock.instants import Tick
    from erelong.duties.waiters import Client, Waiter, Waiters

RECENTLY = 10.0
MAX_KEPT = 1_000  # queues and kinds whose last poll is known

Topic = tuple[str, str | None]
"""A pull kind and a queue (None: any)."""


class LeaseRequest(NamedTuple):
    """The jobs that a pull worker requests: kinds, queues (none: all), how many, for how long; and its name."""

    kinds: frozenset[str]
    queues: frozenset[str]
    max: int
    seconds: float
    worker: str | None = None


class Pollers:
    """Held lease requests. A due job wakes the longest-waiting request that accepts it."""

    def __init__(self, *, waiters: Waiters, tick: Tick) -> None:
        self._waiters = waiters
        self._tick = tick
        self._polled_at: dict[Topic, float] = {}  # earliest first
        self._served_since: dict[Topic, float] = {}  # polled ever since, with short pauses

    def __len__(self) -> int:
        return len(self._waiters.polls)

    @contextmanager
    def poll(self, request: LeaseRequest, client: Client) -> Iterator[Waiter]:
        """Hold a request; its event is set when there may be a job for it."""
        queues: frozenset[str | None] = request.queues or frozenset({None})
        keys = [(kind, queue) for kind in request.kinds for queue in queues]
        self._note_begin(keys)
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
        polled_at = self._last_polled(kind, queue)
        return polled_at is not None and self._tick() - polled_at < RECENTLY

    def unpolled_for(self, kind: str, queue: str) -> float | None:
        """Return the seconds since a request for jobs of a kind in a queue was last held; None if that is unknown."""
        polled_at = self._last_polled(kind, queue)
        return None if polled_at is None else self._tick() - polled_at

    def workers(self, kind: str, queues: Collection[str]) -> int:
        """Return how many requests wait for jobs of a kind in these queues (none: all)."""
        held = self._waiters.polls.held
        topics = [
            topic for topic in held if topic[0] == kind and (not queues or topic[1] is None or topic[1] in queues)
        ]
        return len({waiter for topic in topics for waiter in held[topic]})

    def last_poll(self, kind: str, queues: Collection[str]) -> float | None:
        """Return the seconds since a request for jobs of a kind in these queues (none: all) was last held."""
        if self.workers(kind, queues):
            return 0.0
        ticks = [
            tick
            for (name, queue), tick in self._polled_at.items()
            if name == kind and (not queues or queue is None or queue in queues)
        ]
        return self._tick() - max(ticks) if ticks else None

    def wake_all(self, kind: str) -> None:
        """Wake every request that waits for jobs of a kind."""
        for topic, waiters in self._waiters.polls.held.items():
            if topic[0] == kind:
                for waiter in waiters:
                    waiter.event.set()

    def served_since(self, kind: str, queue: str) -> float:
        """Return the tick since which such requests have come without a long pause; the present tick if none came."""
        return min(self._of(self._served_since, kind, queue), default=self._tick())

    def _last_polled(self, kind: str, queue: str) -> float | None:
        return max(self._of(self._polled_at, kind, queue), default=None)

    def _of(self, ticks: Mapping[Topic, float], kind: str, queue: str) -> list[float]:
        return [tick for name in (queue, None) if (tick := ticks.get((kind, name))) is not None]

    def _note_begin(self, keys: Iterable[Topic]) -> None:
        tick, held = self._tick(), self._waiters.polls.held
        for key in keys:
            if key not in held and tick - self._polled_at.get(key, -math.inf) >= RECENTLY:
                self._served_since[key] = tick

    def _note(self, keys: Iterable[Topic]) -> None:
        """Note a poll and forget old ones, since clients may invent any number of queues."""
        tick = self._tick()
        for key in keys:
            self._polled_at.pop(key, None)
            self._polled_at[key] = tick
        for earliest in [*islice(self._polled_at, max(0, len(self._polled_at) - MAX_KEPT))]:
            if tick - self._polled_at[earliest] < RECENTLY:
                break
            del self._polled_at[earliest]
            self._served_since.pop(earliest, None)
