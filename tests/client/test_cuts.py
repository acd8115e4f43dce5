"""Connections that break before, within and after every answer: nothing is done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from erelong import AsyncClient, Client, Draft, NoAnswer
from erelong.client.aio.jobs import AsyncJob
from tests.support.cuts import UNDONE, Cut, CuttingProxy
from tests.support.served import Served

Call = Callable[[AsyncClient, AsyncJob[Any]], Awaitable[Any]]


async def _list(client: AsyncClient, job: AsyncJob[Any]) -> Any:
    return [found async for found in client.list(queue="q")]


async def _submit_many(client: AsyncClient, job: AsyncJob[Any]) -> Any:
    return [ticket async for ticket in client.submit_many([Draft("echo", delay=60)] * 3)]


SAFE: dict[str, Call] = {
    "submit": lambda client, _: client.submit("echo", delay=60),
    "submit_many": _submit_many,
    "get": lambda client, job: client.get(job),
    "list": _list,
    "explain": lambda client, job: client.explain(job),
    "wait": lambda client, job: client.wait([job], timeout=0),
    "cancel": lambda client, job: client.cancel(job),
    "delete": lambda client, job: client.delete(job),
    "queues": lambda client, _: client.queues(),
    "queue.get": lambda client, _: client.queue("q").get(),
    "queue.set": lambda client, _: client.queue("q").set(concurrency=3),
    "queue.pause": lambda client, _: client.queue("q").pause("why"),
    "queue.resume": lambda client, _: client.queue("q").resume(),
    "schedules.put": lambda client, _: client.schedules.put("s", Draft("echo"), every="1h"),
    "schedules.trigger": lambda client, _: client.schedules.trigger("known"),
    "schedules.pause": lambda client, _: client.schedules.pause("known"),
    "schedules.delete": lambda client, _: client.schedules.delete("known"),
    "operations.cancel": lambda client, _: client.operations.cancel(queue="q", at_most=9),
    "kinds": lambda client, _: client.kinds(),
    "stats": lambda client, _: client.stats(),
    "me": lambda client, _: client.me(),
}
ONCE: dict[str, Call] = {
    "edit": lambda client, job: client.edit(job, priority=1),
    "run": lambda client, job: client.run(job),
    "submit without a key": lambda client, _: client.submit("echo", delay=60, idempotency_key=None),
}


@pytest_asyncio.fixture
async def job(client: AsyncClient) -> AsyncJob[Any]:
    await client.schedules.put("known", Draft("echo"), every="1d")
    return await client.submit("echo", queue="q", delay="1d")


async def count(client: AsyncClient) -> int:
    return len([job async for job in client.list()])


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", SAFE)
async def test_call_is_repeated_over_a_cut(
    client: AsyncClient, cut_client: AsyncClient, proxy: CuttingProxy, job: AsyncJob[Any], name: str, cut: Cut
) -> None:
    before = await count(client)
    proxy.cuts.append(cut)

    await SAFE[name](cut_client, job)

    made = {"submit": 1, "submit_many": 3, "schedules.trigger": 1, "delete": -1}.get(name, 0)
    assert await count(client) == before + made
    is_whole = cut is Cut.AFTER_ANSWER or (cut is Cut.WITHIN_BODY and name.endswith("delete"))  # a 204 has no body
    assert len(proxy.requests) == (1 if is_whole else 2)


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", ONCE)
async def test_call_that_would_do_more_is_not_repeated(
    client: AsyncClient, cut_client: AsyncClient, proxy: CuttingProxy, job: AsyncJob[Any], name: str, cut: Cut
) -> None:
    before = await count(client)
    proxy.cuts.append(cut)

    if cut is Cut.AFTER_ANSWER:
        await ONCE[name](cut_client, job)
    else:
        with pytest.raises(NoAnswer, match="may have done it") as caught:
            await ONCE[name](cut_client, job)
        assert caught.value.maybe_done

    assert len(proxy.requests) == 1
    is_done = cut not in UNDONE
    assert await count(client) == before + (is_done and name.startswith("submit"))
    assert ((await client.get(job)).version > 1) == (is_done and not name.startswith("submit"))


@pytest.mark.parametrize("cut", Cut)
async def test_submit_that_blocks_never_doubles(service: Served, proxy: CuttingProxy, cut: Cut) -> None:
    proxy.cuts.extend([cut, cut])

    def submit() -> str:
        with Client(proxy.url) as client:
            client.me()  # the connection is kept, so the submit finds it broken
            job = client.submit("echo", {"n": 1}, delay=60)
            return client.get(job).id

    id = await asyncio.to_thread(submit)

    assert [job["id"] for job in (await service.get("/v1/jobs")).json["jobs"]] == [id]


async def test_no_connection_is_tried_until_the_deadline(free_port: int) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async with AsyncClient(f"http://127.0.0.1:{free_port}", timeout=10) as client:
        with pytest.raises(NoAnswer, match="no connection to http") as caught:
            await client.run("x")

    assert not caught.value.maybe_done
    assert 4 < loop.time() - began <= 10


async def test_without_retries_the_first_cut_is_an_error(proxy: CuttingProxy) -> None:
    proxy.cuts.append(Cut.AT_ONCE)

    async with AsyncClient(proxy.url, retries=False) as client:
        with pytest.raises(NoAnswer):
            await client.me()

    assert len(proxy.requests) == 1


async def test_ten_thousand_submits_over_cuts_make_no_duplicate(
    client: AsyncClient, cut_client: AsyncClient, proxy: CuttingProxy
) -> None:
    ways = list(Cut)
    drafts = [Draft("echo", {"n": n}, delay=60) for n in range(10_000)]

    tickets = []
    async for ticket in cut_client.submit_many(drafts, batch=50):
        tickets.append(ticket)
        if ticket.index % 50 == 49:
            proxy.cuts.append(ways[ticket.index // 50 % len(ways)])

    assert len({ticket.id for ticket in tickets}) == 10_000
    assert (await client.queue("default").get()).counts["scheduled"] == 10_000
