"""The agenda holds the near future and the store the rest; each job runs on time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from erelong.engine.window import overdue, refill
from erelong.errors import StoreUnavailable
from erelong.lanes import lane
from erelong.model.job import SECOND, Job, State
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import JobsSection
from erelong.stores.base import Instants, Peeks
from tests.support.builders import make_job, make_retry, put
from tests.support.desk import HOUR, RETRY, Desk, running
from tests.support.engine import Engine
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, lasting, raising
from tests.support.virtual import VirtualClock

MINUTE = 60.0
SMALL = JobsSection(window=MINUTE, window_jobs=40)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refill, "FIRST_PAGE", 7)
    monkeypatch.setattr(refill, "PAGE", 5)
    monkeypatch.setattr(overdue, "PAGE", 6)
    monkeypatch.setattr(overdue, "SLICE", 4)


class SlowStore(FaultyStore):
    """A store whose reads take milliseconds, as with many jobs."""

    async def peek(self, seqs: Sequence[int]) -> Peeks:
        await asyncio.sleep(0.002)
        return await super().peek(seqs)

    async def due(self, after: tuple[int, int], before: int, limit: int) -> Instants:
        await asyncio.sleep(0.01)
        return await super().due(after, before, limit)


async def stored(store: FaultyStore, clock: VirtualClock, *delays: float, **fields: object) -> list[Job]:
    """Store jobs before the start."""
    now = clock.now()
    jobs = [make_job(delay=delay, now=now, **fields) for delay in delays]  # type: ignore[arg-type]  # stored unchanged
    return await put(store, *[job._replace(due_at=job.execute_at) for job in jobs])


def late_by(engine: Engine) -> list[float]:
    return [(attempt.started_at - attempt.due_at) / SECOND for attempt in engine.handler.attempts]


def started_ids(engine: Engine) -> list[str]:
    return [attempt.id for attempt in engine.handler.attempts]


# the near future


async def test_job_beyond_the_window_waits_in_the_store_and_runs_on_time(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        far, near = await engine.submit_all([{"delay": HOUR}, {"delay": 30.0}])
        await asyncio.sleep(1)
        assert len(engine.node.engine.agenda) == 1

        await asyncio.sleep(HOUR)

        assert started_ids(engine) == [near.id, far.id]
        assert max(late_by(engine)) < 0.002


async def test_only_the_first_page_is_read_before_the_service_is_ready(clock: VirtualClock) -> None:
    store = FaultyStore()
    jobs = await stored(store, clock, *range(1, 50))
    engine = Engine(clock=clock, store=store, jobs=JobsSection(window_jobs=1_000))
    await engine.node.start()
    at_ready = len(engine.node.engine.agenda)
    await asyncio.sleep(0.5)
    soon_after = len(engine.node.engine.agenda)
    await asyncio.sleep(60)
    await engine.node.stop()

    assert (at_ready, soon_after) == (7, len(jobs))
    assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)
    assert max(late_by(engine)) < 0.002


async def test_agenda_stays_within_its_limit_and_all_jobs_run_on_time(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        jobs = await engine.submit_all([{"delay": 1 + (number * 37 % 300) / 10} for number in range(300)])
        held = len(engine.node.engine.agenda)
        await asyncio.sleep(40)

        assert held <= 40
        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)
        assert max(late_by(engine)) < 0.003


async def test_more_jobs_than_the_agenda_may_hold_are_read_in_time_after_a_start(clock: VirtualClock) -> None:
    store = SlowStore()
    jobs = await stored(store, clock, *[1 + number / 250 for number in range(500)])
    async with Engine(clock=clock, store=store, jobs=SMALL) as engine:
        await asyncio.sleep(7)

        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)
        assert max(late_by(engine)) < 0.005


async def test_more_jobs_of_one_instant_than_the_agenda_may_hold_all_run(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        jobs = await engine.submit_many(300, delay=10)
        await asyncio.sleep(15)

        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)


async def test_job_moved_out_of_the_window_and_back_runs_once_at_its_last_time(clock: VirtualClock) -> None:
    desk = Desk(clock=clock, jobs=SMALL)
    await desk.load()
    async with running(desk):
        start = clock.now()
        job = await desk.add(delay=30)
        job = await desk.save(job.move(start + 600 * SECOND, start))
        job = await desk.save(job.move(start + 300 * SECOND, start))
        await asyncio.sleep(299)
        assert desk.seqs == []
        await asyncio.sleep(2)

    assert desk.seqs == [job.seq]


async def test_retry_beyond_the_window_comes_on_time(clock: VirtualClock) -> None:
    handler = FakeRunner(raising(ValueError("boom"), None))
    async with Engine(clock=clock, handler=handler, jobs=SMALL) as engine:
        retry = make_retry(max_attempts=2, delay=500, jitter=0)
        job = await engine.submit(retry=retry)
        await engine.until_final(job)

        assert len(engine.handler.attempts) == 2
        assert max(late_by(engine)) < 0.002


# the clock


async def test_step_forward_beyond_the_edge_leaves_no_job_behind(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        jobs = await engine.submit_all([{"delay": 10.0 * number} for number in range(1, 101)])
        await asyncio.sleep(5)
        clock.step(505)
        await asyncio.sleep(2)
        soon = started_ids(engine)
        await asyncio.sleep(500)

        assert sorted(soon) == sorted(job.id for job in jobs[:51])
        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)
        assert min(late_by(engine)) >= 0


async def test_second_step_forward_while_nothing_can_be_read_leaves_no_job_behind(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        jobs = await engine.submit_all([{"delay": 10.0 * number} for number in range(1, 61)])
        engine.store.broken["due"] = StoreUnavailable("not now")
        for _ in range(2):
            clock.step(300)
            await asyncio.sleep(3)
        engine.store.broken.clear()
        await asyncio.sleep(5)

        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)


async def test_step_back_while_overdue_jobs_are_read_starts_none_early(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        jobs = await engine.submit_all([{"delay": 100.0 + number} for number in range(50)])
        await asyncio.sleep(5)
        answer = engine.store.hold_answer("due")
        clock.step(500)
        await asyncio.sleep(1)
        clock.step(-500)
        engine.store.answers_held.clear()
        answer.set()
        await asyncio.sleep(200)

        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)
        assert min(late_by(engine)) >= 0
        assert max(late_by(engine)) < 0.003


# failures


async def test_read_that_fails_is_repeated_and_readyz_names_the_duty(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        jobs = await engine.submit_all([{"delay": 100.0 + number} for number in range(50)])
        engine.store.broken["due"] = StoreUnavailable("not now")
        await asyncio.sleep(50)
        status = engine.node.health.checks()["refill"]
        engine.store.broken.clear()
        await asyncio.sleep(2)
        healed = engine.node.health.checks()["refill"]
        await asyncio.sleep(110)

        assert status.startswith("failed ")
        assert healed == "ok"
        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)
        assert max(late_by(engine)) < 0.003


async def test_new_jobs_run_on_time_while_nothing_can_be_read_for_longer_than_a_window(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        engine.store.broken["due"] = StoreUnavailable("not now")
        await asyncio.sleep(10 * MINUTE)
        jobs = await engine.submit_all([{"delay": 0.0}, {"delay": 50.0}])
        await asyncio.sleep(MINUTE)

        assert started_ids(engine) == [job.id for job in jobs]
        assert max(late_by(engine)) < 0.002


async def test_job_stored_while_its_page_is_read_is_not_lost(clock: VirtualClock) -> None:
    async with Engine(clock=clock, jobs=SMALL) as engine:
        answer = engine.store.hold_answer("due")
        await asyncio.sleep(20)
        job = await engine.submit(delay=50.0)
        engine.store.answers_held.clear()
        answer.set()
        await asyncio.sleep(60)

        assert started_ids(engine) == [job.id]


# overdue jobs


async def test_overdue_jobs_delay_no_newly_due_job(clock: VirtualClock) -> None:
    store = SlowStore()
    late = await stored(store, clock, *range(-400, 0))
    fresh = await stored(store, clock, *[0.01 * number for number in range(1, 15)])
    async with Engine(clock=clock, store=store) as engine:
        await asyncio.sleep(0.15)
        waiting = len(late) + len(fresh) - len(started_ids(engine))
        await asyncio.sleep(5)

        assert waiting > 50
        assert sorted(started_ids(engine)) == sorted(job.id for job in [*late, *fresh])
        begun_at = {attempt.id: attempt.started_at for attempt in engine.handler.attempts}
        assert max(begun_at[job.id] - (job.due_at or 0) for job in fresh) < 0.005 * SECOND


async def test_walk_extended_at_its_last_page_continues_to_its_new_end(clock: VirtualClock) -> None:
    store = FaultyStore()
    jobs = await stored(store, clock, *range(-10, 0))
    desk = Desk(clock=clock)
    await put(desk.store, *jobs)
    middle = clock.now() - 5 * SECOND
    async with running(desk):
        peek = desk.store.hold("glance")
        desk.overdue.add((-1, -1), middle)
        await asyncio.sleep(1)
        desk.overdue.add((middle, -1), clock.now())
        desk.store.held.clear()
        peek.set()
        await asyncio.sleep(1)

    assert sorted(desk.seqs) == [job.seq for job in jobs]


async def test_overdue_jobs_that_have_expired_do_not_run(clock: VirtualClock) -> None:
    store = FaultyStore()
    await stored(store, clock, *range(-20, 0), expires_after=0.5, retry=RETRY)
    clock.step(10)
    async with Engine(clock=clock, store=store) as engine:
        await asyncio.sleep(5)

        assert started_ids(engine) == []
        assert engine.node.metrics.finished.values == {("echo", "expired"): 20}


async def test_walk_over_overdue_jobs_continues_after_failed_reads(clock: VirtualClock) -> None:
    store = FaultyStore()
    jobs = await stored(store, clock, *range(-20, 0))
    async with Engine(clock=clock, store=store) as engine:
        store.broken["peek"] = StoreUnavailable("not now")
        await asyncio.sleep(5)
        status = engine.node.health.checks()["overdue"]
        store.broken.clear()
        await asyncio.sleep(5)

        assert status.startswith("failed ")
        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)


async def test_overdue_row_that_cannot_be_read_keeps_no_other_from_running(clock: VirtualClock) -> None:
    store = FaultyStore()
    bad, *sound = await stored(store, clock, *range(-20, 0))
    store.refuse("peek", bad.seq)
    async with Engine(clock=clock, store=store) as engine:
        await asyncio.sleep(5)
        assert sorted(started_ids(engine)) == sorted(job.id for job in sound)
        store.refused.clear()
        await asyncio.sleep(61)

        assert bad.id in started_ids(engine)


# full lanes


async def test_spilled_jobs_run_in_order_when_their_lane_has_drained(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "MAX_DUE", 45)
    store = FaultyStore()
    jobs = await stored(store, clock, *range(-300, 0))
    handler = FakeRunner(lasting(0.01))
    async with Engine(clock=clock, store=store, handler=handler, queue=QueueSettings(concurrency=1)) as engine:
        await asyncio.sleep(1)
        ((default,), _) = await engine.node.services.queues.page()
        held = engine.node.engine.lanes._lanes["default"].due
        at_first = len(started_ids(engine))
        await asyncio.sleep(10)

        assert held <= 45
        assert default.counts["due"] == default.counts["scheduled"] == pytest.approx(300 - at_first, abs=2)
        assert default.oldest_due_age == pytest.approx(301 - at_first, abs=3)
        assert started_ids(engine) == [job.id for job in jobs]


async def test_spilled_job_expires_on_time(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MAX_DUE", 45)
    async with Engine(clock=clock) as engine:
        await engine.node.services.queues.pause("default")
        jobs = await engine.submit_many(200, expires_after=30.0)
        await asyncio.sleep(29.9)
        before = await engine.states()
        await asyncio.sleep(0.2)

        assert before == {State.SCHEDULED: len(jobs)}
        assert await engine.states() == {State.EXPIRED: len(jobs)}
        assert (await engine.node.services.queues.get("default")).counts["due"] == 0


async def test_purged_queue_forgets_its_spilled_jobs(clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MAX_DUE", 45)
    async with Engine(clock=clock) as engine:
        queues = engine.node.services.queues
        await queues.pause("default")
        await engine.submit_many(200)
        await asyncio.sleep(1)
        await queues.purge("default")
        await asyncio.sleep(1)
        fresh = await engine.submit_many(3)
        await asyncio.sleep(1)
        due = (await queues.get("default")).counts["due"]
        await queues.resume("default")
        await asyncio.sleep(1)

        assert due == 3
        assert sorted(started_ids(engine)) == sorted(job.id for job in fresh)


async def test_spilled_jobs_are_found_after_a_step_back_of_the_clock(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "MAX_DUE", 45)
    async with Engine(clock=clock) as engine:
        await engine.node.services.queues.pause("default")
        jobs = await engine.submit_many(200, delay=100.0)
        await asyncio.sleep(101)
        clock.step(-60)
        await engine.node.services.queues.resume("default")
        await asyncio.sleep(100)

        assert sorted(started_ids(engine)) == sorted(job.id for job in jobs)
        assert min(late_by(engine)) >= 0
