"""The yardsticks for the service, each in its own process: python -m tests.bench.yardsticks <which> …

server          a bare aiohttp handler: reads the body, answers 201; GET answers 200
sink            a receiver of webhooks: records when each arrived, answers 200; GET returns the record and clears it
client          a bare aiohttp client: calls a URL a number of times, 100 at once
timer           a bare call_at for each instant on standard input
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, cast

import aiohttp
import orjson
from aiohttp import web

from tests.bench.jobs import HEADERS, payload

ANSWER = orjson.dumps({"id": "0" * 26, "state": "scheduled", "padding": "x" * 460})  # as long as the response to a POST
AT_ONCE = 100

try:
    import uvloop

    LOOP: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
except ImportError:
    LOOP = asyncio.new_event_loop


async def serve_bare() -> None:
    async def create(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=201, body=ANSWER, content_type="application/json")

    async def read(_: web.Request) -> web.Response:
        return web.Response(body=ANSWER, content_type="application/json")

    app = web.Application()
    app.router.add_post("/", create)
    app.router.add_get("/", read)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


class Sink(asyncio.Protocol):
    """A minimal receiver: small requests, one at a time, with or without a Content-Length."""

    came: list[tuple[str, int]] = []  # noqa: RUF012 - shared by all connections

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's class is not a subclass
        self._received = b""

    def data_received(self, data: bytes) -> None:
        now = time.time_ns() // 1000
        received = self._received = self._received + data
        head, end, body = received.partition(b"\r\n\r\n")
        if not end or len(body) < _length(head):
            return
        self._received = b""
        path = head.split(b" ", 2)[1].decode()
        if head.startswith(b"GET"):
            answer = orjson.dumps(Sink.came)
            Sink.came.clear()
        else:
            Sink.came.append((path[1:], now))
            answer = b"ok"
        self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))


def _length(head: bytes) -> int:
    _, separator, rest = head.lower().partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if separator else 0


async def serve_sink() -> None:
    server = await asyncio.get_running_loop().create_server(Sink, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def call(url: str, number: int) -> None:
    numbers = iter(range(number))

    async def call_on(session: aiohttp.ClientSession) -> None:
        for index in numbers:
            async with session.post(f"{url}/{index}", headers=HEADERS, json=payload(index)) as response:
                await response.read()

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(call_on(session) for _ in range(AT_ONCE)))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print((usage.ru_utime + usage.ru_stime - STARTED) / number * 1e6, flush=True)


async def wake(instants: list[int]) -> None:
    """Print the lateness of each call in microseconds."""
    loop = asyncio.get_running_loop()
    late: list[int] = []
    apart = time.time() - time.monotonic()  # not the loop's time, which uvloop reads once per iteration
    for instant in instants:
        loop.call_at(instant / 1e6 - apart, lambda at: late.append(time.time_ns() // 1000 - at), instant)
    await asyncio.sleep(max(instants) / 1e6 - time.time() + 0.5)
    print(orjson.dumps(late).decode(), flush=True)


def main(which: str, *arguments: str) -> None:
    duty: Coroutine[Any, Any, None]
    match which:
        case "server":
            duty = serve_bare()
        case "sink":
            duty = serve_sink()
        case "client":
            duty = call(arguments[0], int(arguments[1]))
        case "timer":
            duty = wake(orjson.loads(sys.stdin.buffer.read()))
        case _:
            raise SystemExit(f"no yardstick {which!r}; there are: server, sink, client, timer")
    with asyncio.Runner(loop_factory=LOOP) as runner:
        runner.run(duty)


if __name__ == "__main__":
    used = resource.getrusage(resource.RUSAGE_SELF)
    STARTED = used.ru_utime + used.ru_stime
    main(*sys.argv[1:])
