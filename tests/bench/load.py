"""The load of the benchmark: prepared requests over raw connections, with minimal parsing of responses."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

HOST = "127.0.0.1"
CONNECTIONS = 64
END_OF_CHUNKS = b"0\r\n\r\n"

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_LOCATION = re.compile(rb"location: *(\S+)", re.IGNORECASE)


class Answer(NamedTuple):
    """The used parts of a response."""

    status: int
    location: bytes
    seconds: float


class LoadFailedError(Exception):
    """A response has an unexpected status."""


def request(method: str, path: str, body: bytes = b"", content_type: str = "application/json") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n"
    if body:
        head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


async def send(port: int, requests: Iterable[bytes], *, status: int, connections: int = CONNECTIONS) -> list[Answer]:
    """Send all requests over several connections; raise unless all responses have this status."""
    waiting = iter(requests)
    answers: list[Answer] = []
    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(lambda: _Connection(waiting, answers), HOST, port) for _ in range(connections)]
    await asyncio.gather(*(connection.is_over for _, connection in made))
    for transport, _ in made:
        transport.close()
    odd = next((answer for answer in answers if answer.status != status), None)
    if odd is not None:
        raise LoadFailedError(f"an answer had status {odd.status}, not {status}: see the log of the service")
    return answers


async def stream(port: int, chunks: Iterable[bytes]) -> int:
    """Submit one NDJSON stream; return the number of created jobs."""
    reader, writer = await asyncio.open_connection(HOST, port)
    head = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
    writer.write(f"POST /v1/jobs/batch HTTP/1.1\r\nHost: {HOST}\r\n{head}\r\n".encode())
    counting = asyncio.create_task(_count_created(reader))
    for chunk in chunks:
        writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        await writer.drain()
    writer.write(END_OF_CHUNKS)
    created = await counting
    writer.close()
    await writer.wait_closed()
    return created


async def _count_created(reader: asyncio.StreamReader) -> int:
    created, rest = 0, b""
    mark = b'"created":true'
    while chunk := await reader.read(1 << 16):
        text = rest + chunk
        created += text.count(mark)
        rest = text[-len(mark) + 1 :]
    return created


class _Connection(asyncio.Protocol):
    """Sends each request as soon as the response to the previous one is complete."""

    def __init__(self, waiting: Iterator[bytes], answers: list[Answer]) -> None:
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting = waiting
        self._answers = answers
        self._received = b""
        self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send_next()

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data if self._received else data
        head_end = received.find(b"\r\n\r\n")
        if head_end < 0:
            return
        head = received[:head_end]
        length = _LENGTH.search(head)
        is_complete = (
            len(received) >= head_end + 4 + int(length[1]) if length is not None else received.endswith(END_OF_CHUNKS)
        )
        if is_complete:
            location = _LOCATION.search(head)
            seconds = time.perf_counter() - self._began
            self._answers.append(Answer(int(head[9:12]), location[1] if location else b"", seconds))
            self._received = b""
            self._send_next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_over.done():
            self.is_over.set_exception(error or LoadFailedError("the connection was closed before the last answer"))

    def _send_next(self) -> None:
        following = next(self._waiting, None)
        if following is not None:
            self._began = time.perf_counter()
            self._transport.write(following)
        elif not self.is_over.done():
            self.is_over.set_result(None)
