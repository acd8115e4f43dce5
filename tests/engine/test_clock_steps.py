"""Steps of the wall clock make no waiting job early and lose none."""

from __future__ import annotations

import asyncio

import pytest

from erelong.settings.queues import LabelConcurrency, QueueSettings
from tests.support.desk import HOUR, Desk
from tests.support.engine import Engine
from tests.support.virtual import VirtualClock

# the clock is stepped


async def test_step_forward_makes_jobs_due_within_a_second(desk: Desk) -> None:
    job = await desk.add(delay=HOUR)
    await asyncio.sleep(10)

    desk.clock.step(HOUR)
    await asyncio.sleep(1.5)

    assert desk.seqs == [job.seq]
    assert desk.scheduler.last_jump == pytest.approx(HOUR, abs=0.01)
    assert desk.metrics.clock_jumps.values == {(): 1}


async def test_step_back_makes_waiting_jobs_wait_longer(desk: Desk) -> None:
    job = await desk.add(delay=100)
    await asyncio.sleep(50)

    desk.clock.step(-HOUR)
    await asyncio.sleep(HOUR)
    assert desk.seqs == []
    await asyncio.sleep(51)

    ((_, at),) = desk.handed_over
    assert job.due_at is not None
    assert 0 <= at - job.due_at < 1_001
    assert desk.scheduler.last_jump == pytest.approx(-HOUR, abs=0.01)


async def test_step_of_less_than_a_second_is_not_reported(desk: Desk) -> None:
    await desk.add(delay=100)
    await asyncio.sleep(1)

    desk.clock.step(0.5)
    desk.timer.stepped()  # a timerfd reports every step
    await asyncio.sleep(5)

    assert (desk.scheduler.last_jump, desk.metrics.clock_jumps.values) == (None, {(): 0})


async def test_step_back_between_popping_and_reading_loses_no_job(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        read = engine.store.hold_answer("peek")
        job = await engine.submit(delay=5)
        await asyncio.sleep(5.5)
        clock.step(-60)
        engine.store.answers_held.clear()
        read.set()
        await asyncio.sleep(59)
        assert engine.handler.attempts == []
        await asyncio.sleep(2)

        assert [attempt.id for attempt in engine.handler.attempts] == [job.id]
        assert engine.handler.attempts[0].started_at >= (job.due_at or 0)


async def test_step_back_while_jobs_wait_in_their_lane_starts_none_early(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.node.services.queues.pause("default")
        jobs = await engine.submit_many(20, delay=5)
        await asyncio.sleep(6)
        clock.step(-60)
        await engine.node.services.queues.resume("default")
        for job in jobs:
            await engine.until_final(job)

        assert len(engine.handler.attempts) == 20
        assert all(attempt.started_at >= attempt.due_at for attempt in engine.handler.attempts)


async def test_step_back_before_a_queue_gets_other_settings_loses_no_job(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.node.services.queues.pause("default")
        job = await engine.submit(delay=5)
        await asyncio.sleep(6)
        clock.step(-60)
        label = LabelConcurrency(label="tenant", limit=1)
        await engine.node.services.queues.put("default", QueueSettings(label_concurrency=label))
        await engine.node.services.queues.resume("default")
        await asyncio.sleep(60)

        assert [attempt.id for attempt in engine.handler.attempts] == [job.id]
        assert engine.handler.attempts[0].started_at >= (job.due_at or 0)
