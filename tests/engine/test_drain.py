"""The drain waits for running attempts, releases the rest, and ends in time."""

from __future__ import annotations

import asyncio

import pytest

from erelong.attempt import GiveUp
from erelong.model.job import SECOND, State
from erelong.model.outcome import End
from erelong.settings.queues import QueueSettings, Rate
from erelong.settings.sections import ServerSection, WorkersSection
from tests.support.engine import ONCE, STEADY, Engine, outcomes_of
from tests.support.kinds import FakeRunner, for_ever, lasting, raising
from tests.support.virtual import VirtualClock

# stopping


async def test_drain_lets_running_attempts_finish(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, handler=FakeRunner(lasting(20)), workers=WorkersSection(concurrency=2))
    async with engine:
        first, second, third = await engine.submit_many(3)
        await engine.until(lambda: engine.handler.running == 2)
        began_at = clock.now()

    assert clock.now() - began_at == pytest.approx(20 * SECOND, abs=SECOND)
    assert [(await engine.read(job)).state for job in (first, second)] == [State.SUCCEEDED] * 2
    assert ((await engine.read(third)).state, len(engine.handler.attempts)) == (State.SCHEDULED, 2)


async def test_attempt_that_outlasts_the_drain_is_released_uncounted(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, handler=FakeRunner(for_ever), server=ServerSection(drain_timeout=25.0))
    async with engine:
        job = await engine.submit(timeout=3_600.0)
        await engine.until(lambda: engine.handler.running == 1)
        began_at = clock.now()

    assert clock.now() - began_at == pytest.approx(25 * SECOND, abs=SECOND)
    job = await engine.read(job)
    assert (job.state, job.attempt, outcomes_of(job)) == (State.SCHEDULED, 0, ["released"])
    assert job.due_at is not None
    assert job.due_at <= clock.now()
    assert engine.handler.running == 0


async def test_drain_ends_in_time_for_every_handler(clock: VirtualClock) -> None:
    handler = FakeRunner()
    handler.work = handler.swallow
    engine = Engine(clock=clock, handler=handler, server=ServerSection(drain_timeout=5.0))
    await engine.node.start()
    jobs = await engine.submit_many(100, timeout=3_600.0)
    await engine.until(lambda: handler.running == 100)
    began_at = clock.now()

    await engine.node.stop()

    assert clock.now() - began_at <= 7 * SECOND
    assert [outcomes_of(await engine.read(job)) for job in jobs] == [["released"]] * 100
    assert engine.node.engine.workers.abandoned == 100
    handler.let_go.set()
    await asyncio.sleep(1)
    assert handler.running == 0


async def test_drain_during_a_timeout_keeps_the_reason(clock: VirtualClock) -> None:
    handler = FakeRunner()
    handler.work = handler.swallow
    engine = Engine(
        clock=clock, handler=handler, server=ServerSection(drain_timeout=0.1), workers=WorkersSection(grace=60.0)
    )
    await engine.node.start()
    job = await engine.submit(timeout=1.0, retry=ONCE)
    await asyncio.sleep(2)

    await engine.node.stop()

    handler.let_go.set()
    assert outcomes_of(await engine.read(job)) == ["timeout"]


async def test_drain_with_zero_timeout_fails_no_unstarted_job(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, handler=FakeRunner(for_ever), server=ServerSection(drain_timeout=0.0))
    await engine.node.start()
    jobs = await engine.submit_many(50)
    await engine.until(lambda: bool(engine.node.engine.workers._pending), step=0)

    await engine.node.stop()

    stored = [await engine.read(job) for job in jobs]
    assert {(job.state, job.attempt, job.failures) for job in stored} == {(State.SCHEDULED, 0, 0)}


async def test_job_claimed_during_a_drain_is_released_unstarted(clock: VirtualClock) -> None:
    engine = Engine(clock=clock)
    await engine.node.start()
    claimed = engine.store.hold_answer("claim")
    job = await engine.submit()
    await engine.until(lambda: "claim" in engine.store.calls)
    stopping = asyncio.create_task(engine.node.stop())
    await asyncio.sleep(1)
    claimed.set()
    await stopping

    job = await engine.read(job)
    assert (job.state, job.attempt, engine.handler.attempts) == (State.SCHEDULED, 0, [])


async def test_drain_does_not_wait_for_a_claim_that_failed(clock: VirtualClock) -> None:
    engine = Engine(clock=clock)
    await engine.node.start()
    claim = engine.store.hold("claim")
    await engine.submit()
    await engine.until(lambda: "claim" in engine.store.calls)
    engine.store.fill_disk()
    began_at = clock.now()
    stopping = asyncio.create_task(engine.node.stop())
    await asyncio.sleep(0.1)
    claim.set()
    await stopping

    assert clock.now() - began_at <= SECOND


async def test_stop_waits_for_outcomes_only_until_they_are_saved(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, handler=FakeRunner(lasting(1)))
    await engine.node.start()
    await engine.submit()
    await engine.until(lambda: engine.handler.running == 1)
    engine.store.fill_disk()
    began_at = clock.now()

    await engine.node.stop()

    assert 5 * SECOND <= clock.now() - began_at <= 8 * SECOND
    assert len(engine.node.engine.completer) == 1


async def test_stop_retries_a_failed_save(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, handler=FakeRunner(lasting(1)))
    await engine.node.start()
    job = await engine.submit()
    await engine.until(lambda: engine.handler.running == 1)
    engine.store.fill_disk()
    asyncio.get_running_loop().call_later(4, engine.store.broken.clear)

    await engine.node.stop()

    assert (await engine.read(job)).state is State.SUCCEEDED


async def test_idle_pool_stops_at_once(clock: VirtualClock) -> None:
    engine = Engine(clock=clock)
    await engine.node.start()
    await engine.until_final(await engine.submit())
    began_at = clock.now()

    await engine.node.stop()

    assert clock.now() - began_at <= 100_000
    assert len(asyncio.all_tasks()) == 1


async def test_attempts_are_counted_by_how_they_end(clock: VirtualClock) -> None:
    handler = FakeRunner(raising(ValueError(), GiveUp(), None))

    async with Engine(clock=clock, handler=handler) as engine:
        for _ in range(2):
            await engine.until_final(await engine.submit(retry=STEADY))

    metrics = engine.node.metrics
    assert metrics.started.values == {("echo",): 3}
    assert metrics.ended.values == {("echo", End.ERROR): 2, ("echo", End.SUCCEEDED): 1}
    assert metrics.finished.values == {("echo", "failed"): 1, ("echo", "succeeded"): 1}


async def test_drained_service_sets_no_timer_for_a_rate_limit(clock: VirtualClock) -> None:
    engine = Engine(clock=clock, queue=QueueSettings(rate=Rate(per_second=0.001)))
    await engine.node.start()
    await engine.submit_many(3)
    await engine.until(lambda: len(engine.handler.attempts) == 1)
    thaw = engine.node.engine.dispatcher._refill
    assert isinstance(thaw, asyncio.TimerHandle)

    await engine.node.stop()

    assert thaw.cancelled()
