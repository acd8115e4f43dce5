"""Servers for http jobs: one that records its requests, and one that answers with any bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final

from aiohttp import web

from erelong.settings.types import Network

LOOPBACK: Final[tuple[Network, ...]] = (ip_network("127.0.0.0/8"), ip_network("::1"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A received request."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: object


class Receiver:
    """A server that records every request and answers with a configured response."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = self._ok
        self.url = ""

    def answers(self, status: int = 200, **response: Any) -> None:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=status, **response)

        self.answer = answer

    async def receive(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(
            Seen(
                method=request.method,
                target=request.raw_path,
                headers=headers,
                body=await request.read(),
                connection=request.transport and request.transport.get_extra_info("peername"),
            )
        )
        return await self.answer(request)

    async def _ok(self, _: web.Request) -> web.Response:
        return web.Response(text="ok", headers={"X-Mine": "1"})


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[str]:
    """Answer every request with these bytes and close the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
