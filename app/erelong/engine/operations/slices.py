"""One slice of an operation: reads jobs, decides purely, and stores jobs and progress in one commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from erelong.engine.operations.search import find_page, held_keys
from erelong.errors import StoreRefused
from erelong.model.job import State
from erelong.model.operations.actions import Decided, decide
from erelong.model.operations.operation import Action, JobError, Phase, as_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant, Now, Tick
    from erelong.engine.changes import Changes
    from erelong.engine.dispatcher import Dispatcher
    from erelong.model.job import Job
    from erelong.model.operations.actions import Changer
    from erelong.model.operations.operation import Operation
    from erelong.stores.base import Store, Verdicts

MAX_JOBS: Final = 100  # in one commit, which holds the writer for some 5 ms
BEAT: Final = 0.01  # seconds between slices at the rate of an operation: larger ones would make due jobs wait longer
FEW_JOBS: Final = 10
LONG: Final = 0.02  # seconds of a commit, beyond which slices get smaller
AT_ONCE: Final = 25  # jobs that are decided on before others use the event loop


class Slices:
    """Applies operations to jobs. A slice that loses a race against another write is decided again, and smaller."""

    def __init__(
        self, *, store: Store, changes: Changes, dispatcher: Dispatcher, changer: Changer, now: Now, tick: Tick
    ) -> None:
        self._store = store
        self._changes = changes
        self._dispatcher = dispatcher
        self._changer = changer
        self._now = now
        self._tick = tick
        self._limit = MAX_JOBS

    async def take(self, operation: Operation) -> Operation:
        """Apply the operation to its next jobs; return it as stored. Raise `DocumentChanged` if it was cancelled."""
        rate = operation.request.rate
        limit = max(1, int(min(self._limit, operation.left, rate, max(FEW_JOBS, rate * BEAT))))
        conditions = operation.request.conditions()
        while True:
            page = await find_page(self._store, conditions, operation.cursor, limit, is_full=True)
            jobs, now = page.jobs, self._now()
            decided = await self._decide(operation, jobs, now)
            after = operation.advance(page.below, decided.done, decided.failures)
            if not page.below or after.left <= 0:
                after = after.finish(Phase.SUCCEEDED, now)
            try:
                verdicts = await self._store_slice(decided, after, now)
            except StoreRefused as problem:
                if len(jobs) > 1:
                    limit = 1
                    continue
                return await self._pass_over(operation, jobs, page.below, problem, now)
            if verdicts is not None:
                self._report(decided, verdicts)
                return after.stored()
            limit = max(1, limit // 2)

    async def _decide(self, operation: Operation, jobs: Sequence[Job], now: Instant) -> Decided:
        """Decide on all jobs of a slice, some at a time."""
        request = operation.request
        held = await held_keys(self._store, jobs) if request.action is Action.RETRY else set()
        decided = Decided([], [], [])
        for start in range(0, len(jobs), AT_ONCE):
            part = decide(request, jobs[start : start + AT_ONCE], held, self._changer, now)
            held |= {(job.queue, job.key) for job, _ in part.saved if job.key is not None}
            decided = decided.joined(part)
            await asyncio.sleep(0)
        return decided

    async def _store_slice(self, decided: Decided, after: Operation, now: Instant) -> Verdicts | None:
        """Store a slice with its progress; return the verdicts on its saved jobs.

        Return None if a job has changed since it was read; then nothing is stored.
        """
        beside, began_at = [as_document(after, now)], self._tick()
        verdicts: Verdicts = []
        is_stored = True
        if decided.deleted:
            is_stored = await self._store.delete_all(decided.deleted, beside=beside)
        elif decided.saved:
            verdicts = await self._store.save([job for _, job in decided.saved], is_whole=True, beside=beside)
            is_stored = verdicts[0].is_saved
        else:
            await self._store.add([], now=now, beside=beside)
        took = self._tick() - began_at
        self._limit = max(FEW_JOBS, self._limit // 2) if took > LONG else min(MAX_JOBS, self._limit * 2)
        return verdicts if is_stored else None

    def _report(self, decided: Decided, verdicts: Verdicts) -> None:
        """Apply what follows from the changes of the jobs, before another change of one of them can follow."""
        for job in decided.deleted:
            self._changes.deleted(job)
        for (before, after), verdict in zip(decided.saved, verdicts, strict=True):
            self._changes.changed(before, verdict)
            if after.state is State.RUNNING:
                self._dispatcher.cancel(after.seq)

    async def _pass_over(
        self, operation: Operation, jobs: Sequence[Job], below: int, problem: StoreRefused, now: Instant
    ) -> Operation:
        """Count a job that the store refuses as failed."""
        after = operation.advance(below, 0, [JobError(job.id, problem.code) for job in jobs])
        if not below:
            after = after.finish(Phase.SUCCEEDED, now)
        await self._store.add([], now=now, beside=[as_document(after, now)])
        return after.stored()
