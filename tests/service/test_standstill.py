"""Whether everything due is done, and the next instant at which anything is due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from erelong.clock.virtual import VirtualClock
from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import StoreUnavailable
from erelong.handlers.kinds import Kinds
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.job import SECOND, Job
from erelong.model.outcome import End, Outcome
from erelong.model.submission import NewJob
from erelong.node import Node
from erelong.service.clock import Clock
from erelong.service.standstill import UPKEEP, Standstill
from erelong.settings.sections import Config, JobsSection
from erelong.stores.base import Ending
from tests.support.builders import make_job
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, lasting
from tests.support.virtual import EPOCH

ASK = LeaseRequest(frozenset({"pull"}), frozenset(), 10, 30.0)


class Still:
    """A service on a virtual clock, and its standstill."""

    def __init__(self, *, window_jobs: int = 1_000_000) -> None:
        self.store = FaultyStore()
        clock = VirtualClock(at=EPOCH, tick=asyncio.get_running_loop().time)
        self.handler = FakeRunner()
        kinds = Kinds(self.handler.kind("echo"), make_pull_kind(name="pull"))
        config = Config(jobs=JobsSection(window_jobs=window_jobs))
        self.node = Node(config=config, store=self.store, kinds=kinds, virtual=clock)
        assert self.node.services.clock is not None
        self.clock: Clock = self.node.services.clock
        self.standstill: Standstill = self.clock._standstill

    def is_settled(self) -> bool:
        return self.standstill.is_settled()

    async def submit(self, **fields: Any) -> Job:
        now = self.node.engine.now()
        (entry,) = (await self.node.services.jobs.add([NewJob(make_job(now=now, **fields))], now=now)).entries
        assert entry is not None
        return entry.job

    async def lease(self) -> list[Any]:
        return [*await self.node.services.leases.lease(ASK, 0.0, NEVER_LEAVES)]

    async def advance(self, seconds: float) -> None:
        moved = await self.clock.advance(seconds, wait=1_000)
        assert moved.is_settled

    async def turn(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.fixture
async def still() -> AsyncIterator[Still]:
    still = Still()
    await still.node.start()
    await still.turn()
    yield still
    still.store.broken.clear()
    for event in still.store.held.values():
        event.set()
    await still.node.stop()


# settled


async def test_idle_service_is_settled(still: Still) -> None:
    await still.submit(delay=10)
    await still.turn()

    assert still.is_settled()


@pytest.mark.parametrize("method", ["peek", "claim", "finish"])
async def test_job_on_its_way_through_the_store_is_not_settled(still: Still, method: str) -> None:
    held = still.store.hold(method)
    await still.submit()
    await asyncio.sleep(1)
    assert not still.is_settled()

    held.set()
    await still.turn()
    assert still.is_settled()


async def test_running_job_is_not_settled(still: Still) -> None:
    still.handler.work = lasting(3)
    await still.submit()

    await asyncio.sleep(2.9)
    assert not still.is_settled()
    await asyncio.sleep(0.2)
    assert still.is_settled()


async def test_unsaved_outcome_is_not_settled(still: Still) -> None:
    job = await still.submit(kind="pull")
    await still.turn()
    ((_, _, leased, _),) = await still.lease()
    await still.turn()
    assert still.is_settled()

    still.node.engine.completer.add(Ending(leased, Outcome(End.RELEASED), EPOCH))

    assert not still.is_settled()
    await still.turn()
    assert (await still.store.get([job.seq]))[job.seq].lease is None


async def test_lease_that_is_being_claimed_is_not_settled(still: Still) -> None:
    await still.submit(kind="pull")
    await still.turn()
    assert still.is_settled()
    held = still.store.hold("save")
    asked = asyncio.create_task(still.lease())
    await still.turn()
    assert not still.is_settled()

    held.set()
    assert len(await asked) == 1
    await still.turn()
    assert still.is_settled()


async def test_request_that_is_woken_for_a_job_is_not_settled(still: Still) -> None:
    engine = still.node.engine
    with engine.pollers.poll(ASK, NEVER_LEAVES):
        await still.turn()
        assert still.is_settled()

        engine.pollers.wake("pull", "default")

        assert not still.is_settled()


async def test_job_whose_claim_failed_is_not_settled_until_it_is_due_again(still: Still) -> None:
    await still.submit(kind="pull")
    await still.turn()
    still.store.broken["claim"] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await still.lease()
    still.store.broken.clear()
    still.node.engine._unknown_writes.take()

    assert not still.is_settled()
    await asyncio.sleep(0.6)
    assert still.is_settled()
    assert len(await still.lease()) == 1


async def test_write_with_an_unknown_result_is_not_settled(still: Still) -> None:
    job = await still.submit(delay=10)
    still.store.broken["save"] = StoreUnavailable("away")
    with pytest.raises(StoreUnavailable):
        await still.node.services.jobs.run(job.id, None)

    assert not still.is_settled()
    still.store.broken.clear()
    await asyncio.sleep(1)
    assert still.is_settled()


@pytest.mark.parametrize("method", ["peek", "claim", "finish"])
async def test_damaged_job_stops_only_itself(still: Still, method: str) -> None:
    damaged = await still.submit(delay=5)
    other = await still.submit(delay=6)
    still.store.refuse(method, damaged.seq)

    began_at = asyncio.get_running_loop().time()
    await still.advance(10)

    assert asyncio.get_running_loop().time() - began_at < 1
    assert (await still.store.get([other.seq]))[other.seq].late_by == 0.0


@pytest.mark.parametrize("name", sorted(UPKEEP))
async def test_upkeep_that_fails_holds_up_no_move(still: Still, name: str) -> None:
    still.node.engine.duties[name]._failed(RuntimeError("broken"))

    assert not still.node.engine.duties[name].is_resting
    assert still.is_settled()


@pytest.mark.parametrize("name", ["scheduler", "dispatcher", "completer", "leases", "recurrences", "operations"])
async def test_duty_that_fails_holds_up_the_clock(still: Still, name: str) -> None:
    still.node.engine.duties[name]._failed(RuntimeError("broken"))

    assert not still.is_settled()


# the next instant


async def test_next_instant_is_the_earliest_of_all(still: Still) -> None:
    await still.submit(delay=100)
    assert await still.standstill.next_at() == EPOCH + 100 * SECOND

    await still.submit(kind="pull", expires_after=50)
    await still.turn()
    assert await still.standstill.next_at() == EPOCH + 50 * SECOND

    await still.submit(kind="pull")
    await still.turn()
    await still.lease()
    assert await still.standstill.next_at() == EPOCH + 30 * SECOND
    assert still.standstill.has_before(EPOCH + 31 * SECOND)
    assert not still.standstill.has_before(EPOCH + 30 * SECOND)


async def test_next_instant_of_an_extended_lease_is_its_new_end(still: Still) -> None:
    await still.submit(kind="pull")
    await still.turn()
    ((token, *_),) = await still.lease()
    await still.node.services.leases.extend(token, 90.0)

    assert await still.standstill.next_at() == EPOCH + 90 * SECOND


async def test_many_void_instants_are_dropped(still: Still) -> None:
    jobs = [await still.submit(delay=5) for _ in range(450)]
    for job in jobs:
        await still.node.services.jobs.cancel(job.id, None, None)
    await still.submit(delay=6)

    assert await still.standstill.next_at() == EPOCH + 6 * SECOND
    assert len(still.node.engine.agenda) == 1


async def test_next_instant_is_kept_if_the_store_does_not_answer(still: Still) -> None:
    await still.submit(delay=5)
    still.store.broken["peek"] = StoreUnavailable("away")

    assert await still.standstill.next_at() == EPOCH + 5 * SECOND


# a move, and changes meanwhile


async def test_jobs_beyond_the_limit_of_the_agenda_run_on_the_dot() -> None:
    still = Still(window_jobs=64)
    await still.node.start()
    now = still.node.engine.now()
    jobs = [NewJob(make_job(now=now, delay=(index * 7 % 500) * 3_600.0 + 1)) for index in range(500)]
    await still.node.services.jobs.add(jobs, now=now)
    assert len(still.node.engine.agenda) <= 64

    moved = await still.clock.advance(500 * 3_600.0, wait=1_000)
    await still.node.stop()

    assert (moved.is_settled, moved.started) == (True, 500)
    assert all(attempt.started_at == attempt.due_at for attempt in still.handler.attempts)


async def test_job_that_is_moved_forward_while_the_clock_leaves_runs_on_the_dot(still: Still) -> None:
    job = await still.submit(delay=50)
    await still.turn()
    held = asyncio.Event()
    write = still.clock.record.write

    async def write_slowly(at: int) -> None:
        await write(at)
        await held.wait()

    still.clock.record.write = write_slowly  # type: ignore[method-assign]  # so that the change comes between
    moving = asyncio.create_task(still.clock.advance(60, wait=1_000))
    await still.turn()
    before = (await still.store.get([job.seq]))[job.seq]
    after = before._replace(due_at=EPOCH + 10 * SECOND, version=before.version + 1)
    (verdict,) = await still.store.save([after])
    still.node.engine.changes.changed(before, verdict)
    held.set()
    assert (await moving).is_settled

    (attempt,) = still.handler.attempts
    assert attempt.started_at == attempt.due_at == EPOCH + 10 * SECOND
