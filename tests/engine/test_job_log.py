"""The log reports each failure with the facts to act on it, and no success."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from erelong.attempt import Attempt, GiveUp
from erelong.engine.job_log import report_loss
from erelong.handlers.base import AttemptFailed
from erelong.lanes.lane import Slot
from erelong.model.job import State
from erelong.model.outcome import End, Outcome
from erelong.telemetry.log import current_job
from tests.support.builders import NOW, make_running
from tests.support.engine import ONCE, STEADY, Engine, error_of
from tests.support.kinds import FakeRunner, raising
from tests.support.virtual import VirtualClock

UNLUCKY = RuntimeError("no luck " + "x" * 1_000)


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[tuple[str, dict[str, Any]]]:
    found = [record for record in caplog.records if record.getMessage() == event]
    return [(record.levelname, record.__dict__["fields"]) for record in found]


async def test_failed_attempt_is_logged_with_its_error_and_next_time(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with Engine(clock=clock, handler=FakeRunner(raising(UNLUCKY))) as engine:
        job = await engine.submit(queue="mail", retry=STEADY)
        await asyncio.sleep(5)

    ((level, fields),) = lines(caplog, "attempt_failed")
    assert level == "INFO"
    message = fields.pop("message")
    assert message.startswith("RuntimeError: no luck")
    assert len(message) == 300
    assert fields.pop("next_at").startswith("2026-")
    assert fields == {
        "job": job.id,
        "kind": "echo",
        "queue": "mail",
        "attempt": 1,
        "outcome": "error",
        "error": "exception",
    }


async def test_job_that_failed_for_good_is_a_warning(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with Engine(clock=clock, handler=FakeRunner(raising(UNLUCKY))) as engine:
        job = await engine.until_final(await engine.submit(retry=ONCE))

    ((level, fields),) = lines(caplog, "job_failed")
    assert (level, fields["job"], fields["outcome"]) == ("WARNING", job.id, "error")
    assert lines(caplog, "attempt_failed") == []


async def test_job_that_failed_for_good_is_logged_with_its_key_and_labels(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(clock=clock, handler=FakeRunner(raising(UNLUCKY))) as engine:
        await engine.until_final(await engine.submit(retry=ONCE, key="order-7", labels={"tenant": "t1"}))
        await engine.until_final(await engine.submit(retry=ONCE))

    (_, named), (_, nameless) = lines(caplog, "job_failed")
    assert (named["key"], named["labels"]) == ("order-7", {"tenant": "t1"})
    assert nameless.keys() == named.keys() - {"key", "labels"}


async def test_job_that_expires_between_attempts_is_logged_with_the_last_error(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    handler = FakeRunner(raising(AttemptFailed("http_status", "app.example answered 503")))
    async with Engine(clock=clock, handler=handler) as engine:
        job = await engine.submit(retry=STEADY, expires_after=15.0, key="order-7", labels={"tenant": "t1"}, queue="q")
        expired = await engine.until_final(job)

    message = (
        "2 attempts were made, and the next had not begun by its expires_at; "
        "the last error: http_status: app.example answered 503"
    )
    assert expired.state is State.EXPIRED
    assert error_of(expired) == {"type": "expired", "message": message, "retryable": False}
    assert lines(caplog, "job_expired") == [
        (
            "WARNING",
            {
                "job": job.id,
                "kind": "echo",
                "queue": "q",
                "attempt": 2,
                "key": "order-7",
                "labels": {"tenant": "t1"},
                "error": "expired",
                "message": message,
            },
        )
    ]


async def test_job_that_expires_before_its_first_attempt_is_logged_as_expired(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with Engine(clock=clock) as engine:
        expired = await engine.until_final(await engine.submit(expires_after=0.0))

    assert error_of(expired)["message"] == "it had not begun by its expires_at"
    ((_, fields),) = lines(caplog, "job_expired")
    assert (fields["attempt"], fields["message"]) == (0, "it had not begun by its expires_at")


async def test_success_is_logged_only_at_debug(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    async with Engine(clock=clock) as engine:
        caplog.set_level("INFO")
        await engine.until_final(await engine.submit())
        assert caplog.records == []
        caplog.set_level("DEBUG")
        job = await engine.until_final(await engine.submit())

    ((level, fields),) = lines(caplog, "attempt_ended")
    assert (level, fields["job"], fields["outcome"], fields["state"]) == ("DEBUG", job.id, "succeeded", "succeeded")
    assert engine.node.metrics.finished.values == {("echo", "succeeded"): 2}


@pytest.mark.parametrize(("losses", "events"), [(0, ["attempt_lost"]), (2, ["attempt_lost", "job_failed"])])
def test_loss_beyond_the_limit_is_logged_as_a_failed_job(
    losses: int, events: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    running = make_running()._replace(losses=losses)

    report_loss(running.finish(Outcome(End.LOST), NOW))

    assert [record.getMessage() for record in caplog.records] == events
    fields = caplog.records[-1].__dict__["fields"]
    assert (fields["job"], fields["attempt"]) == (running.id, 1)
    assert losses == 0 or (fields["error"], "3 times in a row" in fields["message"]) == ("lost", True)


async def test_log_lines_after_an_attempt_do_not_name_its_job(clock: VirtualClock) -> None:
    seen: list[object] = []
    async with Engine(clock=clock) as engine:
        release = engine.node.engine.lanes.release

        def note(*slots: Slot) -> None:
            seen.append(current_job.get())
            release(*slots)

        engine.node.engine.lanes.release = note  # type: ignore[method-assign]
        await engine.until_final(await engine.submit())

    assert {*seen} == {None}


def _of_now() -> str | None:
    job = current_job.get()
    return None if job is None else job.id


async def test_log_lines_of_a_handler_name_its_attempt(clock: VirtualClock) -> None:
    seen: list[object] = []

    async def note(attempt: Attempt) -> None:
        seen.append(_of_now() == attempt.id)
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(lambda: seen.append(_of_now() == attempt.id))
        raise GiveUp("enough")

    async with Engine(clock=clock, handler=FakeRunner(note)) as engine:
        await engine.until_final(await engine.submit())

    assert seen == [True, True]
    assert current_job.get() is None
