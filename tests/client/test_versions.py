"""A service that is newer or older than the client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from erelong import AsyncClient, Conflict, Draft, JobFailed, Unsupported, Worker
from erelong.client.streams import EventReader
from erelong.settings.kinds import KindSettings
from erelong.version import VERSION
from tests.support.served import Serve, Served
from tests.support.skewed import ADDED, NewerProxy, OlderProxy, SkewedProxy

Behind = Callable[[type[SkewedProxy]], Awaitable[AsyncClient]]


@pytest_asyncio.fixture
async def service(serve: Serve) -> Served:
    return await serve(declared={"pulled": KindSettings(pull=True)})


@pytest_asyncio.fixture
async def newer(service: Served) -> AsyncIterator[AsyncClient]:
    async with NewerProxy(service.port) as proxy, AsyncClient(proxy.url) as client:
        yield client


@pytest_asyncio.fixture
async def older(service: Served) -> AsyncIterator[AsyncClient]:
    async with OlderProxy(service.port) as proxy, AsyncClient(proxy.url) as client:
        yield client


# newer


async def test_unknown_fields_and_states_are_kept(newer: AsyncClient) -> None:
    job = await newer.submit("echo", {"n": 1}, labels={"a": "b"}, delay=60)

    assert (job.state, job.waiting_for, job.is_final, job.labels) == ("parked", "moonrise", False, {"a": "b"})
    assert {name: job.raw[name] for name in ADDED} == ADDED
    assert await job.result() == {"n": 1}


async def test_jobs_of_a_newer_service_are_waited_for_listed_and_changed(newer: AsyncClient) -> None:
    drafts = [Draft("echo", {"n": n}, delay=60) for n in range(3)]
    tickets = [ticket async for ticket in newer.submit_many(drafts)]

    edited = await newer.edit(tickets[0], delay=30)
    cancelled = await newer.cancel(tickets[1])
    ended = [job.params["n"] async for job in newer.as_completed([tickets[0], tickets[2]])]
    listed = {job.params["n"]: job.state async for job in newer.list(view="full")}

    assert (edited.state, cancelled.state, ended) == ("parked", "cancelled", [0, 2])
    assert listed == {0: "succeeded", 1: "cancelled", 2: "succeeded"}


async def test_unknown_words_of_errors_are_kept(newer: AsyncClient) -> None:
    job = await newer.submit("echo", {"fail": "boom"}, retry={"max_attempts": 1})

    with pytest.raises(JobFailed, match="meteor: boom"):
        await job.result()
    with pytest.raises(Conflict) as caught:
        await newer.run(job)

    assert (caught.value.code, caught.value.problem["aura"]) == ("wrong_phase", "violet")


async def test_everything_else_of_a_newer_service_is_read(newer: AsyncClient) -> None:
    schedule = await newer.schedules.put("s", Draft("echo"), every="1h")
    operation = await (await newer.operations.cancel(all=True, at_most=9)).wait()
    queue = await newer.queue("q").pause("why")
    kind = await newer.kind("echo").get()

    for record in (schedule, operation, queue, kind):
        assert {name: record.raw[name] for name in ADDED} == ADDED
    assert (queue.paused, kind.name, operation.is_over) == (True, "echo", True)
    assert {"echo", "http", "pulled"} <= {found.name for found in await newer.kinds()}
    assert (await newer.stats())["aura"] == "violet"


def test_unknown_events_are_passed_on() -> None:
    reader = EventReader("/v1/events")

    read = [reader.read(line) for line in (b"event: job.eclipsed\n", b'data: {"phase": 3}\n', b"mood: dark\n", b"\n")]

    event = read[-1]
    assert event is not None
    assert (event.type, event.raw) == ("job.eclipsed", {"phase": 3})


async def run_worker(client: AsyncClient) -> list[Any]:
    """Run a job that succeeds and one that fails in a worker; return the jobs."""
    worker = Worker(name="me")

    @worker.kind("pulled", retry={"max_attempts": 1})
    async def work(n: int) -> int:
        return 6 // n

    serving = asyncio.create_task(worker.serve(client))
    ended = [await (await client.submit(work.job(n))).wait() for n in (2, 0)]
    worker.stop()
    await serving
    return ended


async def test_worker_works_for_a_newer_service(newer: AsyncClient) -> None:
    done, failed = await run_worker(newer)

    assert (done.raw["result"], failed.error["type"]) == (3, "meteor")


# older


async def test_older_service_that_omits_fields_is_read(older: AsyncClient) -> None:
    job = await older.submit("echo", {"n": 1}, labels={"a": "b"})

    assert (job.labels, job.waiting_for, job.cancel_requested, job.retry) == ({}, None, False, {})
    assert await job.result() == {"n": 1}
    assert [found.id async for found in older.list()] == [job.id]
    assert (await older.cancel(await older.submit("echo", delay=60))).state == "cancelled"


async def test_call_that_an_older_service_lacks_is_named(older: AsyncClient) -> None:
    job = await older.submit("echo")

    for call, path in (
        (older.wait([job]), "POST /v1/jobs/wait"),
        (older.me(), "GET /v1/me"),
        (older.operations.cancel(all=True, at_most=1), "POST /v1/operations"),
        (older.kind("mine").put(), "PUT /v1/kinds/mine"),
    ):
        with pytest.raises(Unsupported, match=f"no {path}: it is older than this client") as caught:
            await call
        assert VERSION in str(caught.value)


async def test_worker_works_for_an_older_service(older: AsyncClient, client: AsyncClient) -> None:
    done, failed = await run_worker(older)

    assert done.raw["result"] == 3
    assert failed.error["message"] == "integer division or modulo by zero"
    assert (await client.get(failed)).attempts[0].get("worker") is None
