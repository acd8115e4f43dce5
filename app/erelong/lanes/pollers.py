"""Workers outside that ask for jobs of pull kinds: who waits for which, and who is told when one may start."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from erelong.errors import Fault, Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from erelong.lanes.lanes import Lanes

RECENTLY = 10.0


class Ask(NamedTuple):
    """What a worker outside would take: kinds, queues (none: all), how many, for how long."""

    kinds: frozenset[str]
    queues: frozenset[str]
    max: int
    seconds: float


class Asker(NamedTuple):
    """A worker that waits, and the queues it would take from (none: all)."""

    event: asyncio.Event
    queues: frozenset[str]


class Askers:
    """Those who wait, kind by kind, who came first in front. `tick` is the monotonic clock."""

    def __init__(self, *, lanes: Lanes, pull_kinds: frozenset[str], tick: Callable[[], float]) -> None:
        self._lanes = lanes
        self._tick = tick
        self._waiting: dict[str, list[Asker]] = {kind: [] for kind in pull_kinds}
        self._asked_at: dict[str, float] = {}
        lanes.on_pull, lanes.is_asked_for = self.ring, self.is_asked_for

    def __len__(self) -> int:
        return len({asker for askers in self._waiting.values() for asker in askers})

    @contextmanager
    def add(self, ask: Ask) -> Iterator[asyncio.Event]:
        """An event set when there may be a job for who asks so; whoever leaves wakes the next."""
        self._refuse_strange(ask.kinds)
        asker = Asker(asyncio.Event(), ask.queues)
        for kind in ask.kinds:
            self._waiting[kind].append(asker)
        try:
            yield asker.event
        finally:
            for kind in ask.kinds:
                self._waiting[kind].remove(asker)
                self._asked_at[kind] = self._tick()
            if asker.event.is_set():  # it was told of a job and did not take it: the next one may
                self.pass_on(ask)

    def ring(self, kind: str, queue: str) -> None:
        """A job may start: tell the one who has waited longest of those who would take it."""
        for event, queues in self._waiting[kind]:
            if not event.is_set() and (not queues or queue in queues):
                event.set()
                return

    def pass_on(self, ask: Ask) -> None:
        """Tell the next, who may find more, of what is due for such an ask."""
        for kind in ask.kinds:
            for queue in self._lanes.due_queues(kind, ask.queues):
                self.ring(kind, queue)

    def wake_all(self) -> None:
        for askers in self._waiting.values():
            for asker in askers:
                asker.event.set()

    def is_asked_for(self, kind: str) -> bool:
        """Whether anybody waits for jobs of a kind, or did a moment ago."""
        if self._waiting.get(kind):
            return True
        asked_at = self._asked_at.get(kind)
        return asked_at is not None and self._tick() - asked_at < RECENTLY

    def _refuse_strange(self, kinds: frozenset[str]) -> None:
        strange = kinds - self._waiting.keys()
        if strange:
            known = ", ".join(sorted(self._waiting)) or "none is declared; set pull = true for a kind"
            faults = [Fault("/kinds", f"{kind!r} is not a pull kind; pull kinds: {known}") for kind in sorted(strange)]
            raise Invalid("these kinds cannot be leased", faults=faults)
