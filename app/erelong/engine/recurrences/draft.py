"""What one commit of due occurrences stores: schedules as they are after it, and jobs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, Protocol

from erelong.errors import BacklogFull, Invalid
from erelong.model.schedules import occurrences as steps
from erelong.model.schedules.schedule import Overlap, Reason, Schedule

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from erelong.clock.instants import Instant
    from erelong.lanes.backlog import Backlog
    from erelong.lanes.lanes import Lanes
    from erelong.model.job import Job
    from erelong.model.times.catchup import Missed


class JobMaker(Protocol):
    """Makes the jobs of schedules."""

    def make(self, schedule: Schedule, occurrence: Instant, now: Instant, *, is_triggered: bool = False) -> Job:
        """Make the job of an occurrence. Raise `Invalid` if its kind refuses it."""
        ...


class Arrival(NamedTuple):
    """What is due of one schedule: occurrences to decide on, those missed before them, and where the cursor gets."""

    schedule: Schedule
    occurrences: tuple[Instant, ...]
    missed: Missed | None = None
    reason: Reason = Reason.DOWN
    until: Instant = 0


class Refused(NamedTuple):
    """An occurrence whose job cannot be made."""

    schedule: str
    occurrence: Instant
    reason: Reason
    detail: str


class Room:
    """How many more jobs their queues take. Queues in `full` take none."""

    def __init__(self, *, lanes: Lanes, backlog: Backlog, full: Collection[str]) -> None:
        self._lanes = lanes
        self._backlog = backlog
        self._left: dict[str, float] = dict.fromkeys(full, 0)

    def take(self, queue: str) -> None:
        """Take room for one job, or raise `BacklogFull`."""
        left = self._left.get(queue)
        if left is None:
            settings = self._lanes.settings(queue)
            has_bound = settings.max_backlog and settings.overflow != "drop_oldest"
            left = -self._backlog.excess(queue, 0) if has_bound else math.inf
        if left <= 0:
            raise BacklogFull(f"queue {queue!r} has no room for another waiting job", queue=queue)
        self._left[queue] = left - 1


class Draft:
    """Decides on the due occurrences of many schedules. `schedules` are those after them, in order."""

    def __init__(self, *, maker: JobMaker, room: Room, now: Instant) -> None:
        self.schedules: list[Schedule] = []
        self.jobs: list[tuple[str, Job]] = []
        self.cancelled: list[tuple[str, Job]] = []
        self.refused: list[Refused] = []
        self._maker = maker
        self._room = room
        self._now = now

    def add(self, arrival: Arrival, live: Sequence[Job]) -> None:
        """Decide on a schedule whose live jobs are these."""
        before = len(self.jobs)
        after = arrival.schedule
        if arrival.missed is not None:
            after = steps.miss_all(after, arrival.missed, arrival.reason)
        if after.queued is not None and not live and not after.is_paused:
            after = self._make(after, after.queued)
        for occurrence in arrival.occurrences:
            after, is_made = steps.arrive(after, occurrence, has_live=bool(live) or len(self.jobs) > before)
            if is_made:
                after = self._make(after, occurrence)
        if after.queued is not None and after.definition.overlap is Overlap.REPLACE:
            self.cancelled += [(after.name, job) for job in live]
        self.schedules.append(steps.pass_over(after, arrival.until))

    def _make(self, schedule: Schedule, occurrence: Instant) -> Schedule:
        try:
            job = self._maker.make(schedule, occurrence, self._now)
            self._room.take(job.queue)
        except (Invalid, BacklogFull) as problem:
            reason = _reason_of(problem)
            self.refused.append(Refused(schedule.name, occurrence, reason, problem.detail))
            return steps.miss(schedule, occurrence, reason)
        self.jobs.append((schedule.name, job))
        return steps.make(schedule, occurrence, job.token)


def _reason_of(problem: Invalid | BacklogFull) -> Reason:
    if isinstance(problem, BacklogFull):
        return Reason.BACKLOG_FULL
    return Reason.KIND_GONE if [fault.pointer for fault in problem.faults] == ["/kind"] else Reason.INVALID
