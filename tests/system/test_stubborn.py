"""Handlers that do not end, ignore cancellation or call exit: the service survives them all."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from erelong.clock.instants import parse_instant
from tests.support.process import ServiceProcess
from tests.system.book import install
from tests.system.client import Client
from tests.system.trials import percentile, sized

JOBS = sized(150, 1_000)
WAYS = {"hang": "timeout", "swallow": "timeout", "leave": "exception", "interrupt": "exception", "block": "timeout"}
TIMEOUT, GRACE, DRAIN = 1.0, 2.0, 3.0
SLACK = 1.0
SECOND = 1_000_000
CONFIG = "\n".join(f'[kinds.{way}]\npython = "functions:{way}"\nretry = {{max_attempts = 1}}' for way in WAYS)
PAUSE = 0.01

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(40, 120))]


async def test_stubborn_jobs_end_in_time_while_the_service_answers_and_it_can_stop(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    settings = {"server.drain_timeout": str(DRAIN), "workers.grace": str(GRACE)}
    service = make_service(config=CONFIG, settings=settings)
    install(service)
    service.start()
    client = make_client(service)
    status, _ = await client.ask("PUT", "/v1/queues/default", {"concurrency": 1_000})
    assert status == 200

    asking = asyncio.create_task(_ask_on(client))
    ways = [way for way, _ in zip(_in_turn(), range(JOBS), strict=False)]
    await client.submit_batch([{"kind": way, "timeout": TIMEOUT} for way in ways])
    await client.wait_until_done(timeout=20.0)
    asking.cancel()
    slowest, answers, usual = await asking
    jobs = await client.list_all("view=full&queue=default")
    is_alive, _ = await client.ask("GET", "/livez")
    ended = await asyncio.to_thread(service.stop)

    assert Counter((job["state"], job["kind"]) for job in jobs if job["state"] != "failed") == {}
    took = [_instant(job["finished_at"]) - _instant(job["started_at"]) for job in jobs]
    figure("jobs, by error", dict(Counter(job["error"]["type"] for job in jobs)))
    figure("longest from start to end, s", f"{max(took) / SECOND:.3f}")
    figure("latest start, s", f"{max(job['late_by'] for job in jobs):.3f}")
    figure(f"of {answers} answers meanwhile: median, slowest, ms", f"{usual * 1e3:.1f}, {slowest * 1e3:.1f}")
    figure("exit code and seconds after SIGTERM", f"{ended.code}, {ended.seconds:.2f}")
    assert len(jobs) == JOBS
    assert [job for job in jobs if job["error"]["type"] != WAYS[job["kind"]]] == []
    assert max(took) <= (TIMEOUT + GRACE + SLACK) * SECOND
    assert is_alive == 200
    assert answers > 20
    assert slowest < 1.0
    assert ended.code == 0
    assert ended.seconds < DRAIN + 1


@pytest.mark.parametrize("way", ["hang", "swallow", "block"])
async def test_running_stubborn_job_does_not_prevent_the_stop(
    make_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client], way: str
) -> None:
    service = make_service(config=CONFIG, settings={"server.drain_timeout": "0.5"})
    install(service)
    service.start()
    client = make_client(service)
    job = await client.submit_and_wait_for_start(kind=way)

    ended = await asyncio.to_thread(service.stop)

    assert ended.code == 0
    assert ended.seconds < 0.5 + 1
    service.start()
    after = await client.read(job["id"])
    assert after["attempts"][0]["outcome"] == "released"


async def _ask_on(client: Client) -> tuple[float, int, float]:
    """Send reads and writes until cancelled; return the slowest duration, their number, and the median."""
    seconds: list[float] = []
    try:
        while True:
            began = time.perf_counter()
            job = await client.submit(kind="echo", delay=0.0, queue="asking")
            seconds.append(time.perf_counter() - began)
            began = time.perf_counter()
            await client.read(job["id"])
            seconds.append(time.perf_counter() - began)
            await asyncio.sleep(PAUSE)
    except asyncio.CancelledError:
        return max(seconds), len(seconds), percentile(seconds, 0.5)


def _in_turn() -> Any:
    while True:
        yield from WAYS


def _instant(text: str) -> int:
    return parse_instant(text, round(time.time() * SECOND), 3600)
