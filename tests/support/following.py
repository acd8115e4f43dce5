"""A store that another node writes, or that nobody does, until a test lets this node lead."""

from __future__ import annotations

import asyncio

from erelong.clock.remote import RemoteClock
from tests.support.served import ServedStore

OTHER = "another node at 10.0.0.7 leads"
NOBODY = "no node leads yet"
LOOK_PAUSE = 0.05


class Following(ServedStore):
    """Another node leads at first. The next look shows what a test changes."""

    clock = RemoteClock()
    may_lead = True
    snapshot_age = 0.0

    def __init__(self) -> None:
        super().__init__()
        self._reason: str | None = OTHER
        self._next: str | None = OTHER
        self._changed_at = -1
        self._term = asyncio.Event()

    @property
    def looks(self) -> int:
        return int(asyncio.get_running_loop().time() / LOOK_PAUSE)

    @property
    def is_vacant(self) -> bool:
        return self.standby() != OTHER

    def standby(self) -> str | None:
        if self.looks > self._changed_at:
            self._reason = self._next
        return self._reason

    def depose(self) -> None:
        """Let nobody lead."""
        self._change(NOBODY)

    def follow(self) -> None:
        """Let another node lead."""
        self._change(OTHER)

    def begin(self) -> None:
        """Let this node lead."""
        self._term.set()

    async def lead(self) -> None:
        await self._term.wait()
        self._reason = self._next = None

    async def resign(self) -> None:
        self._reason = self._next = NOBODY

    def _change(self, reason: str) -> None:
        self._next, self._changed_at = reason, self.looks
