"""Connections that break before, within and after every answer: nothing is done twice."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from erelong import AsyncClient, Changed, Client, Draft, NoAnswer
from erelong.client.aio.jobs import AsyncJob
from erelong.client.aio.kinds import AsyncServiceKind
from erelong.client.aio.operations import AsyncOperation, AsyncOperations
from erelong.client.aio.queues import AsyncQueue
from erelong.client.aio.schedules import AsyncSchedules
from erelong.client.calls import leases
from tests.support.cuts import UNDONE, Cut, CuttingProxy
from tests.support.served import Serve, Served
from tests.system.trials import sized


@dataclass
class Scene:
    """A client, and one of everything that its calls can be about."""

    client: AsyncClient
    waiting: AsyncJob[Any]
    ended: AsyncJob[Any]
    token: str
    operation: AsyncOperation

    def through(self, client: AsyncClient) -> Scene:
        """Return the same scene for another client."""
        waiting, ended = AsyncJob[Any](self.waiting.raw, client), AsyncJob[Any](self.ended.raw, client)
        return Scene(client, waiting, ended, self.token, AsyncOperation(self.operation.raw, client))


Call = Callable[[Scene], Awaitable[Any]]


async def _all(found: Any) -> list[Any]:
    return [item async for item in found]


async def _first(found: Any) -> Any:
    async for item in found:
        return item


def _listed(job: AsyncJob[Any]) -> AsyncJob[Any]:
    """Return a job as a listing shows it, without its result."""
    return AsyncJob({name: value for name, value in job.raw.items() if name != "result"}, job._client)


READS: dict[str, Call] = {
    "get": lambda at: at.client.get(at.waiting),
    "list": lambda at: _all(at.client.list(queue="q")),
    "explain": lambda at: at.client.explain(at.waiting),
    "wait": lambda at: at.client.wait([at.waiting, at.ended], until="first"),
    "as_completed": lambda at: _all(at.client.as_completed([at.ended])),
    "events": lambda at: _first(at.client.events(job=at.waiting.id)),
    "queues": lambda at: at.client.queues(),
    "kinds": lambda at: at.client.kinds(),
    "stats": lambda at: at.client.stats(),
    "me": lambda at: at.client.me(),
    "Job.wait": lambda at: _listed(at.ended).wait(),
    "Job.result": lambda at: asyncio.gather(_listed(at.ended).result(), return_exceptions=True),
    "Queue.get": lambda at: at.client.queue("q").get(),
    "ServiceKind.get": lambda at: at.client.kind("echo").get(),
    "Schedules.get": lambda at: at.client.schedules.get("known"),
    "Schedules.list": lambda at: _all(at.client.schedules.list()),
    "Schedules.preview": lambda at: at.client.schedules.preview("known"),
    "Operations.get": lambda at: at.client.operations.get(at.operation.id),
    "Operations.list": lambda at: _all(at.client.operations.list()),
    "Operations.count": lambda at: at.client.operations.count("cancel", all=True),
    "Operation.get": lambda at: at.operation.get(),
    "Operation.wait": lambda at: AsyncOperation({"id": at.operation.id, "state": "running"}, at.client).wait(),
}
CHANGES: dict[str, Call] = {
    "submit": lambda at: at.client.submit("echo", delay=60),
    "submit_many": lambda at: _all(at.client.submit_many([Draft("echo", delay=60)] * 3)),
    "edit": lambda at: at.client.edit(at.waiting, priority=1, delay="3d"),
    "edit of a version": lambda at: at.client.edit(at.waiting, labels={"a": "b"}, if_unchanged=True),
    "run": lambda at: at.client.run(at.waiting),
    "run of a version": lambda at: at.client.run(at.waiting, if_unchanged=True),
    "retry": lambda at: at.client.retry(at.ended, params={"n": 1}),
    "cancel": lambda at: at.client.cancel(at.waiting),
    "cancel of a version": lambda at: at.client.cancel(at.waiting, if_unchanged=True),
    "delete": lambda at: at.client.delete(at.waiting),
    "delete of a version": lambda at: at.client.delete(at.waiting, if_unchanged=True),
    "Queue.set": lambda at: at.client.queue("q").set(concurrency=3),
    "Queue.reset": lambda at: at.client.queue("empty").reset(),
    "Queue.pause": lambda at: at.client.queue("q").pause("why"),
    "Queue.resume": lambda at: at.client.queue("paused").resume(),
    "Queue.purge": lambda at: at.client.queue("q").purge(),
    "ServiceKind.put": lambda at: at.client.kind("mine").put(timeout="1h"),
    "ServiceKind.delete": lambda at: at.client.kind("declared").delete(),
    "Schedules.put": lambda at: at.client.schedules.put("s", Draft("echo"), every="1h"),
    "Schedules.edit": lambda at: at.client.schedules.edit("known", every="2h"),
    "Schedules.edit of a version": lambda at: at.client.schedules.edit("known", cron="0 9 * * *", version=1),
    "Schedules.pause": lambda at: at.client.schedules.pause("known"),
    "Schedules.resume": lambda at: at.client.schedules.resume("known"),
    "Schedules.delete": lambda at: at.client.schedules.delete("known"),
    "Schedules.trigger": lambda at: at.client.schedules.trigger("known"),
    "Schedules.backfill": lambda at: at.client.schedules.backfill(
        "known", "2025-12-20T00:00:00Z", "2025-12-22T00:00:00Z"
    ),
    "Operations.cancel": lambda at: at.client.operations.cancel(queue="q", at_most=9),
    "Operations.run": lambda at: at.client.operations.run(queue="q", at_most=9),
    "Operations.retry": lambda at: at.client.operations.retry(all=True, at_most=9),
    "Operations.delete": lambda at: at.client.operations.delete(queue="q", at_most=9),
    "Operations.edit": lambda at: at.client.operations.edit({"priority": 4}, queue="q", at_most=9),
    "Operations.shift": lambda at: at.client.operations.shift("2h", queue="q", at_most=9),
    "Operation.cancel": lambda at: at.operation.cancel(),
    "extend": lambda at: at.client.send(leases.extend(at.token, 60.0)),
    "finish": lambda at: at.client.send(leases.finish(at.token, 7)),
    "fail": lambda at: at.client.send(leases.fail(at.token, {"retryable": False})),
    "release": lambda at: at.client.send(leases.release(at.token)),
}
ONCE: dict[str, Call] = {
    "edit": lambda at: at.client.edit(at.waiting.id, priority=1),
    "run": lambda at: at.client.run(at.waiting.id),
    "retry": lambda at: at.client.retry(at.ended.id),
    "submit": lambda at: at.client.submit("echo", delay=60, idempotency_key=None),
}
"""Changes of which the client cannot say whether they were made: it has not read the job, or has no idempotency key."""

NO_CALLS = {"close", "send", "ask"}
CUTS = [cut for cut in Cut if cut is not Cut.AFTER_ANSWER]


def test_every_call_of_the_client_is_here() -> None:
    owners = (AsyncJob, AsyncQueue, AsyncServiceKind, AsyncSchedules, AsyncOperations, AsyncOperation)
    calls = {name for name in vars(AsyncClient) if _is_call(AsyncClient, name)} - NO_CALLS
    for owner in owners:
        name_of_owner = owner.__name__.removeprefix("Async")
        calls |= {f"{name_of_owner}.{name}" for name in vars(owner) if _is_call(owner, name)}

    assert calls - READS.keys() - CHANGES.keys() == set()


def _is_call(owner: type, name: str) -> bool:
    function = vars(owner)[name]
    return name[0] != "_" and (inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function))


@pytest_asyncio.fixture
async def scene(client: AsyncClient) -> Scene:
    return await _make_scene(client)


async def _make_scene(client: AsyncClient) -> Scene:
    await client.schedules.put("known", Draft("echo"), every="1d")
    await client.queue("paused").pause("why")
    await client.queue("empty").set(concurrency=2)
    for kind in ("pulled", "declared"):
        await client.kind(kind).put()
    ended = await client.submit("echo", {"fail": "boom"}, retry={"max_attempts": 1})
    await client.submit("pulled")
    (lease,) = (await client.send(leases.lease(["pulled"], [], 1, 10.0, 3_600.0, None)))["leases"]
    operation = await client.operations.run(queue="none", at_most=1)
    return Scene(
        client=client,
        waiting=await client.submit("echo", queue="q", delay="1d"),
        ended=await ended.wait(),
        token=lease["token"],
        operation=await operation.wait(),
    )


async def _world(client: AsyncClient) -> list[Any]:
    """Return all that the service keeps, without ids and instants, after it has done what is due."""
    await asyncio.sleep(30)
    jobs = await _all(client.list(view="full"))
    return [
        sorted(
            (job.kind, job.queue, job.state, _version(job), job.priority, str(job.params), job.attempt) for job in jobs
        ),
        [(queue.name, queue.paused, queue.settings, queue.counts) for queue in await client.queues()],
        [(made.name, made.version, made.paused, made.cron, made.every) for made in await _all(client.schedules.list())],
        sorted((made.action, made.state, made.done) for made in await _all(client.operations.list())),
        [(kind.name, kind.timeout) for kind in await client.kinds()],
    ]


def _version(job: AsyncJob[Any]) -> int:
    """Return the version of a job; none for a leased one, whose lease may be extended any number of times."""
    return 0 if job.state == "running" else job.version


@pytest.mark.parametrize("name", READS)
async def test_read_is_repeated_over_every_cut(
    scene: Scene, cut_client: AsyncClient, proxy: CuttingProxy, name: str
) -> None:
    for cut in CUTS:
        proxy.cuts.append(cut)
        await asyncio.wait_for(READS[name](scene.through(cut_client)), 90)

    assert not proxy.cuts


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", CHANGES)
async def test_change_is_made_once_over_a_cut(
    serve: Serve, scene: Scene, cut_client: AsyncClient, proxy: CuttingProxy, name: str, cut: Cut
) -> None:
    proxy.cuts.append(cut)
    await CHANGES[name](scene.through(cut_client))
    found = await _world(scene.client)

    assert found == (await _world_after(serve, name))
    assert not proxy.cuts


_worlds: dict[str, list[Any]] = {}


async def _world_after(serve: Serve, name: str) -> list[Any]:
    """Return the world in which a change was made over a sound connection."""
    if name not in _worlds:
        service = await serve()
        async with AsyncClient(f"http://127.0.0.1:{service.port}") as client:
            await CHANGES[name](await _make_scene(client))
            _worlds[name] = await _world(client)
    return _worlds[name]


GONE = "(the other side closed it|.*Connection reset by peer)"


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("name", ONCE)
async def test_change_that_cannot_be_checked_is_not_repeated(
    scene: Scene, cut_client: AsyncClient, proxy: CuttingProxy, name: str, cut: Cut
) -> None:
    before = {job.id: job.version async for job in scene.client.list()}
    proxy.cuts.append(cut)

    text = f"the connection broke: {GONE}; the change may have been made"
    with pytest.raises(NoAnswer, match=text) as caught:
        await ONCE[name](scene.through(cut_client))

    after = {job.id: job.version async for job in scene.client.list()}
    assert caught.value.maybe_done
    assert len(proxy.requests) == 1
    assert (after == before) is (cut in UNDONE)


async def test_change_that_cannot_be_read_again_may_have_been_made(
    scene: Scene, cut_client: AsyncClient, proxy: CuttingProxy
) -> None:
    proxy.cuts.extend([Cut.BEFORE_ANSWER] * 1_000)

    with pytest.raises(NoAnswer, match=r"PATCH .* may have been made") as caught:
        await cut_client.edit(scene.through(cut_client).waiting, priority=5)

    assert caught.value.maybe_done
    assert (await scene.client.get(scene.waiting)).priority == 5


async def test_schedule_that_cannot_be_read_again_may_have_been_changed(
    scene: Scene, cut_client: AsyncClient, proxy: CuttingProxy
) -> None:
    proxy.cuts.extend([Cut.BEFORE_ANSWER, None, *[Cut.BEFORE_ANSWER] * 1_000])

    with pytest.raises(Changed) as caught:
        await cut_client.schedules.edit("known", every="2h", version=1)

    assert caught.value.maybe_done
    assert (await scene.client.schedules.get("known")).version == 2


async def test_change_is_not_taken_for_that_of_somebody_else(
    scene: Scene, cut_client: AsyncClient, proxy: CuttingProxy
) -> None:
    edited = await scene.client.edit(scene.waiting, priority=7)
    at = scene.through(cut_client)

    proxy.cuts.append(Cut.AT_ONCE)
    with pytest.raises(NoAnswer, match="may have been made"):
        await at.client.edit(at.waiting, priority=5)
    proxy.cuts.append(Cut.AT_ONCE)
    with pytest.raises(NoAnswer, match="may have been made"):
        await at.client.retry(at.waiting)
    proxy.cuts.append(Cut.BEFORE_ANSWER)
    with pytest.raises(Changed):
        await at.client.cancel(at.waiting, if_unchanged=True)

    assert (await scene.client.get(at.waiting)).version == edited.version


async def test_change_that_somebody_overtakes_is_given_up(
    scene: Scene, cut_client: AsyncClient, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is as before when it is read again, and another one when the change is sent again."""
    read = AsyncClient.send

    async def overtake(client: AsyncClient, request: Any, **options: Any) -> Any:
        answer = await read(client, request, **options)
        if client is cut_client and request.method == "GET":
            await scene.client.edit(scene.waiting, priority=7)
        return answer

    monkeypatch.setattr(AsyncClient, "send", overtake)
    proxy.cuts.append(Cut.AT_ONCE)

    with pytest.raises(Changed):
        await cut_client.edit(scene.through(cut_client).waiting, priority=5)

    assert (await scene.client.get(scene.waiting)).priority == 7


