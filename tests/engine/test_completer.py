"""Outcomes of attempts for every behaviour of the handler and of the disk."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from erelong.attempt import Attempt, GiveUp
from erelong.handlers.base import AttemptFailed
from erelong.model.job import SECOND, State
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import LimitsSection, WorkersSection
from tests.support.engine import ONCE, STEADY, Engine, error_of, outcomes_of
from tests.support.kinds import FakeRunner, lasting, raising
from tests.support.virtual import VirtualClock

# outcomes


async def test_result_is_kept(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(lasting(1, b'{"n":1}'))) as engine:
        job = await engine.until_final(await engine.submit())

    assert (job.state, job.result, job.attempt) == (State.SUCCEEDED, b'{"n":1}', 1)
    assert job.finished_at is not None
    assert job.started_at is not None
    assert job.finished_at - job.started_at == SECOND


async def test_handler_gets_its_attempt_number(clock: VirtualClock) -> None:
    handler = FakeRunner(raising(ValueError(), None))

    async with Engine(clock=clock, handler=handler) as engine:
        job = await engine.until_final(await engine.submit(timeout=7.0, retry=STEADY))

    first, second = handler.attempts
    assert (first.id, first.number, second.id, second.number) == (job.id, 1, job.id, 2)
    assert (first.kind, first.queue, first.timeout, first.due_at) == ("echo", "default", 7.0, job.execute_at)
    assert first.started_at >= first.due_at


async def test_failed_attempts_are_retried_with_backoff_until_none_are_left(clock: VirtualClock) -> None:
    handler = FakeRunner(raising(ValueError("bad"), KeyError("worse"), ValueError("worst")))

    async with Engine(clock=clock, handler=handler) as engine:
        job = await engine.until_final(await engine.submit(retry=STEADY))
        assert engine.node.metrics.finished.values == {("echo", "failed"): 1}

    started = [attempt.started_at - handler.attempts[0].started_at for attempt in handler.attempts]
    assert started == pytest.approx([0, 10 * SECOND, 30 * SECOND], abs=10_000)
    assert (job.state, job.failures, outcomes_of(job)) == (State.FAILED, 3, ["error"] * 3)
    assert error_of(job) == {"type": "exception", "message": "ValueError: worst", "retryable": True}


async def test_give_up_is_not_retried(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(raising(GiveUp("gone for good")))) as engine:
        job = await engine.until_final(await engine.submit())

    assert (job.state, job.attempt) == (State.FAILED, 1)
    assert error_of(job) == {"type": "give_up", "message": "gone for good", "retryable": False}


async def test_handler_can_set_the_error_and_delay_of_its_failure(clock: VirtualClock) -> None:
    handler = FakeRunner(raising(AttemptFailed("http_status", "503", delay=100), None))

    async with Engine(clock=clock, handler=handler) as engine:
        job = await engine.until_final(await engine.submit(retry=STEADY))

    first, second = handler.attempts
    assert second.started_at - first.started_at == pytest.approx(100 * SECOND, abs=10_000)
    assert orjson.loads(job.history)[0]["error"]["type"] == "http_status"


@pytest.mark.parametrize("wait", [0.0, 3.0, 100.0])
async def test_backoff_set_by_a_handler_replaces_that_of_the_policy(clock: VirtualClock, wait: float) -> None:
    handler = FakeRunner(raising(AttemptFailed("exception", "not yet", backoff=wait), None))

    async with Engine(clock=clock, handler=handler) as engine:
        await engine.until_final(await engine.submit(retry=STEADY))

    first, second = handler.attempts
    assert second.started_at - first.started_at == pytest.approx(wait * SECOND, abs=10_000)


@pytest.mark.parametrize(
    ("delay", "wait"), [(float("inf"), 86_400), (1e300, 86_400), (float("nan"), 10), (-1e9, 10)], ids=str
)
async def test_absurd_delay_of_a_handler_does_no_harm(clock: VirtualClock, delay: float, wait: float) -> None:
    handler = FakeRunner(raising(AttemptFailed("exception", "come again", delay=delay), None))

    async with Engine(clock=clock, handler=handler) as engine:
        await engine.until_final(await engine.submit(retry=STEADY))
        engine.assert_all_given_back()

    first, second = handler.attempts
    assert second.started_at - first.started_at == pytest.approx(wait * SECOND, abs=10_000)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt: "),
        (BaseException("base"), "BaseException: base"),
        (GeneratorExit("generated"), "GeneratorExit: generated"),
        (asyncio.CancelledError(), "CancelledError: the handler cancelled itself"),
        (StopAsyncIteration("stop"), "StopAsyncIteration: stop"),
        (BaseExceptionGroup("both", [SystemExit(1), ValueError()]), "BaseExceptionGroup: both (2 sub-exceptions)"),
        (Mute(), "Mute: (its text could not be made: RuntimeError)"),
        (AttemptFailed(7, None, delay=True, output=b"x"), "None"),  # type: ignore[arg-type]  # a function may raise this
        (AttemptFailed("\ud800", "half a pair"), "half a pair"),
        (AttemptFailed("x", "y", delay="soon"), "AttemptFailed: (it cannot be read: TypeError)"),  # type: ignore[arg-type]
    ],
    ids=lambda value: type(value).__name__,
)
async def test_any_exception_of_a_handler_is_a_failed_attempt(
    clock: VirtualClock, error: BaseException, message: str
) -> None:
    handler = FakeRunner(raising(error, None))

    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=1)) as engine:
        failed = await engine.until_final(await engine.submit(retry=ONCE))
        next_one = await engine.until_final(await engine.submit(), within=1)
        engine.assert_all_given_back()

    assert (failed.state, error_of(failed)["message"]) == (State.FAILED, message)
    assert next_one.state is State.SUCCEEDED


async def test_handler_that_cancels_its_own_task_fails_and_costs_no_worker(clock: VirtualClock) -> None:
    async def cancel_own_task(_: Attempt) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(100)

    handler = FakeRunner(cancel_own_task)

    async with Engine(clock=clock, handler=handler, workers=WorkersSection(concurrency=2)) as engine:
        jobs = await engine.submit_many(20, retry=ONCE)
        failed = [await engine.until_final(job, within=5) for job in jobs]
        handler.work = lasting(1)
        await engine.until_final(await engine.submit(), within=5)
        engine.assert_all_given_back()

    assert {error_of(job)["message"] for job in failed} == {"CancelledError: the handler cancelled itself"}


@pytest.mark.parametrize(
    "result", [b'"' + b"x" * 200 + b'"', b'"x' + "é€😀".encode() * 40 + b'"', b"[" + b'"\\n",' * 50]
)
async def test_result_that_is_too_long_becomes_a_truncated_json_string(clock: VirtualClock, result: bytes) -> None:
    handler = FakeRunner(lasting(0, result))

    async with Engine(clock=clock, handler=handler, limits=LimitsSection(max_result=100)) as engine:
        job = await engine.until_final(await engine.submit())

    assert job.result_truncated
    assert job.result is not None
    kept = orjson.loads(job.result).encode()
    assert result.startswith(kept)
    assert 97 <= len(kept) <= 100


async def test_result_of_exactly_the_limit_is_kept(clock: VirtualClock) -> None:
    result = b'"' + b"x" * 98 + b'"'

    handler = FakeRunner(lasting(0, result))

    async with Engine(clock=clock, handler=handler, limits=LimitsSection(max_result=100)) as engine:
        job = await engine.until_final(await engine.submit())

    assert (job.result, job.result_truncated) == (result, False)


# the store fails


async def test_full_disk_at_a_claim_loses_nothing(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        jobs = await engine.submit_many(500, delay=1.0)
        engine.store.fill_disk()
        await asyncio.sleep(10)
        assert engine.handler.attempts == []
        assert await engine.states() == {State.SCHEDULED: 500}
        engine.store.broken.clear()
        for job in jobs:
            await engine.until_final(job, within=2)

        assert len(engine.handler.attempts) == 500
        engine.assert_all_given_back()


@pytest.mark.parametrize("error", [RuntimeError("a bug"), OSError("the disk")], ids=repr)
async def test_unexpected_error_at_a_claim_loses_nothing(clock: VirtualClock, error: Exception) -> None:
    async with Engine(clock=clock, workers=WorkersSection(concurrency=10)) as engine:
        jobs = await engine.submit_many(50, delay=1.0)
        engine.store.broken["claim"] = error
        await asyncio.sleep(5)
        engine.store.broken.clear()
        for job in jobs:
            await engine.until_final(job, within=5)

        assert engine.node.metrics.laps_failed.values["dispatcher",] >= 5
        engine.assert_all_given_back()


async def test_full_disk_is_not_retried_in_a_busy_loop(clock: VirtualClock) -> None:
    async with Engine(clock=clock, queue=QueueSettings()) as engine:
        await engine.submit_many(1_000, delay=1.0)
        engine.store.fill_disk()
        await asyncio.sleep(11)

        assert 10 <= engine.store.calls.count("claim") <= 25


async def test_full_disk_at_a_save_loses_no_outcome(clock: VirtualClock) -> None:
    async with Engine(clock=clock, handler=FakeRunner(lasting(1, b"1"))) as engine:
        jobs = await engine.submit_many(700)
        await engine.until(lambda: engine.handler.running == 700)
        engine.store.fill_disk()
        await asyncio.sleep(10)
        assert await engine.states() == {State.RUNNING: 700}
        assert len(engine.node.engine.completer) == 700
        assert engine.node.engine.workers.running == 0
        engine.store.broken.clear()
        for job in jobs:
            assert (await engine.until_final(job, within=2)).result == b"1"

        assert len(engine.handler.attempts) == 700


async def test_outcome_added_during_a_save_is_saved_after_it(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        go_on = engine.store.hold("finish")
        first = await engine.submit()
        await engine.until(lambda: "finish" in engine.store.calls)
        second = await engine.submit()
        await engine.until(lambda: len(engine.node.engine.completer) == 2)
        go_on.set()

        assert (await engine.until_final(first, within=2)).state is State.SUCCEEDED
        assert (await engine.until_final(second, within=2)).state is State.SUCCEEDED


async def test_outcome_is_saved_at_once_and_those_soon_after_it_together(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        duty, finishes, rests = engine.node.engine.duties["completer"], [], []
        for _ in range(2):  # the second time long after the last save
            await engine.submit_all([{"delay": 1 + after} for after in (0.0, 0.001, 0.002, 0.003)])
            await asyncio.sleep(0.9995)
            for _ in range(3):
                await asyncio.sleep(0.001)
                finishes.append(engine.store.calls.count("finish"))
                rests.append(duty.is_resting)
            await asyncio.sleep(1)

        assert engine.store.calls.count("finish") == 4
        assert finishes == [1, 1, 1, 3, 3, 3]
        assert rests == [True, False, False] * 2  # nothing wakes it unless another outcome comes


async def test_no_attempt_starts_while_too_many_outcomes_are_unsaved(clock: VirtualClock) -> None:
    workers = WorkersSection(concurrency=10, max_unsaved=30)
    async with Engine(clock=clock, workers=workers) as engine:
        engine.store.broken["finish"] = RuntimeError("not now")
        jobs = await engine.submit_many(200)
        await asyncio.sleep(10)
        started = len(engine.handler.attempts)
        assert engine.node.engine.completer.is_full
        assert engine.node.health.checks()["outcomes"].startswith(f"{started} unsaved outcomes")
        engine.store.broken.clear()
        for job in jobs:
            await engine.until_final(job, within=2)

        assert 30 <= started <= 40
        assert len(engine.handler.attempts) == 200
