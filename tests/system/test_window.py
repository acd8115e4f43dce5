"""Waiting jobs do not slow a start, and overdue jobs do not delay other jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import pytest

from erelong.clock import instants
from erelong.model.ids import draw_tokens
from erelong.model.job import Job
from erelong.model.submission import NewJob
from erelong.stores.base import Override, Pause
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import make_job
from tests.support.process import HAS_PROC, ServiceProcess
from tests.system.book import install, read_book
from tests.system.client import Client
from tests.system.trials import percentile, sized

WAITING = sized(20_000, 10_000_000)
OVERDUE = sized(20_000, 1_000_000)
BATCH = 10_000
STARTS = sized(2, 3)
FRESH = sized(50, 500)
EVERY = 0.01
DAY = 86_400
SECOND = instants.SECOND
MORE = sized(2.0, 0.15)  # seconds that a start may take beyond that of an empty store
LATE = 10.0  # ms
MOST = sized(0.9, 0.99)  # share of the jobs: a busy disk delays the claims of some
CONFIG = '[kinds.begin]\npython = "functions:begin"\n'

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 1_800))]


@pytest.mark.skipif(not HAS_PROC, reason="memory is read from /proc")
async def test_start_with_many_waiting_jobs_is_as_quick_as_with_none(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    empty, full = make_service(), make_service()
    began = time.perf_counter()
    await fill(full, spread(WAITING))
    figure(f"s to store {WAITING:,} jobs", f"{time.perf_counter() - began:.1f}")

    ready = {empty: 60.0, full: 60.0}
    resident = {empty: 0, full: 0}
    for _ in range(STARTS):
        for service in (empty, full):
            ready[service] = min(ready[service], await asyncio.to_thread(service.start))
            await asyncio.sleep(sized(0.2, 5.0))
            resident[service] = service.resident_bytes()
            counts = await make_client(service).counts("default") if service is full else {}
            service.stop()

    figure("s until ready, empty and full", f"{ready[empty]:.3f}, {ready[full]:.3f}")
    figure("MiB resident, empty and full", f"{resident[empty] / 2**20:.0f}, {resident[full] / 2**20:.0f}")
    assert counts["scheduled"] + counts["running"] + counts["succeeded"] == WAITING
    assert ready[full] - ready[empty] < MORE


async def test_overdue_jobs_of_a_paused_queue_make_no_other_job_late(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    install(service)
    await fill(service, overdue(OVERDUE), paused="held")
    service.start()
    client = make_client(service)

    meanwhile = asyncio.create_task(submit_fresh(client))
    began = time.perf_counter()
    while (await client.counts("held"))["due"] < OVERDUE:  # noqa: ASYNC110 - the service sends no event
        await asyncio.sleep(0.1)
    took = time.perf_counter() - began
    due = await meanwhile
    alone = await submit_fresh(client)
    await asyncio.sleep(1.5)

    late = {run.id: (run.began_at - (due | alone)[run.id]) / 1_000 for run in read_book(service)}
    figure(f"s until the lane had {OVERDUE:,} overdue jobs", f"{took:.1f}")
    for name, group in (("meanwhile", due), ("afterwards", alone)):
        of_group = sorted(late[id] for id in group)
        figure(f"ms late {name}: p50, p99, most", " ".join(f"{percentile(of_group, q):.2f}" for q in (0.5, 0.99, 1)))
    assert min(late.values()) >= 0
    assert percentile([late[id] for id in due], MOST) < LATE


async def submit_fresh(client: Client) -> dict[str, int]:
    """Submit jobs due one after another; return their due times after the last one."""
    first = round(time.time() + 0.3, 3)
    times = [round(first + index * EVERY, 3) for index in range(FRESH)]
    ids = await client.submit_batch([{"kind": "begin", "execute_at": at} for at in times])
    await asyncio.sleep(times[-1] - time.time())
    return {id: round(at * SECOND) for id, at in zip(ids, times, strict=True)}


async def fill(service: ServiceProcess, jobs: Iterator[Job], paused: str | None = None) -> None:
    """Store jobs directly, as the service would."""
    service.data.mkdir(exist_ok=True)
    store = SqliteStore(path=service.data / "erelong.db")
    await store.open()
    while batch := [*islice(jobs, BATCH)]:
        await store.add(new_jobs(batch), now=instants.now())
    if paused is not None:
        await store.override(paused, Override(pause=Pause(instants.now())))
    await store.close()


def new_jobs(jobs: Sequence[Job]) -> list[NewJob]:
    return [NewJob(job) for job in jobs]


def spread(number: int) -> Iterator[Job]:
    """Return jobs due one after another through a day that begins in a minute."""
    now, tokens = instants.now(), draw_tokens()
    job = make_job(now=now)
    for index in range(number):
        execute_at = now + 60 * SECOND + index * DAY * SECOND // number
        yield job.alike(params=b'{"order":1}', execute_at=execute_at, now=now, token=next(tokens))


def overdue(number: int) -> Iterator[Job]:
    past, tokens = instants.now() - DAY * SECOND, draw_tokens()
    job = make_job(now=past, queue="held")
    for index in range(number):
        yield job.alike(params=b"{}", execute_at=past + index * 1_000, now=past, token=next(tokens))
