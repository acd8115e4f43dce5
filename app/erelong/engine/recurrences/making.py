"""Makes the jobs of due occurrences: reads the schedules, decides, and stores jobs and schedules in one commit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from erelong.clock.instants import SECOND, format_instant
from erelong.duties.waiters import LEFT
from erelong.engine.recurrences.draft import Arrival, Draft, Room
from erelong.errors import BacklogFull, Invalid, JobNotFound, Overlaps
from erelong.model.job import State
from erelong.model.schedules import occurrences as steps
from erelong.model.schedules.schedule import Counts, Fate, Overlap, Reason, Schedule
from erelong.model.submission import NewJob
from erelong.model.times.spread import schedule_offset
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.duties.waiters import Client
    from erelong.engine.changes import Changes
    from erelong.engine.dispatcher import Dispatcher
    from erelong.engine.recurrences.book import Book
    from erelong.engine.recurrences.draft import JobMaker
    from erelong.engine.recurrences.outages import Outage
    from erelong.engine.recurrences.rules import Rules
    from erelong.lanes.backlog import Backlog
    from erelong.lanes.lanes import Lanes
    from erelong.model.job import Job
    from erelong.model.submission import IdempotencyRecord, Receipt
    from erelong.model.times.catchup import Catchup, Deciding, Missed
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

MAX_JOBS: Final = 500  # in one commit

log = get_logger(__name__)


class JobRoom(Protocol):
    """Reserves room for jobs in their queues."""

    async def take(self, new_jobs: Sequence[NewJob], client: Client) -> Mapping[str, int]: ...

    def release(self, room: Mapping[str, int]) -> None: ...


class Making:
    """Makes the jobs of due occurrences."""

    def __init__(
        self,
        *,
        store: Store,
        book: Book,
        rules: Rules,
        maker: JobMaker,
        room: JobRoom,
        backlog: Backlog,
        lanes: Lanes,
        changes: Changes,
        dispatcher: Dispatcher,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._store = store
        self._book = book
        self._rules = rules
        self._maker = maker
        self._room = room
        self._backlog = backlog
        self._lanes = lanes
        self._changes = changes
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._now = now

    async def make(self, due: Mapping[str, Instant | None], outage: Outage | None) -> Draft:
        """Deal with the due occurrence of each schedule, and with the one it keeps, if its live job has ended."""
        now = self._now()
        stored = await self._book.read([*due])
        schedules, live = await self._book.live(stored)
        arrivals, limit = [], MAX_JOBS
        for schedule in schedules:
            arrival = await self._arrive(schedule, due[schedule.name], outage, now, max(1, limit))
            limit -= len(arrival.occurrences)
            arrivals.append(await self._without_stored(arrival))
        full: set[str] = set()
        while True:
            draft = self._draft(arrivals, live, full, now)
            try:
                await self._store_draft(draft, stored, schedules, now)
            except BacklogFull as problem:
                full.add(problem.queue)
            else:
                break
        self._report(draft, arrivals)
        await self._cancel(draft.cancelled, now)
        return draft

    async def trigger(
        self, schedule: Schedule, overlap: Overlap | None, record: IdempotencyRecord | None
    ) -> tuple[Job, bool]:
        """Make one job of a schedule now; return it, and whether the record is of an earlier request that made it.

        Jobs that it replaces are cancelled once it is stored, so a refused trigger cancels nothing.
        """
        now = self._now()
        if record is not None and (receipt := await self._store.find_replay(record, now=now)) is not None:
            return _job_of(receipt), True
        policy = overlap or schedule.definition.overlap
        schedule, live = await self._live_of(schedule, policy)
        if live and policy is not Overlap.REPLACE:
            detail = f"job {live[0].id} of schedule {schedule.name!r} is {live[0].state.word}"
            raise Overlaps(f"{detail}; wait for its end, or send overlap replace or allow", job=live[0])
        try:
            job = self._maker.make(schedule, now, now, is_triggered=True)
        except Invalid as problem:
            raise Invalid(problem.what, faults=[fault.under("/job") for fault in problem.faults]) from None
        has_place = any((old.queue, old.state) == (job.queue, State.SCHEDULED) for old in live)  # that of a waiting one
        room = {} if has_place else await self._room.take([NewJob(job)], LEFT)
        try:
            after = steps.trigger(schedule, now, job.token)
            receipt = await self._book.write([after], [(schedule.name, job)], now=now, record=record)
        finally:
            self._room.release(room)
        self._changes.added(receipt.entries)
        self._metrics.occurrences.values[Fate.MADE,] += 1
        await self._cancel([(schedule.name, old) for old in live], now)
        return _job_of(receipt), False

    async def _live_of(self, schedule: Schedule, policy: Overlap) -> tuple[Schedule, list[Job]]:
        """Return the schedule with only its live jobs, and those that a trigger must not overlap."""
        if schedule.definition.overlap is Overlap.ALLOW:
            return schedule, [] if policy is Overlap.ALLOW else await self._book.find_live(schedule.name)
        (pruned,), live = await self._book.live([schedule])
        return pruned, [] if policy is Overlap.ALLOW else live.get(schedule.name, [])

    async def _arrive(
        self, schedule: Schedule, due: Instant | None, outage: Outage | None, now: Instant, limit: int
    ) -> Arrival:
        is_done = due is not None and due <= schedule.cursor  # in a commit after which something else failed
        if due is None or due > now or is_done or schedule.is_paused:
            return Arrival(schedule, ())
        if outage is None or due > outage.until or (outage.reason is Reason.CLOCK_STEPPED and due > now - SECOND):
            return Arrival(schedule, (due,), until=due)
        recurrence = self._rules.recurrence(schedule.definition.timing)
        caught_up = await _decide(steps.pass_downtime(schedule, recurrence, outage.until))
        made = caught_up.made[:limit]
        until = made[-1] if len(made) < len(caught_up.made) else outage.until
        return Arrival(schedule, made, caught_up.missed, outage.reason, until)

    async def _without_stored(self, arrival: Arrival) -> Arrival:
        """Leave out the occurrences whose jobs are stored already, which the clock may have been set back over."""
        schedule = arrival.schedule
        left = [
            occurrence
            for occurrence in arrival.occurrences
            if occurrence > schedule.made_until or not await self._book.has_job(schedule.name, occurrence)
        ]
        return arrival._replace(occurrences=tuple(left))

    def _draft(
        self, arrivals: Iterable[Arrival], live: Mapping[str, Sequence[Job]], full: Collection[str], now: Instant
    ) -> Draft:
        room = Room(lanes=self._lanes, backlog=self._backlog, full=full)
        draft = Draft(maker=self._maker, room=room, now=now)
        for arrival in arrivals:
            draft.add(arrival, live.get(arrival.schedule.name, ()))
        return draft

    async def _store_draft(
        self, draft: Draft, stored: Iterable[Schedule], read: Iterable[Schedule], now: Instant
    ) -> None:
        """Store what has changed, including ids in place of tokens: they would be looked up again at each read."""
        changed = [
            after
            for after, before, resolved in zip(draft.schedules, stored, read, strict=True)
            if after is not resolved or after.live != before.live
        ]
        if not changed:
            return
        room = await self._room.take([NewJob(job) for _, job in draft.jobs], LEFT) if draft.jobs else {}
        try:
            receipt = await self._book.write(changed, draft.jobs, now=now)
        finally:
            self._room.release(room)
        self._changes.added(receipt.entries)

    def count(self, before: Counts, after: Counts) -> None:
        """Add the outcomes of a schedule to the metrics."""
        for fate, old, new in zip(Fate, before, after, strict=True):
            if new > old:
                self._metrics.occurrences.values[fate.value,] += new - old

    def _report(self, draft: Draft, arrivals: Sequence[Arrival]) -> None:
        for arrival, after in zip(arrivals, draft.schedules, strict=True):
            self.count(arrival.schedule.counts, after.counts)
            if arrival.missed is not None:
                _log_missed(after.name, arrival.missed, arrival.reason)
                self._changes.missed(after, arrival.missed.last, arrival.reason, arrival.missed.count)
        schedules = {after.name: after for after in draft.schedules}
        for name, occurrence, reason, detail in draft.refused:
            self._changes.missed(schedules[name], occurrence, reason)
            at = format_instant(occurrence)
            log.warning("occurrence_refused", schedule=name, occurrence=at, reason=reason, detail=detail)

    async def _cancel(self, cancelled: Sequence[tuple[str, Job]], now: Instant) -> None:
        """Cancel live jobs in favour of a newer occurrence; its job is made when they have ended."""
        names = {job.seq: name for name, job in cancelled}
        live = [job for _, job in cancelled]
        while live := [job for job in live if not (job.is_final or job.cancel_requested)]:
            after = [job.cancel(now, f"replaced by a newer occurrence of schedule {names[job.seq]}") for job in live]
            unsaved = []
            for old, new, verdict in zip(live, after, await self._store.save(after), strict=True):
                if not verdict.is_saved:
                    unsaved.append(old.seq)
                    continue
                self._changes.changed(old, verdict)
                if new.state is State.RUNNING:
                    self._dispatcher.cancel(new.seq)
            live = [*(await self._store.get(unsaved)).values()] if unsaved else []


async def _decide(deciding: Deciding) -> Catchup:
    """Take the steps of a decision, and let other tasks run between them."""
    while True:
        try:
            next(deciding)
        except StopIteration as end:
            caught_up: Catchup = end.value
            return caught_up
        await asyncio.sleep(0)


def _log_missed(name: str, missed: Missed, reason: Reason) -> None:
    first, last = format_instant(missed.first), format_instant(missed.last)
    log.warning(
        "occurrences_missed", schedule=name, count=missed.count, more=missed.more, first=first, last=last, reason=reason
    )


def _job_of(receipt: Receipt) -> Job:
    """Return the one job of a receipt."""
    (entry,) = receipt.entries
    if entry is None:
        raise JobNotFound("the job that this Idempotency-Key made has been deleted; send a new one to trigger another")
    return entry.job


def offset_of(schedule: Schedule) -> int:
    """Return how much later than an occurrence its job is due, in microseconds."""
    spread = schedule.definition.spread
    return schedule_offset(schedule.name, spread) if spread else 0
