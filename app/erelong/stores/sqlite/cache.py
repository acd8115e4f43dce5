"""The jobs written last, as they are on disk: who asks for one of them needs no thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from erelong.model.job import Job

MAX_JOBS = 2_048  # of each half
MAX_AT_ONCE = 64
MAX_BYTES = 4_096  # of what a job carries; a larger one is read again


class Recent:
    """Told of each write when it is durable, in the order of the writes.

    Two halves: when the younger is full the older is forgotten, which needs no look at single jobs.
    """

    def __init__(self) -> None:
        self._young: dict[int, Job] = {}
        self._old: dict[int, Job] = {}
        self.epoch = 0  # counts how often all was dropped

    def keep(self, jobs: Sequence[Job], *, epoch: int) -> None:
        """Take what a write that began in this era has made; one that began before a drop may have been overtaken.

        Of many at once few are asked for before they are forgotten: they are not taken.
        """
        if epoch != self.epoch:
            return
        if len(jobs) > MAX_AT_ONCE:
            self.drop([job.seq for job in jobs])
            return
        for job in jobs:
            if len(job.params) + len(job.attempts) + len(job.result or b"") > MAX_BYTES:
                self.drop([job.seq])
            else:
                self._young[job.seq] = job
        if len(self._young) >= MAX_JOBS:
            self._young, self._old = {}, self._young

    def drop(self, seqs: Collection[int]) -> None:
        for half in (self._young, self._old):
            if not half.keys().isdisjoint(seqs):  # as of nearly all that are claimed
                for seq in seqs:
                    half.pop(seq, None)

    def drop_all(self) -> None:
        """Nothing is sure any more: a write failed, or nobody waited for its end."""
        self._young, self._old = {}, {}
        self.epoch += 1

    def find(self, seqs: Sequence[int]) -> dict[int, Job] | None:
        """All of these, or None."""
        found = {}
        for seq in seqs:
            job = self._young.get(seq) or self._old.get(seq)
            if job is None:
                return None
            found[seq] = job
        return found
