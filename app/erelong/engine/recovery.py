"""Attempts that were running when the service last stopped: they are lost, and their jobs due again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside, in_halves
from erelong.engine.job_log import report_loss
from erelong.errors import Problem
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Query
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from erelong.clock.instants import Now
    from erelong.engine.agenda import Agenda
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

RECOVER_SLICE = 500

log = get_logger(__name__)


class Recovery:
    """Ends lost attempts, at the start or as soon as the disk allows. `on_change` hears of each job."""

    name = "recovery"

    def __init__(
        self,
        *,
        store: Store,
        agenda: Agenda,
        lanes: Lanes,
        metrics: Metrics,
        now: Now,
        on_change: Callable[[*tuple[Job, ...]], None],
    ) -> None:
        self._store = store
        self._agenda = agenda
        self._lanes = lanes
        self._now = now
        self._metrics = metrics
        self._on_change = on_change
        self._lost: list[Job] = []
        self._has_some = asyncio.Event()
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)

    async def load(self) -> None:
        """Find what was running, and end it; on a full disk `lap` does that later, and reads are served meanwhile."""
        self._lost = await self._running()
        try:
            await self.lap()
        except Problem as problem:
            log.warning("recovery_put_off", problem=problem.code, jobs=len(self._lost))
        if self._lost:
            self._has_some.set()

    async def ready(self) -> None:
        await self._has_some.wait()

    async def lap(self) -> None:
        while self._lost:
            for job, error in await in_halves(self._lost[:RECOVER_SLICE], self._end):
                asyncio.get_running_loop().call_later(self.aside.add(job.seq, error), self._try_again, job)
            del self._lost[:RECOVER_SLICE]
        self._has_some.clear()

    async def _running(self) -> list[Job]:
        """Read what the store has as running here. Nothing runs at the start, so all of it is lost."""
        running: list[Job] = []
        page, after = RECOVER_SLICE, None
        while page == RECOVER_SLICE:
            query = Query(states=frozenset({State.RUNNING}), limit=RECOVER_SLICE, is_full=True, after=after)
            jobs = await self._store.list(query)
            running += [job for job in jobs if job.lease is None or not self._lanes.is_pull(job.kind)]
            page = len(jobs)
            after = (0, jobs[-1].seq) if jobs else None
        return running

    async def _end(self, lost: Sequence[Job]) -> None:
        now = self._now()
        ended = [job.finish(Outcome(End.LOST), now) for job in lost]
        for job, verdict in zip(ended, await self._store.save(ended), strict=True):
            if verdict.is_saved:
                self._note_loss(job)
        self.aside.remove([job.seq for job in lost])

    def _try_again(self, job: Job) -> None:
        self._lost.append(job)
        self._has_some.set()

    def _note_loss(self, job: Job) -> None:
        report_loss(job)
        self._metrics.ended.values[job.kind, End.LOST] += 1
        if (wakes_at := job.wakes_at) is not None:
            self._agenda.add(wakes_at, job.seq)
        else:
            self._metrics.finished.values[job.kind, job.state.word] += 1
        self._on_change(job)
