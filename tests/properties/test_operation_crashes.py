"""Operations and crashes: whichever write fails, and whenever the process dies, no job is changed twice or left out."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from erelong.clock.instants import SECOND
from erelong.engine.operations import slices
from erelong.errors import Problem
from erelong.handlers.kinds import Kinds
from erelong.model.caller import ANYBODY
from erelong.model.job import Job, State
from erelong.model.operations.operation import Action, Operation, Phase, Request
from erelong.node import Node
from erelong.settings.sections import Config, ServerSection
from erelong.stores.base import Override, Pause
from tests.support.builders import make_ended, make_new_job
from tests.support.kinds import FakeRunner, for_ever
from tests.support.swept import Fault, SweptStore
from tests.support.virtual import VirtualClock, VirtualLoop

HOUR = 3_600 * SECOND
JOBS = 45
MOST_WRITES = 60
ACTIONS: dict[str, dict[str, Any]] = {
    "shift": {"action": Action.PATCH, "shift": HOUR},
    "cancel": {"action": Action.CANCEL},
    "run": {"action": Action.RUN, "spread": 3_600.0},
    "delete": {"action": Action.DELETE},
    "retry": {"action": Action.RETRY, "spread": 3_600.0},
}


class Life:
    """One process on a store."""

    def __init__(self, *, clock: VirtualClock, store: SweptStore) -> None:
        self.store = store
        config = Config(server=ServerSection(drain_timeout=0.0))
        self.node = Node(config=config, store=store, kinds=Kinds(FakeRunner(for_ever).kind("echo")), now=clock.now)
        self.operations = self.node.services.operations

    async def start(self, name: str, **fields: Any) -> Operation:
        """Start an operation; repeat that until the store has it."""
        while True:
            with suppress(Problem):
                request = Request(**{"filter": {"all": True}, **ACTIONS[name], **fields})
                return (await self.operations.start(request, ANYBODY, None))[0]
            await asyncio.sleep(1)
            stored, _ = await self.operations.list(frozenset(), frozenset(), None, 1, ANYBODY)
            if stored:
                return stored[0]

    async def crash(self) -> SweptStore:
        """Return the store as the next process finds it."""
        left = self.store.left_by_a_crash()
        await self.node.stop(can_store=False)
        return left


async def fill(store: SweptStore, clock: VirtualClock, name: str) -> list[Job]:
    """Store jobs, none of which will start."""
    now = clock.now()
    store._overrides["default"] = Override(pause=Pause(now))
    if name != "retry":
        new_jobs = [make_new_job(now=now, delay=100_000) for _ in range(JOBS)]
    else:
        new_jobs = [make_new_job()._replace(job=make_ended(State.FAILED, now=now)) for _ in range(JOBS)]
    receipt = await super(SweptStore, store).add(new_jobs, now=now)
    return [entry.job for entry in receipt.entries if entry is not None]


def assert_done_once(before: list[Job], store: SweptStore, name: str) -> None:
    after = store.snapshot()
    if name == "delete":
        assert after == {}
        return
    assert [after[job.id].version - job.version for job in before] == [1] * JOBS
    for job in before:
        changed = after[job.id]
        match name:
            case "shift":
                assert (changed.due_at or 0) - (job.due_at or 0) == HOUR
            case "cancel":
                assert changed.state is State.CANCELLED
            case _:
                assert changed.state is State.SCHEDULED
                assert (changed.due_at or 0) < job.created_at + 100_000 * SECOND


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("dies", [False, True], ids=["lives", "dies"])
@pytest.mark.parametrize("name", ACTIONS)
async def test_no_failed_write_repeats_or_leaves_out_a_step(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, name: str, dies: bool, fault: Fault
) -> None:
    monkeypatch.setattr(slices, "MAX_JOBS", 10)
    nth, failed = 0, "the first write"
    while failed and nth < MOST_WRITES:
        nth += 1
        swept = store = SweptStore(nth=nth, fault=fault)
        jobs = await fill(store, clock, name)
        life = Life(clock=clock, store=store)
        await life.node.start()

        operation = await life.start(name)
        if dies:
            await life.operations.wait(operation.id, 0.4)  # less than the pause after a failure
            store = await life.crash()
            life = Life(clock=clock, store=store)
            await life.node.start()
        ended = await life.operations.wait(operation.id, 1_000)

        assert (ended.state, ended.matches, ended.done, ended.failed) == (Phase.SUCCEEDED, JOBS, JOBS, 0)
        assert_done_once(jobs, store, name)
        assert len(await store.documents("operation", limit=9)) == 1
        await life.node.stop()
        failed = swept.failed

    assert 8 < nth < MOST_WRITES


@settings(max_examples=25, deadline=None)
@given(
    lives=st.lists(st.floats(0.0, 2.0), max_size=6),
    rate=st.sampled_from([5.0, 20.0, 50.0, 2_000.0]),
    edits=st.lists(st.tuples(st.integers(0, JOBS - 1), st.floats(0.0, 3.0)), max_size=10),
)
def test_crashes_at_any_time_move_each_job_exactly_once(
    lives: list[float], rate: float, edits: list[tuple[int, float]]
) -> None:
    loop = VirtualLoop()
    try:
        ended, moves, changes = loop.run_until_complete(
            _crash_again_and_again(VirtualClock(loop=loop), lives, rate, edits)
        )
    finally:
        loop.close()

    assert (ended.state, ended.done, ended.skipped, ended.failed) == (Phase.SUCCEEDED, JOBS, 0, 0)
    assert moves == {HOUR}
    assert changes == {1}  # beside those of clients


async def _crash_again_and_again(
    clock: VirtualClock, lives: list[float], rate: float, edits: list[tuple[int, float]]
) -> tuple[Operation, set[int], set[int]]:
    """Return the operation, by how much it moved jobs, and how often it changed them."""
    store = SweptStore(nth=0, fault=Fault.FULL)
    jobs = await fill(store, clock, "shift")
    life = Life(clock=clock, store=store)
    await life.node.start()
    operation = await life.start("shift", rate=rate)
    edited: dict[str, int] = {}

    async def edit(node: Node, number: int, at: float) -> None:
        await asyncio.sleep(at)
        job = await node.services.jobs.get(jobs[number].id)
        changed = job._replace(priority=job.priority + 1, version=job.version + 1)
        if (await node.engine.store.save([changed]))[0].is_saved:
            edited[job.id] = edited.get(job.id, 0) + 1

    for seconds in lives:
        editing = [asyncio.create_task(edit(life.node, number, at)) for number, at in edits if at < seconds]
        await asyncio.sleep(seconds)
        await asyncio.gather(*editing)
        life = Life(clock=clock, store=await life.crash())
        await life.node.start()
    ended = await life.operations.wait(operation.id, 10_000)
    after = life.store.snapshot()
    await life.node.stop()

    moves = {(after[job.id].due_at or 0) - (job.due_at or 0) for job in jobs}
    return ended, moves, {after[job.id].version - job.version - edited.get(job.id, 0) for job in jobs}
