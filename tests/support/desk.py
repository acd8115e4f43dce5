"""A scheduler and what it works with, on virtual time; nobody takes jobs out of the lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from erelong.clock.timer import Alarm
from erelong.duties.duty import Duty
from erelong.engine.agenda import Agenda
from erelong.engine.maintenance import AgendaTidying, IdempotencyRecords, Retention
from erelong.engine.recovery import Recovery
from erelong.engine.scheduler import Scheduler
from erelong.lanes.lanes import Lanes
from erelong.model.job import Job
from erelong.settings.queues import QueueSettings
from erelong.stores.base import Glance
from erelong.telemetry.metrics import Metrics
from tests.support.builders import make_retry, put_one
from tests.support.faults import FaultyStore
from tests.support.virtual import VirtualClock

HOUR = 3_600.0
RETRY = make_retry()


class CountingAgenda(Agenda):
    """Counts the laps that look at it."""

    laps = 0

    def pop(self, now: int, limit: int) -> list[tuple[int, int]]:
        self.laps += 1
        return super().pop(now, limit)


class NotingLanes(Lanes):
    """Notes who is handed over, and when."""

    def __init__(self, *, clock: VirtualClock, **settings: QueueSettings) -> None:
        super().__init__(config=settings, aging=60.0, tick=asyncio.get_running_loop().time)
        self._clock = clock
        self.handed_over: list[tuple[int, int]] = []

    def put(self, *jobs: Glance) -> None:
        self.handed_over += [(job.seq, self._clock.now()) for job in jobs]
        super().put(*jobs)


class Desk:
    """A scheduler and what it works with; nobody takes jobs out of the lanes."""

    def __init__(self, *, clock: VirtualClock, **settings: QueueSettings) -> None:
        self.clock = clock
        self.store = FaultyStore()
        self.alarm = Alarm(now=clock.now)
        self.agenda = CountingAgenda(on_earlier=self.alarm.ring)
        self.lanes = NotingLanes(clock=clock, **settings)
        self.metrics = Metrics()
        self.changed: list[Job] = []
        self.scheduler = Scheduler(
            agenda=self.agenda,
            store=self.store,
            lanes=self.lanes,
            alarm=self.alarm,
            metrics=self.metrics,
            now=clock.now,
            on_change=lambda *jobs: self.changed.extend(jobs),
        )
        self.recovery = Recovery(
            store=self.store,
            agenda=self.agenda,
            lanes=self.lanes,
            metrics=self.metrics,
            now=clock.now,
            on_change=lambda *jobs: self.changed.extend(jobs),
        )
        self.retention = Retention(
            store=self.store, lanes=self.lanes, metrics=self.metrics, now=clock.now, interval=60.0
        )
        self.records = IdempotencyRecords(store=self.store, now=clock.now, interval=60.0)
        self.tidying = AgendaTidying(store=self.store, agenda=self.agenda, now=clock.now, interval=60.0)
        self.duties = [Duty(work=work, metrics=self.metrics) for work in (self.scheduler, self.recovery)]

    async def load(self) -> int:
        """Take over what is stored, as the service does when it starts."""
        await self.recovery.load()
        return await self.scheduler.load()

    async def add(self, **asked: Any) -> Job:
        job = await put_one(self.store, now=self.clock.now(), retry=RETRY, **asked)
        assert job.wakes_at is not None
        self.agenda.add(job.wakes_at, job.seq)
        return job

    async def save(self, job: Job) -> Job:
        """Store a change, and do what the service does then."""
        (verdict,) = await self.store.save([job])
        assert verdict.is_saved
        self.lanes.discard(job.queue, job.seq)
        if (wakes_at := job.wakes_at) is not None:
            self.agenda.add(wakes_at, job.seq)
        return job

    async def read(self, job: Job) -> Job:
        return (await self.store.get([job.seq]))[job.seq]

    @property
    def seqs(self) -> list[int]:
        return [seq for seq, _ in self.lanes.handed_over]


@asynccontextmanager
async def running(desk: Desk) -> AsyncIterator[Desk]:
    for duty in desk.duties:
        duty.start()
    await asyncio.sleep(0)
    try:
        yield desk
    finally:
        for duty in desk.duties:
            await duty.stop()
        desk.alarm.close()
