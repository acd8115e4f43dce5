"""A service with waiting and running jobs is replaced by the next version on the same data: every job ends."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable

import aiohttp
import pytest

from tests.support import next_version
from tests.support.process import ServiceProcess
from tests.system.client import Client, looks
from tests.system.trials import sized

JOBS = sized(300, 20_000)
HELD = 20
CONFIG = """
[server]
drain_timeout = 0.5

[kinds]
work = { pull = true }

[queues.default]
concurrency = 50
"""

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 600))]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])
async def test_next_version_goes_on_with_the_jobs_of_this_one(
    make_service: Callable[..., ServiceProcess], end: signal.Signals
) -> None:
    service = make_service(config=CONFIG)
    service.start()
    async with aiohttp.ClientSession() as session:
        client = Client(session=session, service=service)
        short = [{"kind": "echo", "params": {"sleep": 0.01}, "delay": 0.002 * number} for number in range(JOBS)]
        long = [{"kind": "echo", "params": {"sleep": 3}, "timeout": 10} for _ in range(HELD)]
        jobs = long + short
        ids = [id for start in range(0, len(jobs), 500) for id in await client.submit_batch(jobs[start : start + 500])]
        async for _ in looks(sized(30, 300)):
            if await _count(client, "running") >= HELD and await _count(client, "succeeded"):
                break
        service.signal(end)
        await asyncio.to_thread(service.wait)

        service.module = next_version.__name__
        await asyncio.to_thread(service.start)
        states: Counter[str] = Counter()
        async for _ in looks(sized(30, 300)):
            states = Counter({state: await _count(client, state) for state in ("succeeded", "running", "scheduled")})
            if states["succeeded"] == len(ids):
                break

    assert (states["succeeded"], states["running"], states["scheduled"]) == (len(ids), 0, 0)
    assert [event["version"] for event in service.events("migration_finished")] == [next_version.VERSION]
    assert service.stop().code == 0


async def _count(client: Client, state: str) -> int:
    _, queue = await client.ask("GET", "/v1/queues/default")
    return int(queue["counts"][state])
