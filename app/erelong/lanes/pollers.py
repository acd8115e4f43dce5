"""Workers outside that poll for jobs of pull kinds: who waits for which, and who is woken for one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.clock.instants import Tick
    from erelong.duties.waiters import Client, Waiter, Waiters

RECENTLY = 10.0


class LeaseRequest(NamedTuple):
    """What a worker outside would take: kinds, queues (none: all), how many, for how long."""

    kinds: frozenset[str]
    queues: frozenset[str]
    max: int
    seconds: float


class Pollers:
    """Held lease requests; of those that would take a job, the one that has waited longest is woken."""

    def __init__(self, *, waiters: Waiters, tick: Tick) -> None:
        self._waiters = waiters
        self._tick = tick
        self._polled_at: dict[str, float] = {}

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
            self._polled_at |= dict.fromkeys(request.kinds, self._tick())

    def wake(self, kind: str, queue: str) -> None:
        """A job may start: wake the one that has waited longest of those that would take it."""
        if self._waiters.polls.held:
            self._waiters.polls.wake_first((kind, queue), (kind, None))

    def is_polled(self, kind: str) -> bool:
        """Whether anybody polls for jobs of a kind, or did a moment ago."""
        if any(polled == kind for polled, _ in self._waiters.polls.held):
            return True
        polled_at = self._polled_at.get(kind)
        return polled_at is not None and self._tick() - polled_at < RECENTLY
