"""Each job is handed over once, on time and never early, even if it changes meanwhile."""

from __future__ import annotations

import asyncio
import random

import pytest

from erelong.engine import scheduler
from erelong.model.job import SECOND, State
from tests.support.builders import make_job, make_retry, put, put_one
from tests.support.desk import HOUR, RETRY, Desk
from tests.support.engine import Engine
from tests.support.kinds import FakeRunner, raising
from tests.support.virtual import VirtualClock

# on time


@pytest.mark.parametrize("delay", [0.0, 0.000_001, 0.0004, 0.0005, 0.001, 0.9999, 1.0, 59.123_456, 7_200.5])
async def test_job_is_handed_over_at_its_due_time_and_never_before(desk: Desk, delay: float) -> None:
    job = await desk.add(delay=delay)

    await asyncio.sleep(delay + 1)

    ((seq, at),) = desk.handed_over
    assert job.due_at is not None
    assert seq == job.seq
    assert 0 <= at - job.due_at < 1_001


async def test_ten_thousand_jobs_at_random_instants_run_once_and_never_early(desk: Desk) -> None:
    chance = random.Random(7)
    jobs = [
        make_job(delay=chance.random() * 60, retry=RETRY, now=desk.clock.now(), queue=f"q{number % 5}")
        for number in range(10_000)
    ]
    due = {job.seq: job.due_at or 0 for job in await put(desk.store, *jobs)}
    desk.agenda.extend((at, seq) for seq, at in due.items())

    await asyncio.sleep(61)

    assert sorted(desk.seqs) == sorted(due)
    lateness = [at - due[seq] for seq, at in desk.handed_over]
    assert min(lateness) >= 0
    assert max(lateness) < 1_001


async def test_ten_thousand_jobs_of_one_instant_are_handed_over_in_slices(desk: Desk) -> None:
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(desk.seqs) < 10_000:
            loop.call_soon(turn)

    loop = asyncio.get_running_loop()
    jobs = await put(desk.store, *[make_job(delay=5, retry=RETRY, now=desk.clock.now()) for _ in range(10_000)])
    loop.call_later(5, turn)
    desk.agenda.extend((job.due_at or 0, job.seq) for job in jobs)

    await asyncio.sleep(6)

    assert desk.seqs == [job.seq for job in jobs]
    assert turns >= 10_000 / scheduler.MAX_POP


async def test_jobs_in_a_rush_are_handed_over_a_few_at_a_time_and_two_milliseconds_late_at_most(desk: Desk) -> None:
    jobs = await put(
        desk.store, *[make_job(delay=5 + index / 5_000, retry=RETRY, now=desk.clock.now()) for index in range(5_000)]
    )
    due = {job.seq: job.due_at or 0 for job in jobs}
    desk.agenda.extend((at, seq) for seq, at in due.items())

    await asyncio.sleep(7)

    lateness = [at - due[seq] for seq, at in desk.handed_over]
    assert len(lateness) == 5_000
    assert 0 <= min(lateness) <= max(lateness) <= 2_001
    assert desk.laps < 2_000


async def test_jobs_due_one_by_one_do_not_wait_for_others(desk: Desk) -> None:
    jobs = await put(
        desk.store, *[make_job(delay=5 + index / 200, retry=RETRY, now=desk.clock.now()) for index in range(400)]
    )
    desk.agenda.extend((job.due_at or 0, job.seq) for job in jobs)

    await asyncio.sleep(8)

    due = {job.seq: job.due_at or 0 for job in jobs}
    assert max(at - due[seq] for seq, at in desk.handed_over) < 1_001


# sleeping


async def test_scheduler_makes_no_laps_while_the_next_job_is_far_away(desk: Desk) -> None:
    await desk.add(delay=HOUR)
    await asyncio.sleep(1)
    laps = desk.laps

    await asyncio.sleep(HOUR - 2)

    assert desk.laps == laps
    await asyncio.sleep(2)
    assert desk.laps - laps == 1
    assert len(desk.seqs) == 1


async def test_scheduler_makes_no_laps_when_there_is_nothing_to_do(desk: Desk) -> None:
    await asyncio.sleep(HOUR)

    assert desk.laps == 0


async def test_nearer_job_wakes_the_sleeper(desk: Desk) -> None:
    await desk.add(delay=HOUR)
    await asyncio.sleep(10)

    near = await desk.add(delay=5)
    await asyncio.sleep(6)

    assert desk.seqs == [near.seq]
    assert desk.laps <= 5


async def test_farther_jobs_do_not_wake_the_sleeper(desk: Desk) -> None:
    await desk.add(delay=HOUR)
    await asyncio.sleep(1)
    laps = desk.laps

    for number in range(100):
        await desk.add(delay=HOUR + number)
    await asyncio.sleep(1)

    assert desk.laps == laps


