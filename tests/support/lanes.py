"""Lanes that a test fills and empties itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sized
from itertools import chain
from typing import Any

from erelong.clock.instants import Tick
from erelong.duties.lifecycle import Lifecycle
from erelong.duties.signal import Signal
from erelong.duties.waiters import Waiters
from erelong.handlers.kinds import Kinds
from erelong.handlers.pull.declaration import make_pull_kind
from erelong.lanes.lane import Slot
from erelong.lanes.lanes import Lanes
from erelong.lanes.pollers import Pollers
from erelong.model.job import Job
from erelong.settings.queues import LabelConcurrency, QueueSettings, Rate
from erelong.stores.base import peek_at
from tests.support.builders import make_job, make_retry
from tests.support.kinds import FakeRunner
from tests.support.signals import CountingSignal

RETRY = make_retry()


def make_lanes(
    queues: Mapping[str, QueueSettings],
    *,
    aging: float = 60.0,
    tick: Tick = lambda: 0.0,
    ready: Signal | None = None,
    low: Signal | None = None,
    pull_kinds: Collection[str] = (),
    pollers: Pollers | None = None,
) -> Lanes:
    """Make lanes as the engine does; jobs of the kind echo run here."""
    waiters = Waiters(limit=100, lifecycle=Lifecycle())
    return Lanes(
        config=queues,
        aging=aging,
        kinds=Kinds(FakeRunner().kind("echo"), *(make_pull_kind(name=name) for name in pull_kinds)),
        pollers=Pollers(waiters=waiters, tick=tick) if pollers is None else pollers,
        ready=Signal() if ready is None else ready,
        low=Signal() if low is None else low,
        tick=tick,
    )


class Bench:
    """Lanes whose tick a test sets; jobs run until they are released."""

    def __init__(self, *, aging: float = 60.0, **queues: QueueSettings) -> None:
        self.tick = 0.0
        self.ready = CountingSignal()
        self.lanes = make_lanes(queues, aging=aging, tick=lambda: self.tick, ready=self.ready)
        self.running: dict[int, Slot] = {}
        self._last_seq = 0

    def put(self, *, delay: float = 0.0, tenant: str | None = None, **fields: Any) -> Job:
        self._last_seq += 1
        labels = None if tenant is None else {"tenant": tenant}
        job = make_job(delay=delay, labels=labels, seq=self._last_seq, retry=RETRY, **fields)
        self.lanes.put(peek_at(job))
        return job

    def take(self, limit: int = 1_000_000) -> list[int]:
        """Start jobs that may start; return their seqs."""
        slots = self.lanes.take(limit)
        self.running |= slots
        return list(slots)

    def release(self, seq: int) -> None:
        self.lanes.release(self.running.pop(seq))

    def release_all(self) -> None:
        self.lanes.release(*self.running.values())
        self.running.clear()

    def run_dry(self) -> list[int]:
        """Run all jobs one after another; return their seqs."""
        started: list[int] = []
        while slots := self.lanes.take(1):
            started += slots
            self.lanes.release(*slots.values())
        return started

    def assert_empty(self) -> None:
        for lane in self.lanes._lanes.values():
            kept: tuple[Sized, ...] = (
                lane.sublanes,
                lane.keys,
                lane.due_for,
                lane.running_by,
                [*chain(*lane.turns.values())],
            )
            assert (lane.due, lane.running, *map(len, kept)) == (0, 0, 0, 0, 0, 0, 0)


def by_tenant(limit: int, **settings: Any) -> QueueSettings:
    return QueueSettings(label_concurrency=LabelConcurrency(label="tenant", limit=limit), **settings)


def at_rate(per_second: float, **burst: float) -> QueueSettings:
    return QueueSettings(concurrency=100_000, rate=Rate(per_second=per_second, **burst))
