"""A proxy that breaks connections: before a request, within it, before, within and after its answer."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from contextlib import suppress
from enum import StrEnum
from typing import Self


class Cut(StrEnum):
    """Where a connection breaks."""

    AT_ONCE = "at once"
    AFTER_REQUEST = "after the request, which the service does not get"
    BEFORE_ANSWER = "before the answer, though the service has answered"
    WITHIN_HEADERS = "within the headers of the answer"
    WITHIN_BODY = "within the body of the answer"
    AFTER_ANSWER = "after the answer"


UNDONE = (Cut.AT_ONCE, Cut.AFTER_REQUEST)
"""The service has not got the request."""


class CuttingProxy:
    """Passes requests on, and breaks the connections of the next ones as `cuts` says; None spares one.

    `requests` has their first lines. With `only_writes`, only requests that change something are cut.
    """

    def __init__(self, port: int, *, only_writes: bool = False) -> None:
        self._to = port
        self._only_writes = only_writes
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.cuts: deque[Cut | None] = deque()
        self.requests: list[str] = []
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._pass_on(reader, writer):
                    pass
        finally:
            writer.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _message(reader)
        self.requests.append(request.partition(b"\r\n")[0].decode())
        is_spared = self._only_writes and (request.startswith(b"GET ") or b"dry_run=true" in request)
        cut = self.cuts.popleft() if self.cuts and not is_spared else None
        if cut in UNDONE:
            return False
        if b"text/event-stream" in request:
            await self._pass_stream(request, writer, cut)
            return False
        answer = await self._ask(request)
        head = answer.index(b"\r\n\r\n")
        ends = {Cut.BEFORE_ANSWER: 0, Cut.WITHIN_HEADERS: head // 2, Cut.WITHIN_BODY: (head + 4 + len(answer)) // 2}
        end = len(answer) if cut is None else ends.get(cut, len(answer))
        writer.write(answer[:end])
        await writer.drain()
        if cut is not None:
            writer.close()
            return False
        return True

    async def _pass_stream(self, request: bytes, writer: asyncio.StreamWriter, cut: Cut | None) -> None:
        """Pass an endless answer on. A cut breaks its first part in the same places; AFTER_ANSWER: after that part."""
        reader, upstream = await asyncio.open_connection("127.0.0.1", self._to)
        try:
            upstream.write(request)
            head, first = await reader.readuntil(b"\r\n\r\n"), await reader.read(65_536)
            ends = {Cut.BEFORE_ANSWER: 0, Cut.WITHIN_HEADERS: len(head) // 2, Cut.WITHIN_BODY: len(head) + 5}
            writer.write((head + first)[: ends.get(cut)] if cut is not None else head + first)
            await writer.drain()
            while cut is None and (part := await reader.read(65_536)):
                writer.write(part)
                await writer.drain()
        finally:
            upstream.transport.abort()
        writer.close()

    async def _ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._to)
        try:
            writer.write(request)
            return await _message(reader)
        finally:
            writer.transport.abort()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read one request or answer, whose length is known."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"^content-length: *(\d+)", head, re.MULTILINE | re.IGNORECASE)
    return head + (await reader.readexactly(int(length[1])) if length else b"")
