"""Writes that are held while nobody leads, so that a fail-over delays them instead of refusing them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.errors import NotLeading

if TYPE_CHECKING:
    from erelong.cluster.leadership import Leadership
    from erelong.duties.waiters import Client, Waiters

MAX_BYTES = 67_108_864
READ_AHEAD = 131_072
"""Bytes of a body that the connection reads before the route asks for it."""


class Hold:
    """Holds requests for up to `seconds`, at most as many as may wait, and a bounded number of bytes."""

    def __init__(self, *, leadership: Leadership, waiters: Waiters, seconds: float) -> None:
        self._leadership = leadership
        self._waiters = waiters
        self._seconds = seconds
        self._bytes = 0

    async def admit(self, client: Client, *, size: int, is_held: bool) -> None:
        """Return if this node leads. While nobody does, wait if the request may be held. Otherwise, raise `NotLeading`.

        `size` is the length of the body, of which the connection has read at most the beginning.
        """
        if self._leadership.refusal() is None:
            return
        if is_held and self._seconds:
            with suppress(TimeoutError):
                await self._wait(client, min(size, READ_AHEAD))
        if (reason := self._leadership.refusal()) is not None:
            raise NotLeading(f"{reason}; send the request to the node that is ready, or again")

    async def _wait(self, client: Client, size: int) -> None:
        """Wait until this node leads, or another one certainly does."""
        leadership, since = self._leadership, self._leadership.looks
        if self._bytes + size > MAX_BYTES:
            return
        self._bytes += size
        try:
            with self._waiters.hold(self._waiters.leaders, (None,), client) as waiter:
                async with asyncio.timeout(self._seconds if waiter.has_slot else 0):
                    while leadership.refusal() is not None and leadership.is_open(since) and not client.is_gone:
                        waiter.event.clear()
                        await waiter.event.wait()
        finally:
            self._bytes -= size
