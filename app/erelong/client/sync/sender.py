"""What a client needs of the network. Tests of applications put something else in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from erelong.client.requests import Answer, Request


class Sender(Protocol):
    """Sends requests to one service, and has the clock by which their timeouts are measured."""

    def send(self, request: Request, timeout: float) -> Answer:
        """Return the whole answer; raise Cut if it does not arrive in time."""

    def stream(self, request: Request, silence: float) -> AbstractContextManager[Iterator[bytes]]:
        """Open an endless answer and give its lines; raise Cut if none arrives within `silence` seconds."""

    def tick(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def close(self) -> None: ...
