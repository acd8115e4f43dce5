"""Schedules under random edits, restarts, steps of the clock and overlaps, against a simple model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import hypothesis
from hypothesis import strategies as st

from erelong.model.extras import read_extras
from erelong.model.job import Job
from erelong.model.query import Query
from erelong.settings.kinds import KindSettings
from erelong.settings.queues import QueueSettings
from tests.support.examples import examples
from tests.support.served import Served, ServedStore
from tests.support.virtual import EPOCH, VirtualClock, VirtualLoop

SECOND = 1_000_000
PATH = "/v1/schedules/beat"
T = TypeVar("T")
ALL = Query(limit=100_000, is_full=True)


class Act(NamedTuple):
    """One thing that happens to a schedule."""

    name: str
    value: Any = None


OVERLAPS = ("skip", "queue_one", "replace", "allow")
ACTS = st.one_of(
    st.builds(Act, st.just("pass"), st.integers(1, 50).map(lambda tenths: tenths / 10)),
    st.builds(Act, st.just("pass"), st.integers(1, 50).map(lambda tenths: tenths / 10)),
    st.builds(Act, st.just("put"), st.tuples(st.sampled_from((1, 2, 3)), st.sampled_from(OVERLAPS))),
    st.builds(Act, st.sampled_from(("pause", "resume", "trigger", "finish", "again")), st.none()),
    st.builds(Act, st.just("down"), st.integers(0, 40).map(lambda tenths: tenths / 10)),
    st.builds(Act, st.just("step"), st.sampled_from((-7.0, -1.6, 1.7, 6.0))),
)


class World:
    """A service whose only kind is pulled, so that its jobs stay live until the test ends them."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.store = ServedStore()
        self.service: Served | None = None
        self.edits = 0

    async def start(self) -> None:
        work = {"work": KindSettings(pull=True)}
        queues = {"default": QueueSettings(concurrency=10_000)}
        self.service = await Served(clock=self.clock, store=self.store, declared=work, queues=queues).__aenter__()

    async def stop(self) -> None:
        assert self.service is not None
        await self.service.__aexit__()

    @property
    def running(self) -> Served:
        assert self.service is not None
        return self.service

    async def do(self, act: Act) -> None:
        match act.name:
            case "pass":
                await asyncio.sleep(act.value)
            case "put":
                await self.put(*act.value)
            case "pause" | "resume" | "trigger":
                await self.running.post(f"{PATH}/{act.name}")
            case "again":
                schedule = (await self.running.get(PATH)).json
                await self.put(schedule["every"], schedule["overlap"])
            case "finish":
                await self.finish()
            case "down":
                await self.stop()
                await asyncio.sleep(act.value)
                await self.start()
            case "step":
                self.clock.step(act.value)
                await asyncio.sleep(1)

    async def put(self, every: float, overlap: str) -> None:
        answer = await self.running.put(PATH, {"every": every, "overlap": overlap, "job": {"kind": "work"}})
        assert answer.status in (200, 201)

    async def finish(self) -> None:
        """End every job that is due."""
        leases = (await self.running.post("/v1/leases", {"kinds": ["work"], "max": 1_000})).json["leases"]
        for lease in leases:
            assert (await self.running.post(f"/v1/leases/{lease['token']}/finish")).status == 200


def run(history: Callable[[World], Awaitable[T]]) -> T:
    """Run a history of a world on a loop of its own."""

    async def live(clock: VirtualClock) -> T:
        world = World(clock)
        await world.start()
        result = await history(world)
        await world.stop()
        return result

    loop = VirtualLoop()
    try:
        return loop.run_until_complete(live(VirtualClock(loop=loop)))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


@hypothesis.settings(max_examples=examples(60))
@hypothesis.given(acts=st.lists(ACTS, max_size=25), first=st.sampled_from(OVERLAPS))
def test_no_occurrence_has_two_jobs_whatever_happens(acts: list[Act], first: str) -> None:
    async def history(world: World) -> tuple[list[Job], dict[str, int]]:
        await world.put(1, first)
        for act in acts:
            await world.do(act)
        counts = (await world.running.post(f"{PATH}/pause")).json["counts"]
        return await world.store.list(ALL), counts

    jobs, counts = run(history)
    made = [read_extras(job.extras) for job in jobs]
    nominal = [extras["occurrence"] for extras in made if not extras.get("triggered")]

    assert len({*nominal}) == len(nominal)
    assert counts["made"] == len(jobs)
    assert [occurrence for occurrence in nominal if (occurrence - EPOCH) % SECOND] == []
    if not any(act.name == "step" for act in acts):
        assert [job for job in jobs if job.created_at < job.execute_at] == []


@hypothesis.settings(max_examples=examples(60))
@hypothesis.given(
    acts=st.lists(ACTS.filter(lambda act: act.name not in ("step", "put", "pause", "resume")), max_size=20),
    overlap=st.sampled_from(OVERLAPS),
    missed=st.sampled_from(("once", "skip")),
)
def test_every_occurrence_has_exactly_one_outcome(acts: list[Act], overlap: str, missed: str) -> None:
    """Without edits and steps of the clock, each second is made, skipped, missed or kept."""
    body = {"every": 1, "overlap": overlap, "missed": missed, "job": {"kind": "work"}}

    async def history(world: World) -> tuple[int, int]:
        await world.running.put(PATH, body)
        triggers = 0
        for act in acts:
            if act.name == "trigger":
                triggers += (await world.running.post(f"{PATH}/trigger")).status == 201
            elif act.name == "again":
                await world.running.put(PATH, body)
            else:
                await world.do(act)
        schedule = (await world.running.post(f"{PATH}/pause")).json
        assert schedule["version"] == 2  # the same definition again is no edit
        kept = schedule["queued"] is not None
        return sum(schedule["counts"].values()) - triggers + kept, (world.clock.now() - EPOCH) // SECOND

    outcomes, seconds = run(history)

    assert outcomes == seconds
