"""Writes that arrive while nobody leads are held, within bounds, until a node leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Self

import pytest
import pytest_asyncio

from erelong.cluster import hold
from erelong.cluster.leadership import PAUSE
from erelong.settings.sections import ClusterSection, LimitsSection
from tests.support.builders import ALL
from tests.support.following import LOOK_PAUSE, Following
from tests.support.served import Answer, Serve, Served
from tests.support.virtual import VirtualClock

JOB = {"kind": "echo", "delay": 3_600}


class Standby:
    """A node of a store that nobody leads, with the requests that it holds."""

    def __init__(self, served: Served, store: Following) -> None:
        self.served = served
        self.store = store
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def held(self) -> int:
        return len(self.served.node.engine.waiters.leaders)

    async def __aenter__(self) -> Self:
        self.store.depose()
        self._tasks.append(asyncio.create_task(self.served.node.lead()))
        await asyncio.sleep(2 * LOOK_PAUSE)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def send(self, json: object = JOB) -> asyncio.Task[Answer]:
        request = asyncio.create_task(self.served.post("/v1/jobs", json))
        self._tasks.append(request)
        return request

    async def hold(self, json: object = JOB) -> asyncio.Task[Answer]:
        """Send a submit; return it when it is held."""
        before, request = self.held, self.send(json)
        await until(lambda: self.held > before)
        return request


@pytest_asyncio.fixture
async def make_standby(serve: Serve) -> AsyncIterator[Callable[..., Any]]:
    """Return a function that makes nodes with settings."""
    async with AsyncExitStack() as stack:

        async def make(**sections: object) -> Standby:
            store = Following()
            return await stack.enter_async_context(Standby(await serve(store=store, **sections), store))

        yield make


@pytest_asyncio.fixture
async def standby(make_standby: Callable[..., Any]) -> Standby:
    made: Standby = await make_standby()
    return made


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(1):
        while not condition():  # noqa: ASYNC110 - the condition has no event, and the time is virtual
            await asyncio.sleep(0.001)


def assert_refused(answer: Answer, reason: str) -> None:
    assert (answer.status, answer.code, answer.headers["Retry-After"]) == (503, "not_leading", "1")
    assert reason in answer.json["detail"]


async def test_write_is_held_until_this_node_leads(standby: Standby, clock: VirtualClock) -> None:
    request = await standby.hold()
    await asyncio.sleep(5)
    assert not request.done()

    standby.store.begin()
    since = clock.now()

    assert (await request).status == 201
    assert clock.now() - since < 100_000
    assert len(await standby.store.list(ALL)) == 1
    assert standby.held == 0


async def test_held_write_is_refused_as_soon_as_another_node_leads(standby: Standby, clock: VirtualClock) -> None:
    request = await standby.hold()
    await asyncio.sleep(3)

    standby.store.follow()
    since = clock.now()

    assert_refused(await request, "another node at 10.0.0.7 leads")
    assert clock.now() - since <= 1_000_000 * (PAUSE + LOOK_PAUSE + 0.01)
    assert await standby.store.list(ALL) == []


async def test_write_is_held_for_so_long_at_most(make_standby: Callable[..., Any], clock: VirtualClock) -> None:
    standby = await make_standby(cluster=ClusterSection(hold=3.0))
    since = clock.now()

    answer = await standby.send()

    assert_refused(answer, "no node leads yet")
    assert 3.0 <= (clock.now() - since) / 1_000_000 < 3.1


async def test_nothing_is_held_if_the_settings_say_so(make_standby: Callable[..., Any], clock: VirtualClock) -> None:
    standby = await make_standby(cluster=ClusterSection(hold=0.0))
    since = clock.now()

    assert_refused(await standby.send(), "no node leads yet")

    assert clock.now() - since < 100_000


async def test_read_that_needs_the_leader_is_not_held(standby: Standby, clock: VirtualClock) -> None:
    since = clock.now()

    assert_refused(await standby.served.get("/v1/queues"), "no node leads yet")

    assert clock.now() - since < 100_000


async def test_write_is_refused_by_the_next_look_while_another_node_leads(
    standby: Standby, clock: VirtualClock
) -> None:
    standby.store.follow()
    await asyncio.sleep(1)
    since = clock.now()

    assert_refused(await standby.send(), "another node at 10.0.0.7 leads")

    assert clock.now() - since <= 1_000_000 * (2 * LOOK_PAUSE + PAUSE)


async def test_write_that_comes_when_the_leader_has_just_ended_is_held(standby: Standby) -> None:
    standby.store.follow()
    await asyncio.sleep(1)
    standby.store.depose()
    assert not standby.store.is_vacant  # by the last look

    request = await standby.hold()
    await asyncio.sleep(1)
    standby.store.begin()

    assert (await request).status == 201


async def test_number_of_held_writes_is_bounded(make_standby: Callable[..., Any]) -> None:
    standby = await make_standby(limits=LimitsSection(max_waiters=2))
    held = [await standby.hold() for _ in range(2)]

    assert_refused(await standby.send(), "no node leads yet")

    standby.store.begin()
    assert [(await request).status for request in held] == [201, 201]


async def test_bytes_of_held_writes_are_bounded(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "MAX_BYTES", 2_000)
    held = await standby.hold({**JOB, "params": {"text": "x" * 1_500}})

    assert_refused(await standby.send({**JOB, "params": {"text": "x" * 600}}), "no node leads yet")
    small = await standby.hold()

    standby.store.begin()
    assert [(await request).status for request in (held, small)] == [201, 201]


async def test_client_that_hangs_up_frees_its_place(make_standby: Callable[..., Any]) -> None:
    standby = await make_standby(limits=LimitsSection(max_waiters=1))
    (await standby.hold()).cancel()  # closes its connection
    await until(lambda: standby.held == 0)

    request = await standby.hold()
    standby.store.begin()
    assert (await request).status == 201
    assert len(await standby.store.list(ALL)) == 1


async def test_stop_ends_the_hold(standby: Standby, clock: VirtualClock) -> None:
    request = await standby.hold()
    since = clock.now()

    await standby.served.node.drain(can_store=True)

    assert_refused(await request, "no node leads yet")
    assert clock.now() - since < 100_000
    assert_refused(await standby.send(), "no node leads yet")
    assert await standby.store.list(ALL) == []


async def test_write_is_held_while_this_node_takes_over(standby: Standby) -> None:
    standby.served.store.held["overrides"] = asyncio.Event()
    standby.store.begin()
    await until(lambda: standby.store.standby() is None)

    request = await standby.hold()
    standby.served.store.held["overrides"].set()

    assert (await request).status == 201
