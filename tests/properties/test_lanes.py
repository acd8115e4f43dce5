"""The lanes behave like a naive model that searches lists, for any changes of jobs and settings."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from erelong.lanes.lane import INSIDE, Slot
from erelong.lanes.lanes import STRICT
from erelong.model.job import SECOND, Job
from erelong.settings.queues import LabelConcurrency, QueueSettings, Rate
from erelong.stores.base import peek_at
from tests.support.builders import NOW, make_job, make_retry
from tests.support.examples import examples
from tests.support.lanes import make_lanes
from tests.support.signals import CountingSignal

RETRY = make_retry()
QUEUES = st.sampled_from("pq")
LABELS = st.sampled_from([None, "", "a", "b"])
PICKS = st.integers(0, 10**6)
CONCURRENCIES = st.integers(1, 4)
LIMITS = st.none() | st.builds(LabelConcurrency, label=st.sampled_from(["tenant", "region"]), limit=st.integers(1, 2))
RATES = st.none() | st.builds(Rate, per_second=st.sampled_from([0.5, 3.0, 100.0]), burst=st.sampled_from([1.0, 2.5]))


@dataclass
class Bucket:
    """The lowest possible number of tokens, and the highest, including those that a late timer carries over."""

    least: float = math.inf
    most: float = math.inf

    def fill(self, seconds: float, rate: Rate) -> None:
        self.least = min(rate.burst, self.least + seconds * rate.per_second)
        self.most = min(rate.burst + 1, self.most + seconds * rate.per_second)

    def take(self) -> None:
        self.least = max(0.0, self.least - 1)
        self.most -= 1

    def give(self, rate: Rate) -> None:
        self.least = min(rate.burst, self.least + 1)
        self.most = min(rate.burst + 1, self.most + 1)


@dataclass
class Model:
    """One queue, without optimizations."""

    settings: QueueSettings
    is_paused: bool = False
    waiting: dict[int, Job] = field(default_factory=dict)
    had_priority: bool = False  # since it was last empty
    running: list[Slot] = field(default_factory=list)
    bucket: Bucket = field(default_factory=Bucket)
    passed: dict[str | None, Counter[str | None]] = field(
        default_factory=dict
    )  # other starts since a label could start

    def label_of(self, job: Job) -> str | None:
        limit = self.settings.label_concurrency
        labels: dict[str, str] = orjson.loads(job.labels or b"{}")
        return labels.get(limit.label) if limit else None

    def has_room(self, label: str | None) -> bool:
        limit = self.settings.label_concurrency
        return limit is None or label is None or sum(slot.label == label for slot in self.running) < limit.limit

    def startable(self) -> list[Job]:
        """Return the jobs that only the rate may hold back."""
        if self.is_paused or len(self.running) >= self.settings.concurrency:
            return []
        return [job for job in self.waiting.values() if self.has_room(self.label_of(job))]

    def note_passing(self, *started: str | None) -> None:
        """Check that no label passes the same startable label twice."""
        able = {self.label_of(job) for job in self.waiting.values() if self.has_room(self.label_of(job))}
        self.passed = {label: self.passed.get(label, Counter()) for label in able}
        for label in started:
            self.passed.pop(label, None)
            for passes in self.passed.values():
                passes[label] += 1
                assert passes[label] <= 1, f"{label!r} started twice while others waited for their turn: {self.passed}"
            self.note_passing()


class LanesMachine(RuleBasedStateMachine):
    """Calls of the service to its lanes, in any order."""

    @initialize(aging=st.sampled_from([0.0, 1.0, 60.0]), p=CONCURRENCIES)
    def begin(self, aging: float, p: int) -> None:
        self.tick = 0.0
        self.last_seq = 0
        self.is_signalled = False
        self.lift = round(aging * SECOND) or STRICT
        config = {"p": QueueSettings(concurrency=p), "q": QueueSettings(concurrency=3)}
        self.lanes = make_lanes(config, aging=aging, tick=lambda: self.tick, ready=CountingSignal(self.note_signal))
        self.models = {name: Model(settings) for name, settings in config.items()}

    def note_signal(self) -> None:
        self.is_signalled = True

    @rule(queue=QUEUES, label=LABELS, priority=st.integers(-2, 2), seconds=st.integers(0, 5))
    def put(self, queue: str, label: str | None, priority: int, seconds: int) -> None:
        self.last_seq += 1
        self.put_as(queue, self.last_seq, label, priority, seconds)

    @rule(queue=QUEUES, pick=PICKS, label=LABELS, priority=st.integers(-2, 2), seconds=st.integers(0, 5))
    def put_again(self, queue: str, pick: int, label: str | None, priority: int, seconds: int) -> None:
        waiting = [*self.models[queue].waiting]
        if waiting:
            self.put_as(queue, waiting[pick % len(waiting)], label, priority, seconds)

    def put_as(self, queue: str, seq: int, label: str | None, priority: int, seconds: int) -> None:
        labels = {"tenant": label, "region": f"r{label}"} if label is not None else None
        fields: dict[str, Any] = {"labels": labels, "priority": priority, "delay": seconds, "retry": RETRY}
        job = make_job(queue=queue, seq=seq, **fields)
        self.lanes.put(peek_at(job))
        model = self.models[queue]
        before = model.waiting.pop(seq, job)
        if not model.waiting and model.label_of(before) != model.label_of(job):  # it is removed and added again
            model.had_priority = False
        model.waiting[seq] = job

    @rule(queue=QUEUES, pick=PICKS)
    def discard(self, queue: str, pick: int) -> None:
        waiting = [*self.models[queue].waiting, 0]
        seq = waiting[pick % len(waiting)]
        self.lanes.discard(queue, seq)
        self.models[queue].waiting.pop(seq, None)

    @rule(limit=st.integers(1, 3))
    def take_few(self, limit: int) -> None:
        """Take a few jobs, as with few free workers; a freed worker takes more without a signal."""
        taken = self.lanes.take(limit)
        assert len(taken) <= limit
        self.note_starts(taken)
        self.is_signalled = True

    @rule()
    def take_all(self) -> None:
        self.is_signalled = False
        self.note_starts(self.lanes.take(1_000))
        for name, model in self.models.items():
            if model.settings.rate is None:
                assert not model.startable(), f"queue {name} held something back"
            else:
                assert not model.startable() or model.bucket.least < 1 + 1e-6

    def note_starts(self, taken: dict[int, Slot]) -> None:
        for seq, slot in taken.items():
            model = self.models[slot.queue]
            started = model.waiting[seq]
            rivals = [job for job in model.startable() if model.label_of(job) == slot.label]
            assert started in rivals
            assert model.label_of(started) == slot.label
            assert self.rank(started) == min(self.rank(job) for job in rivals)
            if model.settings.rate is not None:
                assert model.bucket.most >= 1 - 1e-6
                model.bucket.take()
            del model.waiting[seq]
            model.running.append(slot)
            model.note_passing(slot.label)

    def rank(self, job: Job) -> tuple[int, int]:
        return ((job.due_at or 0) - NOW - job.priority * self.lift, job.seq)

    @rule(queue=QUEUES, pick=PICKS)
    def release(self, queue: str, pick: int) -> None:
        running = self.models[queue].running
        if running:
            self.lanes.release(running.pop(pick % len(running)))

    @rule(queue=QUEUES, pick=PICKS)
    def release_unused(self, queue: str, pick: int) -> None:
        model = self.models[queue]
        if model.running:
            self.lanes.release_unused(model.running.pop(pick % len(model.running)))
            if model.settings.rate is not None:
                model.bucket.give(model.settings.rate)

    @rule(queue=QUEUES, is_paused=st.booleans())
    def pause(self, queue: str, is_paused: bool) -> None:
        self.lanes.pause(queue, is_paused)
        self.models[queue].is_paused = is_paused

    @rule(queue=QUEUES, concurrency=CONCURRENCIES, label_concurrency=LIMITS, rate=RATES, is_lazy=st.booleans())
    def configure(
        self, queue: str, concurrency: int, label_concurrency: LabelConcurrency | None, rate: Rate | None, is_lazy: bool
    ) -> None:
        model = self.models[queue]
        if is_lazy:
            label_concurrency = model.settings.label_concurrency
        override = QueueSettings(concurrency=concurrency, label_concurrency=label_concurrency, rate=rate)
        displaced = self.lanes.configure(queue, override)
        is_sorted_anew = model.settings.label_concurrency != label_concurrency
        assert sorted(displaced) == (sorted(model.waiting) if is_sorted_anew else [])
        if is_sorted_anew:  # no job waits at that moment
            model.passed = {}
            model.had_priority = False
        model.settings = override
        model.bucket = Bucket(least=0.0)
        for seq in displaced:
            self.lanes.put(peek_at(model.waiting[seq]))

    @rule(seconds=st.sampled_from([0.001, 0.1, 1.0, 5.0]))
    def pass_time(self, seconds: float) -> None:
        """Wake the lanes if their time has come, as the dispatcher does."""
        wait = self.lanes.token_in()
        self.tick += seconds
        for model in self.models.values():
            if model.settings.rate is not None:
                model.bucket.fill(seconds, model.settings.rate)
        if wait is not None and wait < seconds:
            self.lanes.wake()

    @rule()
    @precondition(lambda self: self.lanes.token_in() is not None)
    def wake_on_time(self) -> None:
        """Wake the lanes at the requested time: a job starts, or a label holds it and the time changes."""
        held = [model for model in self.models.values() if model.settings.rate is not None and model.startable()]
        wait = self.lanes.token_in()
        assert wait is not None
        self.pass_time(wait + 0.001)
        before = sum(len(model.running) for model in held)
        self.lanes.wake()
        assert self.is_signalled
        self.take_all()
        has_begun = sum(len(model.running) for model in held) > before
        assert has_begun or self.lanes.token_in() != wait

    @invariant()
    def startable_jobs_are_signalled(self) -> None:
        """Check that a startable job without a signal waits for a rate, with a time for the next check."""
        for model in self.models.values():
            model.note_passing()
            if model.startable() and not self.is_signalled:
                assert model.settings.rate is not None
                assert self.lanes.token_in() is not None

    @invariant()
    def counts_agree(self) -> None:
        for name, model in self.models.items():
            lane = self.lanes._lanes.get(name)
            if lane is None:
                continue
            assert (lane.due, lane.running) == (len(model.waiting), len(model.running))
            waiting = {seq: sublane.label for sublane in lane.sublanes.values() for seq in sublane.waiting}
            assert waiting == {seq: model.label_of(job) for seq, job in model.waiting.items()}
            assert lane.keys == {seq: (INSIDE, label) for seq, label in waiting.items() if label is not None}
            assert lane.running_by == Counter(slot.label for slot in model.running if slot.label is not None)
            if not lane.due and not lane.running:
                assert (lane.sublanes, lane.due_for) == ({}, {})
                assert not any(lane.turns.values())

    @invariant()
    def oldest_is_that_of_all(self) -> None:
        for name, model in self.models.items():
            dues = [job.due_at or 0 for job in model.waiting.values()]
            if not dues:
                model.had_priority = False
            model.had_priority = model.had_priority or any(job.priority for job in model.waiting.values())
            reported = self.lanes.oldest_due(name)
            assert reported in ({None} if model.had_priority or not dues else {min(dues)})

    @invariant()
    def reasons_agree(self) -> None:
        for name, model in self.models.items():
            for job in model.waiting.values():
                reasons = self.lanes.holds(job)
                assert ("pause" in reasons) == model.is_paused
                assert ("label" in reasons) == (not model.has_room(model.label_of(job)))
                assert ("slot" in reasons) == (len(model.running) >= model.settings.concurrency)
                if "rate" in reasons:
                    assert model.bucket.least < 1
                if not reasons:
                    assert job in model.startable(), f"{name} says nothing of {job.seq}"


TestLanes = LanesMachine.TestCase
TestLanes.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