# changes


async def test_cancelled_job_is_dropped(desk: Desk) -> None:
    job = await desk.add(delay=5)
    await desk.save(job.cancel(desk.clock.now()))

    await asyncio.sleep(10)

    assert (desk.seqs, len(desk.agenda)) == ([], 0)


async def test_deleted_job_is_dropped(desk: Desk) -> None:
    job = await desk.add(delay=5)
    await desk.store.delete(job)

    await asyncio.sleep(10)

    assert (desk.seqs, desk.metrics.laps_failed.values) == ([], {})


@pytest.mark.parametrize("delays", [(5, 50), (50, 5), (5, 50, 20), (20, 50, 5, 30), (5, 5)], ids=str)
async def test_moved_job_is_handed_over_at_its_last_time(desk: Desk, delays: tuple[int, ...]) -> None:
    start = desk.clock.now()
    job = await desk.add(delay=delays[0])
    for delay in delays[1:]:
        job = await desk.save(job.move(start + delay * SECOND, start))

    await asyncio.sleep(100)

    times = [round((at - start) / SECOND) for _, at in desk.handed_over]
    assert times[0] == delays[-1]
    assert desk.lanes.due("default") == 1


async def test_job_that_is_moved_while_its_row_is_read_is_not_lost(desk: Desk) -> None:
    job = await desk.add(delay=5)
    read = desk.store.hold_answer("peek")
    await asyncio.sleep(6)
    now = desk.clock.now()
    job = await desk.save(job.move(now + 10 * SECOND, now))
    desk.store.answers_held.clear()
    read.set()

    await asyncio.sleep(20)

    assert job.due_at is not None
    assert job.due_at <= desk.handed_over[-1][1] <= job.due_at + 1_001
    assert desk.lanes.due("default") == 1


# expiry


async def test_job_expires_on_time_while_its_queue_is_paused(desk: Desk) -> None:
    desk.lanes.pause("default", True)
    job = await desk.add(delay=5, expires_after=10.0)
    assert job.expires_at is not None

    await asyncio.sleep(14.9)
    assert (await desk.read(job)).state is State.SCHEDULED
    assert desk.lanes.due("default") == 1
    await asyncio.sleep(0.2)

    expired = await desk.read(job)
    assert expired.state is State.EXPIRED
    assert expired.finished_at is not None
    assert 0 <= expired.finished_at - job.expires_at < 1_001
    assert desk.lanes.due("default") == 0
    assert desk.metrics.finished.values == {("echo", "expired"): 1}


async def test_job_due_just_before_its_expiry_does_not_expire_early(desk: Desk) -> None:
    job = await desk.add(delay=5, expires_after=0.05)

    await asyncio.sleep(5.04)
    assert (desk.seqs, (await desk.read(job)).state) == ([job.seq], State.SCHEDULED)
    await asyncio.sleep(0.02)

    assert (await desk.read(job)).state is State.EXPIRED


async def test_job_expires_on_time_while_it_waits_for_a_retry(clock: VirtualClock) -> None:
    handler = FakeRunner(raising(ValueError("boom")))

    async with Engine(clock=clock, handler=handler) as engine:
        retry = make_retry(max_attempts=5, delay=100, jitter=0)
        job = await engine.submit(expires_after=30.0, retry=retry)
        ended = await engine.until_final(job)

    assert (ended.state, ended.attempt) == (State.EXPIRED, 1)
    assert ended.finished_at is not None
    assert job.expires_at is not None
    assert 0 <= ended.finished_at - job.expires_at < 1_001


async def test_job_that_was_due_and_expired_long_ago_does_not_run(desk: Desk) -> None:
    job = await put_one(desk.store, now=desk.clock.now(), expires_after=10.0)
    desk.clock.step(60)
    desk.agenda.add(job.due_at or 0, job.seq)

    await asyncio.sleep(1)

    assert (desk.seqs, (await desk.read(job)).state) == ([], State.EXPIRED)


async def test_job_whose_expiry_was_removed_does_not_expire(desk: Desk) -> None:
    desk.lanes.pause("default", True)
    job = await desk.add(delay=5, expires_after=10.0)
    await asyncio.sleep(6)
    await desk.save(job.expire_after(None, desk.clock.now()))

    await asyncio.sleep(60)

    assert (await desk.read(job)).state is State.SCHEDULED
    assert desk.lanes.due("default") == 1


async def test_job_that_has_begun_does_not_expire(desk: Desk) -> None:
    job = await desk.add(delay=5, expires_after=10.0)
    await asyncio.sleep(6)
    await desk.store.claim(list(desk.lanes.take(1)), now=desk.clock.now())

    await asyncio.sleep(60)

    assert (await desk.read(job)).state is State.RUNNING
    assert desk.metrics.finished.values == {}
