"""Leases end at their deadlines and not before, and memory forgets those that are over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from erelong.clock.instants import SECOND
from erelong.duties.waiters import NEVER_LEAVES
from erelong.engine import leases
from erelong.engine.leases import end_lease
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.job import State
from erelong.model.outcome import End, Outcome
from erelong.service.leases import Leased
from tests.support.engine import STEADY, Engine, outcomes_of
from tests.support.virtual import VirtualClock


class Leasing(Engine):
    """The service with the pull kind "pull"."""

    def __init__(self, *, clock: VirtualClock) -> None:
        super().__init__(clock=clock, kinds=[make_pull_kind(name="pull")])

    async def lease(self, seconds: float) -> Leased:
        """Submit and lease a job."""
        await self.submit(kind="pull", retry=STEADY)
        request = LeaseRequest(frozenset({"pull"}), frozenset(), 1, seconds)
        (lease,) = await self.node.services.leases.lease(request, 1.0, NEVER_LEAVES)
        return lease

    async def extend(self, lease: Leased, seconds: float) -> None:
        await self.node.services.leases.extend(lease.token, seconds)

    async def finish(self, lease: Leased) -> None:
        await self.node.services.leases.finish(lease.token, None)

    @property
    def deadlines(self) -> int:
        return len(self.node.engine.leases._deadlines)


@pytest_asyncio.fixture
async def leasing(clock: VirtualClock) -> AsyncIterator[Leasing]:
    async with Leasing(clock=clock) as leasing:
        yield leasing


async def _assert_ends_at(leasing: Leasing, lease: Leased, seconds: float) -> None:
    """Check that the lease is held, and ends after so many seconds."""
    await asyncio.sleep(seconds - 0.1)
    job = await leasing.read(lease.job)
    assert (job.state, job.lease) == (State.RUNNING, lease.token)
    await asyncio.sleep(0.2)
    assert outcomes_of(await leasing.read(lease.job)) == ["lost"]


async def test_lease_that_is_extended_while_its_end_is_read_goes_on(leasing: Leasing) -> None:
    lease = await leasing.lease(2.0)
    await asyncio.sleep(1.999)
    written = leasing.store.hold("save")
    extending = asyncio.create_task(leasing.extend(lease, 30.0))
    await asyncio.sleep(0)  # it reads the job
    read = leasing.store.hold("get")
    await asyncio.sleep(0.002)  # the lease runs out

    written.set()
    await extending
    read.set()

    await _assert_ends_at(leasing, lease, 30.0)


async def test_lease_whose_extension_is_stored_but_not_yet_answered_goes_on(leasing: Leasing) -> None:
    lease = await leasing.lease(2.0)
    await asyncio.sleep(1.999)
    answer = leasing.store.hold_answer("save")
    extending = asyncio.create_task(leasing.extend(lease, 30.0))
    await asyncio.sleep(0.01)

    answer.set()
    await extending

    await _assert_ends_at(leasing, lease, 30.0)


async def test_lease_whose_extension_was_stored_and_refused_ends_as_stored(leasing: Leasing) -> None:
    lease = await leasing.lease(2.0)
    job = await leasing.read(lease.job)
    await leasing.store.save([job.extend(lease.lease_until + 3_000_000)])

    await _assert_ends_at(leasing, lease, 5.0)


async def test_slot_of_a_lease_that_has_ended_unnoticed_is_freed_at_its_deadline(leasing: Leasing) -> None:
    lease = await leasing.lease(2.0)
    job = await leasing.read(lease.job)
    await leasing.store.save([end_lease(job, Outcome(End.SUCCEEDED), "finish", leasing.clock.now())])

    await asyncio.sleep(2.1)

    assert len(leasing.node.engine.leases) == 0
    leasing.assert_all_given_back()


async def test_ended_leases_leave_few_deadlines(leasing: Leasing) -> None:
    for _ in range(1_500):
        await leasing.finish(await leasing.lease(43_200.0))

    assert leasing.deadlines < 1_100


async def test_extensions_that_are_long_and_short_in_turn_leave_few_deadlines(leasing: Leasing) -> None:
    lease = await leasing.lease(60.0)
    for _ in range(1_000):
        await leasing.extend(lease, 1.0)
        await leasing.extend(lease, 100.0)
        await asyncio.sleep(0.5)

    assert leasing.deadlines < 200
    await _assert_ends_at(leasing, lease, 99.5)


async def test_leases_end_in_time_and_set_aside_ones_are_retried_after_a_rebuild(
    leasing: Leasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "MAX_STALE", 5)
    lease, stuck = await leasing.lease(2.0), await leasing.lease(1.0)
    began = leasing.clock.now()
    await leasing.extend(lease, 20.0)
    leasing.store.refuse("save", stuck.job.seq)
    await asyncio.sleep(1.5)
    before = leasing.node.engine.leases._deadlines
    for _ in range(20):
        await leasing.finish(await leasing.lease(43_200.0))
    assert leasing.node.engine.leases._deadlines is not before
    leasing.store.refused.clear()

    await asyncio.sleep(3)
    assert outcomes_of(await leasing.read(stuck.job)) == ["lost"]
    await _assert_ends_at(leasing, lease, 20.0 - (leasing.clock.now() - began) / SECOND)
