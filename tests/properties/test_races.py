"""In any race with its start, a job runs as often as its record says, and never after its end."""

from __future__ import annotations

import asyncio
import random
from typing import Any, NamedTuple

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from erelong.attempt import Attempt
from erelong.clock.instants import Instant, format_instant
from erelong.errors import Problem
from erelong.model.ids import parse_id
from erelong.model.job import SECOND, Job, State
from erelong.service.factory import Change
from erelong.settings.queues import LabelConcurrency, QueueSettings
from erelong.settings.sections import WorkersSection
from tests.support.builders import make_retry
from tests.support.dawdling import DawdlingStore
from tests.support.engine import Engine
from tests.support.examples import examples
from tests.support.kinds import FakeRunner
from tests.support.virtual import EPOCH, VirtualClock, VirtualLoop

RETRY = make_retry(max_attempts=2, delay=0.003, jitter=0)
JOBS = 8
DUE = 0.05
LABELLED = QueueSettings(label_concurrency=LabelConcurrency(label="tenant", limit=1))
PLAIN = QueueSettings(label_concurrency=None)


class Action(NamedTuple):
    """One action on a job or on all jobs, and its time."""

    at: float
    verb: str
    job: int
    by: float


ACTIONS = st.builds(
    Action,
    at=st.integers(30, 90).map(lambda ms: ms / 1_000),
    verb=st.sampled_from(
        ["cancel", "cancel", "move", "run", "delete", "retry", "rewrite", "pause", "resume", "purge", "label", "plain"]
    ),
    job=st.integers(0, JOBS - 1),
    by=st.integers(-10, 30).map(lambda ms: ms / 1_000),
)