BLOCKING: dict[str, Callable[[Client, str], Any]] = {
    "get": lambda client, id: client.get(id).id,
    "list": lambda client, _: [*client.list()],
    "submit": lambda client, _: client.submit("echo", delay=60),
    "submit_many": lambda client, _: [*client.submit_many([Draft("echo", delay=60)] * 3)],
    "cancel": lambda client, id: client.cancel(id),
    "delete": lambda client, id: client.delete(id),
    "pause": lambda client, _: client.queue("q").pause(),
    "events": lambda client, id: next(client.events(job=id)),
}


@pytest.mark.parametrize("cut", Cut)
@pytest.mark.parametrize("name", BLOCKING)
async def test_calls_that_block_are_repeated_over_cuts(
    service: Served, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch, name: str, cut: Cut
) -> None:
    monkeypatch.setattr("erelong.client.sync.transport.time.sleep", lambda _: None)
    id = (await service.submit(delay=60, queue="q"))["id"]

    def call() -> None:
        with Client(proxy.url) as client:
            client.me()  # the connection is kept, so the call finds it broken
            proxy.cuts.extend([cut, cut])
            BLOCKING[name](client, id)

    await asyncio.to_thread(call)

    jobs = (await service.get("/v1/jobs")).json["jobs"]
    assert len(jobs) == {"submit": 2, "submit_many": 4, "delete": 0}.get(name, 1)


