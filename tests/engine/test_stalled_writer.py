"""The writer of the store hangs for longer than `[store] timeout`; what it was handed takes effect when it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import StoreUnavailable
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.job import State
from erelong.settings.queues import QueueSettings
from tests.support.engine import Engine
from tests.support.stalled import TIMEOUT, StalledStore
from tests.support.virtual import VirtualClock

STALL = 4.5 * TIMEOUT
ASK = LeaseRequest(frozenset({"pull"}), frozenset(), 1, 60.0)


class Stalling(Engine):
    """The service on a store whose writer can hang. A queue starts one job at a time."""

    def __init__(self, *, clock: VirtualClock) -> None:
        self.stalled = StalledStore()
        one = QueueSettings(concurrency=1)
        super().__init__(clock=clock, store=self.stalled, queue=one, kinds=[make_pull_kind(name="pull")])

    def stall(self) -> None:
        """Let the writer hang for longer than several calls in a row wait for it."""
        self.stalled.goes_on.clear()
        asyncio.get_running_loop().call_later(STALL, self.stalled.goes_on.set)


@pytest_asyncio.fixture
async def stalling(clock: VirtualClock) -> AsyncIterator[Stalling]:
    async with Stalling(clock=clock) as stalling:
        yield stalling
        stalling.stalled.goes_on.set()


async def test_refused_submit_that_is_stored_late_runs_at_its_due_time(stalling: Stalling) -> None:
    stalling.stall()

    with pytest.raises(StoreUnavailable):
        await stalling.submit(delay=STALL + 3)
    await asyncio.sleep(STALL + 4)

    assert await stalling.states() == {State.SUCCEEDED: 1}


async def test_job_that_is_claimed_late_is_released_and_runs(stalling: Stalling) -> None:
    job = await stalling.submit(delay=0.1)
    stalling.stall()

    await asyncio.sleep(STALL + 3)

    after = await stalling.read(job)
    assert (after.state, after.attempt) == (State.SUCCEEDED, 1)


async def test_job_that_is_claimed_late_for_a_worker_is_released_and_leased(stalling: Stalling) -> None:
    leases = stalling.node.services.leases
    await stalling.submit(kind="pull")
    stalling.stall()
    with pytest.raises(StoreUnavailable):
        await leases.lease(ASK, 1.0, NEVER_LEAVES)
    with pytest.raises(StoreUnavailable):  # which claims the job again
        await leases.lease(ASK, 1.0, NEVER_LEAVES)
    await stalling.stalled.goes_on.wait()

    (lease,) = await leases.lease(ASK, 5.0, NEVER_LEAVES)

    assert lease.job.attempt == 1


async def test_reader_is_woken_by_a_refused_cancel_that_is_stored_late(stalling: Stalling) -> None:
    job = await stalling.submit(delay=60)
    stalling.stall()
    waiting = asyncio.create_task(stalling.node.services.jobs.wait(job.id, 30))
    await asyncio.sleep(0)

    with pytest.raises(StoreUnavailable):
        await stalling.node.services.jobs.cancel(job.id, None, None)

    assert (await asyncio.wait_for(waiting, STALL + 1)).state is State.CANCELLED


async def test_refused_end_of_a_lease_that_is_stored_late_frees_its_slot(stalling: Stalling) -> None:
    leases = stalling.node.services.leases
    await stalling.submit_many(2, kind="pull")
    (first,) = await leases.lease(ASK, 1.0, NEVER_LEAVES)
    stalling.stall()
    with pytest.raises(StoreUnavailable):
        await leases.finish(first.token, None)
    await stalling.stalled.goes_on.wait()

    (second,) = await leases.lease(ASK, 5.0, NEVER_LEAVES)

    assert second.job.seq != first.job.seq
    assert (await leases.finish(first.token, None)).state is State.SUCCEEDED
