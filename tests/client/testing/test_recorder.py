"""The recorder: what it records, runs and refuses, and that it does as a service does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from erelong import (
    Attempt,
    Changed,
    Client,
    Draft,
    GiveUp,
    Invalid,
    JobCancelled,
    JobFailed,
    KeyTaken,
    NotFound,
    RetryAfter,
    WrongState,
    kind,
)
from erelong.client.sync.jobs import Job
from erelong.testing import Recorder, Service
from tests.support import SOURCE

AT = datetime(2027, 1, 1, tzinfo=UTC)


@kind("remind")
def remind(user: int, text: str = "hello") -> str:
    return f"{user}: {text}"


@kind("count")
async def count(attempt: Attempt, to: int) -> list[int]:
    await asyncio.sleep(0)
    return [attempt.number, *range(to)]


@kind("echo")
def echo(**params: Any) -> dict[str, Any]:
    if "fail" in params:
        raise ValueError(params["fail"])
    return params


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(remind, count, echo, at=AT)


def test_submits_are_recorded(recorder: Recorder) -> None:
    recorder.client.submit(remind.job(user=7), delay="2h", queue="mail", labels={"tenant": "t1"})
    list(recorder.client.submit_many([Draft("http", {"url": "https://app.example"}), remind.job(8)]))

    first, second, third = recorder.submitted
    assert (first.kind, first.params, first.queue, first.labels) == ("remind", {"user": 7}, "mail", {"tenant": "t1"})
    assert first.due_at == AT + timedelta(hours=2)
    assert (second.kind, third.params, third.state) == ("http", {"user": 8}, "scheduled")


def test_due_jobs_run_here_in_the_order_of_their_due_times(recorder: Recorder) -> None:
    late = recorder.client.submit(remind.job(1), delay="2h")
    soon = recorder.client.submit(remind.job(2), delay="1h")
    never = recorder.client.submit(remind.job(3), delay="1d")

    assert recorder.run_due() == []
    ran = recorder.run_due(advance="2h")

    assert [job.id for job in ran] == [soon.id, late.id]
    assert (soon.result(), late.result()) == ("2: hello", "1: hello")
    assert recorder.client.get(never).state == "scheduled"
    assert recorder.now == AT + timedelta(hours=2)


def test_coroutine_functions_run_with_and_without_a_loop(recorder: Recorder) -> None:
    async def submit_and_run() -> list[int]:
        async with recorder.async_client as client:
            job = await client.submit(count.job(2))
            recorder.run_due()
            return await job.result()

    recorder.client.submit(count.job(1))
    (job,) = recorder.run_due()

    assert job.result() == [1, 0]
    assert asyncio.run(submit_and_run()) == [1, 0, 1]


def test_failures_are_retried_after_their_delays(recorder: Recorder) -> None:
    numbers: list[tuple[int, float]] = []

    @kind("flaky", retry={"delay": "10s", "factor": 2, "max_attempts": 4})
    def flaky(attempt: Attempt) -> str:
        numbers.append((attempt.number, (recorder.now - AT).total_seconds()))
        if attempt.number == 2:
            raise RetryAfter("5m", "busy")
        if attempt.number < 4:
            raise ValueError("no luck")
        return "done"

    recorder = Recorder(flaky, at=AT)
    job = recorder.client.submit(flaky.job())
    recorder.run_due(advance="1h")

    found = recorder.client.get(job)
    assert numbers == [(1, 0.0), (2, 10.0), (3, 310.0), (4, 350.0)]
    assert [made["outcome"] for made in found.attempts] == ["error", "error", "error", "succeeded"]
    assert "ValueError: no luck" in found.attempts[0]["output"]


@pytest.mark.parametrize(
    ("error", "attempts"), [(GiveUp("never"), 1), (ValueError("no"), 2), (TypeError("a bug of the function"), 2)]
)
def test_failed_jobs_raise_as_usual(error: Exception, attempts: int) -> None:
    @kind("k", retry={"max_attempts": 2})
    def fails() -> None:
        raise error

    recorder = Recorder(fails)
    job = recorder.client.submit(fails.job())
    recorder.run_due(advance="1d")

    with pytest.raises(JobFailed, match=str(error)):
        job.result()
    assert recorder.client.get(job).attempt == attempts


def test_params_and_results_that_do_not_fit_fail_at_once() -> None:
    @kind("k")
    def odd(n: int = 0) -> object:
        return object()

    recorder = Recorder(odd)
    jobs = [recorder.client.submit("k", {"m": 1}), recorder.client.submit("k")]
    recorder.run_due(advance="1d")

    assert [recorder.client.get(job).attempt for job in jobs] == [1, 1]
    assert [job.state for job in recorder.submitted] == ["failed", "failed"]


def test_function_may_submit_further_jobs() -> None:
    @kind("chain")
    def chain(n: int) -> None:
        if n:
            chained.client.submit(chain.job(n - 1), delay="1h")

    chained = Recorder(chain)
    chained.client.submit(chain.job(3))

    assert len(chained.run_due(advance="2h")) == 3
    assert len(chained.run_due(advance="1h")) == 1


def test_job_that_submits_itself_for_ever_is_an_error() -> None:
    @kind("loop")
    def loop() -> None:
        looping.client.submit(loop.job())

    looping = Recorder(loop)
    looping.client.submit(loop.job())

    with pytest.raises(RuntimeError, match="does a job submit itself without a delay"):
        looping.run_due()


def test_waiting_for_a_job_that_nothing_runs_is_an_error_with_the_remedy(recorder: Recorder) -> None:
    job = recorder.client.submit(remind.job(1), delay="1h")

    for wait in (job.result, lambda: recorder.client.wait([job]), lambda: list(recorder.client.as_completed([job]))):
        with pytest.raises(RuntimeError, match=r"waits until 2027-01-01T01:00:00.000Z.* call run_due\(\) first"):
            wait()
    assert recorder.client.wait([job], timeout=0).pending == [job.id]


def test_rest_of_the_api_is_an_error_with_the_remedy(recorder: Recorder) -> None:
    client = recorder.client

    for call in (
        lambda: client.queue("q").pause(),
        lambda: client.schedules.put("s", Draft("echo"), every="1h"),
        lambda: next(client.events()),
        lambda: client.explain(client.submit("echo")),
        lambda: next(client.list(cause="c")),
    ):
        with pytest.raises(NotImplementedError, match=r"use erelong\.testing\.Service"):
            call()


# the same as in a service

Script = Callable[[Client, Callable[[], object]], Any]


def _keys(client: Client, run: Callable[[], object]) -> Any:
    first = client.submit("echo", {"n": 1}, key="k", delay="1h")
    with pytest.raises(KeyTaken):
        client.submit("echo", key="k")
    kept = client.submit("echo", {"n": 2}, key="k", on_conflict="keep")
    moved = client.submit("echo", {"n": 3}, key="k", on_conflict="reschedule", delay="2h")
    replaced = client.submit("echo", {"n": 4}, key="k", on_conflict="replace", delay="3h", priority=2)
    other = client.submit("echo", key="k", queue="other", delay="3h")
    assert kept.id == moved.id == replaced.id == first.id != other.id
    return [first, kept, moved, replaced, client.get("~k", queue="other"), client.get("~k", queue="default")]


def _changes(client: Client, run: Callable[[], object]) -> Any:
    job = client.submit("echo", {"n": 1}, delay="1h", labels={"a": "b"}, expires_after="1d")
    edited = client.edit(job, params={"n": 2}, labels={}, timeout="2m", retry={"max_attempts": 2, "delay": "1m"})
    moved = client.edit(edited, at=datetime(2027, 1, 2, tzinfo=UTC), if_unchanged=True)
    with pytest.raises(Changed):
        client.edit(job, priority=3, if_unchanged=True)
    soon = client.run(moved)
    return [job, edited, moved, soon]


def _ends(client: Client, run: Callable[[], object]) -> Any:
    job, failing = client.submit("echo", {"n": 1}), client.submit("echo", {"fail": "x"}, retry={"max_attempts": 1})
    cancelled = client.submit("echo", delay="1h")
    client.cancel(cancelled, reason="why")
    run()
    refused: list[Callable[[], object]] = [
        partial(client.run, job),
        partial(client.edit, job, priority=1),
        partial(client.cancel, failing),
    ]
    for call in refused:
        with pytest.raises(WrongState):
            call()
    ended = [job.wait(), failing.wait(), cancelled.wait()]
    with pytest.raises(JobCancelled):
        cancelled.result()
    again = client.retry(failing, params={"n": 5})
    run()
    client.delete(cancelled)
    with pytest.raises(NotFound):
        client.get(cancelled)
    return [*ended, again.wait()]


def _retries(client: Client, run: Callable[[], object]) -> Any:
    job = client.submit("echo", {"fail": "x"}, retry={"max_attempts": 3, "delay": "10m", "jitter": 0})
    run()
    return [client.get(job)]


def _lists(client: Client, run: Callable[[], object]) -> Any:
    drafts = [
        Draft("echo", {"n": n}, delay=f"{n + 1}h", labels={"odd": str(n % 2)}, queue=f"q{n % 3}") for n in range(6)
    ]
    tickets = list(client.submit_many(drafts))
    client.submit("echo", {"n": 0}, idempotency_key="mine", delay="1d")
    client.submit("echo", {"n": 0}, idempotency_key="mine", delay="1d")
    with pytest.raises(Invalid):
        client.submit("echo", delay="soon")
    waited = client.wait([tickets[0], tickets[1], "nonsense"], until="first", timeout=0)
    return [
        *client.list(view="full"),
        *client.list(queue=["q0", "q1"], label={"odd": "1"}, view="full"),
        *client.list(state="succeeded", kind="echo", view="full"),
        len(waited.pending),
        waited.missing,
    ]


SCRIPTS = {script.__name__[1:]: script for script in (_keys, _changes, _ends, _retries, _lists)}


def _shown(found: Any) -> Any:
    """Return what a script has seen, without ids, traces and fields that depend on the real clock."""
    if not isinstance(found, Job):
        return found
    left_out = {"id", "waiting_for", "late_by", "submitted_by", "attempts", "version"}
    attempts = [{name: made[name] for name in ("number", "outcome")} for made in found.raw["attempts"]]
    raw = {name: value for name, value in found.raw.items() if name not in left_out}
    if raw["error"]:
        raw["error"] = {name: raw["error"][name] for name in ("type", "retryable")}
    return raw | {"attempts": attempts}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(SOURCE))
        folder: Path = tmp_path_factory.mktemp("service")
        with Service(at=AT, folder=folder) as service:
            yield service


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", SCRIPTS)
def test_recorder_does_as_a_service_does(service: Service, name: str) -> None:
    service.clear()
    at = service.now()
    recorder = Recorder(echo, at=at)

    from_service = SCRIPTS[name](service.client, partial(service.advance, 0))
    from_recorder = SCRIPTS[name](recorder.client, recorder.run_due)

    assert [_shown(found) for found in from_recorder] == [_shown(found) for found in from_service]
