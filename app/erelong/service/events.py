"""Readers of events: each follows the ring at its own pace."""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING

from erelong.engine.events.ring import Place
from erelong.errors import TooMany
from erelong.model.events.event import Event, EventType, light
from erelong.model.ids import parse_id
from erelong.stores.base import get_readable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.duties.lifecycle import Lifecycle
    from erelong.duties.waiters import Client
    from erelong.engine.engine import Engine
    from erelong.engine.events.ring import EventRing
    from erelong.model.caller import Caller
    from erelong.model.events.selection import Selection
    from erelong.model.job import Job

MAX_SCANNED = 1_000  # events that a reader checks in one turn of the loop
MAX_TAKEN = 64  # events that a reader sends together
GONE = 1 << 62  # a version above all others

_PLACE = re.compile(r"([0-9a-f]{8})-([0-9]{1,18})")


class Reset(StrEnum):
    """Why a reader has lost its position."""

    RESTARTED = "restarted"
    TOO_OLD = "too_old"
    TOO_SLOW = "too_slow"


class Events:
    """Opens readers, at most `max_streams` at once."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._limit = engine.config.limits.max_streams
        self.streams = 0
        self._count(0)

    @contextmanager
    def open(self, selection: Selection, *, place: str | None, caller: Caller, client: Client) -> Iterator[Reader]:
        """Read events until the block ends: those after `place`, or from now on."""
        if self.streams >= self._limit:
            raise TooMany(f"{self._limit} streams of events are open (max_streams); close one, or try again later")
        ring = self._engine.events
        self._count(1)
        ring.open(selection.types)
        try:
            reader = Reader(engine=self._engine, selection=selection, caller=caller, client=client)
            if place:
                reader.go_to(place)
            with client.wakes(reader.woken):
                yield reader
        finally:
            ring.close(selection.types)
            self._count(-1)

    def _count(self, more: int) -> None:
        self.streams += more
        self._engine.metrics.streams.values = {(): self.streams}


class Reader:
    """One reader. It gets the events of a job in the order of its versions, and a reset where events are missing."""

    def __init__(self, *, engine: Engine, selection: Selection, caller: Caller, client: Client) -> None:
        self._ring: EventRing = engine.events
        self._lifecycle: Lifecycle = engine.lifecycle
        self._store = engine.store
        self._resets = engine.metrics.stream_resets.values
        self._now = engine.now
        self._selection = selection
        self._client = client
        self._seen: dict[str, int] = {}  # by id: the version that `read_present` has shown
        self._reset: Reset | None = None
        self.caller = caller
        self.place = self._ring.end
        self.woken = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._lifecycle.is_draining or self._client.is_gone

    def go_to(self, text: str) -> None:
        """Continue after an event that was sent earlier; reset if that is not possible."""
        match = _PLACE.fullmatch(text)
        place = None if match is None else Place(int(match[1], 16), int(match[2]))
        if place is None or not self._ring.is_current(place):
            self._reset = Reset.RESTARTED
        elif not self._ring.covers(place, self._selection.types):
            self._reset = Reset.TOO_OLD
        else:
            self.place = place

    async def read_present(self) -> list[Event]:
        """Return the present state of each selected job. Later events have higher versions."""
        seqs = {id: parts[0] for id in self._selection.ids if (parts := parse_id(id)) is not None}
        jobs = await get_readable(self._store, [*seqs.values()])
        return [self._present(id, jobs.get(seqs.get(id, 0))) for id in self._selection.ids]

    def take_reset(self) -> Reset | None:
        """Return why the reader has lost its position, if it has; it continues at the latest event."""
        if not self._ring.is_current(self.place):
            self._reset = Reset.RESTARTED
        elif not self._ring.covers(self.place, self._selection.types):
            self._reset = Reset.TOO_SLOW
        reset, self._reset = self._reset, None
        if reset is not None:
            self.place = self._ring.end
            self._resets[reset.value,] += 1
        return reset

    def take(self) -> list[tuple[Place, Event]]:
        """Return the next selected events, each with the position after it. Call `take_reset` before."""
        taken: list[tuple[Place, Event]] = []
        epoch, number = self.place
        for event in self._ring.after(number, MAX_SCANNED):
            number += 1
            if self._takes(event):
                taken.append((Place(epoch, number), event))
                if len(taken) == MAX_TAKEN:
                    break
        self.place = Place(epoch, number)
        return taken

    async def wait(self, seconds: float) -> None:
        """Wait for further events; with events still to check, let other tasks run first."""
        if self.place == self._ring.end:
            await self._ring.bell.sleep(self.woken, seconds)
        else:
            await asyncio.sleep(0)

    def _takes(self, event: Event) -> bool:
        if not self._selection.takes(event) or not event.is_for(self.caller):
            return False
        if not self._seen or event.job is None:
            return True
        seen = self._seen.get(event.job.id, 0)
        return event.job.version > seen or (event.type is EventType.DELETED and seen < GONE)

    def _present(self, id: str, job: Job | None) -> Event:
        if job is None or job.id != id or not self.caller.may_use(job.queue):
            self._seen[id] = GONE
            return Event(EventType.DELETED, self._now(), body={"job": {"id": id}})
        self._seen[id] = job.version
        return Event(EventType.NOW, self._now(), light(job))
