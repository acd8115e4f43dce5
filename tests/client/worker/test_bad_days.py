"""Workers while the service is cut off, away, busy or full, and while the machine has no threads."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from typing import Any

import pytest

from erelong import AsyncClient, Attempt, Forbidden, Worker
from tests.client.worker.conftest import Run
from tests.support.cuts import Cut, CuttingProxy
from tests.support.served import Served
from tests.support.skewed import SkewedProxy


@pytest.mark.parametrize("cut", [cut for cut in Cut if cut is not Cut.AFTER_ANSWER])
async def test_cut_reports_are_repeated_and_count_once(
    client: AsyncClient, run: Run, proxy: CuttingProxy, cut_client: AsyncClient, cut: Cut
) -> None:
    worker, runs = Worker(lease=5), []

    @worker.kind("a")
    async def work(attempt: Attempt) -> int:
        proxy.cuts.append(cut)  # for its report
        runs.append(attempt.number)
        return attempt.number

    await run(worker, cut_client)
    job = await client.submit(work.job())

    assert await job.result() == 1
    assert runs == [1]


async def test_worker_survives_a_service_that_is_away(
    run: Run, client: AsyncClient, proxy: CuttingProxy, cut_client: AsyncClient
) -> None:
    worker = Worker()

    @worker.kind("a")
    async def work() -> str:
        return "done"

    proxy.cuts.extend([Cut.AT_ONCE] * 5)
    await run(worker, cut_client)
    job = await client.submit(work.job())

    assert await job.result() == "done"


class BusyProxy(SkewedProxy):
    """Refuses the next calls of an action with these statuses."""

    def __init__(self, port: int, action: str) -> None:
        super().__init__(port)
        self.action = action
        self.statuses: list[int] = []

    def refusal_of(self, method: str, path: str, body: Any) -> dict[str, Any] | None:
        if not self.statuses or path.rpartition("/")[2] != self.action:
            return None
        return {"status": self.statuses.pop(0), "code": "storage_full", "detail": "no"}


async def test_busy_service_gets_the_outcome_later(client: AsyncClient, run: Run, service: Served) -> None:
    async with BusyProxy(service.port, "finish") as proxy, AsyncClient(proxy.url) as busy_client:
        worker = Worker(lease=60)

        @worker.kind("a")
        async def work() -> str:
            proxy.statuses += [507, 503, 429]
            return "done"

        await run(worker, busy_client)
        job = await client.submit(work.job())

        assert await job.result() == "done"
        assert proxy.statuses == []
        assert (await client.get(job)).attempt == 1
        worker.stop()


async def test_service_that_refuses_leases_is_asked_after_growing_pauses(
    client: AsyncClient, run: Run, service: Served
) -> None:
    async with BusyProxy(service.port, "leases") as proxy, AsyncClient(proxy.url, retries=False) as busy_client:
        worker = Worker()

        @worker.kind("a")
        async def work() -> str:
            return "done"

        proxy.statuses += [503] * 8
        began = asyncio.get_running_loop().time()
        await run(worker, busy_client)
        await (await client.submit(work.job())).result()

        assert asyncio.get_running_loop().time() - began > 30
        worker.stop()


async def test_key_without_the_scope_ends_the_worker(service: Served) -> None:
    async with BusyProxy(service.port, "leases") as proxy, AsyncClient(proxy.url) as refused_client:
        worker = Worker()

        @worker.kind("a")
        async def work() -> None: ...

        proxy.statuses.append(403)

        with pytest.raises(Forbidden):
            await worker.serve(refused_client)


async def test_outcome_that_arrives_too_late_is_dropped_and_the_job_runs_again(
    client: AsyncClient, run: Run, proxy: CuttingProxy, cut_client: AsyncClient
) -> None:
    worker, other, begun = Worker(lease=5, name="cut off"), Worker(lease=5, name="other"), asyncio.Event()
    runs: list[int] = []

    async def work(attempt: Attempt) -> str:
        runs.append(attempt.number)
        if attempt.number == 1:
            begun.set()
            proxy.cuts.extend([Cut.AT_ONCE] * 200)
            await asyncio.sleep(1)
        return f"attempt {attempt.number}"

    worker.kind("a")(work)
    kind = other.kind("a", retry={"delay": 1, "jitter": 0})(work)
    await run(worker, cut_client)
    job = await client.submit(kind.job())
    await begun.wait()
    await run(other)
    ended = await job.wait()

    assert ended.raw["result"] == "attempt 2"
    assert [made["outcome"] for made in ended.attempts] == ["lost", "succeeded"]
    assert runs == [1, 2]


async def test_machine_without_threads_gives_jobs_back_and_tries_later(
    client: AsyncClient, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start
    refused: list[float] = []

    def start_later(thread: threading.Thread) -> None:
        if thread.name == "erelong-attempt" and len(refused) < 3:
            refused.append(asyncio.get_running_loop().time())
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)
    worker = Worker(concurrency=1)

    @worker.kind("a")
    def work() -> str:
        return "done"

    await run(worker)
    ended = await (await client.submit(work.job())).wait()

    assert (ended.state, ended.attempt) == ("succeeded", 1)
    assert [made["outcome"] for made in ended.attempts] == ["released", "released", "released", "succeeded"]
    assert min(later - earlier for earlier, later in pairwise(refused)) >= 1


async def test_drain_without_a_service_ends_in_time(
    client: AsyncClient, run: Run, proxy: CuttingProxy, cut_client: AsyncClient
) -> None:
    worker, all_begun = Worker(concurrency=8, lease=10, drain=5), asyncio.Barrier(9)

    @worker.kind("a", timeout="1h")
    async def work() -> None:
        await all_begun.wait()
        await asyncio.sleep(1_000)

    serving = asyncio.create_task(worker.serve(cut_client))
    for _ in range(8):
        await client.submit(work.job())
    await all_begun.wait()
    proxy.cuts.extend([Cut.AT_ONCE] * 10_000)
    began = asyncio.get_running_loop().time()
    worker.stop()
    await serving

    assert 5 <= asyncio.get_running_loop().time() - began <= 16
