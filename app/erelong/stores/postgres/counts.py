"""The number of jobs by group, kept in memory."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from erelong.model.job import State
from erelong.stores.rows import move

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.stores.base import Group
    from erelong.stores.postgres.draft import Draft


class Counts:
    """Counts jobs by queue, kind and state. The loop's thread may read them at any time; the writer changes them."""

    def __init__(self) -> None:
        self.by_group: Mapping[Group, int] = {}
        self.waiting: dict[str, int] = {}  # scheduled jobs by queue

    def load(self, counts: Mapping[Group, int]) -> None:
        waiting: Counter[str] = Counter()
        for (queue, _, state), jobs in counts.items():
            if state is State.SCHEDULED:
                waiting[queue] += jobs
        self.by_group, self.waiting = counts, {queue: jobs for queue, jobs in waiting.items() if jobs}

    def apply(self, deltas: Mapping[Group, int]) -> None:
        """Apply the changes of a group. Its groups that are empty are dropped, since clients can name any queue."""
        counts = {**self.by_group}  # its keys must not change while the loop's thread iterates over it
        for group, number in deltas.items():
            counts[group] = counts.get(group, 0) + number
            if group[2] is State.SCHEDULED:
                self._count_waiting(group[0], number)
        for queue, kind in {group[:2] for group, number in deltas.items() if number < 0}:
            groups = [(queue, kind, state) for state in State]
            if not any(counts.get(group) for group in groups):
                for group in groups:
                    counts.pop(group, None)
        self.by_group = counts

    def _count_waiting(self, queue: str, number: int) -> None:
        jobs = self.waiting.get(queue, 0) + number
        if jobs:
            self.waiting[queue] = jobs
        else:
            self.waiting.pop(queue, None)


def job_deltas(draft: Draft) -> Counter[Group]:
    """Return how a draft changes the numbers of jobs; those of rows differ by the jobs that are only claimed."""
    deltas: Counter[Group] = Counter()
    for seq in draft.rows:
        before, after = draft.before(seq), draft.find(seq)
        if after is not None:
            deltas[after.group] += 1
        if before is not None:
            deltas[before.group] -= 1
    claimed = [job for job in draft.claims.values() if job.seq not in draft.rows]
    move(deltas, claimed, State.SCHEDULED, State.RUNNING)
    move(deltas, [ending.job for ending in draft.successes.values()], State.RUNNING, State.SUCCEEDED)
    return deltas
