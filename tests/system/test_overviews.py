"""Overviews of a full store: they neither hold the event loop nor cost much, however many clients poll them."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from statistics import median

import aiohttp
import orjson
import pytest

from tests.support.process import HAS_PROC, ServiceProcess
from tests.system.book import install
from tests.system.client import NDJSON, Client, looks
from tests.system.trials import IS_FULL, sized

WAITING, FAILED, DUE = sized((3_000, 500, 200), (1_000_000, 100_000, 300_000))
LINES = 500
RUNS = sized(2, 12)
CLIENTS = sized(3, 20)
POLLING = sized(2.0, 60.0)
TENANTS = 40_000
CONFIG = '[kinds.watch]\npython = "functions:watch_loop"\n\n[queues.held]\nconcurrency = 1\n'
REASONS = ["gone", "bad", "down", "odd", "slow", "full", "lost"]
HOUR, WEEK = 3_600, 604_800
CALLS = {
    "stats": "/v1/stats?span=1h&queue=q{number}",
    "due": "/v1/due?bins={number}",
    "due of a queue": "/v1/due?bins={number}&queue=q3",
    "due of a label": "/v1/due?bins={number}&label.tenant=t7",
    "errors": "/v1/jobs/errors?last={many}",
    "errors of a queue": "/v1/jobs/errors?last={many}&queue=q3",
    "errors with a rare type": "/v1/jobs/errors?last={many}&error=timeout",
    "count of a rare filter": "/v1/jobs?limit=1&count=true&attempt_min=7&created_after=2020-01-01T00:00:{number:02d}Z",
    "kinds": "/v1/kinds",
    "a large page": "/v1/jobs?limit=1000",
    "what starts next": "/v1/jobs?order=next&queue=held&limit=1000",
    "what starts last": "/v1/jobs?order=next&queue=held&limit=1000&reverse=true",
}

pytestmark = [
    pytest.mark.real_loop,
    pytest.mark.timeout(sized(60, 1_800)),
    pytest.mark.skipif(not HAS_PROC, reason="CPU time is read from /proc"),
]


async def test_overviews_of_a_full_store_hold_neither_the_loop_nor_the_processor(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    session: aiohttp.ClientSession,
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    install(service)
    service.start()
    client = make_client(service)
    await client.ask("POST", "/v1/queues/held/pause")
    await fill(session, service)
    await settle(client)
    if IS_FULL:
        put_first(service)

    idle = [await lateness(client, "") for _ in range(RUNS)]
    figure("ms late without a call, median and worst", shown(idle))
    late: dict[str, float] = {}
    for name, path in CALLS.items():
        found: list[float] = []
        before = service.cpu_seconds()
        for run in range(RUNS):
            found.append(await lateness(client, path.format(number=run + 1, many=50_000 - run)))
        cost = (service.cpu_seconds() - before) / RUNS
        late[name] = median(found)
        figure(
            f"{name}: ms late, median and worst; CPU ms of a window with the call", f"{shown(found)}; {cost * 1e3:.1f}"
        )

    share = await polled(client, service)
    figure(f"{CLIENTS} clients, all overviews once a second: % of a core", f"{share * 100:.2f}")
    if IS_FULL:
        assert {name: ms for name, ms in late.items() if ms > 2} == {}
        assert share < 0.02


def lines() -> Iterator[bytes]:
    """Yield waiting jobs, failing ones, and jobs that are due in a paused queue."""
    first = time.time() + HOUR
    for index in range(WAITING - DUE):
        job = {"kind": "echo", "queue": f"q{index % 10}", "execute_at": round(first + index * 7919 % WEEK, 3)}
        yield orjson.dumps(job | {"labels": {"tenant": f"t{index % TENANTS}"}} if index % 10 == 0 else job)
    for index in range(DUE):
        job = {"kind": ("echo", "http")[index % 2], "queue": "held", "params": {"url": "http://a.example"}}
        yield orjson.dumps(job | {"priority": index * 31 % 7})
    for index in range(FAILED):
        words = "".join(chr(ord("a") + int(digit)) for digit in str(index))  # a cause of its own
        reason = (
            f"no {words}" if index % 10 == 9 else f"answer {index} of host-{index % 7}.example: {REASONS[index % 7]}"
        )
        job = {"kind": "echo", "queue": f"q{index % 10}", "params": {"fail": reason}, "retry": {"max_attempts": 1}}
        yield orjson.dumps(job)


async def fill(session: aiohttp.ClientSession, service: ServiceProcess) -> None:
    """Submit all jobs in one stream."""

    async def chunks() -> AsyncIterator[bytes]:
        waiting = lines()
        while chunk := [*itertools.islice(waiting, LINES)]:
            yield b"\n".join(chunk) + b"\n"

    url = f"{service.url}/v1/jobs/batch"
    async with session.post(url, data=chunks(), headers=NDJSON, timeout=aiohttp.ClientTimeout(total=None)) as response:
        answers = await response.read()
    assert answers.count(b'"created":true') == WAITING + FAILED, answers[:500]


async def settle(client: Client) -> None:
    """Wait until all jobs that fail have failed, and all that are due are known to be."""
    async for _ in looks(sized(30.0, 300.0), 0.2):
        _, stats = await client.ask("GET", "/v1/stats")
        if (stats["jobs"]["failed"], stats["jobs"]["due"], stats["jobs"]["running"]) == (FAILED, DUE, 0):
            return


def put_first(service: ServiceProcess) -> None:
    """Let the service run before all other processes, so that its loop is late only by what it does itself."""
    for thread in Path(f"/proc/{service.pid}/task").iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(5))


async def lateness(client: Client, path: str) -> float:
    """Return by how many milliseconds the loop was late at worst while a call was answered."""
    watch = await client.submit_and_wait_for_start(kind="watch", params={"seconds": sized(0.2, 1.0)}, timeout=60)
    if path:
        status, answer = await client.ask("GET", path)
        assert status == 200, answer
    return float((await client.wait_until_final(watch["id"]))["result"])


async def polled(client: Client, service: ServiceProcess) -> float:
    """Return the share of a core that clients cost which poll all overviews once a second."""
    paths = ["/v1/stats?span=1h", "/v1/due", "/v1/jobs/errors"]

    async def poll(until: float) -> None:
        while time.monotonic() < until:
            began = time.monotonic()
            for path in paths:
                status, _ = await client.ask("GET", path)
                assert status == 200
            await asyncio.sleep(max(0.0, began + 1 - time.monotonic()))

    async def measured(clients: int) -> float:
        before = service.cpu_seconds()
        await asyncio.gather(asyncio.sleep(POLLING), *(poll(time.monotonic() + POLLING) for _ in range(clients)))
        return (service.cpu_seconds() - before) / POLLING

    idle = await measured(0)
    return await measured(CLIENTS) - idle


def shown(found: list[float]) -> str:
    return f"{median(found):.2f}, {max(found):.2f}"
