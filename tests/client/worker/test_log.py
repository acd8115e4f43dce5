"""The log of a worker says what became of each attempt, and why."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from erelong import AsyncClient, GiveUp, RetryAfter, Worker
from erelong.client.worker import log


def returns_object() -> object:
    return object()


def has_bug() -> None:
    raise KeyError("x")


def gives_up() -> None:
    raise GiveUp("never,\nnever")


def asks_for_later() -> None:
    raise RetryAfter("5m", "busy")


@pytest.fixture
def worker() -> Worker:
    return Worker(once=True)


async def lines_of(worker: Worker, function: Any, client: AsyncClient, caplog: Any) -> dict[str, dict[str, Any]]:
    """Run one job of a function, and return the lines of the log by event."""

    @worker.kind("a", retry={"max_attempts": 2, "delay": 7, "jitter": 0})
    async def runs() -> Any:
        return function()

    caplog.set_level(logging.INFO, "erelong.worker")
    await client.submit("a", {}, retry={"max_attempts": 2, "delay": 7, "jitter": 0})
    await worker.serve(client)
    lines = [json.loads(log.JsonFormatter().format(record)) for record in caplog.records]
    return {line["event"]: line for line in lines}


async def test_result_without_a_json_form_is_logged_as_a_failure(
    client: AsyncClient, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await lines_of(worker, returns_object, client, caplog)

    failed = lines["attempt_failed"]
    assert lines["attempt_ended"]["outcome"] == "failed"
    assert (failed["level"], failed["error"], "retry_in" in failed) == ("warning", "TypeError", False)
    assert "is not JSON" in failed["message"]
    assert "traceback" not in failed


async def test_bug_is_logged_with_its_traceback_and_the_delay_of_the_retry(
    client: AsyncClient, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    failed = (await lines_of(worker, has_bug, client, caplog))["attempt_failed"]

    assert (failed["error"], failed["message"], failed["retry_in"], failed["attempt"]) == ("KeyError", "'x'", 7.0, 1)
    assert 'raise KeyError("x")' in failed["traceback"]


@pytest.mark.parametrize(
    ("function", "error", "message", "delay"),
    [(gives_up, "give_up", "never,\nnever", None), (asks_for_later, "RetryAfter", "busy", 300.0)],
)
async def test_planned_failure_is_logged_without_a_traceback(
    client: AsyncClient,
    worker: Worker,
    caplog: pytest.LogCaptureFixture,
    function: Any,
    error: str,
    message: str,
    delay: float | None,
) -> None:
    failed = (await lines_of(worker, function, client, caplog))["attempt_failed"]

    assert (failed["error"], failed["message"], failed.get("retry_in")) == (error, message, delay)
    assert "traceback" not in failed


async def test_failure_is_one_line_of_text(
    client: AsyncClient, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await lines_of(worker, gives_up, client, caplog)

    job = lines["attempt_failed"]["job"]
    assert f"attempt_failed kind=a job={job} attempt=1 error=give_up message=never,\\nnever" in caplog.messages
