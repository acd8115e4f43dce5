"""Which lease request is woken, and when: none sleeps while a job that it accepts may start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from erelong.clock.instants import SECOND
from erelong.duties.waiters import NEVER_LEAVES
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.lane import Slot
from erelong.lanes.pollers import LeaseRequest
from erelong.model.job import Job, State
from erelong.model.query import Query
from erelong.service.leases import Leased
from erelong.settings.queues import QueueSettings, Rate
from tests.support.engine import Engine
from tests.support.virtual import VirtualClock

ONE_EVERY_TEN_SECONDS = QueueSettings(rate=Rate(per_second=0.1, burst=1))


@pytest.fixture
async def engine(clock: VirtualClock) -> AsyncIterator[Engine]:
    async with Engine(clock=clock, kinds=[make_pull_kind(name="pull")]) as engine:
        yield engine


def ask(engine: Engine, wait: float, *queues: str) -> asyncio.Task[list[Leased]]:
    """Start a lease request for one job."""
    request = LeaseRequest(frozenset({"pull"}), frozenset(queues), 1, 30.0)
    return asyncio.create_task(engine.node.services.leases.lease(request, wait, NEVER_LEAVES))


async def cancel_while_claimed(engine: Engine, job: Job) -> None:
    """Cancel a job that is due in five seconds when a worker has taken it from its lane."""
    claim = engine.store.hold("claim")
    await asyncio.sleep(5.001)
    await engine.node.services.jobs.cancel(job.id, None, None)
    claim.set()
    del engine.store.held["claim"]


@pytest.mark.parametrize("queue", ["default", "other"])
async def test_worker_whose_claim_is_refused_takes_the_next_job(
    engine: Engine, clock: VirtualClock, queue: str
) -> None:
    asking = ask(engine, 60)
    first = await engine.submit(kind="pull", delay=5)
    second = await engine.submit(kind="pull", queue=queue, delay=5)

    await cancel_while_claimed(engine, first)
    (lease,) = await asking

    assert lease.job.id == second.id
    assert clock.now() - (second.due_at or 0) < SECOND


async def test_worker_that_does_not_wait_takes_the_next_job_after_a_refused_claim(engine: Engine) -> None:
    first = await engine.submit(kind="pull")
    second = await engine.submit(kind="pull", queue="other")
    await engine.until(lambda: engine.node.engine.lanes.due("other") == 1)

    claim = engine.store.hold("claim")
    asking = ask(engine, 0)
    await asyncio.sleep(0.001)
    await engine.node.services.jobs.cancel(first.id, None, None)
    claim.set()

    assert [lease.job.id for lease in await asking] == [second.id]


async def test_token_wakes_another_worker_if_the_first_stops_waiting(engine: Engine, clock: VirtualClock) -> None:
    await engine.node.engine.overrides.set("default", ONE_EVERY_TEN_SECONDS)
    await engine.submit(kind="pull")
    await ask(engine, 1)
    short = ask(engine, 2)
    await asyncio.sleep(0.1)
    long = ask(engine, 60)
    await asyncio.sleep(0.1)

    job = await engine.submit(kind="pull")

    assert await short == []
    assert len(await long) == 1
    assert clock.now() - (job.due_at or 0) < 11 * SECOND


async def test_token_wakes_another_worker_if_the_wait_of_the_first_ends_with_its_wake(
    engine: Engine, clock: VirtualClock
) -> None:
    await engine.node.engine.overrides.set("default", ONE_EVERY_TEN_SECONDS)
    await engine.submit(kind="pull")
    await ask(engine, 1)
    short = ask(engine, 5)
    await asyncio.sleep(0.001)
    long = ask(engine, 60)

    job = await engine.submit(kind="pull", delay=4.999)

    assert await short == []
    assert len(await long) == 1
    assert clock.now() - (job.due_at or 0) < 11 * SECOND


async def test_lease_that_cannot_be_saved_returns_its_token(engine: Engine, clock: VirtualClock) -> None:
    await engine.node.engine.overrides.set("default", ONE_EVERY_TEN_SECONDS)
    damaged, sound = await engine.submit_all([{"kind": "pull"}, {"kind": "pull", "delay": 1}])
    engine.store.refuse("save", damaged.seq)
    engine.store.refuse("finish", damaged.seq)

    (lease,) = await ask(engine, 60)

    assert lease.job.id == sound.id
    assert clock.now() - (sound.due_at or 0) < SECOND


async def test_each_token_of_a_queue_wakes_few_workers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    await engine.node.engine.overrides.set("default", QueueSettings(rate=Rate(per_second=10, burst=1)))
    lanes, tries = engine.node.engine.lanes, 0
    take_for = lanes.take_for

    def counting(kinds: frozenset[str], queues: frozenset[str], limit: int) -> dict[int, Slot]:
        nonlocal tries
        tries += 1
        return take_for(kinds, queues, limit)

    async def work() -> None:
        for _ in range(5):
            await ask(engine, 60)

    monkeypatch.setattr(lanes, "take_for", counting)
    await engine.submit_many(200, kind="pull")
    await asyncio.gather(*[work() for _ in range(40)])

    assert tries <= 5 * 200


@pytest.mark.parametrize("kinds", [("echo", "pull"), ("pull", "echo")], ids=str)
async def test_workers_get_half_the_tokens_of_a_queue_whose_other_jobs_run_here(
    engine: Engine, clock: VirtualClock, kinds: tuple[str, str]
) -> None:
    await engine.node.engine.overrides.set("default", QueueSettings(rate=Rate(per_second=1, burst=1)))
    began = clock.now()
    for kind in kinds:
        await engine.submit_many(20, kind=kind)

    for _ in range(5):
        assert len(await ask(engine, 60)) == 1

    assert clock.now() - began < 12 * SECOND
    assert 4 <= len([job for job in await engine.store.list(Query()) if job.state is State.SUCCEEDED]) <= 6


async def test_jobs_that_come_due_together_are_claimed_together(engine: Engine) -> None:
    asking = [ask(engine, 60) for _ in range(50)]
    await engine.submit_many(50, kind="pull", delay=5)
    saves = engine.store.hold("save")

    await asyncio.sleep(5.5)
    claims = engine.store.calls.count("claim")
    saves.set()
    leases = await asyncio.gather(*asking)

    assert claims == len({lease.job.id for (lease,) in leases}) == 50
