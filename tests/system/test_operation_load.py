"""Operations on many jobs delay the jobs that are due meanwhile only a little."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from statistics import median
from typing import Any

import aiohttp
import orjson
import pytest

from tests.bench.ground import YARDSTICKS, get
from tests.bench.jobs import webhook
from tests.support import ROOT
from tests.support.process import ServiceProcess
from tests.system.client import NDJSON, Client, looks
from tests.system.trials import IS_FULL, percentile, sized

FAILED = sized(500, 100_000)
RATE = sized(100, 5_000)  # webhooks per second
SPAN = sized(1.0, 15.0)
LEAD = sized(1.0, 12.0)  # seconds to submit the webhooks
PAIRS = sized(1, 3)
LINES = 500
REASONS = 4  # one in four of the failed jobs has another cause
CONFIG = '[webhooks]\nallow_networks = ["127.0.0.0/8"]\n'

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]


@pytest.fixture
def sink() -> Iterator[int]:
    """The port of a receiver that records when each webhook arrives, in a process of its own."""
    with subprocess.Popen([*YARDSTICKS, "sink"], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.kill()


async def test_retry_of_many_jobs_by_cause_delays_webhooks_little(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    session: aiohttp.ClientSession,
    sink: int,
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    service.start()
    client = make_client(service)
    cause = await fail_many(session, service, client)
    await client.ask("POST", "/v1/queues/broken/pause")  # so that no job is retried twice

    pairs: list[tuple[float, float]] = []
    done = 0
    for number in range(PAIRS):
        alone = await fire(session, service, client, sink)
        fields = {"filter": {"cause": cause, "state": ["failed"]}, "at_most": FAILED, "spread": "24h"}
        beside = await fire(session, service, client, sink, operation={"action": "retry", **fields})
        _, page = await client.ask("GET", "/v1/operations?limit=1")
        done += page["operations"][0]["done"]
        pairs.append((percentile(alone, 0.99), percentile(beside, 0.99)))
        figure(f"pair {number}: p50 alone, beside", f"{percentile(alone, 0.5):.1f}, {percentile(beside, 0.5):.1f} ms")
        assert min(alone + beside) >= 0

    counts = await client.counts("broken")
    ratio = median(beside / alone for alone, beside in pairs)
    figure("p99 of lateness in ms: alone, beside", [(f"{a:.1f}", f"{b:.1f}") for a, b in pairs])
    figure(f"p99 beside a retry of {done} jobs, by that alone", f"{ratio:.2f}")
    assert counts["scheduled"] == done > 0
    if IS_FULL:
        assert ratio <= 1.5


async def fail_many(session: aiohttp.ClientSession, service: ServiceProcess, client: Client) -> str:
    """Let many jobs fail; return the cause of most of them."""
    texts = ["no route to {}", *["disk {} is gone"] * (REASONS - 1)]
    reasons = (texts[index % REASONS].format(index) for index in range(FAILED))
    once = {"kind": "echo", "queue": "broken", "retry": {"max_attempts": 1}}
    jobs = (once | {"params": {"fail": reason}} for reason in reasons)
    await stream(session, service, map(orjson.dumps, jobs))
    async for _ in looks(sized(30.0, 300.0), 0.2):
        if (await client.counts("broken"))["failed"] == FAILED:
            break
    _, found = await client.ask("GET", "/v1/jobs/errors?queue=broken")
    return str(found["causes"][0]["cause"])


async def fire(
    session: aiohttp.ClientSession, service: ServiceProcess, client: Client, sink: int, *, operation: Any = None
) -> list[float]:
    """Let webhooks come due, beside an operation; return how late each was at the receiver, in milliseconds."""
    await get(sink, "/")  # clears its record
    first = round((time.time() + LEAD) * 1e6)
    instants = [first + offset for offset in random.sample(range(int(SPAN * 1e6)), int(RATE * SPAN))]
    url = f"http://127.0.0.1:{sink}"
    jobs = (webhook(index, f"w{first}", url=f"{url}/{at}", at=at / 1e6) for index, at in enumerate(instants))
    await stream(session, service, jobs)
    assert time.time() < first / 1e6, "the machine is too slow to submit the webhooks before the first is due"
    await asyncio.sleep(first / 1e6 - time.time())
    if operation:
        status, begun = await client.ask("POST", "/v1/operations", operation)
        assert status == 202, begun
    await asyncio.sleep((first + SPAN * 1e6) / 1e6 - time.time())
    if operation and IS_FULL:
        await client.ask("POST", f"/v1/operations/{begun['id']}/cancel")
    elif operation:
        await client.ask("GET", f"/v1/operations/{begun['id']}?wait=30")
    await client.wait_until_done(queue="hooks")
    came = await get(sink, "/")
    assert len(came) == len(instants)
    return [(at - int(due)) / 1e3 for due, at in came]


async def stream(session: aiohttp.ClientSession, service: ServiceProcess, lines: Iterator[bytes]) -> None:
    """Submit jobs in one stream."""

    async def chunks() -> AsyncIterator[bytes]:
        while chunk := [*itertools.islice(lines, LINES)]:
            yield b"\n".join(chunk) + b"\n"

    async with session.post(f"{service.url}/v1/jobs/batch", data=chunks(), headers=NDJSON) as response:
        assert b'"created":false' not in await response.read()
