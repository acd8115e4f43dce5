"""A virtual clock runs everything in order, once and on the dot, and in whatever parts it is moved."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, NamedTuple

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from erelong.attempt import Attempt
from erelong.clock.virtual import VirtualClock
from erelong.duties.waiters import NEVER_LEAVES
from erelong.handlers.kinds import Kinds
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.pollers import LeaseRequest
from erelong.model.job import SECOND, Job, State
from erelong.model.submission import NewJob
from erelong.node import Node
from erelong.settings.queues import LabelConcurrency, QueueSettings, Rate
from erelong.settings.sections import Config
from tests.support.builders import make_job, make_retry
from tests.support.dawdling import DawdlingStore
from tests.support.examples import examples
from tests.support.kinds import FakeRunner
from tests.support.virtual import EPOCH, VirtualLoop

END = 2_000  # seconds, so that nothing reaches its retention
FREE = frozenset({"free", "narrow"})
QUEUES = {
    "free": QueueSettings(),
    "narrow": QueueSettings(concurrency=1),
    "rated": QueueSettings(rate=Rate(per_second=0.1, burst=2)),
    "labelled": QueueSettings(label_concurrency=LabelConcurrency(label="tenant", limit=1)),
    "paused": QueueSettings(),
}


class Plan(NamedTuple):
    """A job: its queue, when it is due, how often it fails, how long it lives, and whether a worker leases it."""

    queue: str
    delay: float
    failures: int
    backoff: float
    expires_after: float | None
    is_pull: bool


class Deed(NamedTuple):
    """What a client does at an instant, in seconds from the start."""

    at: float
    name: str


seconds = st.integers(0, 600).map(float) | st.integers(0, 600_000).map(lambda ms: ms / 1_000)
plans = st.builds(
    Plan,
    queue=st.sampled_from([*QUEUES]),
    delay=seconds,
    failures=st.integers(0, 3),
    backoff=st.sampled_from([0.0, 0.5, 30.0]),
    expires_after=st.none() | st.sampled_from([0.0, 5.0, 100.0]),
    is_pull=st.booleans(),
)
deeds = st.builds(Deed, at=seconds, name=st.sampled_from(["pause", "resume", "lease", "finish", "cancel"]))


class Trial:
    """A service on a virtual clock, whose store and handlers take random real times."""

    def __init__(self, *, plans: list[Plan], seed: int) -> None:
        self._plans = plans
        self._chance = random.Random(seed)
        self._starts: list[tuple[int, int]] = []
        self._tokens: list[str] = []
        self._clock = VirtualClock(at=EPOCH, tick=asyncio.get_running_loop().time)
        self._store = DawdlingStore(chance=self._chance)
        kinds = Kinds(FakeRunner(self._work).kind("echo"), make_pull_kind(name="pull"))
        self._node = Node(config=Config(queues=QUEUES), store=self._store, kinds=kinds, virtual=self._clock)

    async def run(self, deeds: list[Deed], cuts: list[float]) -> list[Any]:
        """Return everything that happened."""
        await self._node.start()
        try:
            await self._submit()
            for at, names in sorted(_by_instant(deeds, cuts).items()):
                await self._move(at)
                for name in names:
                    await self._do(name)
            await self._move(END)
            self._check_order()
            return [_story(job) for job in sorted(self._store.peek_all(), key=lambda job: job.seq)]
        finally:
            await self._node.stop()

    async def _submit(self) -> None:
        jobs = [
            make_job(
                kind="pull" if plan.is_pull else "echo",
                queue=plan.queue,
                delay=plan.delay,
                expires_after=plan.expires_after,
                labels={"tenant": "a"},
                retry=make_retry(max_attempts=3, delay=plan.backoff, factor=2, jitter=0),
                now=EPOCH,
            )
            for plan in self._plans
        ]
        await self._node.services.jobs.add([NewJob(job) for job in jobs], now=EPOCH)

    async def _move(self, at: float) -> None:
        clock = self._node.services.clock
        assert clock is not None
        target = EPOCH + round(at * SECOND)
        moved = await clock.set(target, wait=1_000)
        assert (moved.is_settled, moved.now, moved.pending) == (True, target, [])
        assert self._node.engine.workers.running == 0
        assert all(job.state is not State.RUNNING or job.lease for job in self._store.peek_all())

    async def _do(self, name: str) -> None:
        services = self._node.services
        match name:
            case "pause":
                await services.queues.pause("paused")
            case "resume":
                await services.queues.resume("paused")
            case "lease":
                request = LeaseRequest(frozenset({"pull"}), frozenset(), 2, 20.0)
                self._tokens += [lease.token for lease in await services.leases.lease(request, 0.0, NEVER_LEAVES)]
            case "finish":
                held = [job for job in self._store.peek_all() if job.lease in self._tokens]
                for job in held:
                    await services.leases.finish(job.lease or "", None)
            case "cancel":
                waiting = [job for job in self._store.peek_all() if job.state is State.SCHEDULED]
                if waiting:
                    await services.jobs.cancel(waiting[0].id, None, None)

    async def _work(self, attempt: Attempt) -> None:
        plan = self._plans[attempt.seq - 1]
        assert attempt.started_at == self._clock.now()
        if plan.queue in FREE:
            assert attempt.started_at == attempt.due_at
            self._starts.append((attempt.due_at, attempt.seq))
        await asyncio.sleep(self._chance.choice([0.0, 0.001, 3.0]))
        assert attempt.started_at == self._clock.now(), "the clock has moved while an attempt ran"
        if attempt.number <= plan.failures:
            raise ValueError("bad luck")

    def _check_order(self) -> None:
        """Check that starts follow the due times, whatever took how long."""
        instants = [at for at, _ in self._starts]
        assert instants == sorted(instants)
        assert len(self._starts) == len({*self._starts}) or any(plan.backoff == 0 for plan in self._plans)


def _by_instant(deeds: Iterable[Deed], cuts: Iterable[float]) -> dict[float, list[str]]:
    by_instant: dict[float, list[str]] = {at: [] for at in cuts}
    for deed in deeds:
        by_instant.setdefault(deed.at, []).append(deed.name)
    return by_instant


def _story(job: Job) -> Any:
    attempts = [
        tuple(attempt[name] for name in ("number", "started_at", "finished_at", "outcome", "late_by"))
        for attempt in orjson.loads(job.history)
    ]
    return (job.seq, job.state, job.due_at, job.finished_at, job.late_by, attempts)


def run(plans: list[Plan], deeds: list[Deed], cuts: list[float], seed: int) -> list[Any]:
    async def trial() -> list[Any]:
        return await Trial(plans=plans, seed=seed).run(deeds, cuts)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(trial())


@settings(max_examples=examples(60))
@given(
    plans=st.lists(plans, min_size=1, max_size=12),
    deeds=st.lists(deeds, max_size=6),
    cuts=st.lists(seconds, max_size=6),
    seed=st.integers(0, 2**32),
)
@example(plans=[Plan("rated", 0.0, 3, 0.5, None, False)] * 5, deeds=[], cuts=[3.0, 7.7, 10.0, 10.1], seed=1)
@example(plans=[Plan("rated", 0.0, 0, 0.0, None, True)] * 4, deeds=[Deed(1.0, "lease")], cuts=[], seed=3)
@example(plans=[Plan("paused", 5.0, 0, 0.0, 5.0, True)] * 2, deeds=[Deed(7.0, "lease")], cuts=[5.0, 10.0], seed=2)
def test_result_does_not_depend_on_the_parts_of_a_move(
    plans: list[Plan], deeds: list[Deed], cuts: list[float], seed: int
) -> None:
    assert run(plans, deeds, [], seed) == run(plans, deeds, cuts, seed + 1)
