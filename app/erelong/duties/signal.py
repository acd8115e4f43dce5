"""A passive wake-up: whoever has news sets it, whoever waits for news owns it."""

from __future__ import annotations

import asyncio


class Signal:
    """Level-triggered: set while nobody waits, it ends the next wait at once.

    An `asyncio.Event` would do, but it asks the system for the process in each wait.
    """

    __slots__ = ("_sleeper", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._sleeper: asyncio.Future[None] | None = None

    def set(self) -> None:
        self.is_set = True
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def wait(self) -> None:
        """Wait until it is set, and clear it."""
        if not self.is_set:
            self._sleeper = asyncio.get_running_loop().create_future()
            await self._sleeper
        self.is_set = False
