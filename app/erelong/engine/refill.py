"""Keeps the near future in the agenda: due times come from the store as they come into the window."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.model.job import SECOND

if TYPE_CHECKING:
    from erelong.clock.instants import Instant, Now
    from erelong.duties.signal import Signal
    from erelong.engine.agenda import Agenda
    from erelong.engine.overdue import Overdue
    from erelong.stores.base import Store

FIRST_PAGE = 20_000
PAGE = 4_000  # to take in more would stop the loop for milliseconds
LAPS = 8  # in the time of a window
OLDEST = (-1, -1)


class Refill:
    """Moves the edge of the agenda forward, and reads the entries before it.

    The edge moves before its page is read. A job that is stored meanwhile enters by the page or by its own entry, or by
    both, which does no harm. Jobs that are overdue by then are left to `overdue`.
    """

    name = "refill"

    def __init__(
        self,
        *,
        store: Store,
        agenda: Agenda,
        overdue: Overdue,
        wanted: Signal,
        window: float,
        max_entries: int,
        now: Now,
    ) -> None:
        self._store = store
        self._agenda = agenda
        self._overdue = overdue
        self._wanted = wanted
        self._window = window
        self._max_entries = max_entries
        self._now = now

    async def load(self) -> None:
        """Read one page; the rest comes in the background."""
        self._agenda.edge = OLDEST
        await self._advance(FIRST_PAGE, FIRST_PAGE)
        self._wanted.set()

    async def ready(self) -> None:
        """Wait until the agenda runs low, the clock has passed its edge, or a part of the window is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._window / LAPS):
                await self._wanted.wait()

    async def lap(self) -> None:
        """Read to the end of the window, as far as there is room."""
        await self._advance(self._max_entries, PAGE)

    async def _advance(self, most: int, page: int) -> None:
        now = self._now()
        self._skip_overdue(now)
        after, target = self._agenda.edge, (now + round(self._window * SECOND), -1)
        if target <= after:
            return
        self._agenda.edge = target
        self._agenda.refill_at = -1
        try:
            while (limit := min(page, most, self._max_entries - len(self._agenda))) > 0:
                entries = await self._store.due(after, target[0], limit)
                self._agenda.extend(entries)
                if len(entries) < limit:
                    after = target
                    return
                after = entries[-1]
                most -= limit
                await asyncio.sleep(0)
        finally:
            if after < target:
                self._agenda.edge = min(self._agenda.edge, after)
                self._agenda.refill_at = self._max_entries // 2

    def _skip_overdue(self, now: Instant) -> None:
        """Move the edge to now at least: after a start or a step of the clock a million jobs may be overdue, which must
        not stand in the agenda before the next due job.
        """
        if self._agenda.edge < (now, -1):
            self._overdue.add(self._agenda.edge, now)
            self._agenda.edge = (now, -1)
