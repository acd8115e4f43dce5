"""Brings overdue jobs from the store to their lanes in the background, so that no job due now waits for them."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from erelong.lanes.lane import Spill

if TYPE_CHECKING:
    from erelong.clock.instants import Instant, Now
    from erelong.duties.signal import Signal
    from erelong.engine.agenda import Agenda
    from erelong.engine.handover import Handover
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Store

SLICE = 250

Position = tuple[int, int]


@dataclass(slots=True)
class Walk:
    """A range of due times in the store, from after a pair of (due, seq) to before an instant."""

    after: Position
    before: Instant
    queue: str | None = None  # None: all
    jobs: int = 0  # about how many jobs of the queue are left


class Overdue:
    """Walks over due times that have passed: from before the start, skipped by a step of the clock, or of jobs that
    found no room in their lane. Walks take turns.
    """

    name = "overdue"

    def __init__(
        self, *, store: Store, agenda: Agenda, lanes: Lanes, handover: Handover, wanted: Signal, now: Now
    ) -> None:
        self._store = store
        self._agenda = agenda
        self._lanes = lanes
        self._handover = handover
        self._wanted = wanted
        self._now = now
        self._walks: deque[Walk] = deque()

    @property
    def is_walking(self) -> bool:
        """Whether a due job may be missing from its lane."""
        return bool(self._walks)

    def add(self, after: Position, before: Instant) -> None:
        """Walk from after a pair to before an instant."""
        for walk in self._walks:
            if walk.queue is None and (walk.before, -1) == after:
                walk.before = before
                return
        self._walks.append(Walk(after, before))
        self._wanted.set()

    async def ready(self) -> None:
        """Wait until there is something to walk over."""
        if not self._walks:
            await self._wanted.wait()

    async def lap(self) -> None:
        """Take a step of the next walk."""
        for queue, spill in self._lanes.take_spilled():
            after = (spill.first[0], spill.first[1] - 1)
            self._walks.append(Walk(after, spill.last[0] + 1, queue, spill.jobs))
        if not self._walks:
            return
        self._walks.rotate(-1)
        walk = self._walks[-1]
        if await self._step(walk):
            self._walks.remove(walk)
            if walk.queue is not None:
                rest = Spill(walk.after, (walk.before - 1, -1), max(0, walk.jobs))
                self._lanes.end_reread(walk.queue, rest if walk.after < rest.last else None)

    async def _step(self, walk: Walk) -> bool:
        """Hand over the next slice; return whether the walk is over."""
        now = self._now()
        pairs = await self._store.due(walk.after, walk.before, SLICE)
        passed = [seq for at, seq in pairs if at <= now]
        if passed:
            walk.jobs -= await self._handover.hand_over([*dict.fromkeys(passed)], now, queue=walk.queue)
        self._agenda.extend(pairs[len(passed) :])  # the clock was stepped back
        is_over = len(pairs) < SLICE
        walk.after = (walk.before, -1) if is_over else pairs[-1]
        await asyncio.sleep(0)
        return is_over or (walk.queue is not None and self._lanes.is_full(walk.queue))
