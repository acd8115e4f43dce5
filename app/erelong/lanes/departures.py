"""Jobs that left a final state, by queue and state: what the counts of final jobs no longer show."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Container

    from erelong.duties.signal import Settable
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
        self.noted: set[str] = set()  # schedules that have not stored theirs yet
        self._jobs: dict[str, set[str]] = {}
        self._schedules: Container[str] | None = None  # None: not known yet
        self._wake: Settable | None = None

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def note(self, schedule: str, job: str) -> None:
        """Note that a job was revived. A schedule that has many such jobs knows enough of them."""
        if self._schedules is None or schedule in self._schedules:
            jobs = self._jobs.setdefault(schedule, set())
            if len(jobs) < MAX_LIVE_AGAIN:
                jobs.add(job)
                self.noted.add(schedule)
                if self._wake is not None:
                    self._wake.set()

    def of(self, schedule: str) -> Collection[str]:
        return self._jobs.get(schedule, ())

    def remove(self, schedule: str, ended: Collection[str]) -> None:
        """Forget jobs of a schedule that have ended again. Others may have been revived meanwhile."""
        jobs = self._jobs.get(schedule)
        if jobs is not None:
            jobs.difference_update(ended)
            if not jobs:
                del self._jobs[schedule]

    def learn(self, schedules: Container[str], wake: Settable) -> None:
        """Know from here on which schedules exist, and set `wake` when one is noted."""
        self._schedules, self._wake = schedules, wake
        self._jobs = {schedule: jobs for schedule, jobs in self._jobs.items() if schedule in schedules}
        self.noted &= self._jobs.keys()

    def take_noted(self) -> set[str]:
        """Return the schedules that have not stored their revived jobs, each once."""
        noted, self.noted = self.noted, set()
        return noted

    def forget(self, schedule: str) -> None:
        """Forget the jobs of a deleted schedule."""
        self._jobs.pop(schedule, None)
