"""A million waiting jobs: the cost to submit, hold and load them, without slower requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from statistics import median
from typing import NamedTuple

import aiohttp
import orjson
import pytest

from tests.support.process import HAS_PROC, ServiceProcess
from tests.system.client import NDJSON, Client
from tests.system.trials import IS_FULL, sized

JOBS = sized(20_000, 1_000_000)
FEW = 2_000  # so that every listing has a full first page
LINES = 500
REQUESTS = sized(20, 200)
CREATED = b'"created":true'
HOUR, WEEK = 3_600, 604_800
LISTINGS = {
    "newest": "limit=100",
    "state": "limit=100&state=scheduled",
    "queue and kind": "limit=100&queue=q3&kind=echo",
    "label": "limit=100&label.tenant=t7",
    "by time": "limit=100&order=due_at",
    "by time, after an instant": "limit=100&order=due_at&due_after={middle}",
    "by time, of a small queue": "limit=100&order=due_at&queue=requested",
    "by time, of a kind without jobs": "limit=100&order=due_at&kind=http",
    "nothing found": "limit=100&state=failed",
}

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]


class Quickness(NamedTuple):
    """Median durations of requests in milliseconds."""

    post: float
    read: float
    listings: dict[str, float]


@pytest.mark.skipif(not HAS_PROC, reason="memory is read from /proc")
async def test_many_waiting_jobs_cost_little_and_slow_nothing_down(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    session: aiohttp.ClientSession,
    figure: Callable[[str, object], None],
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    await _submit(session, service, FEW)
    before = await _quickness(client)
    resident = service.resident_bytes()
    cpu = service.cpu_seconds()

    began = time.perf_counter()
    await _submit(session, service, JOBS)
    took = time.perf_counter() - began
    cpu = service.cpu_seconds() - cpu
    await asyncio.sleep(sized(1.0, 5.0))
    grown = (service.resident_bytes() - resident) / JOBS
    filled = await _quickness(client)
    ended = await asyncio.to_thread(service.stop)
    ready = await asyncio.to_thread(service.start)
    restarted = await _quickness(client)

    figure(f"{JOBS} lines in one stream", f"{took:.1f} s, {JOBS / took:,.0f} jobs/s, CPU {cpu / JOBS * 1e6:.1f} µs/job")
    figure("resident bytes per waiting job", f"{grown:.1f}, in all {service.resident_bytes() / 2**20:.0f} MiB")
    figure("seconds to stop, to be ready again", f"{ended.seconds:.2f}, {ready:.2f}")
    _show(figure, before, filled, restarted)
    assert ready < 5
    assert (await client.counts("q3"))["scheduled"] == (FEW + JOBS) // 10
    if IS_FULL:
        assert grown <= 100
        _assert_none_is_slower(before, restarted)


@pytest.mark.timeout(sized(60, 900))
async def test_pages_of_a_listing_by_time_are_in_order_and_complete(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    session: aiohttp.ClientSession,
    figure: Callable[[str, object], None],
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    await _submit(session, service, JOBS)

    began = time.perf_counter()
    jobs = await client.list_all("order=due_at&queue=q3")
    took = time.perf_counter() - began

    figure(f"all {len(jobs)} jobs of a queue by time, page by page, ms per page", f"{took / len(jobs) * 1e6:.1f}")
    assert len({job["id"] for job in jobs}) == JOBS // 10
    assert [job["due_at"] for job in jobs] == sorted(job["due_at"] for job in jobs)


async def _submit(session: aiohttp.ClientSession, service: ServiceProcess, number: int) -> None:
    """Submit one stream of jobs of ten queues, due at random times of a week that begins in an hour."""
    first = time.time() + HOUR

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, number, LINES):
            lines = [_line(first, index) for index in range(start, min(number, start + LINES))]
            yield b"".join(lines)

    created, rest = 0, b""
    url = f"{service.url}/v1/jobs/batch"
    async with session.post(url, data=chunks(), headers=NDJSON, timeout=aiohttp.ClientTimeout(total=None)) as response:
        assert response.status == 200
        async for chunk in response.content.iter_any():
            text = rest + chunk
            created += text.count(CREATED)
            rest = text[1 - len(CREATED) :]  # a chunk may end within the word
    assert created == number


def _line(first: float, index: int) -> bytes:
    due_at = round(first + index * 7919 % WEEK, 3)
    job = {"kind": "echo", "queue": f"q{index % 10}", "execute_at": due_at, "params": {"order": index}}
    if index % 10 == 0:
        job["labels"] = {"tenant": f"t{index // 10 % 100}"}
    return orjson.dumps(job) + b"\n"


async def _quickness(client: Client) -> Quickness:
    middle = round(time.time()) + HOUR + WEEK // 2
    posts, reads = [], []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        job = await client.submit(kind="echo", delay=WEEK, queue="requested")
        posts.append(time.perf_counter() - began)
        began = time.perf_counter()
        await client.read(job["id"])
        reads.append(time.perf_counter() - began)
    listings = {name: await _list_ms(client, query.format(middle=middle)) for name, query in LISTINGS.items()}
    return Quickness(median(posts) * 1e3, median(reads) * 1e3, listings)


async def _list_ms(client: Client, query: str) -> float:
    """Return the median duration over the first page and those after it."""
    took = []
    path = f"/v1/jobs?{query}"
    for _ in range(max(5, REQUESTS // 10)):
        began = time.perf_counter()
        status, page = await client.ask("GET", path)
        took.append(time.perf_counter() - began)
        assert status == 200, page
        path = f"/v1/jobs?{query}" + (f"&cursor={page['next']}" if page["next"] else "")
    return median(took) * 1e3


def _show(figure: Callable[[str, object], None], *stages: Quickness) -> None:
    """Record each figure with few jobs, with many, and after the restart."""
    figure("POST, ms", " ".join(f"{stage.post:.2f}" for stage in stages))
    figure("GET by id, ms", " ".join(f"{stage.read:.2f}" for stage in stages))
    for name in LISTINGS:
        figure(f"list {name}, ms", " ".join(f"{stage.listings[name]:.2f}" for stage in stages))


def _assert_none_is_slower(few: Quickness, many: Quickness) -> None:
    """Assert that durations grow by noise only; a scan of all jobs would take hundreds of times as long."""
    assert many.post < 2 * few.post + 1
    assert many.read < 2 * few.read + 1
    slower = {name: ms for name, ms in many.listings.items() if ms > 2 * few.listings[name] + 2}
    assert slower == {}
