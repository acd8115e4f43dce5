"""What a client needs of the network. Tests of applications put something else in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from erelong.client.requests import Answer, Request


class AsyncSender(Protocol):
    """Sends requests to one service, and has the clock by which their timeouts are measured."""

    async def send(self, request: Request, timeout: float) -> Answer:
        """Return the whole answer; raise Cut if it does not arrive in time."""

    def stream(self, request: Request, silence: float) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open an endless answer and give its lines; raise Cut if none arrives within `silence` seconds."""

    def tick(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None: ...