async def test_no_connection_is_tried_until_the_deadline(free_port: int) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async with AsyncClient(f"http://127.0.0.1:{free_port}", timeout=10) as client:
        with pytest.raises(NoAnswer, match="no connection to http") as caught:
            await client.run("x")

    assert not caught.value.maybe_done
    assert 4 < loop.time() - began <= 10


async def test_without_retries_the_first_cut_is_an_error(scene: Scene, proxy: CuttingProxy) -> None:
    proxy.cuts.extend([Cut.AT_ONCE, Cut.AT_ONCE])

    async with AsyncClient(proxy.url, retries=False) as client:
        for call in (client.me(), client.run(scene.waiting)):
            with pytest.raises(NoAnswer):
                await call

    assert len(proxy.requests) == 2


@pytest.mark.timeout(sized(30, 300))
async def test_single_submits_over_random_cuts_make_no_duplicate(client: AsyncClient, proxy: CuttingProxy) -> None:
    number, chance = sized(500, 10_000), random.Random(20)
    ids: list[str] = []
    left = [*range(number)]
    proxy.cuts.extend(chance.choice([None, None, *Cut]) for _ in range(2 * number))

    async def submit(cut_client: AsyncClient) -> None:
        while left:
            job = await cut_client.submit("echo", {"n": left.pop()}, delay="1d")
            ids.append(job.id)

    async with AsyncClient(proxy.url, timeout=600) as cut_client:
        await asyncio.gather(*(submit(cut_client) for _ in range(20)))

    assert len({*ids}) == number
    assert (await client.queue("default").get()).counts["scheduled"] == number
    assert len(proxy.requests) > number


async def test_ten_thousand_drafts_over_cuts_make_no_duplicate(
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
