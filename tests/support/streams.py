"""A client of `GET /v1/events`, which reads the stream as the HTML standard says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import orjson


class Message(NamedTuple):
    """One block of a stream: the id after it, and its event, if it has one."""

    id: str
    event: str = ""
    data: Any = None

    @property
    def job(self) -> dict[str, Any]:
        job: dict[str, Any] = self.data["job"]
        return job


class Stream:
    """An open stream. `last_id` is what a browser would send to continue."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.last_id = ""
        self.comments = 0
        self.retry: int | None = None

    async def read_block(self) -> Message | None:
        """Return the next block; None at the end."""
        id, event, data = self.last_id, "", None
        while line := await self.response.content.readline():
            name, _, value = line.rstrip(b"\n").decode().partition(": ")
            match name:
                case "":
                    if line == b"\n":
                        self.last_id = id  # not before, since the event may be cut off
                        return Message(self.last_id, event, data)
                    self.comments += 1
                case "id":
                    id = value
                case "event":
                    event = value
                case "data":
                    data = orjson.loads(value)
                case "retry":
                    self.retry = int(value)
        return None

    async def next(self, within: float = 60.0) -> Message:
        """Return the next event."""
        async with asyncio.timeout(within):
            while (block := await self.read_block()) is not None:
                if block.event:
                    return block
        raise EOFError("the stream has ended")

    async def take(self, number: int) -> list[Message]:
        return [await self.next() for _ in range(number)]

    async def is_quiet(self, seconds: float) -> bool:
        """Return whether no event arrives for some time."""
        try:
            await self.next(seconds)
        except TimeoutError:
            return True
        return False

    async def ends(self) -> bool:
        """Return whether the stream ends without another event."""
        try:
            await self.next()
        except (EOFError, aiohttp.ClientError):
            return True
        return False


@asynccontextmanager
async def follow(
    port: int, query: str = "", *, last_id: str | None = None, key: str | None = None
) -> AsyncIterator[Stream]:
    """Open a stream and read its first position, from which on it misses nothing."""
    headers = {} if last_id is None else {"Last-Event-ID": last_id}
    headers |= {} if key is None else {"Authorization": f"Bearer {key}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(f"http://127.0.0.1:{port}/v1/events{query}", headers=headers) as response,
    ):
        assert response.status == 200, await response.read()
        yield Stream(response)
