"""The service is killed while events arrive for keys with running jobs: the newest event of each key is processed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client
from tests.system.trials import sized

KILLS = sized(3, 20)
KEYS = 20

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 400))]


class Events:
    """One client per key that submits events; `newest` has the number and id of the last acknowledged one."""

    def __init__(self, client: Client) -> None:
        self.newest: dict[str, tuple[int, str]] = {}
        self.is_over = False
        self._client = client
        self._random = random.Random(3)

    async def run(self) -> None:
        await asyncio.gather(*(self._come(f"key-{number}") for number in range(KEYS)))

    async def _come(self, key: str) -> None:
        number = 0
        while not self.is_over:
            number += 1
            draw = self._random
            job = {
                "kind": "echo",
                "params": {"n": number, "sleep": draw.choice([0, 0.05, 0.5, 2])},
                "delay": draw.choice([0, 0, 0.05, 0.3]),
                "key": key,
                "on_conflict": draw.choice(["replace", "replace", "reschedule"]),
                "labels": {"key": key},
            }
            with suppress(aiohttp.ClientError, OSError):  # the service was killed, and unacknowledged jobs may be lost
                status, answer = await self._client.ask("POST", "/v1/jobs", job)
                assert status in (200, 201), answer
                self.newest[key] = (number, answer["id"])
            await asyncio.sleep(draw.uniform(0.01, 0.3))


async def test_newest_event_of_each_key_is_processed_and_superseded_jobs_are_not_retried(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    events = Events(client)
    coming = asyncio.create_task(events.run())

    for _ in range(KILLS):
        await asyncio.sleep(random.uniform(0.7, 1.5))
        service.kill()
        await asyncio.to_thread(service.start)
    await asyncio.sleep(0.5)
    events.is_over = True
    await coming
    await client.wait_until_done()
    jobs = await client.list_all()

    by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for job in jobs:  # the newest first
        by_key[job["labels"]["key"]].append(job)
    for key, (number, id) in events.newest.items():
        _assert_newest_is_processed(by_key[key], number, id)
    superseded = [job for job in jobs if job["key"] is None]
    ends = Counter((job["state"], (job["error"] or {}).get("type")) for job in superseded)
    assert ends.keys() == {("succeeded", None), ("cancelled", "superseded")}, ends
    assert {job["attempts"][-1]["outcome"] for job in superseded if job["state"] == "cancelled"} == {"lost"}
    figure("jobs, of them superseded", f"{len(jobs)}, {len(superseded)}")
    figure("of them lost by a kill and not run again", ends["cancelled", "superseded"])


def _assert_newest_is_processed(jobs: list[dict[str, Any]], number: int, id: str) -> None:
    """Assert that the last acknowledged event, or an unacknowledged one after it, was processed."""
    held = [job for job in jobs if job["key"] is not None]
    newest = held[0]
    assert newest["id"] >= id
    assert newest["id"] == id or newest["params"]["n"] > number
    assert newest["state"] == "succeeded" or newest["error"]["type"] == "lost", newest
