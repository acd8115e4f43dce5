"""Ends attempts that were running when the service last stopped, so that their jobs are retried."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside, in_halves
from erelong.duties.signal import Signal
from erelong.errors import Problem
from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Query
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Now
    from erelong.engine.changes import Changes
    from erelong.handlers.kinds import Kinds
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

RECOVER_SLICE = 500

log = get_logger(__name__)


class Recovery:
    """Ends lost attempts, at the start or as soon as the disk has room."""

    name = "recovery"

    def __init__(self, *, store: Store, changes: Changes, kinds: Kinds, metrics: Metrics, now: Now) -> None:
        self._store = store
        self._changes = changes
        self._kinds = kinds
        self._now = now
        self._lost: list[Job] = []
        self._has_lost = Signal()
        self.ready = self._has_lost.wait
        self.aside: SetAside[int] = SetAside(name=self.name, metrics=metrics)

    def is_settled(self) -> bool:
        return not self._lost

    async def load(self) -> None:
        """Find lost attempts and end them; on a full disk `lap` ends them later, and reads work meanwhile."""
        self._lost = await self._running()
        try:
            await self.lap()
        except Problem as problem:
            log.warning("recovery_postponed", problem=problem.code, jobs=len(self._lost))
        if self._lost:
            self._has_lost.set()

    async def lap(self) -> None:
        while lost := self._lost[:RECOVER_SLICE]:
            for job, error in await in_halves(lost, self._end):
                asyncio.get_running_loop().call_later(self.aside.add(job.seq, error), self._try_again, job)
            del self._lost[: len(lost)]  # more may have been added meanwhile

    async def _running(self) -> list[Job]:
        """Read the jobs stored as running. Nothing runs at the start, so all their attempts are lost."""
        running: list[Job] = []
        page, after = RECOVER_SLICE, None
        while page == RECOVER_SLICE:
            query = Query(states=frozenset({State.RUNNING}), limit=RECOVER_SLICE, is_full=True, after=after)
            jobs = await self._store.list(query)
            running += [job for job in jobs if job.lease is None or not self._kinds[job.kind].is_pull]
            page = len(jobs)
            after = (0, jobs[-1].seq) if jobs else None
        return running

    async def _end(self, lost: Sequence[Job]) -> None:
        now = self._now()
        ended = [job.finish(Outcome(End.LOST), now) for job in lost]
        for before, verdict in zip(lost, await self._store.save(ended), strict=True):
            stored = verdict.job
            if verdict.is_saved:
                self._changes.lost(before, verdict)
            elif stored is not None and stored.is_same_attempt(before):  # cancel requested, or superseded, meanwhile
                self._lost.append(stored)
        self.aside.remove([job.seq for job in lost])

    def _try_again(self, job: Job) -> None:
        self._lost.append(job)
        self._has_lost.set()
