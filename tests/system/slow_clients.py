"""Clients that hold their connections as long as possible, in a separate process:
`python -m tests.system.slow_clients PORT NUMBER` prints a line once all are connected."""

from __future__ import annotations

import asyncio
import socket
import sys
from asyncio import StreamReader, StreamWriter
from contextlib import suppress

DRIP = 1.0
HEAD = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000
BODY = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000\r\n\r\n" + b" " * 1_000
LISTING = b"GET /v1/jobs?view=full HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def drip_header(_: StreamReader, writer: StreamWriter) -> None:
    await _drip(writer, HEAD)


async def drip_body(_: StreamReader, writer: StreamWriter) -> None:
    await _drip(writer, BODY)


async def read_nothing(reader: StreamReader, writer: StreamWriter) -> None:
    writer.write(LISTING * 3)
    while not writer.transport.is_closing():
        await asyncio.sleep(DRIP)
        await reader.readexactly(1)


async def stay_idle(reader: StreamReader, _: StreamWriter) -> None:
    await reader.read()


async def _drip(writer: StreamWriter, text: bytes) -> None:
    for at in range(len(text)):
        writer.write(text[at : at + 1])
        await writer.drain()
        await asyncio.sleep(DRIP)


WAYS = (drip_header, drip_body, read_nothing, stay_idle)


async def be_slow(port: int, number: int) -> None:
    """Run one slow client after another, since the service disconnects each in the end."""
    while True:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.setblocking(False)
        with suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(sock=connection, limit=1_000)
            try:
                await WAYS[number % len(WAYS)](reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(DRIP)


async def main(port: int, number: int) -> None:
    clients = []
    for index in range(number):
        clients.append(asyncio.create_task(be_slow(port, index)))
        await asyncio.sleep(0.002)
    print("connected", flush=True)  # noqa: T201 - the parent process waits for it
    await asyncio.gather(*clients)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
