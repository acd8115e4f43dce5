"""Wakes all sleeping readers at once, and the less often the more readers there are."""

from __future__ import annotations

import asyncio

PAUSE = 0.001  # seconds between two wake-ups, for each reader: all of them take a small part of the loop


class Bell:
    """A wake-up for many readers. The first ring after a pause wakes them at once."""

    def __init__(self) -> None:
        self._sleepers: set[asyncio.Event] = set()
        self._readers = 0
        self._quiet_until = 0.0
        self._is_rung = False

    def join(self) -> None:
        self._readers += 1

    def leave(self) -> None:
        self._readers -= 1

    def ring(self) -> None:
        """Wake the readers soon. Rings until then have no further effect."""
        if not self._is_rung:
            self._is_rung = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(loop.time(), self._quiet_until), self.wake_all)

    def wake_all(self) -> None:
        self._is_rung = False
        self._quiet_until = asyncio.get_running_loop().time() + PAUSE * self._readers
        for sleeper in self._sleepers:
            sleeper.set()

    async def sleep(self, sleeper: asyncio.Event, seconds: float) -> bool:
        """Wait until the bell rings or another part sets the event; return whether that was in time."""
        self._sleepers.add(sleeper)
        try:
            async with asyncio.timeout(seconds):
                await sleeper.wait()
        except TimeoutError:
            return False
        finally:
            self._sleepers.discard(sleeper)
            sleeper.clear()
        return True
