"""The service is killed under load, repeatedly: every acknowledged job survives and runs."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from erelong.clock.instants import parse_instant
from tests.support.process import ServiceProcess
from tests.system.book import Run, install, read_book
from tests.system.client import Client
from tests.system.trials import sized

KILLS = sized(3, 20)
CONFIG = '[kinds.note]\npython = "functions:note"\n\n[queues.default]\nconcurrency = 1000\n'
SECOND = 1_000_000
YEARS = 10 * 365 * 86400
MAX_LOSSES = 3

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 400))]


class Load:
    """Clients that submit jobs; `acknowledged` has the requested time of each acknowledged job by id."""

    def __init__(self, client: Client) -> None:
        self.acknowledged: dict[str, int] = {}
        self.is_over = False
        self._client = client
        self._random = random.Random(7)

    async def run(self) -> None:
        ways = (self._singly, self._singly, self._singly, self._in_batches, self._in_streams)
        await asyncio.gather(*(self._again_and_again(way) for way in ways))

    async def _again_and_again(self, way: Callable[[], Any]) -> None:
        while not self.is_over:
            with suppress(aiohttp.ClientError, OSError):  # the service was killed, and unacknowledged jobs may be lost
                await way()
            await asyncio.sleep(0.02)

    async def _singly(self) -> None:
        job = self._job()
        self.acknowledged[(await self._client.submit(**job))["id"]] = _execute_at(job)

    async def _in_batches(self) -> None:
        jobs = [self._job() for _ in range(20)]
        ids = await self._client.submit_batch(jobs)
        self.acknowledged |= dict(zip(ids, map(_execute_at, jobs), strict=True))

    async def _in_streams(self) -> None:
        jobs = [self._job() for _ in range(50)]
        answers = self._client.stream(jobs, size=7)
        submitted = iter(jobs)
        async for answer in answers:
            self.acknowledged[answer["id"]] = _execute_at(next(submitted))

    def _job(self) -> dict[str, Any]:
        """Return a job due at once, in seconds, or in an hour; some run longer than the service."""
        draw = self._random
        sleep = draw.choice([0, 0, 0, 0, 0, 0, 0, 0.05, 0.2, 1.0])
        delay = draw.choice([0, 0, draw.uniform(0.1, 3), draw.uniform(0.1, 3), 3600])
        kind = draw.choice(["echo", "note", "note"])
        return {"kind": kind, "params": {"sleep": sleep}, "execute_at": round(time.time() + delay, 3)}


async def test_every_acknowledged_job_survives_kills_and_runs(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    install(service)
    service.start()
    client = make_client(service)
    load = Load(client)
    loading = asyncio.create_task(load.run())

    restarts = [await _kill_and_restart(service) for _ in range(KILLS)]
    load.is_over = True
    await loading
    far = time.time() + 60
    waiting = sum(job["execute_at"] > _iso(far) for job in await client.list_all("view=full&state=scheduled"))
    await client.wait_until_done(waiting=waiting, timeout=sized(30.0, 120.0))
    jobs = {job["id"]: job for job in await client.list_all()}
    runs = read_book(service)

    _every_job_is_as_it_should_be(load.acknowledged, jobs)
    _every_run_is_as_it_should_be(runs, jobs, load.acknowledged)
    lost = sum(attempt["outcome"] == "lost" for job in jobs.values() for attempt in job["attempts"])
    ends = Counter(job["state"] for job in jobs.values())
    figure("kills", KILLS)
    figure("acknowledged jobs, of them lost", f"{len(load.acknowledged)}, {len(load.acknowledged.keys() - jobs)}")
    figure("stored jobs by state", dict(ends))
    figure("attempts lost by a kill and made again", lost)
    figure("runs written down", len(runs))
    figure("slowest restart, s", f"{max(restarts):.2f}")
    assert lost > 0, "no attempt ran when the service was killed: the trial shows nothing"


async def _kill_and_restart(service: ServiceProcess) -> float:
    await asyncio.sleep(random.uniform(0.5, 2.0))
    service.kill()
    return await asyncio.to_thread(service.start)


def _every_job_is_as_it_should_be(acknowledged: dict[str, int], jobs: dict[str, dict[str, Any]]) -> None:
    assert acknowledged.keys() <= jobs.keys()
    now = round(time.time() * SECOND)
    for id, execute_at in acknowledged.items():
        job = jobs[id]
        assert _instant(job["execute_at"]) == execute_at, job
        if execute_at > now:
            assert (job["state"], job["due_at"], job["attempt"]) == ("scheduled", job["execute_at"], 0), job
        elif job["state"] != "succeeded":
            assert (job["state"], job["error"]["type"]) == ("failed", "lost"), job
            assert [attempt["outcome"] for attempt in job["attempts"]] == ["lost"] * MAX_LOSSES, job
        else:
            assert job["attempts"][-1]["outcome"] == "succeeded", job


def _every_run_is_as_it_should_be(
    runs: list[Run], jobs: dict[str, dict[str, Any]], acknowledged: dict[str, int]
) -> None:
    by_job: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_job[run.id].append(run)
        assert run.began_at >= acknowledged.get(run.id, 0), f"job {run.id} ran before its time"
    for id, job in jobs.items():
        if job["kind"] == "note":
            outcomes = {attempt["number"]: attempt["outcome"] for attempt in job["attempts"]}
            numbers = [run.attempt for run in by_job[id]]
            assert len(numbers) == len(set(numbers)), f"an attempt at job {id} ran twice: {numbers}"
            assert set(numbers) >= {number for number, outcome in outcomes.items() if outcome == "succeeded"}, job
            for run in by_job[id]:
                assert run.has_ended or outcomes[run.attempt] == "lost", f"{run} was cut off: {outcomes}"


def _execute_at(job: dict[str, Any]) -> int:
    execute_at: float = job["execute_at"]
    return round(execute_at * SECOND)


def _instant(text: str) -> int:
    return parse_instant(text, round(time.time() * SECOND), YEARS)


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
