"""The watchdog logs the code that blocks the loop while it does, and the end of the block."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from typing import Any

import pytest

from erelong.engine.workers import Worker
from erelong.monitoring.watchdog import Watchdog
from erelong.telemetry.log import current_job
from erelong.telemetry.metrics import Metrics
from tests.support.builders import make_running

JOB = make_running(kind="slow", queue="q")._replace(attempt=2)

pytestmark = pytest.mark.real_loop("asyncio", "uvloop")


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, Any]]]:
    records = [record for record in caplog.records if record.levelno >= logging.WARNING]
    return [(record.getMessage(), record.__dict__["fields"]) for record in records]


def block(seconds: float) -> None:
    time.sleep(seconds)


async def run_blocking(worker: Worker) -> None:
    block(0.3)


async def test_blocking_attempt_is_logged_with_its_stack_and_duration(caplog: pytest.LogCaptureFixture) -> None:
    metrics, worker = Metrics(), Worker()
    worker.job = JOB
    async with Watchdog(limit=0.1, metrics=metrics) as watchdog:
        await asyncio.sleep(0.02)
        await asyncio.create_task(run_blocking(worker), name="worker-1")
        await asyncio.sleep(0.02)
        state = watchdog.state()

    (blocked, about), (over, after) = events(caplog)
    assert (blocked, over) == ("loop_blocked", "loop_recovered")
    named = {"task": "worker-1", "job": JOB.id, "kind": "slow", "queue": "q", "attempt": 2}
    assert about.items() >= named.items()
    assert about["stack"].split(" < ")[0].endswith(" block")
    assert " run_blocking" in about["stack"]
    assert 0.1 <= about["seconds"] < 0.3
    assert after == named | {"seconds": after["seconds"]}
    assert 0.2 <= after["seconds"] < 0.5
    assert "look for loop_blocked" in state
    assert metrics.blocks.values[()] == 1
    assert 0.2 <= metrics.blocked.values[()] < 0.5


@pytest.mark.skipif(sys.version_info < (3, 12), reason="a task tells its context from Python 3.12 on")
async def test_task_of_an_attempt_is_logged_with_its_job(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        current_job.set(JOB)
        await asyncio.create_task(asyncio.to_thread(lambda: None))
        await asyncio.create_task(child())

    async def child() -> None:
        block(0.3)

    async with Watchdog(limit=0.1, metrics=Metrics()):
        await asyncio.sleep(0.02)
        await asyncio.create_task(run())
        await asyncio.sleep(0.02)

    assert events(caplog)[0][1]["job"] == JOB.id


async def test_blocking_code_without_a_job_is_logged_with_its_stack(caplog: pytest.LogCaptureFixture) -> None:
    async with Watchdog(limit=0.1, metrics=Metrics()):
        await asyncio.sleep(0.02)
        asyncio.get_running_loop().call_soon(block, 0.3)
        await asyncio.sleep(0.02)
        await asyncio.sleep(0.02)

    _, about = events(caplog)[0]
    assert (about["task"], "job" in about) == (None, False)
    assert " block" in about["stack"]


async def test_running_loop_is_measured_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()

    async with Watchdog(limit=0.1, metrics=metrics) as watchdog:
        await asyncio.sleep(0.3)
        assert watchdog.state() == "ok"

    assert events(caplog) == []
    assert b"erelong_loop_lag_seconds_count 0.0" not in metrics.page()
    assert metrics.blocks.values[()] == 0


async def test_repeatedly_blocked_loop_is_not_ok() -> None:
    async with Watchdog(limit=0.1, metrics=Metrics()) as watchdog:
        for _ in range(4):
            block(0.25)
            await asyncio.sleep(0)
        state = watchdog.state()

    assert state.startswith("repeatedly blocked")


async def test_limit_of_zero_disables_the_watchdog() -> None:
    metrics = Metrics()

    async with Watchdog(limit=0.0, metrics=metrics) as watchdog:
        await asyncio.sleep(0.05)
        assert watchdog.state() == "ok"

    assert b"erelong_loop_lag_seconds_count 0.0" in metrics.page()


async def test_end_does_not_wait_for_the_next_check() -> None:
    began_at = time.monotonic()

    async with Watchdog(limit=60.0, metrics=Metrics()):
        pass

    assert time.monotonic() - began_at < 0.5


async def test_end_during_a_check_is_not_reported_as_a_blocked_loop(caplog: pytest.LogCaptureFixture) -> None:
    began_at = time.monotonic()

    async with Watchdog(limit=0.1, metrics=Metrics()) as watchdog:
        wait = watchdog._is_closed.wait

        def wait_for_the_end(period: float | None = None) -> bool:
            is_over = wait(period)
            if not is_over:
                wait()
                watchdog._has_responded.wait()
            return is_over

        watchdog._is_closed.wait = wait_for_the_end  # type: ignore[method-assign, assignment]  # the end comes in between
        await asyncio.sleep(0.2)

    assert events(caplog) == []
    assert time.monotonic() - began_at < 0.5


async def test_watchdog_continues_after_it_fails_to_read_other_threads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    async with Watchdog(limit=0.1, metrics=metrics) as watchdog:
        monkeypatch.setattr(watchdog, "_blocker", lambda: 1 / 0)
        await asyncio.sleep(0.02)
        block(0.3)
        await asyncio.sleep(0.02)
        failed = watchdog.state()
        monkeypatch.undo()
        block(0.3)
        await asyncio.sleep(0.02)

    assert "look for loop_blocked" in failed
    assert [event for event, _ in events(caplog)] == ["watchdog_failed", "loop_blocked", "loop_recovered"]
    assert metrics.laps_failed.values == {("watchdog",): 1}
    assert metrics.blocks.values[()] == 2


async def test_failure_of_the_watchdog_is_shown_and_its_death_is_not_ok() -> None:
    async with Watchdog(limit=0.1, metrics=Metrics()) as watchdog:
        watchdog._failures, watchdog._failure = 1, "ValueError: bad"
        failed = watchdog.state()
        assert watchdog._thread is not None
        watchdog._is_closed.set()
        watchdog._has_responded.set()
        watchdog._thread.join()
        watchdog._is_closed.clear()
        ended = watchdog.state()

    assert failed == "ok, but the watchdog failed 1 times: ValueError: bad; look for watchdog_failed in the log"
    assert ended.startswith("not watched: ")
