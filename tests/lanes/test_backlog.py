"""The bound on waiting jobs in a queue, and each overflow policy when it is reached."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import BacklogFull, Draining, StorageFull
from erelong.model.conflict import OnConflict
from erelong.model.job import Job, State
from erelong.model.submission import NewJob
from erelong.settings.queues import QueueSettings
from tests.support.builders import make_job, put
from tests.support.engine import Engine, error_of
from tests.support.virtual import VirtualClock

LATER = 3_600.0


def bounded(max_backlog: int, overflow: str = "reject", **settings: Any) -> QueueSettings:
    return QueueSettings.model_validate({"max_backlog": max_backlog, "overflow": overflow, **settings})


async def waiting(engine: Engine) -> int:
    return (await engine.states()).get(State.SCHEDULED, 0)


async def test_queue_accepts_jobs_up_to_its_bound_and_rejects_the_next(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(3)) as engine:
        await engine.submit_many(3, delay=LATER)

        with pytest.raises(BacklogFull, match=r"'default' has 3 waiting jobs; at most 3") as caught:
            await engine.submit(delay=LATER)

        assert (caught.value.queue, caught.value.headers["Retry-After"]) == ("default", "5")
        assert await waiting(engine) == 3


async def test_bound_of_zero_means_no_bound(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(0)) as engine:
        await engine.submit_many(50, delay=LATER)

        assert engine.node.engine.backlog.waiting("default") == 50


async def test_running_and_ended_jobs_take_no_room(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(2)) as engine:
        for _ in range(3):
            await engine.until_final(await engine.submit())

        await engine.submit_many(2, delay=LATER)


async def test_batch_that_does_not_fit_is_rejected_whole(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(5)) as engine:
        await engine.submit_many(3, delay=LATER)

        with pytest.raises(BacklogFull):
            await engine.submit_many(3, delay=LATER)

        assert await waiting(engine) == 3
        await engine.submit_many(2, delay=LATER)


async def test_full_queue_does_not_fill_another(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1)) as engine:
        await engine.submit(delay=LATER)

        await engine.submit(delay=LATER, queue="other")

        with pytest.raises(BacklogFull):
            await engine.submit_all([{"delay": LATER}, {"delay": LATER, "queue": "other"}])


async def test_submits_in_progress_count_against_the_bound(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(5)) as engine:
        room = engine.node.services.jobs._room
        new_jobs = [NewJob(make_job())]
        taken = [await room.take(new_jobs, NEVER_LEAVES) for _ in range(5)]

        with pytest.raises(BacklogFull):
            await room.take(new_jobs, NEVER_LEAVES)

        room.release(taken[0])
        await room.take(new_jobs, NEVER_LEAVES)


async def test_room_of_a_submit_that_failed_is_free_again(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1)) as engine:
        real_add, engine.store.add = engine.store.add, _refuse  # type: ignore[method-assign, assignment]
        for _ in range(3):
            with pytest.raises(StorageFull):
                await engine.submit(delay=LATER)
        engine.store.add = real_add  # type: ignore[method-assign]

        await engine.submit(delay=LATER)


async def _refuse(*_: object, **__: object) -> None:
    raise StorageFull("the disk is full")


@pytest.mark.parametrize("on_conflict", [OnConflict.KEEP, OnConflict.REPLACE, OnConflict.RESCHEDULE])
async def test_submit_whose_key_is_held_needs_no_room(clock: VirtualClock, on_conflict: OnConflict) -> None:
    async with Engine(clock=clock, queue=bounded(2)) as engine:
        (known, _) = await engine.submit_all([{"key": "k", "delay": LATER}, {"delay": LATER}])
        new_job = NewJob(make_job(key="k", delay=2 * LATER, now=clock.now()), on_conflict)

        receipt = await engine.node.services.jobs.add([new_job], now=clock.now())

        assert [entry and entry.job.id for entry in receipt.entries] == [known.id]
        with pytest.raises(BacklogFull):
            await engine.submit(key="another", delay=LATER)


# drop_oldest


async def test_job_due_first_makes_room_for_a_new_one(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(3, "drop_oldest")) as engine:
        jobs = await engine.submit_all([{"delay": LATER + delay} for delay in (2, 1, 3)])

        new = await engine.submit(delay=LATER + 9)

        dropped = await engine.read(jobs[1])
        assert (dropped.state, error_of(dropped)["type"]) == (State.CANCELLED, "dropped")
        assert {(await engine.read(job)).state for job in (jobs[0], jobs[2], new)} == {State.SCHEDULED}
        assert engine.node.metrics.finished.values == {("echo", "cancelled"): 1}


async def test_dropped_job_that_was_due_does_not_start(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1, "drop_oldest")) as engine:
        await engine.node.services.queues.pause("default")
        await engine.submit()
        await asyncio.sleep(1)
        new = await engine.submit()
        await asyncio.sleep(1)
        assert engine.node.engine.lanes.due("default") == 1
        await engine.node.services.queues.resume("default")
        await engine.until_final(new)

        assert [attempt.id for attempt in engine.handler.attempts] == [new.id]


async def test_batch_larger_than_the_bound_drops_no_job(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(3, "drop_oldest")) as engine:
        await engine.submit_many(3, delay=LATER)

        with pytest.raises(BacklogFull):
            await engine.submit_many(4, delay=LATER)

        assert await engine.states() == {State.SCHEDULED: 3}


async def test_lowered_bound_drops_no_more_jobs_than_are_added(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(100, "drop_oldest")) as engine:
        await engine.submit_many(50, delay=LATER)
        await engine.node.services.queues.put("default", bounded(10, "drop_oldest"))

        await engine.submit_many(2, delay=LATER)

        assert await engine.states() == {State.SCHEDULED: 50, State.CANCELLED: 2}


# wait


async def test_submit_waits_until_there_is_room(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(2, "wait")) as engine:
        jobs = await engine.submit_many(2, delay=LATER)
        held = asyncio.create_task(engine.submit(delay=LATER))
        await asyncio.sleep(5)
        assert not held.done()

        await engine.node.services.jobs.cancel(jobs[0].id, None, None)

        assert isinstance(await asyncio.wait_for(held, 0.1), Job)
        assert await waiting(engine) == 2


@pytest.mark.parametrize("leaving", ["starts", "expires", "is forgotten"])
async def test_every_way_out_of_the_queue_makes_room(clock: VirtualClock, leaving: str) -> None:
    fields = {
        "starts": {"delay": 5.0},
        "expires": {"delay": 20.0, "expires_after": 0.0},
        "is forgotten": {"delay": LATER},
    }
    async with Engine(clock=clock, queue=bounded(1, "wait")) as engine:
        job = await engine.submit(**fields[leaving])
        if leaving == "expires":
            await asyncio.sleep(15)
        held = asyncio.create_task(engine.submit(delay=LATER))
        await asyncio.sleep(4)
        assert not held.done()
        if leaving == "is forgotten":
            await engine.node.services.jobs.delete(job.id, None)

        assert isinstance(await asyncio.wait_for(held, 2), Job)


async def test_submit_that_gets_no_room_is_rejected_after_ten_seconds(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1, "wait")) as engine:
        await engine.submit(delay=LATER)
        began_at = clock.now()

        with pytest.raises(BacklogFull):
            await engine.submit(delay=LATER)

        assert clock.now() - began_at == pytest.approx(10_000_000, abs=2)
        assert engine.node.engine.waiters.rooms.held == {}


async def test_room_for_one_job_is_given_once(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1, "wait")) as engine:
        job = await engine.submit(delay=LATER)
        held = [asyncio.create_task(engine.submit(delay=LATER)) for _ in range(5)]
        await asyncio.sleep(1)
        await engine.node.services.jobs.cancel(job.id, None, None)
        await asyncio.sleep(1)
        assert [task.done() for task in held].count(True) == 1
        await asyncio.sleep(10)

        results = await asyncio.gather(*held, return_exceptions=True)
        assert [type(result) for result in results].count(BacklogFull) == 4
        assert await waiting(engine) == 1


async def test_submit_larger_than_the_bound_does_not_wait(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(2, "wait")) as engine:
        began_at = clock.now()

        with pytest.raises(BacklogFull):
            await engine.submit_many(3, delay=LATER)

        assert clock.now() == began_at


async def test_drain_rejects_submits_that_wait_for_room(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1, "wait")) as engine:
        await engine.submit(delay=LATER)
        held = asyncio.create_task(engine.submit(delay=LATER))
        await asyncio.sleep(1)

        engine.node.engine.drain()

        with pytest.raises(Draining):
            await asyncio.wait_for(held, 0.1)
        assert engine.node.engine.backlog._incoming == {}


async def test_cancelled_submit_that_waited_leaves_nothing(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1, "wait")) as engine:
        await engine.submit(delay=LATER)
        held = asyncio.create_task(engine.submit(delay=LATER))
        await asyncio.sleep(1)

        held.cancel()
        with pytest.raises(asyncio.CancelledError):
            await held

        assert (engine.node.engine.waiters.rooms.held, engine.node.engine.backlog._incoming) == ({}, {})


async def test_raised_bound_admits_waiting_submits(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1, "wait")) as engine:
        await engine.submit(delay=LATER)
        held = asyncio.create_task(engine.submit(delay=LATER))
        await asyncio.sleep(1)

        await engine.node.services.queues.put("default", bounded(5, "wait"))

        assert isinstance(await asyncio.wait_for(held, 0.1), Job)


async def test_room_that_a_submit_did_not_use_goes_to_the_next(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1, "wait")) as engine:
        room = engine.node.services.jobs._room
        taken = await room.take([NewJob(make_job())], NEVER_LEAVES)
        held = asyncio.create_task(engine.submit(delay=LATER))
        await asyncio.sleep(1)

        room.release(taken)

        assert isinstance(await asyncio.wait_for(held, 0.1), Job)


async def test_room_in_several_queues_is_not_reserved_twice(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(1, "wait")) as engine:
        await engine.node.services.queues.put("other", bounded(1, "wait"))
        blocking = await engine.submit(delay=LATER, queue="other")
        both: list[dict[str, Any]] = [{"delay": LATER}, {"delay": LATER, "queue": "other"}]
        held = asyncio.create_task(engine.submit_all(both))
        await asyncio.sleep(1)
        rival = asyncio.create_task(engine.submit(delay=LATER))
        await asyncio.sleep(1)
        await engine.node.services.jobs.cancel(blocking.id, None, None)
        await asyncio.sleep(20)

        await asyncio.gather(held, rival, return_exceptions=True)
        assert engine.node.engine.backlog.waiting("default") == 1


async def test_jobs_of_kinds_that_are_no_longer_declared_count(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=bounded(3)) as engine:
        await put(engine.store, *[make_job(kind="gone", delay=LATER) for _ in range(3)])

        with pytest.raises(BacklogFull):
            await engine.submit(delay=LATER)
