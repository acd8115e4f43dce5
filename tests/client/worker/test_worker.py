"""Pull workers against a service on virtual time: outcomes, heartbeats, cancels, lost leases, drains."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from erelong import AsyncClient, Attempt, Cancelled, GiveUp, Invalid, RetryAfter, Worker
from tests.client.worker.conftest import Run
from tests.support.served import Served


class Shape(Enum):
    ROUND = "round"


@dataclass
class Point:
    x: int
    shapes: list[Shape] = field(default_factory=list)


class Path(BaseModel):
    name: str
    points: list[Point] = []


# outcomes


async def test_coroutine_and_plain_functions_run_and_return_results(client: AsyncClient, run: Run) -> None:
    worker = Worker(concurrency=2)

    @worker.kind("a")
    async def on_loop(attempt: Attempt, n: int) -> tuple[int, str, int]:
        await asyncio.sleep(3)
        return n, attempt.queue, attempt.number

    @worker.kind("b")
    def in_thread(n: int) -> str:
        return f"{n} in {threading.current_thread().name}"

    await run(worker)
    first = await client.submit(on_loop.job(7), queue="q", delay=5)
    second = await client.submit(in_thread.job(8))

    assert await first.result() == (7, "q", 1)
    assert await second.result() == "8 in erelong-attempt"


@pytest.mark.parametrize(
    ("error", "state", "found"),
    [
        (ValueError("no"), "failed", {"type": "exception", "message": "no", "retryable": True}),
        (GiveUp("never"), "failed", {"type": "give_up", "message": "never", "retryable": False}),
    ],
)
async def test_exception_fails_the_attempt(
    client: AsyncClient, run: Run, error: Exception, state: str, found: dict[str, Any]
) -> None:
    worker = Worker()

    @worker.kind("a", retry={"max_attempts": 1})
    def fails() -> None:
        raise error

    await run(worker)
    job = await (await client.submit(fails.job())).wait()

    assert (job.state, job.error) == (state, found)
    if isinstance(error, ValueError):
        assert job.attempts[0]["output"].endswith("raise error\nValueError: no\n")
        assert "threads.py" not in job.attempts[0]["output"]


async def test_results_are_dataclasses_and_models_on_both_sides(client: AsyncClient, run: Run) -> None:
    worker = Worker()

    @worker.kind("a")
    def measure(corner: Point, path: Path) -> Point:
        return Point(corner.x + 1, [Shape.ROUND, *corner.shapes])

    @worker.kind("b")
    async def draw(path: Path) -> list[Path]:
        return [path, Path(name="b", points=[Point(2)])]

    await run(worker)
    point = await client.submit(measure.job(Point(1), path=Path(name="a")))
    paths = await client.submit(draw.job(Path(name="a", points=[Point(1)])))

    assert await point.result() == Point(2, [Shape.ROUND])
    assert await paths.result() == [Path(name="a", points=[Point(1)]), Path(name="b", points=[Point(2)])]


async def test_function_can_ask_for_a_later_retry(client: AsyncClient, run: Run) -> None:
    worker = Worker()

    @worker.kind("a")
    async def later(attempt: Attempt) -> str:
        if attempt.number == 1:
            raise RetryAfter("5m")
        return "done"

    await run(worker)
    job = await (await client.submit(later.job())).wait()

    first, second = job.attempts
    assert (job.state, first["outcome"], second["outcome"]) == ("succeeded", "error", "succeeded")
    assert job.started_at is not None
    assert job.created_at is not None
    assert 300 <= (job.started_at - job.created_at).total_seconds() < 301


async def test_params_that_do_not_fit_fail_without_another_attempt(client: AsyncClient, run: Run) -> None:
    worker = Worker()

    @worker.kind("a")
    def takes_n(n: int) -> None: ...

    await run(worker)
    job = await (await client.submit("a", {"m": 1})).wait()

    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert "n is missing, m is unknown" in job.error["message"]


async def test_params_of_which_no_value_can_be_made_fail_without_another_attempt(client: AsyncClient, run: Run) -> None:
    worker = Worker()

    @worker.kind("a")
    def draw(shape: Shape) -> None: ...

    await run(worker)
    job = await (await client.submit("a", {"shape": "square"})).wait()

    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert job.error["message"] == "'square' is not a valid Shape"


async def test_result_without_a_json_form_fails_without_another_attempt(client: AsyncClient, run: Run) -> None:
    worker = Worker()

    @worker.kind("a")
    async def returns_object() -> object:
        return object()

    await run(worker)
    job = await (await client.submit("a")).wait()

    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert "is not JSON" in job.error["message"]


async def test_attempt_ends_at_its_timeout(client: AsyncClient, run: Run) -> None:
    worker = Worker()

    @worker.kind("a", timeout=10, retry={"max_attempts": 1})
    async def hangs() -> None:
        await asyncio.sleep(1_000)

    await run(worker)
    job = await (await client.submit(hangs.job())).wait()

    assert job.error == {"type": "timeout", "message": "exceeded 10 s", "retryable": True}
    assert worker.abandoned == 0


# leases


async def test_lease_is_extended_while_the_function_runs(client: AsyncClient, run: Run) -> None:
    worker = Worker(lease=5)

    @worker.kind("a", timeout="1h")
    async def long() -> str:
        await asyncio.sleep(600)
        return "done"

    await run(worker)
    job = await (await client.submit(long.job())).wait()

    assert (job.state, len(job.attempts)) == ("succeeded", 1)


async def test_requested_cancel_stops_the_function(client: AsyncClient, run: Run) -> None:
    worker, seen = Worker(lease=5), []

    @worker.kind("a", timeout="1h")
    async def long(attempt: Attempt) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            seen.append(attempt.id)

    await run(worker)
    job = await client.submit(long.job())
    await asyncio.sleep(1)
    await client.cancel(job)

    assert (await job.wait()).state == "cancelled"
    assert seen == [job.id]


async def test_lost_lease_stops_the_function_and_nothing_is_reported(
    client: AsyncClient, run: Run, service: Served
) -> None:
    worker, stops = Worker(lease=5), []

    @worker.kind("a", timeout="1h", retry={"delay": 1, "jitter": 0})
    async def long(attempt: Attempt) -> int:
        if attempt.number == 1:
            try:
                await asyncio.sleep(600)
            finally:
                stops.append(attempt.number)
        return attempt.number

    await run(worker)
    job = await client.submit(long.job())
    await asyncio.sleep(1)
    (token,) = [found.lease for found in (await service.store.get([int(job.id[:10], 16)])).values()]
    await service.post(f"/v1/leases/{token}/fail", {"error": {"type": "other", "message": "taken away"}})

    assert await job.result() == 2
    assert stops == [1]


@pytest.mark.real_loop
async def test_thread_learns_from_its_attempt_that_it_is_to_stop(real_service: str) -> None:
    worker, stopped = Worker(lease=1), threading.Event()

    @worker.kind("pulled", timeout=60)
    def long(attempt: Attempt) -> None:
        while not stopped.is_set():
            try:
                attempt.check()
            except Cancelled:
                stopped.set()
                raise

    async with AsyncClient(real_service) as client:
        serving = asyncio.create_task(worker.serve(client))
        job = await client.submit(long.job())
        while (await client.get(job, wait=0.02)).state != "running":
            pass
        await client.cancel(job)
        ended = await job.wait(timeout=8)
        worker.stop()
        await serving

    assert (ended.state, stopped.is_set()) == ("cancelled", True)


@pytest.mark.real_loop
async def test_slot_of_an_abandoned_thread_is_used_again_when_it_ends(
    real_service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.client.worker.lease.GRACE", 0.05)
    worker, release, both = Worker(concurrency=2), threading.Event(), threading.Barrier(2)

    @worker.kind("pulled", timeout=0.1, retry={"max_attempts": 1})
    def hangs() -> None:
        release.wait(20)

    @worker.kind("other", retry={"max_attempts": 1})
    def meets() -> None:
        both.wait(8)  # for a second call at the same time

    async with AsyncClient(real_service) as client:
        await client.kind("other").put()
        serving = asyncio.create_task(worker.serve(client))
        slow = await (await client.submit(hangs.job())).wait(timeout=8)
        release.set()
        meeting = [await client.submit(meets.job()) for _ in range(2)]
        ended, _, _ = await client.wait(meeting, timeout=8)
        worker.stop()
        await serving

    assert slow.state == "failed"
    assert [job.state for job in ended] == ["succeeded", "succeeded"]


@pytest.mark.real_loop
async def test_worker_ends_when_all_its_threads_are_abandoned(
    real_service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.client.worker.lease.GRACE", 0.05)
    worker, release = Worker(concurrency=1), threading.Event()

    @worker.kind("pulled", timeout=0.1, retry={"max_attempts": 1})
    def hangs() -> None:
        release.wait(20)

    async with AsyncClient(real_service) as client:
        job = await client.submit(hangs.job())
        await asyncio.wait_for(worker.serve(client), 8)
        ended = await job.wait(timeout=8)

    release.set()
    assert (worker.abandoned, ended.state) == (1, "failed")
    assert ended.error is not None
    assert ended.error["type"] == "timeout"


# slots, and the end


async def test_drain_lets_jobs_end_and_releases_the_rest(client: AsyncClient, run: Run) -> None:
    worker, stopping = Worker(drain=10), []

    @worker.kind("a", timeout="1h")
    async def work(attempt: Attempt, seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        finally:
            stopping.append(attempt.stopping)
        return "done"

    await run(worker)
    quick, slow = await client.submit(work.job(5)), await client.submit(work.job(500))
    await asyncio.sleep(1)
    worker.stop()
    await asyncio.sleep(11)
    left = await client.get(slow)

    assert await quick.result() == "done"
    assert (left.state, left.attempt, left.attempts[0]["outcome"]) == ("scheduled", 0, "released")
    assert stopping == [True, True]


async def test_worker_takes_as_many_jobs_as_it_has_slots(client: AsyncClient, run: Run) -> None:
    worker, running, most = Worker(concurrency=3), 0, 0

    @worker.kind("a")
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(1)
        running -= 1

    await run(worker)
    jobs = [await client.submit(work.job()) for _ in range(10)]
    await client.wait(jobs)

    assert most == 3


async def test_worker_that_works_once_ends_when_nothing_is_due(client: AsyncClient) -> None:
    worker, numbers = Worker(concurrency=2, once=True), []

    @worker.kind("a")
    async def work(n: int) -> None:
        await asyncio.sleep(n)
        numbers.append(n)

    for n in range(1, 6):
        await client.submit(work.job(n))
    later = await client.submit(work.job(9).with_options(delay="1h"))
    await worker.serve(client)

    assert sorted(numbers) == [1, 2, 3, 4, 5]
    assert (await client.get(later)).state == "scheduled"


async def test_worker_that_works_once_ends_if_its_kinds_are_not_declared(client: AsyncClient) -> None:
    worker = Worker(once=True)

    @worker.kind("nobody-declared-this")
    async def work() -> None: ...

    with pytest.raises(Invalid, match="not pull kinds of this service: nobody-declared-this; declare them with --reg"):
        await asyncio.wait_for(worker.serve(client), 5)


async def test_worker_without_kinds_is_refused(client: AsyncClient) -> None:
    with pytest.raises(ValueError, match=r"decorate functions with @worker\.kind"):
        await Worker().serve(client)
