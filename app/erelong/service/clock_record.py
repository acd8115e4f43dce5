"""The instant of the virtual clock in the store, from which a restart continues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson

from erelong.clock.instants import SECOND
from erelong.duties.signal import Signal
from erelong.model.document import Document

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.clock.virtual import VirtualClock
    from erelong.stores.base import Store

SORT, NAME = "clock", "now"
INTERVAL = 1.0  # real seconds between two writes while the clock flows
AHEAD = 3 * SECOND


class ClockRecord:
    """Writes the instant before the clock reaches it, so that no stored job is of the future after a crash.

    As a duty, it writes ahead of a clock that flows.
    """

    name = "clock_record"

    def __init__(self, *, store: Store, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self._version: int | None = None
        self._writing = asyncio.Lock()
        self._flows = Signal()

    async def read(self) -> Instant | None:
        """Return the stored instant."""
        document = await self._store.document(SORT, NAME)
        self._version = 0 if document is None else document.version
        return None if document is None or document.text is None else int(orjson.loads(document.text)["now"])

    async def write(self, at: Instant) -> None:
        async with self._writing:
            if self._version is None:
                await self.read()
            version, self._version = (self._version or 0) + 1, None  # unknown if the write fails
            document = Document(SORT, NAME, version, at, orjson.dumps({"now": at}))
            await self._store.add([], now=at, beside=[document])
            self._version = version

    async def write_ahead(self) -> None:
        """Write an instant that the clock does not reach before the next write, and go on so while it flows."""
        self._flows.set()
        await self.write(self._clock.now() + AHEAD)

    async def ready(self) -> None:
        """Wait until the clock flows, and between two writes."""
        if self._clock.is_frozen:
            await self._flows.wait()
        await asyncio.sleep(INTERVAL)

    async def lap(self) -> None:
        if not self._clock.is_frozen:
            await self.write(self._clock.now() + AHEAD)
