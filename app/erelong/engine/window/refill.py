"""Keeps the near future in the agenda: reads due times from the store as they enter the window."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.engine.agenda import NEVER
from erelong.model.job import SECOND

if TYPE_CHECKING:
    from erelong.clock.instants import Instant, Now
    from erelong.duties.signal import Signal
    from erelong.engine.agenda import Agenda
    from erelong.engine.window.overdue import Overdue
    from erelong.stores.base import Store

FIRST_PAGE = 20_000
PAGE = 4_000  # more would block the loop for milliseconds
LAPS = 8  # per window
OLDEST = (-1, -1)


class Refill:
    """Moves the edge of the agenda forward and reads the entries before it.

    It moves the edge first and reads the page then. A job stored meanwhile enters by the page, by its own entry, or by
    both, which is harmless. New jobs also enter while reads fail. `overdue` handles jobs that are overdue by then.
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
        self._read_to = OLDEST  # all entries up to here are read; up to the edge some may be missing

    def is_settled(self) -> bool:
        return not self._wanted.is_set

    async def load(self) -> None:
        """Read one page; read the rest in the background."""
        self._agenda.edge = OLDEST
        await self._advance(FIRST_PAGE, FIRST_PAGE)
        self._wanted.set()

    async def ready(self) -> None:
        """Wait until the agenda runs low, the clock has passed its edge, or an eighth of the window is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._window / LAPS):
                await self._wanted.wait()

    async def lap(self) -> None:
        """Read to the end of the window, as far as there is room."""
        await self._advance(NEVER, PAGE)

    async def _advance(self, most: int, page: int) -> None:
        """Move the edge to the end of the window, and read at most `most` entries, as far as there is room."""
        now, agenda = self._now(), self._agenda
        self._skip_overdue(now)
        target = max(agenda.edge, (now + round(self._window * SECOND), -1))
        agenda.edge, agenda.refill_at = target, -1
        while most > 0 and self._read_to < agenda.edge:
            limit = min(page, most, self._max_entries - len(agenda))
            if limit <= 0:
                agenda.edge, agenda.refill_at = self._read_to, self._max_entries // 2
                return
            entries = await self._store.due(self._read_to, target[0], limit)
            agenda.extend(entries)
            self._read_to = entries[-1] if len(entries) == limit else target
            most -= limit
            await asyncio.sleep(0)

    def _skip_overdue(self, now: Instant) -> None:
        """Leave jobs due before `now` to `overdue`.

        After a start or a step of the clock a million may be overdue, and must not delay the next due job.
        """
        self._read_to = min(self._read_to, self._agenda.edge)  # the agenda may have dropped some
        if self._read_to < (now, -1):
            self._overdue.add(self._read_to, now)
            self._read_to = (now, -1)
