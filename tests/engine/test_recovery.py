"""Failed laps, stops and lost attempts lose no job."""

from __future__ import annotations

import asyncio

import pytest

from erelong.engine import recovery
from erelong.engine.window import overdue, refill
from erelong.errors import StoreUnavailable
from erelong.model.conflict import OnConflict
from erelong.model.job import State
from erelong.model.outcome import End, Outcome
from tests.support.builders import make_ended, make_job, make_new_job, make_running, put
from tests.support.desk import RETRY, Desk, running
from tests.support.engine import Engine
from tests.support.virtual import VirtualClock

# the store fails


@pytest.mark.parametrize("error", [StoreUnavailable("not now"), RuntimeError("a bug")], ids=repr)
async def test_lap_that_fails_is_repeated_and_loses_nothing(desk: Desk, error: Exception) -> None:
    jobs = [await desk.add(delay=5) for _ in range(1_200)]
    desk.store.broken["peek"] = error
    await asyncio.sleep(10)
    assert desk.seqs == []
    assert 4 <= desk.metrics.laps_failed.values["scheduler",] <= 6
    del desk.store.broken["peek"]

    await asyncio.sleep(2)

    assert sorted(desk.seqs) == [job.seq for job in jobs]


@pytest.mark.parametrize("error", [StoreUnavailable("not now"), RuntimeError("a bug")], ids=repr)
async def test_expiry_that_fails_is_repeated(desk: Desk, error: Exception) -> None:
    desk.lanes.pause("default", True)
    jobs = [await desk.add(expires_after=5.0) for _ in range(10)]
    desk.store.broken["save"] = error
    await asyncio.sleep(10)
    del desk.store.broken["save"]

    await asyncio.sleep(2)

    assert {(await desk.read(job)).state for job in jobs} == {State.EXPIRED}
    assert desk.lanes.due("default") == 0


async def test_stop_in_the_middle_of_a_lap_leaves_the_agenda_whole(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    async with running(desk):
        await desk.add(delay=5)
        desk.store.hold("peek")
        await asyncio.sleep(6)

    assert len(desk.agenda) + len(desk.rechecks) == 1


# the start


async def test_start_loads_all_waiting_jobs_in_pages(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refill, "FIRST_PAGE", 7)
    monkeypatch.setattr(refill, "PAGE", 3)
    monkeypatch.setattr(overdue, "PAGE", 3)
    monkeypatch.setattr(overdue, "SLICE", 2)
    desk = Desk(clock=clock)
    waiting = await put(desk.store, *[make_job(delay=number % 3, retry=RETRY) for number in range(-8, 35)])
    await put(desk.store, make_ended(State.SUCCEEDED), make_ended(State.CANCELLED))

    await desk.load()

    assert len(desk.agenda) == 7
    async with running(desk):
        await asyncio.sleep(5)
    assert sorted(desk.seqs) == [job.seq for job in waiting]


async def test_attempt_that_ran_when_the_service_stopped_is_lost_and_retried(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "RECOVER_SLICE", 10)
    desk = Desk(clock=clock)
    before = await put(desk.store, *[make_running(retry=RETRY) for _ in range(25)])

    await desk.load()

    after = [await desk.read(job) for job in before]
    assert {(job.state, job.attempt, job.losses, job.failures) for job in after} == {(State.SCHEDULED, 1, 1, 0)}
    assert desk.metrics.ended.values == {("echo", End.LOST): 25}
    async with running(desk):
        await asyncio.sleep(1)
    assert sorted(desk.seqs) == [job.seq for job in before]


async def test_job_lost_three_times_in_a_row_fails(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    job = make_running()
    for _ in range(2):
        job = job.finish(Outcome(End.LOST), clock.now()).start(clock.now())
    (job,) = await put(desk.store, job)

    await desk.load()

    assert (await desk.read(job)).state is State.FAILED
    assert desk.metrics.finished.values == {("echo", "failed"): 1}


async def test_recovery_postponed_by_a_full_disk_follows_when_there_is_room(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    (lost,) = await put(desk.store, make_running())
    (waiting,) = await put(desk.store, make_job())
    desk.store.fill_disk()

    await desk.load()
    async with running(desk):
        await asyncio.sleep(5)
        assert (await desk.read(lost)).state is State.RUNNING
        desk.store.broken.clear()
        await asyncio.sleep(2)

    assert sorted(desk.seqs) == sorted([lost.seq, waiting.seq])
    assert (await desk.read(lost)).losses == 1


@pytest.mark.parametrize("change", ["cancel", "take over"])
async def test_postponed_recovery_ends_jobs_that_changed_meanwhile(clock: VirtualClock, change: str) -> None:
    desk = Desk(clock=clock)
    (lost,) = await put(desk.store, make_running(key="k"))
    desk.store.fill_disk()
    await desk.load()
    desk.store.broken.clear()

    if change == "cancel":
        await desk.store.save([lost.cancel(clock.now(), "enough")])
    else:
        await desk.store.add([make_new_job(key="k", on_conflict=OnConflict.REPLACE)], now=clock.now())
    async with running(desk):
        await asyncio.sleep(2)

    after = await desk.read(lost)
    assert (after.state, after.superseded) == (State.CANCELLED, change == "take over")
    assert desk.metrics.ended.values == {("echo", End.LOST): 1}


async def test_superseded_job_that_ran_when_the_service_stopped_is_not_run_again(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    superseded, newer = await put(desk.store, make_running(key="k").supersede(), make_job(key="k"))

    await desk.load()
    async with running(desk):
        await asyncio.sleep(1)

    after = await desk.read(superseded)
    assert (after.state, after.attempt, after.losses) == (State.CANCELLED, 1, 1)
    assert b'"type":"superseded"' in (after.error or b"")
    assert desk.seqs == [newer.seq]
    assert desk.metrics.finished.values == {("echo", "cancelled"): 1}


async def test_postponed_recovery_leaves_newer_attempts_alone(clock: VirtualClock) -> None:
    desk = Desk(clock=clock)
    await put(desk.store, make_running())
    desk.store.fill_disk()
    await desk.load()
    (started,) = await put(desk.store, make_job())
    desk.store.broken.clear()
    await desk.store.claim([started.seq], now=clock.now())

    async with running(desk):
        await asyncio.sleep(2)

    assert (await desk.read(started)).state is State.RUNNING


# answers that come late


async def test_job_retried_before_its_cancel_was_answered_is_not_lost(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.node.services.queues.pause("default")
        job = await engine.submit()
        await asyncio.sleep(1)
        answer = engine.store.hold_answer("save")
        cancelling = asyncio.create_task(engine.node.services.jobs.cancel(job.id, None, None))
        await asyncio.sleep(1)
        engine.store.answers_held.clear()
        await engine.node.services.jobs.retry(job.id, None)
        await asyncio.sleep(1)

        answer.set()
        await cancelling
        await engine.node.services.queues.resume("default")

        assert (await engine.until_final(job, within=60)).state is State.SUCCEEDED
