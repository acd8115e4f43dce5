"""Jobs of undeclared kinds wait, are reported at the start, and run once their kind is declared again."""

from __future__ import annotations

import asyncio

import pytest

from erelong.model.job import State
from tests.support.builders import make_ended, make_job, put
from tests.support.engine import Engine, outcomes_of
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner
from tests.support.virtual import VirtualClock


async def test_job_waits_until_its_kind_is_back(clock: VirtualClock) -> None:
    store = FaultyStore()
    async with Engine(clock=clock, store=store) as engine:
        job = await engine.submit(kind="gone", delay=1)
        await asyncio.sleep(3_600)
        waiting = await engine.read(job)
        reason = engine.node.services.blockers.waiting_for(waiting, clock.now())

    async with Engine(clock=clock, store=store, kinds=[FakeRunner().kind("gone")]) as engine:
        done = await engine.until_final(job, within=1)

    assert (waiting.state, waiting.attempt, reason) == (State.SCHEDULED, 0, "worker")
    assert (done.state, outcomes_of(done)) == (State.SUCCEEDED, ["succeeded"])


async def test_job_can_be_cancelled_and_expires_without_its_kind(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        cancelled = await engine.submit(kind="gone")
        expired = await engine.submit(kind="gone", expires_after=10.0)
        await asyncio.sleep(1)

        await engine.node.services.jobs.cancel(cancelled.id, None, None)

        assert (await engine.until_final(expired, within=10)).state is State.EXPIRED
        assert (await engine.read(cancelled)).state is State.CANCELLED


async def test_jobs_of_other_kinds_of_the_queue_are_not_held_up(clock: VirtualClock) -> None:
    async with Engine(clock=clock) as engine:
        await engine.submit_many(1_000, kind="gone", priority=100)

        job = await engine.until_final(await engine.submit(), within=1)

    assert job.state is State.SUCCEEDED


async def test_start_warns_of_each_kind_that_is_missing(clock: VirtualClock, caplog: pytest.LogCaptureFixture) -> None:
    engine = Engine(clock=clock)
    jobs = [make_job(now=clock.now(), kind=kind, delay=9, queue=queue) for kind in ("echo", "gone") for queue in "ab"]
    await put(engine.store, *jobs, make_job(kind="lost"), make_ended(State.FAILED, kind="over"), now=clock.now())

    async with engine:
        pass

    logged = [record.__dict__["fields"] for record in caplog.records if record.getMessage() == "kind_missing"]
    assert {fields["kind"]: fields["jobs"] for fields in logged} == {"gone": 2, "lost": 1}
    assert all("declare the kind in [kinds]" in fields["remedy"] for fields in logged)
