"""The service is killed in the middle of operations: each job is changed exactly once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client
from tests.system.trials import sized

KILLS = sized(3, 50)
JOBS = sized(3_000, 20_000)

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]


async def test_shift_moves_each_job_exactly_once_whenever_the_service_is_killed(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    at = "2030-01-01T00:00:00Z"
    for _ in range(JOBS // 1_000):
        await client.submit_batch([{"kind": "echo", "execute_at": at}] * 1_000)
    kills = interrupted = shifts = 0

    while kills < KILLS:
        shifts += 1
        operation = await _start(client, rate=sized(2_000, 10_000))
        while not (await _read(client, operation))["finished_at"] and kills < KILLS:
            await asyncio.sleep(random.uniform(0.0, 0.3))
            before = await _read(client, operation)
            service.kill()
            kills += 1
            await asyncio.to_thread(service.start)
            after = await _read(client, operation)
            assert after["done"] >= before["done"]
            interrupted += 0 < after["done"] < JOBS
        _, ended = await client.ask("GET", f"/v1/operations/{operation}?wait=60")
        assert (ended["state"], ended["matches"], ended["done"], ended["skipped"]) == ("succeeded", JOBS, JOBS, 0)

    moved = Counter(job["due_at"] for job in await client.list_all(""))
    versions = Counter(job["version"] for job in await client.list_all(""))
    due = datetime.fromisoformat(at) + timedelta(hours=shifts)
    assert moved == {due.strftime("%Y-%m-%dT%H:%M:%S.000Z"): JOBS}
    assert versions == {1 + shifts: JOBS}
    assert interrupted > 0, "no kill hit a shift: the trial shows nothing"
    figure("kills, of them in the middle of a shift", f"{kills}, {interrupted}")
    figure("shifts of jobs, each moved exactly once", f"{shifts} of {JOBS}")


async def _start(client: Client, **fields: Any) -> str:
    body = {"action": "patch", "filter": {"all": True}, "at_most": JOBS, "shift": "1h", **fields}
    status, operation = await client.ask("POST", "/v1/operations", body)
    assert status == 202, operation
    return str(operation["id"])


async def _read(client: Client, id: str) -> dict[str, Any]:
    status, operation = await client.ask("GET", f"/v1/operations/{id}")
    assert status == 200, operation
    return dict(operation)
