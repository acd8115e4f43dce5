"""The worker pool: its limit, its timeouts, and the release of each slot exactly once."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import orjson
import pytest

from erelong.attempt import Attempt
from erelong.clock.instants import Instant
from erelong.errors import StoreUnavailable
from erelong.handlers.base import Stop
from erelong.model.job import SECOND, State
from erelong.settings.sections import WorkersSection
from erelong.stores.base import Claim
from tests.support.builders import purge
from tests.support.engine import ONCE, STEADY, Engine, error_of, outcomes_of
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, for_ever, lasting, raising
from tests.support.virtual import VirtualClock

GRACE = 2.0  # the default


# how many


async def test_no_more_attempts_run_at_once_than_concurrency_allows(clock: VirtualClock) -> None:
    handler = FakeRunner(lasting(10))

    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=7)) as engine:
        jobs = await engine.submit_many(50)
        await engine.until(lambda: handler.running == 7)
        assert engine.node.engine.workers.free == 0
        done = await engine.until_final(jobs[-1])

        assert handler.most_running == 7
        assert done.started_at is not None
        assert done.started_at - done.created_at == pytest.approx(70 * SECOND, abs=SECOND)
        engine.assert_all_given_back()


async def test_all_workers_are_used_at_once(clock: VirtualClock) -> None:
    handler = FakeRunner(lasting(10))

    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=300)) as engine:
        await engine.submit_many(300)
        await engine.until(lambda: handler.running == 300, within=0.1)


async def test_claimed_jobs_wait_while_another_node_may_have_taken_over(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        store = engine.store
        is_renewed = asyncio.Event()

        async def renew() -> None:
            await is_renewed.wait()
            store.is_trusted = True

        store.is_trusted, store.trust = False, renew  # type: ignore[method-assign]
        await engine.submit_many(400)  # more than are woken at once
        await asyncio.sleep(5)
        before = await engine.states()
        is_renewed.set()
        await asyncio.sleep(1)

        assert before == {State.RUNNING: 400}
        assert await engine.states() == {State.SUCCEEDED: 400}
        assert {attempt.number for attempt in engine.handler.attempts} == {1}
        assert len(engine.handler.attempts) == 400
        engine.assert_all_given_back()


async def test_claimed_jobs_never_start_after_another_node_has_taken_over(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        store = engine.store

        async def find_it_lost() -> None:
            raise StoreUnavailable("another node writes the store")

        store.is_trusted, store.trust = False, find_it_lost  # type: ignore[method-assign]
        await engine.submit_many(20)
        await asyncio.sleep(0.1)
        runs = len(engine.handler.attempts)
        store.is_trusted = True
        await asyncio.sleep(5)

        assert runs == 0
        assert await engine.states() == {State.SUCCEEDED: 20}  # this one leads again: the released jobs start
        engine.assert_all_given_back()


async def test_burst_of_ten_thousand_jobs_runs_each_once(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(10_000, retry=ONCE)
        await engine.until_final(jobs[-1])
        await engine.until(lambda: not engine.node.engine.completer)

        assert await engine.states() == {State.SUCCEEDED: 10_000}
        assert sorted(attempt.id for attempt in engine.handler.attempts) == [job.id for job in jobs]
        engine.assert_all_given_back()


async def test_burst_of_short_jobs_leaves_time_for_other_tasks(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    in_one_turn = [0]

    async def count(_: Attempt) -> None:
        if in_one_turn[-1] == 0:
            loop.call_soon(in_one_turn.append, 0)
        in_one_turn[-1] += 1

    async with Engine(clock=clock, handler=FakeRunner(count), workers=WorkersSection(concurrency=500)) as engine:
        jobs = await engine.submit_many(5_000, retry=ONCE)
        await engine.until_final(jobs[-1])

    assert sum(in_one_turn) == 5_000
    assert max(in_one_turn) <= 500


async def test_jobs_that_are_claimed_together_begin_in_their_order(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_all([{"priority": priority, "delay": 5} for priority in (3, 1, 4, 2, 0)])
        await engine.until(lambda: len(engine.handler.attempts) == 5)

        ranked = sorted(jobs, key=lambda job: -job.priority)
        assert [attempt.id for attempt in engine.handler.attempts] == [job.id for job in ranked]


async def test_each_of_many_attempts_that_begin_and_end_together_is_counted(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(150, retry=ONCE)
        await engine.until_final(jobs[-1])
        await engine.until(lambda: not engine.node.engine.completer)
        metrics = engine.node.metrics

        assert metrics.submitted.values == {("echo",): 150}
        assert metrics.started.values == {("echo",): 150}
        assert metrics.ended.values == {("echo", "succeeded"): 150}
        assert metrics.finished.values == {("echo", "succeeded"): 150}
        assert (sum(metrics.late._counts["echo"]), sum(metrics.duration._counts["echo"])) == (150, 150)


async def test_idle_worker_keeps_no_reference_to_a_job(clock: VirtualClock) -> None:
    result = orjson.dumps("y" * 1_000)
    alone = sys.getrefcount(result)
    async with Engine(clock=clock, handler=FakeRunner(lasting(1, result))) as engine:
        params = (await engine.submit(params={"big": "x" * 60_000})).params
        await engine.until(lambda: engine.handler.running == 1)
        engine.handler.work = for_ever
        await engine.until(lambda: engine.store.calls[-1] == "finish")
        await purge(engine.store, "default", State.SUCCEEDED, before=clock.now() + SECOND, limit=1)

        assert {worker.job for worker in engine.node.engine.workers._workers} == {None}
        assert (sys.getrefcount(params), sys.getrefcount(result)) == (alone, alone)


async def test_unreadable_job_is_logged_and_counted_at_its_claim(clock: VirtualClock) -> None:
    class SpoilingStore(FaultyStore):
        async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
            unreadable = [
                job.mark_unreadable(now, "its stored params cannot be read") for job in (await self.get(seqs)).values()
            ]
            await self.save(unreadable)
            return Claim([], [], unreadable)

    async with Engine(clock=clock, store=SpoilingStore()) as engine:
        job = await engine.submit(delay=1)
        watched = asyncio.create_task(engine.until_final(job, within=30))
        began = asyncio.get_running_loop().time()
        job = await watched

        assert (job.state, error_of(job)["type"]) == (State.FAILED, "unreadable")
        assert asyncio.get_running_loop().time() - began < 2
        assert engine.node.metrics.finished.values == {("echo", "failed"): 1}
        engine.assert_all_given_back()


async def test_failed_release_of_slots_keeps_no_outcome_from_being_saved(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    async with Engine(clock=clock) as engine:
        monkeypatch.setattr(engine.node.engine.lanes, "release", lambda *_: 1 / 0)
        job = await engine.submit()
        await asyncio.sleep(1)
        monkeypatch.undo()

        assert (await engine.read(job)).state is State.SUCCEEDED
        assert len(failures) == 1


# timeouts


async def test_attempt_is_stopped_exactly_at_its_timeout(clock: VirtualClock) -> None:
    stopped_at = []

    async def note_the_stop(_: Attempt) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped_at.append(clock.now())

    async with Engine(clock=clock, handler=FakeRunner(note_the_stop)) as engine:
        long = await engine.submit(timeout=30.0, retry=ONCE)
        short = await engine.submit(timeout=0.25, retry=ONCE)
        await engine.submit(timeout=0.28, retry=ONCE)
        started_at = clock.now()
        long, short = await engine.until_final(long), await engine.until_final(short)
        engine.assert_all_given_back()

    assert stopped_at == pytest.approx([started_at + 250_000, started_at + 280_000, started_at + 30 * SECOND], abs=2)
    assert outcomes_of(long) == outcomes_of(short) == ["timeout"]
    assert error_of(short) == {"type": "timeout", "message": "it did not end within 0.25 s", "retryable": True}


async def test_attempt_that_ends_in_time_is_left_alone(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(lasting(0.999))) as engine:
        job = await engine.until_final(await engine.submit(timeout=1.0))

    assert job.state is State.SUCCEEDED


async def test_timed_out_attempt_is_retried(clock: VirtualClock) -> None:
    async def slow_at_first(attempt: Attempt) -> None:
        await asyncio.sleep(100 if attempt.number == 1 else 0)

    async with Engine(clock=clock, handler=FakeRunner(slow_at_first)) as engine:
        job = await engine.until_final(await engine.submit(timeout=1.0, retry=STEADY))

    assert (job.state, outcomes_of(job)) == (State.SUCCEEDED, ["timeout", "succeeded"])


@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_result_after_the_timeout_does_not_count(clock: VirtualClock, ending: str) -> None:
    async def too_late(_: Attempt) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ending == "raises":
                raise ValueError("cleaning up failed") from None
        return b'"late"'

    async with Engine(clock=clock, handler=FakeRunner(too_late)) as engine:
        job = await engine.until_final(await engine.submit(timeout=1.0, retry=ONCE))
        again = await engine.until_final(await engine.submit(timeout=1.0, retry=ONCE))

    assert (job.state, job.result, error_of(job)["type"]) == (State.FAILED, None, "timeout")
    assert again.state is State.FAILED, "a worker that was cancelled once works on"


async def test_worker_whose_attempt_was_stopped_works_on(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(for_ever), workers=WorkersSection(concurrency=1)) as engine:
        jobs = await engine.submit_many(3, timeout=1.0, retry=ONCE)
        await engine.until_final(jobs[0])
        (worker,) = engine.node.engine.workers._workers
        await engine.until_final(jobs[-1])

        assert engine.node.engine.workers._workers == {worker}
        assert not worker.task.done()


@pytest.mark.parametrize("late_by", [0.0, 1.0])
async def test_worker_cancelled_by_leftover_code_of_its_handler_is_replaced(
    clock: VirtualClock, late_by: float
) -> None:
    """The worker is idle by then, or has just been woken."""

    async def cancel_worker_later(_: Attempt) -> None:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().call_later(1.0, task.cancel)

    handler = FakeRunner(cancel_worker_later)
    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=2)) as engine:
        for _ in range(20):
            (job, *_) = await engine.submit_many(2, retry=ONCE)
            assert (await engine.until_final(job, within=5)).state is State.SUCCEEDED
            await asyncio.sleep(1.0 + late_by)

        await engine.until(lambda: not engine.node.engine.completer)
        assert engine.node.engine.workers._waking == 0
        engine.assert_all_given_back()


async def test_worker_cancelled_between_wake_and_run_is_replaced(clock: VirtualClock) -> None:
    async with Engine(clock=clock, workers=WorkersSection(concurrency=1)) as engine:
        workers = engine.node.engine.workers
        await engine.until_final(await engine.submit(retry=ONCE))
        (worker,) = workers._workers
        wake, woken = workers._wake_some, 0

        def wake_and_cancel() -> None:
            nonlocal woken
            wake()
            if worker.is_waking and not worker.task.done():
                woken += 1
                worker.task.cancel()

        workers._wake_some = wake_and_cancel  # type: ignore[method-assign]  # no event lies between the two
        done = await engine.until_final(await engine.submit(retry=ONCE), within=5)

        assert (done.state, woken) == (State.SUCCEEDED, 1)
        assert (len(workers._workers), workers._waking) == (1, 0)


async def test_duration_is_measured_on_the_monotonic_clock(clock: VirtualClock) -> None:
    async def block_the_loop(_: Attempt) -> None:
        clock.step(-3_600)
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            pass

    async with Engine(clock=clock, handler=FakeRunner(block_the_loop)) as engine:
        await engine.until_final(await engine.submit(retry=ONCE))

        assert 0.02 <= engine.node.metrics.duration._sums["echo"] < 5


async def test_workers_end_with_their_loop_even_in_the_middle_of_an_attempt(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(for_ever), workers=WorkersSection(concurrency=5)) as engine:
        await engine.submit_many(3)
        await engine.until(lambda: engine.handler.running == 3)
        tasks = [worker.task for worker in engine.node.engine.workers._workers]

        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=10)

        assert not pending


async def test_a_thousand_hanging_attempts_are_all_final_within_timeout_and_grace(clock: VirtualClock) -> None:
    handler = FakeRunner()
    handler.work = handler.swallow

    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=1_000)) as engine:
        jobs = await engine.submit_many(1_000, timeout=5.0, retry=ONCE)
        for job in jobs:
            await engine.until_final(job)

        assert clock.now() - jobs[0].created_at <= (5 + GRACE + 1) * SECOND
        assert await engine.states() == {State.FAILED: 1_000}
        assert engine.node.engine.workers.abandoned == 1_000
        engine.assert_all_given_back()


async def test_handler_with_stop_kill_enforces_its_own_timeout(clock: VirtualClock) -> None:
    handler = FakeRunner(lasting(100, b"1"), stop=Stop.KILL)

    async with Engine(clock=clock, handler=handler) as engine:
        killing = await engine.submit(timeout=1.0, retry=ONCE)
        killed = await engine.until_final(killing)

    assert (killed.state, killed.result) == (State.SUCCEEDED, b"1")


async def test_handler_with_stop_kill_is_cancelled_and_never_abandoned(clock: VirtualClock) -> None:
    async def end_slowly(_: Attempt) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(50 * GRACE)

    async with Engine(clock=clock, handler=FakeRunner(end_slowly, stop=Stop.KILL)) as engine:
        job = await engine.submit()
        await engine.until(lambda: engine.handler.running == 1)
        asked_at = clock.now()
        await engine.node.services.jobs.cancel(job.id, None, None)
        job = await engine.until_final(job)

        assert (job.state, engine.node.engine.workers.abandoned) == (State.CANCELLED, 0)
        assert job.finished_at == pytest.approx(asked_at + 50 * GRACE * SECOND, abs=2)
        engine.assert_all_given_back()


# handlers that do not stop


async def test_attempt_that_ignores_its_cancellation_is_abandoned_after_the_grace(clock: VirtualClock) -> None:
    handler = FakeRunner()
    handler.work = handler.swallow

    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=1)) as engine:
        job = await engine.until_final(await engine.submit(timeout=1.0, retry=ONCE))

        assert job.finished_at is not None
        assert job.started_at is not None
        assert job.finished_at - job.started_at == pytest.approx((1 + GRACE) * SECOND, abs=2)
        assert (job.state, outcomes_of(job)) == (State.FAILED, ["timeout"])
        assert (engine.node.engine.workers.abandoned, engine.node.engine.workers.running) == (1, 0)


async def test_abandoned_worker_is_replaced(clock: VirtualClock) -> None:
    handler = FakeRunner()
    handler.work = handler.swallow

    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=1)) as engine:
        await engine.until_final(await engine.submit(timeout=1.0, retry=ONCE))
        handler.work = lasting(1)
        job = await engine.until_final(await engine.submit(), within=2)

        assert job.state is State.SUCCEEDED
        assert engine.node.engine.workers.abandoned == 1


async def test_late_end_of_an_abandoned_attempt_lowers_the_count_and_drops_the_result(clock: VirtualClock) -> None:
    handler = FakeRunner()
    handler.work = handler.swallow

    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=1)) as engine:
        job = await engine.until_final(await engine.submit(timeout=1.0, retry=ONCE))
        (lost,) = engine.node.engine.workers._abandoned
        handler.let_go.set()
        await asyncio.sleep(1)

        assert lost.task.exception() is None
        assert await engine.read(job) == job
        assert engine.node.engine.workers.abandoned == 0
        assert engine.node.metrics.ended.values == {("echo", "timeout"): 1}
        engine.assert_all_given_back()


async def test_late_end_of_an_abandoned_attempt_does_not_disturb_the_next_of_its_job(clock: VirtualClock) -> None:
    handler = FakeRunner()

    async def first_hangs(attempt: Attempt) -> bytes | None:
        if attempt.number == 1:
            return await handler.swallow(attempt)
        await asyncio.sleep(10)
        return b'"second"'

    handler.work = first_hangs
    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=1)) as engine:
        job = await engine.submit(timeout=30.0, retry=STEADY)
        await engine.until(lambda: len(handler.attempts) == 2, within=100)
        handler.let_go.set()
        job = await engine.until_final(job)

    assert (job.result, outcomes_of(job)) == (b'"second"', ["timeout", "succeeded"])


# cancels


async def test_running_attempt_is_stopped_by_a_cancel(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(for_ever)) as engine:
        job = await engine.submit()
        await engine.until(lambda: engine.handler.running == 1)
        job_after_cancel = await engine.node.services.jobs.cancel(job.id, "not needed", None)
        job = await engine.until_final(job, within=0.1)
        engine.assert_all_given_back()

    assert job_after_cancel.state is State.RUNNING
    assert (job.state, outcomes_of(job)) == (State.CANCELLED, ["cancelled"])
    assert error_of(job)["message"] == "not needed"


async def test_attempt_that_ignores_a_cancel_request_is_abandoned_after_the_grace(clock: VirtualClock) -> None:
    handler = FakeRunner()
    handler.work = handler.swallow

    async with Engine(clock=clock, handler=handler) as engine:
        job = await engine.submit()
        await engine.until(lambda: handler.running == 1)
        asked_at = clock.now()
        await engine.node.services.jobs.cancel(job.id, None, None)
        job = await engine.until_final(job)

        assert job.finished_at == pytest.approx(asked_at + GRACE * SECOND, abs=2)
        assert (job.state, engine.node.engine.workers.abandoned) == (State.CANCELLED, 1)


async def test_attempt_of_a_kind_that_cannot_be_stopped_runs_on_after_a_cancel(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(lasting(10, b"1"), stop=Stop.NONE)) as engine:
        job = await engine.submit()
        await engine.until(lambda: engine.handler.running == 1)
        await engine.node.services.jobs.cancel(job.id, None, None)
        job = await engine.until_final(job)

    assert (job.state, job.result) == (State.SUCCEEDED, b"1")


async def test_job_cancelled_during_its_claim_never_starts(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        claimed = engine.store.hold_answer("claim")
        job, other = await engine.submit_many(2)
        await engine.until(lambda: "claim" in engine.store.calls)
        job_after_cancel = await engine.node.services.jobs.cancel(job.id, None, None)
        assert job_after_cancel.state is State.RUNNING
        claimed.set()
        job, other = await engine.until_final(job, within=1), await engine.until_final(other, within=1)

        assert [attempt.id for attempt in engine.handler.attempts] == [other.id]
        assert (job.state, other.state) == (State.CANCELLED, State.SUCCEEDED)
        engine.assert_all_given_back()


async def test_job_cancelled_between_claim_and_start_never_starts(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        job = await engine.submit()
        await engine.until(lambda: bool(engine.node.engine.workers._pending), step=0)
        await engine.node.services.jobs.cancel(job.id, None, None)
        job = await engine.until_final(job, within=1)

        assert (job.state, engine.handler.attempts) == (State.CANCELLED, [])
        engine.assert_all_given_back()


async def test_cancel_requested_while_a_success_is_unsaved_does_not_undo_it(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(lasting(1, b"1"))) as engine:
        job = await engine.submit()
        await engine.until(lambda: engine.handler.running == 1)
        engine.store.fill_disk()
        await engine.until(lambda: len(engine.node.engine.completer) == 1)
        engine.store.broken.clear()
        job_after_cancel = await engine.node.services.jobs.cancel(job.id, None, None)
        job = await engine.until_final(job)

    assert (job_after_cancel.state, job.state, job.result) == (State.RUNNING, State.SUCCEEDED, b"1")


async def test_cancel_requested_while_a_failure_is_unsaved_ends_the_job(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(raising(ValueError()))) as engine:
        engine.store.broken["finish"] = RuntimeError("not now")
        job = await engine.submit(retry=STEADY)
        await engine.until(lambda: len(engine.node.engine.completer) == 1)
        engine.store.broken.clear()
        await engine.node.services.jobs.cancel(job.id, "enough", None)
        job = await engine.until_final(job)

    assert (job.state, job.attempt, outcomes_of(job)) == (State.CANCELLED, 1, ["error"])


async def test_late_cancel_does_not_stop_the_job_after_its_retry(clock: VirtualClock) -> None:
    handler = FakeRunner(raising(ValueError(), None))
    async with Engine(clock=clock, handler=handler) as engine:
        handler_of_others = await engine.submit(delay=1)  # something always runs
        engine.store.broken["finish"] = RuntimeError("not now")
        job = await engine.submit(retry=STEADY)
        await engine.until(lambda: len(engine.node.engine.completer) == 1)
        handler.work = lasting(50)
        await engine.until(lambda: handler.running == 1)
        engine.store.broken.clear()
        await engine.node.services.jobs.cancel(job.id, None, None)
        await engine.until_final(job, within=5)
        await engine.node.services.jobs.retry(job.id, None)
        job = await engine.until_final(job)

        assert (job.state, outcomes_of(job)) == (State.SUCCEEDED, ["error", "succeeded"])
        await engine.until_final(handler_of_others)
