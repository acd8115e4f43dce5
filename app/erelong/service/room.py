"""Room for new jobs: applies the overflow policy of a queue when `max_backlog` jobs wait."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.engine.job_log import report_drop
from erelong.errors import BacklogFull
from erelong.model.conflict import adds_job
from erelong.model.query import Order, Query

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.duties.waiters import Client
    from erelong.engine.engine import Engine
    from erelong.model.conflict import OnConflict
    from erelong.model.submission import NewJob

MAX_DROP = 500
WAIT_FOR_ROOM = 10.0


class Room:
    """Makes room as the overflow policy says: rejects, waits, or drops the jobs due first."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._backlog = engine.backlog

    async def take(self, new_jobs: Sequence[NewJob], client: Client) -> Mapping[str, int]:
        """Reserve room for jobs while they are added, and `release` it after; raise `BacklogFull` if there is none."""
        needs = (
            {new_jobs[0].job.queue: 1} if len(new_jobs) == 1 else Counter([new_job.job.queue for new_job in new_jobs])
        )
        room: dict[str, int] = {}
        try:
            for queue, number in needs.items():
                held = number
                if self._backlog.excess(queue, number) >= 0:  # the last room: hold no more than is needed
                    held = await self._needed(queue, new_jobs)
                    if held:  # an overfull queue has room for submits that add no job
                        await self._make(queue, held, client)
                if held:
                    self._backlog.hold(queue, held)
                    room[queue] = held
        except BaseException:
            self.release(room)
            raise
        return room

    def release(self, room: Mapping[str, int]) -> None:
        self._backlog.release(room)
        if self._engine.waiters.rooms.held:
            self._engine.waiters.rooms.wake(room)

    def refuse_excess(self, added: Mapping[str, int], earlier: Mapping[str, int]) -> None:
        """Raise `BacklogFull` if the queues have no room for jobs that a dry run adds after its `earlier` ones."""
        for queue, number in added.items():
            settings = self._engine.lanes.settings(queue)
            drops = settings.overflow == "drop_oldest" and number <= settings.max_backlog
            if not drops and self._backlog.excess(queue, number + earlier.get(queue, 0)) > 0:
                raise self._full(queue, number)

    async def _needed(self, queue: str, new_jobs: Sequence[NewJob]) -> int:
        """Return how many submissions would add a job: one whose key is held does so only if it takes the key over."""
        needed = 0
        keyed: defaultdict[str, set[OnConflict]] = defaultdict(set)
        for job, on_conflict in new_jobs:
            if job.queue == queue and job.key is not None:
                keyed[job.key].add(on_conflict)
            elif job.queue == queue:
                needed += 1
        for key, policies in keyed.items():
            holder = await self._store.holder(queue, key)
            needed += any(adds_job(holder, on_conflict) for on_conflict in policies)
        return needed

    async def _make(self, queue: str, number: int, client: Client) -> None:
        settings = self._engine.lanes.settings(queue)
        if self._backlog.excess(queue, number) <= 0:
            return
        if settings.overflow == "reject" or number > settings.max_backlog:
            raise self._full(queue, number)
        if settings.overflow == "wait":
            await self._wait(queue, number, client)
        else:
            await self._drop_oldest(queue, number)

    async def _drop_oldest(self, queue: str, number: int) -> None:
        """Drop at most as many jobs as are added: a lowered bound drops none."""
        left = number
        while (limit := min(left, self._backlog.excess(queue, number), MAX_DROP)) > 0:
            query = Query(queues=frozenset({queue}), order=Order.DUE, limit=limit, is_full=True)
            jobs = await self._store.list(query)
            if not jobs:
                raise self._full(queue, number)
            now = self._engine.now()
            dropped = [job.drop(now) for job in jobs]
            for before, after, verdict in zip(jobs, dropped, await self._store.save(dropped), strict=True):
                if verdict.is_saved:
                    left -= 1
                    self._engine.changes.changed(before, verdict)
                    report_drop(after)

    async def _wait(self, queue: str, number: int, client: Client) -> None:
        """Hold a submit until there is room; reject it when the time is up, its client gone, or too many are held."""
        waiters, lifecycle = self._engine.waiters, self._engine.lifecycle
        with waiters.hold(waiters.rooms, (queue,), client) as waiter, suppress(TimeoutError):
            async with asyncio.timeout(WAIT_FOR_ROOM if waiter.has_slot else 0):
                while not client.is_gone:
                    if self._backlog.excess(queue, number) <= 0 or lifecycle.is_draining:
                        return
                    await waiter.event.wait()
                    waiter.event.clear()
        raise self._full(queue, number)

    def _full(self, queue: str, number: int) -> BacklogFull:
        bound, waiting = self._engine.lanes.settings(queue).max_backlog, self._backlog.waiting(queue)
        if number > bound:  # also when it is empty
            detail = f"{number} new jobs for queue {queue!r}, where at most {bound} may wait (max_backlog)"
            return BacklogFull(f"{detail}; send fewer at once or raise the bound", queue=queue)
        plural = "" if waiting == 1 else "s"
        detail = f"queue {queue!r} has {waiting} waiting job{plural}; at most {bound} (max_backlog)"
        return BacklogFull(f"{detail}; try again later or raise the bound", queue=queue)
