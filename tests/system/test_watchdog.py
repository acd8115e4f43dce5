"""The log names a coroutine that blocks the real service during the block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tests.support.process import ServiceProcess
from tests.system.book import install
from tests.system.client import Client, looks

BLOCKED = 1.5
CONFIG = '[kinds.stall]\npython = "functions:stall"\n'

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]


async def test_job_that_blocks_the_loop_is_named_during_the_block(
    make_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client]
) -> None:
    service = make_service(config=CONFIG, settings={"log.watchdog": "0.3"})
    install(service)
    service.start()
    client = make_client(service)
    job = await client.submit(kind="stall", queue="slow", delay=0.2, params={"seconds": BLOCKED})

    async for _ in looks():
        if service.events("loop_blocked"):
            break
    with pytest.raises(TimeoutError):  # the loop is still blocked
        await asyncio.wait_for(client.ask("GET", "/livez"), 0.3)
    await client.wait_until_final(job["id"])
    async for _ in looks():
        if service.events("loop_recovered"):
            break
    _, ready = await client.ask("GET", "/readyz")

    (blocked,), (over,) = service.events("loop_blocked"), service.events("loop_recovered")
    assert {"job": job["id"], "kind": "stall", "queue": "slow", "attempt": 1}.items() <= blocked.items()
    assert "functions.py" in blocked["stack"].split(" < ")[0]
    assert blocked["stack"].split(" < ")[0].endswith(" stall")
    assert over["job"] == job["id"]
    assert BLOCKED - 0.3 < over["seconds"] < BLOCKED + 1
    assert "blocked for" in ready["checks"]["loop"]
