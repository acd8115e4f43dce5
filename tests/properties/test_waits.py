"""A wait for many jobs never hangs and misses no end, for any order of events and any delay of the store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple, assert_never

import pytest

from erelong.clock.instants import Instant
from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import JobNotFound, VersionMismatch, WrongState
from erelong.model.caller import Caller, Scope
from erelong.model.job import SECOND, Job, State
from erelong.service.waits import Until
from tests.support.engine import Engine
from tests.support.examples import examples
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, lasting, raising
from tests.support.virtual import VirtualClock

SCHEDULES = examples(1_000)
SLOWEST = 0.05  # seconds of one read
LONGEST = 10.0
ROUNDING = 10  # microseconds
NEVER = 1_000_000.0
CALLER = Caller(name="default", scopes=frozenset(Scope), queues=frozenset({"default"}))


class SlowStore(FaultyStore):
    """A store whose reads take a random time before and after the row is read."""

    def __init__(self, *, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        await asyncio.sleep(self._dice.choice((0, self._dice.random())) * SLOWEST / 2)
        jobs = await super().get(seqs)
        await asyncio.sleep(self._dice.choice((0, self._dice.random())) * SLOWEST / 2)
        return jobs


class Result(NamedTuple):
    """The end of a wait: when, whether it was reached, and the ids of ended, missing and pending jobs."""

    at: Instant
    is_done: bool
    ended: list[Job]
    missing: list[str]
    pending: list[str]


class Schedule:
    """Some jobs, each with an event at a random time that may end it, and one wait for all of them."""

    def __init__(self, engine: Engine, dice: random.Random) -> None:
        self.engine = engine
        self.dice = dice
        self.until = dice.choice([*Until])
        self.seconds = dice.choice((0.0, dice.random(), LONGEST * dice.random(), LONGEST))
        self.over: dict[str, tuple[Instant, bool]] = {}  # by id: when, and whether it failed

    async def run(self) -> Result:
        jobs = [await self._submit() for _ in range(self.dice.randint(0, 6))]
        unknown = [self.dice.choice(("x", "f" * 26)) for _ in range(self.dice.choice((0, 0, 1)))]
        events = [asyncio.create_task(self._happen(job)) for job in jobs]
        await asyncio.sleep(self.dice.choice((0.0, LONGEST / 4 * self.dice.random())))
        self.ids = [job.id for job in jobs] + unknown or ["x"]
        self.dice.shuffle(self.ids)
        self.began = self.engine.clock.now()
        result = await self._wait()
        for event in events:
            event.cancel()
        await asyncio.gather(*events, return_exceptions=True)
        await self._note_ends(jobs)
        for job in jobs:
            await self._remove(job)
        return result

    async def _submit(self) -> Job:
        kind, delay = (
            self.dice.choice(("echo", "slow", "bad")),
            self.dice.choice((0.0, LONGEST * self.dice.random(), NEVER)),
        )
        queue = self.dice.choice(("default", "default", "default", "other"))
        return await self.engine.submit(kind=kind, delay=delay, queue=queue)

    async def _happen(self, job: Job) -> None:
        """Cancel, delete or move the job at a random time, or leave it alone."""
        await asyncio.sleep(LONGEST * self.dice.random())
        jobs = self.engine.node.services.jobs
        with suppress(JobNotFound, WrongState, VersionMismatch):
            match self.dice.choice(("cancel", "delete", "run", "none")):
                case "cancel":
                    await jobs.cancel(job.id, None, None)
                case "delete":  # unless it has begun
                    await jobs.delete(job.id, frozenset({job.version}))
                    self.over[job.id] = (self.engine.clock.now(), True)
                case "run":
                    await jobs.run(job.id, None)

    async def _remove(self, job: Job) -> None:
        jobs = self.engine.node.services.jobs
        with suppress(JobNotFound, WrongState):
            await jobs.cancel(job.id, None, None)
        with suppress(JobNotFound, WrongState):
            await jobs.delete(job.id, None)

    async def _wait(self) -> Result:
        """Follow the watch as the routes do."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.seconds
        ended, missing = [], []
        waits = self.engine.node.services.waits
        with waits.watch(self.ids, until=self.until, caller=CALLER, client=NEVER_LEAVES) as watch:
            news = await watch.read()
            while not watch.is_over and (left := deadline - loop.time()) > 0:
                ended += news.ended
                missing += news.missing
                news = await watch.wait(left)
            ended += news.ended
            missing += news.missing
        return Result(self.engine.clock.now(), watch.is_done, ended, missing, [*watch.pending])

    async def _note_ends(self, jobs: Sequence[Job]) -> None:
        stored = await self.engine.store.get([job.seq for job in jobs])
        for id in self.ids:
            job = next((job for job in jobs if job.id == id), None)
            if job is None or job.queue != "default":
                self.over[id] = (self.began, True)
            elif (now := stored.get(job.seq)) is not None and now.is_final:
                self.over[id] = (now.finished_at or 0, now.state is not State.SUCCEEDED)


def reached_at(schedule: Schedule) -> Instant | None:
    """Return when the aim of a wait was reached, by what happened to its jobs; None if it was not."""
    over = [schedule.over[id] for id in {*schedule.ids} if id in schedule.over]
    all_at = max(at for at, _ in over) if len(over) == len({*schedule.ids}) else None
    match schedule.until:
        case Until.ALL:
            return all_at
        case Until.FIRST:
            return min((at for at, _ in over), default=None)
        case Until.FIRST_FAILURE:
            failed = min((at for at, has_failed in over if has_failed), default=None)
            return all_at if failed is None else failed
        case _:
            assert_never(schedule.until)


def check(schedule: Schedule, result: Result) -> None:
    """Raise an AssertionError, whose locals show the schedule."""
    slack = round(8 * SLOWEST * SECOND)  # the read that is under way, and the next one
    limit = schedule.began + round(schedule.seconds * SECOND)
    assert result.at <= limit + slack, "it hangs"
    assert sorted([*(job.id for job in result.ended), *result.missing, *result.pending]) == sorted({*schedule.ids})
    for job in result.ended:
        assert job.is_final
        assert (job.finished_at or 0) <= result.at
    for id in result.pending:
        at = schedule.over.get(id, (result.at, False))[0]
        assert at >= min(result.at, limit) - slack, "it misses an end"
    reached = reached_at(schedule)
    if result.is_done:
        assert reached is not None
        assert reached <= result.at <= max(reached, schedule.began) + slack, "it is late"
    else:
        assert result.at >= limit - ROUNDING, "it gives up"
        assert reached is None or reached >= limit - slack, "it misses the aim"


@pytest.mark.timeout(600)
async def test_wait_for_many_never_hangs_and_never_misses(clock: VirtualClock) -> None:
    dice = random.Random(17)
    store = SlowStore(dice=dice)
    slow, bad = FakeRunner(lasting(0.3)), FakeRunner(raising(ValueError("boom")))
    async with Engine(clock=clock, store=store, kinds=[slow.kind("slow"), bad.kind("bad")]) as engine:
        for number in range(SCHEDULES):
            schedule = Schedule(engine, random.Random(number))
            result = await schedule.run()
            check(schedule, result)
        assert len(engine.node.engine.waiters.jobs) == 0
