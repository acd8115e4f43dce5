"""Brings overdue jobs from the store to their lanes in the background, so that they do not delay newly due jobs."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from erelong.lanes.lane import Spill

if TYPE_CHECKING:
    from erelong.clock.instants import Instant, Now
    from erelong.duties.signal import Signal
    from erelong.engine.agenda import Agenda
    from erelong.engine.window.handover import Handover
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Instants, Store

PAGE = 1_000
SLICE = 250  # jobs at a time, so that a newly due job waits a millisecond at most

Position = tuple[int, int]


@dataclass(slots=True, eq=False)
class Walk:
    """A range of due times in the store: after a pair of (due, seq), before an instant."""

    after: Position
    before: Instant
    queue: str | None = None  # None: all
    jobs: int = 0  # estimate of the jobs of the queue that are left
    page: Instants = field(default_factory=list)
    is_read: bool = False  # whether the page is the last

    @property
    def is_over(self) -> bool:
        return self.is_read and not self.page


class Overdue:
    """Walks over past due times: from before the start, skipped by a step of the clock, or of jobs spilled from their
    lane. Walks take turns.
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
        """Return whether a due job may be missing from its lane."""
        return bool(self._walks)

    def may_miss(self, queue: str) -> bool:
        """Return whether a due job of a queue may be missing from its lane."""
        return any(walk.queue in (None, queue) for walk in self._walks)

    def is_settled(self) -> bool:
        return not (self._walks or self._wanted.is_set)

    def add(self, after: Position, before: Instant) -> None:
        """Start a walk over this range, or extend the one that ends where it begins."""
        for walk in self._walks:
            if walk.queue is None and (walk.before, -1) == after:
                walk.before, walk.is_read = before, False
                return
        self._walks.append(Walk(after, before))
        self._wanted.set()

    async def ready(self) -> None:
        """Wait until there is a walk."""
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
        await self._step(walk)
        is_full = walk.queue is not None and self._lanes.is_full(walk.queue)
        if walk.is_over or is_full:
            self._walks.remove(walk)
            if walk.queue is not None:
                rest = Spill(walk.after, (walk.before - 1, -1), max(0, walk.jobs))
                self._lanes.end_reread(walk.queue, None if walk.is_over else rest)

    async def _step(self, walk: Walk) -> None:
        """Hand over the next slice."""
        if not walk.page:
            before = walk.before
            walk.page = await self._store.due(walk.after, before, PAGE)
            walk.is_read = len(walk.page) < PAGE and walk.before == before
        now, pairs = self._now(), walk.page[:SLICE]
        passed = [seq for at, seq in pairs if at <= now]
        if passed:
            walk.jobs -= await self._handover.hand_over([*dict.fromkeys(passed)], now, queue=walk.queue)
        self._agenda.extend(pairs[len(passed) :])  # the clock was stepped back
        walk.page = walk.page[SLICE:]
        if pairs:
            walk.after = pairs[-1]
        await asyncio.sleep(0)