class Race:
    """One run: several jobs due at about the same time, and the actions on them."""

    def __init__(self, *, clock: VirtualClock, seed: int, concurrency: int) -> None:
        self.chance = random.Random(seed)
        self.clock = clock
        self.store = DawdlingStore(chance=self.chance)
        workers = WorkersSection(concurrency=concurrency)
        self.engine = Engine(
            clock=clock, handler=FakeRunner(self.work), store=self.store, queue=LABELLED, workers=workers
        )
        self.jobs: list[Job] = []
        self.runs: dict[str, list[tuple[str, str]]] = {}
        self.cancel_requested: set[tuple[str, int]] = set()
        self.paused_at: Instant | None = None
        self.retried: set[str] = set()

    async def run(self, actions: list[Action]) -> None:
        async with self.engine:
            for number in range(JOBS):
                labels = {"tenant": "ab"[number % 2]} if number % 3 else None
                delay = DUE + self.chance.randrange(3) / 1_000
                expires_after = 0.02 if number % 4 == 0 else None
                fields = {"delay": delay, "retry": RETRY, "labels": labels, "expires_after": expires_after}
                self.jobs.append(await self.engine.submit(**fields))
            async with asyncio.TaskGroup() as group:
                for action in actions:
                    group.create_task(self.do(action))
            await self.engine.node.services.queues.resume("default")
            await asyncio.sleep(5)
            self.check()

    async def work(self, attempt: Attempt) -> None:
        self.check_start(attempt)
        history = self.runs.setdefault(attempt.id, [])
        history.append((format_instant(attempt.started_at), "stopped"))
        await asyncio.sleep(self.chance.choice([0, 0, 0.001, 0.01]))
        is_good = self.chance.random() < 0.7
        history[-1] = (history[-1][0], "succeeded" if is_good else "error")
        if not is_good:
            raise ValueError("bad luck")

    async def do(self, action: Action) -> None:
        await asyncio.sleep(max(0.0, action.at - (self.clock.now() - EPOCH) / SECOND))
        try:
            await self._do(action, self.jobs[action.job])
        except Problem as problem:
            assert problem.code in ("wrong_state", "job_not_found")  # noqa: PT017 - no other is expected

    async def _do(self, action: Action, job: Job) -> None:
        service, queues = self.engine.node.services.jobs, self.engine.node.services.queues
        match action.verb:
            case "cancel":
                after = await service.cancel(job.id, None, None)
                assert after.state in (State.CANCELLED, State.RUNNING)
                if after.state is State.RUNNING:
                    self.cancel_requested.add((job.id, after.started_at or 0))
            case "move":
                given = frozenset({"delay"})
                await service.patch(job.id, Change(given=given, delay=max(0.0, action.by)), None)
            case "rewrite":
                change = Change(given=frozenset({"priority", "labels"}), priority=5, labels=b'{"tenant":"b"}')
                await service.patch(job.id, change, None)
            case "run":
                await service.run(job.id, None)
            case "delete":
                await service.delete(job.id, None)
                assert self.store.snapshot(job.seq) is None
            case "retry":
                self.retried.add(job.id)
                await service.retry(job.id, None)
            case "pause":
                await queues.pause("default")
                self.paused_at = self.clock.now() if self.engine.node.engine.lanes.is_paused("default") else None
            case "resume":
                self.paused_at = None
                await queues.resume("default")
            case "purge":
                await queues.purge("default")
            case "label" | "plain":
                await queues.put("default", LABELLED if action.verb == "label" else PLAIN)

    def check_start(self, attempt: Attempt) -> None:
        """Check that the attempt was claimed."""
        name = parse_id(attempt.id)
        assert name is not None
        stored = self.store.snapshot(name[0])
        assert stored is not None, "it was forgotten"
        assert stored.state is State.RUNNING, f"it is {stored.state.word}"
        assert (stored.attempt, stored.started_at) == (attempt.number, attempt.started_at)
        assert attempt.due_at <= attempt.started_at <= self.clock.now(), "it is early"
        assert stored.expires_at is None or attempt.started_at < stored.expires_at, "it has expired"
        assert (attempt.id, attempt.started_at) not in self.cancel_requested, "it started after its cancel request"
        is_paused = self.paused_at is not None and self.engine.node.engine.lanes.is_paused("default")
        assert not is_paused or attempt.started_at <= (self.paused_at or 0), "its queue is paused"

    def check(self) -> None:
        """Check that each remaining job has ended and its record is true."""
        for job in self.jobs:
            stored = self.store.snapshot(job.seq)
            if stored is not None:
                self.check_record(stored)
        self.engine.assert_all_given_back()
        assert len(self.engine.node.engine.agenda) == 0
        assert len(self.engine.node.engine.completer) == 0
        assert self.engine.node.metrics.outdated.values[()] == 0
        assert self.engine.node.metrics.laps_failed.values == {}

    def check_record(self, job: Job) -> None:
        assert job.is_final, f"{job.id} is still {job.state.word}"
        record = orjson.loads(job.history)
        runs = self.runs.get(job.id, [])
        started = [entry for entry in record if entry["outcome"] != "cancelled" or _ran(entry, runs)]
        assert [entry["started_at"] for entry in started] == [started_at for started_at, _ in runs]
        for entry, (_, ending) in zip(started, runs, strict=True):
            assert entry["outcome"] in (ending, "cancelled")
            assert ending != "stopped" or entry["outcome"] == "cancelled"
        if job.id not in self.retried:
            assert job.attempt == len(record)
        last = record[-1]["outcome"] if record else None
        match job.state:
            case State.SUCCEEDED:
                assert last == "succeeded"
            case State.FAILED:
                assert last == "error"
            case State.EXPIRED:
                assert last in (None, "error", "cancelled")
            case State.CANCELLED:
                assert last != "succeeded" or job.id in self.retried


def _ran(entry: dict[str, Any], runs: list[tuple[str, str]]) -> bool:
    return entry["started_at"] in [started_at for started_at, _ in runs]


@settings(max_examples=examples(300))
@given(actions=st.lists(ACTIONS, max_size=25), seed=st.integers(0, 2**32), concurrency=st.sampled_from([1, 2, 100]))
def test_races_with_the_start_of_a_job_leave_a_true_record(actions: list[Action], seed: int, concurrency: int) -> None:
    async def race() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await Race(clock=VirtualClock(loop=loop), seed=seed, concurrency=concurrency).run(actions)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(race())
