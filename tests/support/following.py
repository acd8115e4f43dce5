"""A store that another node writes, or that nobody does, until a test lets this node lead."""

from __future__ import annotations

import asyncio

from erelong.clock.remote import RemoteClock
from tests.support.served import ServedStore

OTHER = "another node at 10.0.0.7 leads"
NOBODY = "no node leads yet"


class Following(ServedStore):
    """Another node leads at first."""

    clock = RemoteClock()
    may_lead = True
    snapshot_age = 0.0

    def __init__(self) -> None:
        super().__init__()
        self._reason: str | None = OTHER
        self._term = asyncio.Event()

    @property
    def is_vacant(self) -> bool:
        return self._reason != OTHER

    def standby(self) -> str | None:
        return self._reason

    def depose(self) -> None:
        """Let nobody lead."""
        self._reason = NOBODY

    def follow(self) -> None:
        """Let another node lead."""
        self._reason = OTHER

    def begin(self) -> None:
        """Let this node lead."""
        self._term.set()

    async def lead(self) -> None:
        await self._term.wait()
        self._reason = None

    async def resign(self) -> None:
        self._reason = NOBODY
