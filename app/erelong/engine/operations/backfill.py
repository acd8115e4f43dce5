"""One slice of a backfill: makes jobs of past occurrences, and stores them and the progress in one commit."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from erelong.duties.waiters import LEFT
from erelong.errors import BacklogFull, Problem, StoreRefused
from erelong.model.document import Document
from erelong.model.operations.operation import JobError, Operation, Phase, as_document
from erelong.model.schedules.schedule import SORT, Schedule, read_schedule
from erelong.model.submission import NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.engine.changes import Changes
    from erelong.engine.recurrences.book import Book
    from erelong.engine.recurrences.draft import JobMaker
    from erelong.engine.recurrences.making import JobRoom
    from erelong.engine.recurrences.rules import Rules
    from erelong.model.job import Job
    from erelong.model.operations.operation import Range
    from erelong.stores.base import Store

SLICE: Final = 25  # occurrences, each of which is looked up first


class Backfill:
    """Makes the occurrences of a backfill, the oldest first, and skips those that have a job.

    If the store rejects a slice, its first occurrence is tried alone. If that is rejected too, it counts as failed.
    """

    def __init__(
        self, *, store: Store, book: Book, rules: Rules, maker: JobMaker, room: JobRoom, changes: Changes, now: Now
    ) -> None:
        self._store = store
        self._book = book
        self._rules = rules
        self._maker = maker
        self._room = room
        self._changes = changes
        self._now = now

    async def take(self, operation: Operation) -> Operation:
        """Make the jobs of the next occurrences; return the operation as stored."""
        occurrences = operation.request.range
        assert occurrences is not None
        schedule = schedule_of(occurrences)
        try:
            recurrence = self._rules.recurrence(schedule.definition.timing)
        except ValueError:  # its zone has gone
            return await self._fail(operation, "zone_gone")
        limit = max(1, int(min(SLICE, operation.request.rate)))
        while True:
            due = [*islice(recurrence.between(operation.cursor, occurrences.end), limit)]
            try:
                return await self._make(operation, schedule, due, is_last=len(due) < limit)
            except BacklogFull as problem:
                return await self._fail(operation, problem.code)
            except StoreRefused as problem:
                if not due:
                    raise
                if len(due) == 1:
                    return await self._pass_over(operation, due[0], problem)
            limit = 1

    async def _make(
        self, operation: Operation, schedule: Schedule, due: Sequence[Instant], *, is_last: bool
    ) -> Operation:
        """Make the jobs of these occurrences, unless they have one; return the operation as stored."""
        occurrences, now = operation.request.range, self._now()
        assert occurrences is not None
        jobs: list[Job] = []
        failures: list[JobError] = []
        skipped = 0
        for occurrence in due:
            if occurrence == occurrences.kept or await self._book.has_job(schedule.name, occurrence):
                skipped += 1
                continue
            try:
                jobs.append(self._maker.make(schedule, occurrence, now)._replace(due_at=now))
            except Problem as problem:
                failures.append(JobError(None, problem.code))
        after = operation.advance(due[-1] + 1 if due else occurrences.end, len(jobs), failures, skipped)
        if is_last:
            after = after.finish(Phase.SUCCEEDED, now)
        await self._add(jobs, after)
        return after.stored()

    async def _add(self, jobs: list[Job], after: Operation) -> None:
        now, new_jobs = self._now(), [NewJob(job) for job in jobs]
        room = await self._room.take(new_jobs, LEFT) if jobs else {}
        try:
            receipt = await self._store.add(new_jobs, now=now, beside=[as_document(after, now)])
        finally:
            self._room.release(room)
        self._changes.added(receipt.entries)

    async def _pass_over(self, operation: Operation, occurrence: Instant, problem: StoreRefused) -> Operation:
        """Count an occurrence as failed because the store rejects its job."""
        return await self._save(operation.advance(occurrence + 1, 0, [JobError(None, problem.code)]))

    async def _fail(self, operation: Operation, code: str) -> Operation:
        return await self._save(operation.ended_by(code).finish(Phase.FAILED, self._now()))

    async def _save(self, after: Operation) -> Operation:
        now = self._now()
        await self._store.add([], now=now, beside=[as_document(after, now)])
        return after.stored()


def schedule_of(occurrences: Range) -> Schedule:
    """Return the schedule as it was when the backfill was requested."""
    return read_schedule(Document(SORT, occurrences.schedule, 1, occurrences.end, occurrences.text.encode()))
