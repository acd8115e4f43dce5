"""Applies each stored change to the agenda, the lanes, waiting requests, events, metrics and the log."""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from erelong.clock.instants import SECOND, format_instant
from erelong.engine.callbacks import report_skipped
from erelong.engine.job_log import report_end, report_expiry, report_loss, report_superseded
from erelong.model.events.event import EventType
from erelong.model.extras import read_extras
from erelong.model.job import PLACES, Job, State
from erelong.model.outcome import End
from erelong.model.reports.callback import is_unreadable, on_finish_of
from erelong.model.runs import counted
from erelong.model.submission import ADDED, CHANGED
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.duties.waiters import Waiters
    from erelong.engine.agenda import Agenda
    from erelong.engine.events.ring import EventRing
    from erelong.lanes.lanes import Lanes
    from erelong.model.operations.operation import Operation
    from erelong.model.outcome import Outcome
    from erelong.model.schedules.schedule import Reason, Schedule
    from erelong.model.submission import AddResult
    from erelong.stores.base import Claim, Ending, Saved
    from erelong.telemetry.metrics import Metrics

ID_SIZE = 100  # bytes that an id in a filter takes

_OF_SUBMITS = frozenset({EventType.SUBMITTED, EventType.CHANGED})
_SUCCEEDED = End.SUCCEEDED
_seq_of, _queue_of, _kind_of = itemgetter(PLACES["seq"]), itemgetter(PLACES["queue"]), itemgetter(PLACES["kind"])
_late_by_of = itemgetter(PLACES["late_by"])
_kind_and_queue_of = itemgetter(PLACES["kind"], PLACES["queue"])

log = get_logger(__name__)


