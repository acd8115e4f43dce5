"""Watches the live jobs of schedules that keep an occurrence until those have ended."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from erelong.duties.waiters import Waiter
from erelong.model.ids import parse_id

if TYPE_CHECKING:
    from collections.abc import Iterable

    from erelong.duties.signal import Settable
    from erelong.duties.waiters import Waiters
    from erelong.model.schedules.schedule import Schedule


class Watches:
    """The schedules that keep an occurrence. `woken` has those whose live jobs have changed."""

    def __init__(self, *, waiters: Waiters, wake: Settable) -> None:
        self._jobs = waiters.jobs
        self._wake = wake
        self._watches: dict[str, tuple[frozenset[int], Waiter]] = {}
        self.woken: set[str] = set()

    def set(self, schedule: Schedule) -> None:
        """Watch the live jobs of a schedule if it keeps an occurrence; otherwise watch them no longer."""
        name = schedule.name
        if schedule.queued is None or schedule.is_paused:
            self.remove(name)
            return
        parts = [parse_id(job) for job in schedule.live]
        seqs = frozenset(part[0] for part in parts if part is not None)
        before = self._watches.get(name)
        if before is not None and before[0] == seqs and all(parts):
            return
        self.remove(name)
        waiter = Waiter(0, has_slot=False)
        waiter.event = Wake(name, self)
        self._jobs.add(waiter, seqs)
        self._watches[name] = (seqs, waiter)
        self.wake((name,))  # they may have ended before this watch, or have no number yet

    def remove(self, name: str) -> None:
        self.woken.discard(name)
        watch = self._watches.pop(name, None)
        if watch is not None:
            self._jobs.remove(watch[1], watch[0])

    def wake(self, names: Iterable[str]) -> None:
        self.woken.update(names)
        if self.woken:
            self._wake.set()

    def take(self, limit: int) -> list[str]:
        """Return some of the woken schedules, each once."""
        taken = sorted(islice(self.woken, limit))
        self.woken.difference_update(taken)
        return taken


class Wake(asyncio.Event):
    """An event that wakes one schedule when it is set."""

    def __init__(self, name: str, watches: Watches) -> None:
        super().__init__()
        self._name = name
        self._watches = watches

    def set(self) -> None:
        self._watches.wake((self._name,))
