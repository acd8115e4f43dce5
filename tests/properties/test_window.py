"""Each waiting job has an entry or a lane or lies beyond the edge, and runs once and never early."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar
from unittest.mock import patch

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from erelong.engine.agenda import Agenda
from erelong.engine.window import overdue, refill
from erelong.errors import Problem, StoreUnavailable
from erelong.lanes import lane
from erelong.model.job import SECOND, Job, State
from erelong.service.factory import Change
from erelong.settings.queues import LabelConcurrency, QueueSettings
from erelong.settings.sections import JobsSection
from tests.support.builders import ALL, make_retry
from tests.support.engine import Engine
from tests.support.examples import examples
from tests.support.faults import FaultyStore
from tests.support.virtual import VirtualClock, VirtualLoop

T = TypeVar("T")
RETRY = make_retry(max_attempts=1)
WINDOW = 60.0
FAR = 400.0
QUEUES = st.sampled_from(["default", "other"])
DELAYS = st.sampled_from([0.0, 1.0, 30.0, 59.999, 60.0, 61.0, 100.0, FAR]) | st.floats(0, FAR)
PICKS = st.integers(0, 10**6)
LABELLED = QueueSettings(concurrency=3, label_concurrency=LabelConcurrency(label="tenant", limit=1))


class SlowStore(FaultyStore):
    """A store that can delay its reads of due times."""

    due_takes = 0.0

    async def due(self, after: tuple[int, int], before: int, limit: int) -> list[tuple[int, int]]:
        entries = await super().due(after, before, limit)
        if self.due_takes:
            await asyncio.sleep(self.due_takes)
        return entries


class WindowMachine(RuleBasedStateMachine):
    """A service with a small window, pages and lanes, on a store whose reads sometimes fail."""

    @initialize(
        window_jobs=st.sampled_from([4, 20, 1_000]), room=st.sampled_from([9, 45, 1_000]), is_paused=st.booleans()
    )
    def begin(self, window_jobs: int, room: int, is_paused: bool) -> None:
        self.patches = [
            patch.multiple(refill, FIRST_PAGE=5, PAGE=3),
            patch.multiple(overdue, PAGE=6, SLICE=4),
            patch.multiple(lane, MAX_DUE=room),
        ]
        for each in self.patches:
            each.start()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        loop = self.runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        self.clock = VirtualClock(loop=loop)
        self.section = JobsSection(window=WINDOW, window_jobs=window_jobs)
        self.made: SlowStore | None = None
        self.runs: Counter[str] = Counter()
        self.is_labelled = True
        self.is_calm = True  # until a step makes jobs late
        self.run(self.start())
        if is_paused:
            self.pause("default", True)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def start(self) -> None:
        self.made = self.store = self.made or SlowStore()
        self.engine = Engine(clock=self.clock, store=self.store, queue=LABELLED, jobs=self.section)
        self.seen = 0
        await self.engine.node.start()
        await self.settle()

    async def settle(self) -> None:
        """Run the loop without passing time until no duty is in a lap."""
        for _ in range(300):
            await asyncio.sleep(0)
        self.check_attempts()

    def check_attempts(self) -> None:
        attempts = self.engine.handler.attempts
        for attempt in attempts[self.seen :]:
            assert attempt.started_at >= attempt.due_at, "it is early"
            assert not self.is_calm or attempt.started_at - attempt.due_at < SECOND, "it is late"
            self.runs[attempt.id] += 1
        self.seen = len(attempts)

    def waiting(self) -> list[Job]:
        return [job for job in self.store._jobs.values() if job.state is State.SCHEDULED]

    def picked(self, pick: int) -> Job | None:
        jobs = self.waiting()
        return jobs[pick % len(jobs)] if jobs else None

    @rule(
        number=st.integers(1, 20),
        queue=QUEUES,
        delay=DELAYS,
        step=st.sampled_from([0.0, 0.001, 7.0]),
        labels=st.booleans(),
    )
    def add(self, number: int, queue: str, delay: float, step: float, labels: bool) -> None:
        submissions = [
            {"queue": queue, "delay": delay + step * index, "retry": RETRY}
            | ({"labels": {"tenant": f"t{index % 3}"}} if labels else {})
            for index in range(number)
        ]
        self.run(self.engine.submit_all(submissions))
        self.run(self.settle())

    @rule(queue=QUEUES, delay=DELAYS, expires_after=st.sampled_from([0.5, 20.0, 90.0]), priority=st.integers(0, 3))
    def add_that_expires(self, queue: str, delay: float, expires_after: float, priority: int) -> None:
        self.run(
            self.engine.submit(queue=queue, delay=delay, expires_after=expires_after, priority=priority, retry=RETRY)
        )
        self.run(self.settle())

    @rule(pick=PICKS, delay=DELAYS)
    def move(self, pick: int, delay: float) -> None:
        if (job := self.picked(pick)) is not None:
            self.run(self.change(job, Change(given=frozenset({"delay"}), delay=delay)))

    async def change(self, job: Job, change: Change) -> None:
        try:
            await self.engine.node.services.jobs.patch(job.id, change, None)
        except Problem as problem:
            assert problem.code == "wrong_state"  # noqa: PT017 - no other is expected
        await self.settle()

    @rule(pick=PICKS)
    def cancel(self, pick: int) -> None:
        if (job := self.picked(pick)) is not None:
            self.run(self.engine.node.services.jobs.cancel(job.id, None, None))

    @rule(seconds=st.sampled_from([0.001, 0.5, 5.0, 30.0, 70.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))
        self.run(self.settle())

    @rule(seconds=st.sampled_from([-500.0, -61.0, -5.0, 5.0, 59.0, 61.0, 500.0]))
    def step(self, seconds: float) -> None:
        self.is_calm = False
        self.clock.step(seconds)
        self.run(self.settle())

    @rule()
    def refill(self) -> None:
        self.engine.node.engine._refill.set()
        self.run(self.settle())

    @rule(methods=st.sampled_from([("due",), ("peek",), ("due", "peek")]))
    def fail_reads(self, methods: tuple[str, ...]) -> None:
        self.is_calm = False
        self.store.broken |= dict.fromkeys(methods, StoreUnavailable("not now"))

    @rule(seconds=st.sampled_from([0.0, 0.5, 40.0]))
    def slow_down(self, seconds: float) -> None:
        self.is_calm = False
        self.store.due_takes = seconds

    @rule(pick=PICKS)
    def mark_unreadable(self, pick: int) -> None:
        self.is_calm = False
        if (job := self.picked(pick)) is not None:
            self.store.refuse("peek", job.seq)

    @rule()
    def heal(self) -> None:
        self.store.due_takes = 0.0
        self.store.broken.clear()
        self.store.refused.clear()

    @rule(queue=QUEUES, is_paused=st.booleans())
    def pause(self, queue: str, is_paused: bool) -> None:
        self.is_calm = False
        overrides = self.engine.node.engine.overrides
        self.run(overrides.pause(queue, None, None) if is_paused else overrides.resume(queue))
        self.run(self.settle())

    @rule()
    def configure(self) -> None:
        self.is_labelled = not self.is_labelled
        label = LABELLED.label_concurrency if self.is_labelled else None
        self.run(self.engine.node.services.queues.put("default", QueueSettings(label_concurrency=label)))
        self.run(self.settle())

    @rule()
    def restart(self) -> None:
        self.is_calm = False
        self.heal()
        self.run(self.engine.node.stop())
        self.check_attempts()
        self.run(self.start())

    @invariant()
    def every_waiting_job_is_somewhere(self) -> None:
        engine = self.engine.node.engine
        unread = min(engine.agenda.edge, engine.refill._read_to)
        entries, rechecked = {*entries_of(engine.agenda)}, {seq for _, seq in entries_of(engine.rechecks)}
        in_lanes, retried = {seq for each in engine.lanes._lanes.values() for seq in each.seqs()}, self.retried()
        aside = engine.scheduler.aside.failures.keys()
        assert retried <= aside <= retried | rechecked, "a job is set aside and not retried, or the reverse"
        for job in self.waiting():
            assert job.wakes_at is not None
            at = (job.wakes_at, job.seq)
            is_found = at in entries or at > unread or job.seq in in_lanes or job.seq in rechecked or job.seq in retried
            assert is_found or self.is_ahead(job, at), f"job {job.seq}, due at {job.due_at}, is lost"
            if job.seq in in_lanes and job.expires_at is not None:
                assert job.seq in rechecked | retried, f"job {job.seq} will not expire at {job.expires_at}"

    def retried(self) -> set[int]:
        """Return the jobs that are set aside, each with a timer that brings it back."""
        loop, again = self.runner.get_loop(), self.engine.node.engine.scheduler._handover._try_again
        assert isinstance(loop, VirtualLoop)
        timers = loop._scheduled  # type: ignore[attr-defined]  # of asyncio's own loop
        return {timer._args[0] for timer in timers if timer._callback == again and not timer.cancelled()}

    def is_ahead(self, job: Job, at: tuple[int, int]) -> bool:
        """Return whether a walk over overdue jobs will reach it, at once or when its lane has drained."""
        engine = self.engine.node.engine
        walks = [walk for walk in engine.overdue._walks if walk.queue in (None, job.queue)]
        if any(walk.after < at and at[0] < walk.before for walk in walks):
            return True
        found = engine.lanes._lanes.get(job.queue)
        spilled = None if found is None else found.spilled
        return spilled is not None and spilled.first <= (job.due_at or 0, job.seq) <= (spilled.last[0], 1 << 62)

    def teardown(self) -> None:
        try:
            self.run(self.end())
        finally:
            self.runner.close()
            for each in self.patches:
                each.stop()

    async def end(self) -> None:
        """Heal everything and pass time; check that each job has run once, expired or was cancelled."""
        self.heal()
        for queue in ("default", "other"):
            await self.engine.node.engine.overrides.resume(queue)
        last = max([job.due_at or 0 for job in self.waiting()], default=0)
        await asyncio.sleep(max(0.0, (last - self.clock.now()) / SECOND) + 70)
        self.check_attempts()
        jobs = await self.store.list(ALL)
        await self.engine.node.stop()
        assert {job.id: job.state for job in jobs if not job.is_final} == {}
        assert {job.id for job in jobs if job.state is State.SUCCEEDED} == {*self.runs}
        assert set(self.runs.values()) <= {1}


def entries_of(agenda: Agenda) -> Iterator[tuple[int, int]]:
    yield from agenda._front
    for slot in agenda._slots:
        yield from zip(slot.dues, slot.seqs, strict=True)


TestWindow = WindowMachine.TestCase
TestWindow.settings = settings(
    max_examples=examples(60), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
