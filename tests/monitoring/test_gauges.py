"""Gauges of the metrics page, read from memory or from the store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from erelong.errors import StoreUnavailable
from erelong.model.submission import NewJob
from erelong.monitoring import gauges as readings
from erelong.monitoring.gauges import Gauges
from erelong.settings.sections import Config, StoreSection
from erelong.stores.registry import make_store
from erelong.telemetry.metrics import Metrics
from tests.support.builders import make_job
from tests.support.engine import Engine
from tests.support.following import Following
from tests.support.kinds import FakeRunner, lasting
from tests.support.virtual import VirtualClock


async def test_gauges_show_the_levels_of_the_parts(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(lasting(100))) as engine:
        await engine.submit_many(3, delay=300)
        first, _ = await engine.submit_many(2)
        await engine.until(lambda: engine.handler.running == 2)
        poll = asyncio.create_task(engine.node.services.jobs.wait(first.id, 10))
        await asyncio.sleep(1)

        metrics = engine.node.metrics
        await engine.node.gauges.refresh()
        assert (metrics.pending.values, metrics.running.values) == ({(): 3}, {(): 2})
        assert (metrics.abandoned.values, metrics.unsaved.values) == ({(): 0}, {(): 0})
        assert metrics.waiting.values == {("job",): 1, ("lease",): 0, ("room",): 0, ("operation",): 0}
        assert metrics.due.values == {("default",): 0}
        assert metrics.jobs.values == {("default", "scheduled"): 3, ("default", "running"): 2}
        await poll


async def test_age_of_the_oldest_due_job_is_shown_per_queue(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        for queue in ("slow", "idle"):
            await engine.node.services.queues.pause(queue)
        await engine.submit(queue="slow", priority=100, delay=30)
        await engine.submit(queue="slow", delay=10)
        await engine.submit(queue="idle", delay=1_000)
        await asyncio.sleep(70)

        await engine.node.gauges.refresh()

        assert engine.node.metrics.oldest_due.values == {("slow",): pytest.approx(60)}


async def test_age_of_the_oldest_due_job_needs_no_store_without_priorities(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.node.services.queues.pause("slow")
        await engine.submit(queue="slow", delay=30)
        await engine.submit(queue="slow", delay=10)
        await asyncio.sleep(70)
        engine.store.broken["list"] = StoreUnavailable("not now")

        await engine.node.gauges.refresh()

        assert engine.node.metrics.oldest_due.values == {("slow",): pytest.approx(60)}


@pytest.mark.parametrize("trouble", ["broken", "held"])
async def test_page_is_written_without_ages_when_the_store_does_not_answer(clock: VirtualClock, trouble: str) -> None:
    async with Engine(clock=clock) as engine:
        await engine.node.services.queues.pause("default")
        await engine.submit(priority=1)  # otherwise the store would not be read
        await asyncio.sleep(1)
        if trouble == "broken":
            engine.store.broken["list"] = StoreUnavailable("not now")
        else:
            engine.store.hold("list")
        began_at = clock.now()

        await engine.node.gauges.refresh()

        assert engine.node.metrics.oldest_due.values == {}
        assert b"erelong_jobs_due" in engine.node.metrics.page()
        assert clock.now() - began_at <= 1_000_000


async def test_number_of_queues_on_the_page_is_bounded(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "MAX_QUEUES", 2)
    async with Engine(clock=clock) as engine:
        for number, queue in enumerate("abcd"):
            await engine.node.services.queues.pause(queue)
            await engine.submit_many(number + 1, queue=queue)
        await asyncio.sleep(1)

        await engine.node.gauges.refresh()

        metrics = engine.node.metrics
        assert metrics.jobs.values == {("c", "scheduled"): 3, ("d", "scheduled"): 4, ("(others)", "scheduled"): 3}
        assert metrics.due.values == {("c",): 3, ("d",): 4, ("(others)",): 3}


@pytest.mark.real_loop
async def test_commit_times_batch_sizes_and_store_sizes_are_shown(tmp_path: Path) -> None:
    metrics = Metrics()
    store = make_store(Config(store=StoreSection(path=tmp_path / "jobs.db")), metrics.commits)
    await store.open()
    try:
        new_jobs = [NewJob(make_job(now=10**15)) for _ in range(8)]
        await asyncio.gather(*(store.add([new_job], now=10**15) for new_job in new_jobs))
    finally:
        await store.close()

    page = metrics.page().decode()
    assert "erelong_store_commit_seconds_count 1.0" in page
    assert "erelong_store_commit_calls_sum 8.0" in page
    assert metrics.commits.under_way == 0


async def test_gauges_of_a_shared_store_say_who_leads(clock: VirtualClock) -> None:
    store = Following()
    metrics = Metrics()
    async with Engine(clock=clock) as engine:
        gauges = Gauges(services=engine.node.services, metrics=metrics, path=None, shared=store)
        store.snapshot_age = 720.0

        await gauges.refresh()
        assert (metrics.leads.values, metrics.snapshot_age.values) == ({(): False}, {(): 720.0})

        store.begin()
        await store.lead()
        await gauges.refresh()
        assert metrics.leads.values == {(): True}
        assert engine.node.metrics.leads.values == {}  # of the store that is not shared
