"""A scheduler and its neighbours on virtual time; no worker takes jobs from the lanes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from erelong.duties.lifecycle import Lifecycle
from erelong.engine.engine import Engine
from erelong.handlers.kinds import Kinds
from erelong.model.job import Job
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import Config, JobsSection
from erelong.stores.base import Peek
from erelong.telemetry.metrics import Metrics
from tests.support.builders import make_retry, put_one
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner
from tests.support.virtual import VirtualClock

HOUR = 3_600.0
RETRY = make_retry()


class Desk:
    """The real engine, with only recovery and the duties that bring jobs to their lanes."""

    def __init__(self, *, clock: VirtualClock, jobs: JobsSection | None = None, **settings: QueueSettings) -> None:
        self.clock = clock
        self.store = FaultyStore()
        self.metrics = Metrics()
        self.engine = Engine(
            store=self.store,
            kinds=Kinds(FakeRunner().kind("echo")),
            config=Config(queues=settings, jobs=jobs or JobsSection()),
            lifecycle=Lifecycle(),
            metrics=self.metrics,
            now=clock.now,
            tick=asyncio.get_running_loop().time,
        )
        self.agenda, self.lanes, self.timer = self.engine.agenda, self.engine.lanes, self.engine.timer
        self.scheduler, self.recovery = self.engine.scheduler, self.engine.recovery
        self.retention, self.records = self.engine.retention, self.engine.records
        self.tidying, self.refill, self.overdue = self.engine.tidying, self.engine.refill, self.engine.overdue
        self.rechecks = self.engine.rechecks
        self.duties = [self.engine.duties[name] for name in ("scheduler", "refill", "overdue", "recovery")]
        self.laps = 0  # of the scheduler, with pops of the agenda
        self.handed_over: list[tuple[int, int]] = []
        self._note_laps()
        self._note_handing_over()

    def _note_laps(self) -> None:
        pop = self.agenda.pop

        def noting(now: int, limit: int) -> list[tuple[int, int]]:
            self.laps += 1
            return pop(now, limit)

        self.agenda.pop = noting  # type: ignore[method-assign]  # only the scheduler calls it

    def _note_handing_over(self) -> None:
        put = self.lanes.put

        def noting(*jobs: Peek) -> None:
            self.handed_over += [(job.seq, self.clock.now()) for job in jobs]
            put(*jobs)

        self.lanes.put = noting  # type: ignore[method-assign]  # as above

    async def load(self) -> None:
        """Load the stored jobs, as the service does at its start."""
        await self.recovery.load()
        await self.refill.load()

    async def add(self, **fields: Any) -> Job:
        job = await put_one(self.store, now=self.clock.now(), retry=RETRY, **fields)
        assert job.wakes_at is not None
        self.agenda.add(job.wakes_at, job.seq)
        return job

    async def save(self, job: Job) -> Job:
        """Store a change and apply it as the service does."""
        before = await self.read(job)
        (verdict,) = await self.store.save([job])
        assert verdict.is_saved
        self.engine.changes.changed(before, verdict)
        return job

    async def read(self, job: Job) -> Job:
        return (await self.store.get([job.seq]))[job.seq]

    @property
    def seqs(self) -> list[int]:
        return [seq for seq, _ in self.handed_over]


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
        desk.timer.close()
