"""Which lease request is woken, and when: none sleeps while a job that it accepts may start."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from erelong.clock.instants import SECOND
from erelong.duties.waiters import NEVER_LEAVES
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.job import Job
from erelong.service.leases import Leased
from tests.support.engine import Engine
from tests.support.virtual import VirtualClock


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


async def test_jobs_that_come_due_together_are_claimed_together(engine: Engine) -> None:
    asking = [ask(engine, 60) for _ in range(50)]
    await engine.submit_many(50, kind="pull", delay=5)
    saves = engine.store.hold("save")

    await asyncio.sleep(5.5)
    claims = engine.store.calls.count("claim")
    saves.set()
    leases = await asyncio.gather(*asking)

    assert claims == len({lease.job.id for (lease,) in leases}) == 50
