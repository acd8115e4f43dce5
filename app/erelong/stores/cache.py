"""A cache of the jobs written last, as they are on disk. Reading one of them needs no thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from erelong.model.job import Job

MAX_JOBS = 2_048  # of each half
MAX_AT_ONCE = 64
MAX_BYTES = 4_096  # of params, attempts and result, and of extras; a larger job is not cached


class JobCache:
    """Keeps durable writes, in their order, in two halves. When the younger half is full, the older one is dropped."""

    def __init__(self) -> None:
        self._young: dict[int, Job] = {}
        self._old: dict[int, Job] = {}
        self.epoch = 0  # how often the whole cache was dropped

    def keep(self, jobs: Sequence[Job], *, epoch: int) -> None:
        """Cache the jobs of a write that began in `epoch`; one that began before a drop may be stale.

        A large write is not cached, since few of its jobs are read soon.
        """
        if epoch != self.epoch:
            return
        if len(jobs) > MAX_AT_ONCE:
            self.drop([job.seq for job in jobs])
            return
        for job in jobs:
            size = len(job.params) + len(job.attempts) + len(job.result or b"")
            if size > MAX_BYTES or (job.extras is not None and len(job.extras) > MAX_BYTES):
                self.drop([job.seq])
            else:
                self._young[job.seq] = job
        if len(self._young) >= MAX_JOBS:
            self._young, self._old = {}, self._young

    def drop(self, seqs: Collection[int]) -> None:
        for half in (self._young, self._old):
            if not half.keys().isdisjoint(seqs):  # as for nearly every claim
                for seq in seqs:
                    half.pop(seq, None)

    def drop_all(self) -> None:
        """Drop the cache after a write whose result is unknown: it failed or was not awaited."""
        self._young, self._old = {}, {}
        self.epoch += 1

    def find(self, seqs: Sequence[int]) -> dict[int, Job] | None:
        """Return the jobs if all of them are cached, otherwise None."""
        found = {}
        for seq in seqs:
            job = self._young.get(seq) or self._old.get(seq)
            if job is None:
                return None
            found[seq] = job
        return found
