"""Moves due jobs into their lanes and ends expired ones."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from erelong.duties.duty import SetAside, in_halves
from erelong.errors import StoreRefused
from erelong.model.job import Job, State

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.engine.agenda import Agenda
    from erelong.engine.changes import Changes
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Peek, Store
    from erelong.telemetry.metrics import Metrics


class Handover:
    """Reads the rows of due jobs. A job that must be read again, for example at its expiry, enters `rechecks`."""

    def __init__(
        self,
        *,
        store: Store,
        lanes: Lanes,
        agenda: Agenda,
        rechecks: Agenda,
        changes: Changes,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._agenda = agenda
        self._rechecks = rechecks
        self._changes = changes
        self._now = now
        self.aside: SetAside[int] = SetAside(name="scheduler", metrics=metrics)

    async def hand_over(
        self, seqs: Sequence[int], now: Instant, *, queue: str | None = None, again: Collection[int] = ()
    ) -> int:
        """Put those of these jobs that are due, or only those of `queue`, into their lanes; return their number.

        Cancelled and moved jobs are skipped. Jobs in `again` return to the agenda if they are no longer due, since the
        clock may have been stepped back. After an exception, all must be handed over again.
        """
        expired: list[int] = []
        handed_over = 0

        async def sort_out(seqs: Sequence[int]) -> None:
            nonlocal handed_over
            waiting = await self._store.peek(seqs)
            due = self._sort_out(waiting, now, queue, expired)
            if self.aside.failures:
                self.aside.remove({*seqs}.difference(expired))
            if again:
                self._agenda.extend([(job.due_at, job.seq) for job in waiting if job.due_at > now and job.seq in again])
            handed_over += len(due)
            self._lanes.put(*due)

        failed = await in_halves(seqs, sort_out)
        try:
            if expired:
                failed += await in_halves(expired, self._expire)
        finally:
            if failed:
                self._put_aside(failed)
        return handed_over

    def _sort_out(self, waiting: Sequence[Peek], now: Instant, queue: str | None, expired: list[int]) -> list[Peek]:
        """Return the due jobs; append the seq of each expired one to `expired`.

        `now` is the time of the pop: if the clock has been stepped back since, the claim refuses the job.
        """
        due = []
        for job in waiting:
            if job.expires_at is not None and job.expires_at <= now:
                expired.append(job.seq)
            elif job.due_at <= now and (queue is None or job.spec.queue == queue):
                due.append(job)
                if job.expires_at is not None:
                    self._rechecks.add(job.expires_at, job.seq)
        return due

    async def _expire(self, seqs: Sequence[int]) -> None:
        now = self._now()
        jobs = await self._store.get(seqs)
        over = [job for job in jobs.values() if job.state is State.SCHEDULED and _is_over(job, now)]
        expired = [job.expire(now) for job in over]
        for before, verdict in zip(over, await self._store.save(expired), strict=True):
            if verdict.is_saved:
                self._changes.changed(before, verdict)
        if len(jobs) < len(seqs) > 1:
            raise StoreRefused("some of these jobs cannot be read")  # a single read raises the reason
        self.aside.remove(seqs)

    def _put_aside(self, failed: Sequence[tuple[int, Exception]]) -> None:
        """Retry later, one by one, the jobs that cannot be read or written."""
        for seq, error in failed:
            asyncio.get_running_loop().call_later(self.aside.add(seq, error), self._try_again, seq)

    def _try_again(self, seq: int) -> None:
        self._rechecks.add(self._now(), seq)


def _is_over(job: Job, now: Instant) -> bool:
    return job.expires_at is not None and job.expires_at <= now
