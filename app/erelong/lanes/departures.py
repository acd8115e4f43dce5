"""Jobs that left a final state, by queue and state: what the counts of final jobs no longer show."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Container

    from erelong.model.job import State

MAX_ABSENCES: Final = 4
MAX_LIVE_AGAIN: Final = 1_000  # jobs of one schedule


class Departures:
    """Counts deleted jobs, and final jobs that were revived. With the number of jobs there are, they tell how many
    came, without a count on the way of each job.
    """

    def __init__(self) -> None:
        self.deleted: Counter[tuple[str, State]] = Counter()
        self.revived: Counter[tuple[str, State]] = Counter()
        self.live_again = LiveAgain()
        self._absent: dict[str, int] = {}

    @property
    def queues(self) -> set[str]:
        return {queue for counter in (self.deleted, self.revived) for queue, _ in counter}

    def forget(self, present: set[str]) -> None:
        """Forget queues that were not present at the last few calls, since clients can name any number of queues."""
        self._absent = {queue: self._absent.get(queue, 0) + 1 for queue in self.queues - present}
        gone = {queue for queue, absences in self._absent.items() if absences > MAX_ABSENCES}
        for counter in (self.deleted, self.revived) if gone else ():
            for group in [group for group in counter if group[0] in gone]:
                del counter[group]


class LiveAgain:
    """The revived jobs of schedules, which no longer list them. Of a schedule that does not exist none is kept."""

    def __init__(self) -> None:
        self._jobs: dict[str, set[str]] = {}
        self._schedules: Container[str] | None = None  # None: not known yet

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def note(self, schedule: str, job: str) -> None:
        """Note that a job was revived. A schedule that has many such jobs knows enough of them."""
        if self._schedules is None or schedule in self._schedules:
            jobs = self._jobs.setdefault(schedule, set())
            if len(jobs) < MAX_LIVE_AGAIN:
                jobs.add(job)

    def of(self, schedule: str) -> Collection[str]:
        return self._jobs.get(schedule, ())

    def keep(self, schedule: str, live: Container[str]) -> None:
        """Forget the jobs of a schedule that are not among these."""
        jobs = {job for job in self._jobs.pop(schedule, ()) if job in live}
        if jobs:
            self._jobs[schedule] = jobs

    def learn(self, schedules: Container[str]) -> None:
        """Know from here on which schedules exist."""
        self._schedules = schedules
        self._jobs = {schedule: jobs for schedule, jobs in self._jobs.items() if schedule in schedules}

    def forget(self, schedule: str) -> None:
        """Forget the jobs of a deleted schedule."""
        self._jobs.pop(schedule, None)
