"""A passive wake-up: producers set it, and its one consumer waits for it."""

from __future__ import annotations

import asyncio
from typing import Protocol


class Settable(Protocol):
    """A signal, or a timer that can be woken like one."""

    def set(self) -> None: ...


class Signal:
    """A level-triggered event: if it is set before the wait, the wait returns at once.

    An `asyncio.Event` makes a system call (getpid) in each wait.
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