class Changes:
    """Applies the consequences of a write: the writer calls the method for that kind of write."""

    def __init__(
        self,
        *,
        agenda: Agenda,
        rechecks: Agenda,
        lanes: Lanes,
        waiters: Waiters,
        events: EventRing,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._agenda = agenda
        self._rechecks = rechecks
        self._lanes = lanes
        self._jobs, self._rooms = waiters.jobs, waiters.rooms
        self.events = events
        self._metrics = metrics
        self._now = now

    def added(self, entries: Sequence[AddResult | None]) -> None:
        """Apply a submit: new jobs, and changes of the jobs that hold their keys."""
        instants = []
        submitted: dict[str, int] = {}
        for entry in entries:
            if entry is None:
                continue
            status, job, superseded = entry
            if status is ADDED:
                kind = job.kind
                submitted[kind] = submitted.get(kind, 0) + 1
                if superseded is not None:
                    report_superseded(superseded, job)
                    self._jobs.wake((superseded.seq,))
            elif status is CHANGED:
                self._lanes.discard(job.queue, job.seq)
                self._jobs.wake((job.seq,))
            else:
                continue
            if (wakes_at := job.wakes_at) is not None:
                instants.append((wakes_at, job.seq))
        for kind, number in submitted.items():
            self._metrics.submitted.values[kind,] += number
        if len(instants) == 1:
            self._agenda.add(*instants[0])
        else:
            self._agenda.extend(instants)
        if not _OF_SUBMITS.isdisjoint(self.events.types):
            self._tell_added(entries)

    def changed(self, before: Job, saved: Saved, event: EventType = EventType.CHANGED) -> None:
        """Apply a change of a job: by a request, an expiry, a drop or the end of a lease.

        `saved` is the verdict of the store. Readers learn of the change as `event`, or as the end of the job.
        """
        after = _stored(saved)
        was_in_lane = before.state is State.SCHEDULED and self._leave_queue(before)
        if (wakes_at := after.wakes_at) is not None:
            self._agenda.add(wakes_at, after.seq)
        elif was_in_lane:  # its row may have changed again since: re-read it
            self._rechecks.add(self._now(), after.seq)
        if after.is_final:
            self._note_final(after)
        elif before.is_final:
            self._note_revived(before, after)
        if after.state is State.EXPIRED:
            report_expiry(after)
        self._jobs.wake((after.seq,))
        if self.events.types:
            self.events.tell_end(after, event)

    def deleted(self, job: Job) -> None:
        self._lanes.departures.deleted[job.queue, job.state] += 1
        self._leave_queue(job)
        self._jobs.wake((job.seq,))
        if self.events.types:
            self.events.tell(EventType.DELETED, job)

    @property
    def tells_deleted(self) -> bool:
        """Whether a reader of events wants to know of deleted jobs."""
        return EventType.DELETED in self.events.types

    def purged(self, jobs: Sequence[Job]) -> None:
        """Apply the deletion of jobs after their retention."""
        for job in jobs:
            self.events.tell(EventType.DELETED, job)

    def missed(self, schedule: Schedule, occurrence: Instant, reason: Reason, count: int = 1) -> None:
        """Tell of missed occurrences of a schedule, of which this is the last."""
        if self.events.types:
            body = {"name": schedule.name, "occurrence": format_instant(occurrence), "reason": reason, "count": count}
            self.events.tell_other(EventType.MISSED, {"schedule": body}, queue=schedule.definition.queue)

    def operation_finished(self, operation: Operation) -> None:
        """Tell that an operation is over."""
        if self.events.types:
            owner, weight = operation.request.by, ID_SIZE * len(operation.request.filter.get("jobs", ()))
            self.events.tell_other(EventType.FINISHED, {"operation": operation}, owner=owner, weight=weight)

    def untold(self) -> None:
        """Start all readers of events over, since changes that are stored may not have been told."""
        if self.events.types:
            self.events.break_off()

    def not_claimed(self, claim: Claim) -> None:
        """Apply a refused claim: the jobs are no longer due, or are unreadable and have failed."""
        self._agenda.extend(claim.early)
        for job in claim.unreadable:
            self._note_final(job)
            if is_unreadable(job) or on_finish_of(job) is not None:
                report_skipped(job)
            if self.events.types:
                self.events.tell(EventType.FAILED, job)
        self._wake(claim.unreadable)

    def claimed(self, jobs: Sequence[Job]) -> None:
        """Tell readers of events which attempts begin, before any other change of these jobs."""
        if EventType.STARTED in self.events.types:
            for job in jobs:
                self.events.tell(EventType.STARTED, job)

    def started(self, jobs: Sequence[Job]) -> None:
        """Count the starts of attempts, in runs of the same kind and queue."""  # hot: drain
        groups: defaultdict[tuple[str, str], list[Job]] = defaultdict(list)
        for kind_and_queue, alike in groupby(jobs, key=_kind_and_queue_of):
            groups[kind_and_queue] += alike
        for (kind, queue), group in groups.items():
            lates = [*map(_late_by_of, group)]
            self._metrics.started.values[kind,] += len(lates)
            self._metrics.late.note(kind, *lates)
            self._lanes.note_starts(queue, *lates)
        if self._jobs.held or self._rooms.held:
            self._wake(jobs)

    def ended(self, endings: Sequence[Ending], verdicts: Sequence[Saved]) -> None:
        """Apply stored outcomes, with the verdict of the store on each."""  # hot: drain
        successes = [job for job, outcome, _, _ in endings if outcome.end is _SUCCEEDED]
        for kind, jobs in counted(map(_kind_of, successes)).items():
            self._metrics.finished.values[kind, State.SUCCEEDED.word] += jobs
        logs_all = log.has_debug
        for ending in endings if logs_all or len(successes) < len(endings) else ():
            if logs_all or ending.outcome.end is not _SUCCEEDED:
                self._note_end(ending)
        if self._jobs.held or self._rooms.held:
            self._wake([ending.job for ending in endings])
        types = self.events.types
        if types and (len(successes) < len(endings) or EventType.SUCCEEDED in types):
            self._tell_ended(endings, verdicts)

    def lost(self, before: Job, saved: Saved) -> None:
        """Apply the loss of an attempt with the process that ran it."""
        report_loss(_stored(saved))
        self._metrics.ended.values[before.kind, End.LOST] += 1
        self.changed(before, saved, EventType.RETRYING)

    def lease_ended(self, before: Job, saved: Saved, outcome: Outcome) -> None:
        """Apply the end of a lease, by its worker or because it ran out."""
        after = _stored(saved)
        self._metrics.ended.values[after.kind, outcome.end] += 1
        self._metrics.duration.note(after.kind, max(0, self._now() - (before.started_at or 0)) / SECOND)
        report_end(before, outcome, after)
        self.changed(before, saved, _again_after(outcome))

    def lease_extended(self, job: Job) -> None:
        """Wake requests that wait for a change of a job. Readers of events do not learn of heartbeats."""
        self._jobs.wake((job.seq,))

    def reread(self, queue: str, seq: int, job: Job | None) -> None:
        """Apply the stored form of a job after a write whose result is unknown (None: it is gone)."""
        self._lanes.discard(queue, seq)
        if job is not None and (wakes_at := job.wakes_at) is not None:
            self._agenda.add(wakes_at, seq)
        self._jobs.wake((seq,))
        self._rooms.wake((queue,))
        self.untold()

    def room_changed(self, queue: str) -> None:
        """Wake submits that wait for room in a queue: its settings have changed."""
        self._rooms.wake((queue,))

    def _leave_queue(self, job: Job) -> bool:
        """Remove a job that no longer waits; return whether it was in its lane."""
        self._rooms.wake((job.queue,))
        return self._lanes.discard(job.queue, job.seq)

    def _note_end(self, ending: Ending) -> None:
        after = ending.after
        report_end(ending.job, ending.outcome, after)
        if (wakes_at := after.wakes_at) is not None:
            self._agenda.add(wakes_at, after.seq)
        if after.is_final and ending.outcome.end is not _SUCCEEDED:
            self._note_final(after)

    def _note_revived(self, before: Job, job: Job) -> None:
        self._lanes.departures.revived[before.queue, before.state] += 1
        if job.extras is None:
            return
        schedule = read_extras(job.extras).get("schedule")
        if schedule is not None:
            self._lanes.departures.live_again.note(schedule, job.id)

    def _tell_added(self, entries: Sequence[AddResult | None]) -> None:
        for entry in entries:
            if entry is None or entry.status not in (ADDED, CHANGED):
                continue
            if entry.superseded is not None:
                self.events.tell(EventType.CHANGED, entry.superseded)
            self.events.tell(EventType.SUBMITTED if entry.status is ADDED else EventType.CHANGED, entry.job)

    def _tell_ended(self, endings: Sequence[Ending], verdicts: Sequence[Saved]) -> None:
        types = self.events.types
        for ending, verdict in zip(endings, verdicts, strict=True):
            if ending.outcome.end is not _SUCCEEDED or EventType.SUCCEEDED in types:
                self.events.tell_end(verdict.job or ending.after, _again_after(ending.outcome))

    def _note_final(self, job: Job) -> None:
        self._metrics.finished.values[job.kind, job.state.word] += 1

    def _wake(self, jobs: Sequence[Job]) -> None:
        """Wake requests that wait for these jobs, or for room in their queues."""
        if self._jobs.held:
            self._jobs.wake(map(_seq_of, jobs))
        if self._rooms.held:
            self._rooms.wake({*map(_queue_of, jobs)})


def _stored(saved: Saved) -> Job:
    """Return the job as the store has saved it, which may name its callback."""
    assert saved.job is not None
    return saved.job


def _again_after(outcome: Outcome) -> EventType:
    """Return the event of an attempt after which its job is scheduled again."""
    return EventType.RELEASED if outcome.end is End.RELEASED else EventType.RETRYING
