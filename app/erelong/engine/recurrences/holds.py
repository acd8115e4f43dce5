"""Names that one task holds at a time, so that the others leave them alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Holds:
    """The held names. An edit waits for its name. The duty passes over held names, which `release` returns."""

    def __init__(self) -> None:
        self._held: dict[str, list[asyncio.Future[None]]] = {}
        self._passed: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._held)

    def try_hold(self, name: str) -> bool:
        """Hold a name unless it is held; then note that it was passed over."""
        if name in self._held:
            self._passed.add(name)
            return False
        self._held[name] = []
        return True

    async def hold(self, name: str) -> None:
        """Hold a name as soon as it is free."""
        while name in self._held:
            free: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._held[name].append(free)
            await free
        self._held[name] = []

    def release(self, names: Iterable[str]) -> list[str]:
        """Release names; return those that were passed over meanwhile."""
        passed = []
        for name in names:
            for free in self._held.pop(name):
                if not free.done():
                    free.set_result(None)
            if name in self._passed:
                self._passed.remove(name)
                passed.append(name)
        return passed
