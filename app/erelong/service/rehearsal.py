"""Dry runs of submits: decide as the store would, and store nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

from erelong.errors import TooLarge
from erelong.model.conflict import settle
from erelong.model.job import NOTHING
from erelong.model.submission import ADDED, CHANGED, CONFLICT, AddResult, AddStatus, Receipt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.model.job import Job
    from erelong.model.submission import NewJob
    from erelong.service.room import Room

MAX_REMEMBERED = 50_000  # keys and queues, of some 600 bytes each
READ_SLICE = 500

Key = tuple[str, str]
"""A queue and a key in it."""


class Rehearsal:
    """One dry run. Its jobs meet the stored ones and those of its earlier calls; its new jobs have negative numbers."""

    def __init__(self, *, engine: Engine, room: Room) -> None:
        self._store = engine.store
        self._lifecycle = engine.lifecycle
        self._room = room
        self._holders: dict[Key, Job | None] = {}
        self._added: Counter[str] = Counter()  # by queue
        self._numbers = count(-1, -1)

    async def add(self, new_jobs: Sequence[NewJob], *, now: Instant, is_whole: bool = False, **_: object) -> Receipt:
        """Return what `Jobs.add` would. The other arguments have no effect: no record is kept, and nobody waits."""
        self._lifecycle.refuse_work()
        await self._read_holders(new_jobs)
        holders: dict[Key, Job | None] = {}
        entries = [self._settle(new_job, holders, now) for new_job in new_jobs]
        added = Counter(entry.job.queue for entry in entries if entry.status is ADDED)
        self._room.refuse_excess(added, self._added)
        if not (is_whole and any(entry.status is CONFLICT for entry in entries)):
            self._holders |= holders
            self._added += added
            self._refuse_endless()
        return Receipt([*entries])

    async def _read_holders(self, new_jobs: Iterable[NewJob]) -> None:
        """Read the holders of keys that no earlier job of this run had."""
        named = {(job.queue, job.key): None for job, _ in new_jobs if job.key is not None}
        unread = [name for name in named if name not in self._holders]
        for start in range(0, len(unread), READ_SLICE):
            names = unread[start : start + READ_SLICE]
            holders = await asyncio.gather(*(self._store.holder(queue, key) for queue, key in names))
            self._holders |= zip(names, holders, strict=True)

    def _settle(self, new_job: NewJob, holders: dict[Key, Job | None], now: Instant) -> AddResult:
        job, on_conflict = new_job
        name = None if job.key is None else (job.queue, job.key)
        holder = None if name is None else holders.get(name, self._holders[name])
        settled = None if holder is None else settle(holder, job, on_conflict, now)
        if holder is not None and settled is None:
            return AddResult(CONFLICT, holder)
        if settled is not None and settled is holder:
            return AddResult(AddStatus.EXISTS, holder)
        if settled is not None and not settled.superseded:
            result = AddResult(CHANGED, settled)
        else:
            result = AddResult(ADDED, job._replace(seq=next(self._numbers)), settled)
        if name is not None:
            holders[name] = result.job._replace(params=NOTHING)
        return result

    def _refuse_endless(self) -> None:
        """Bound the memory of a dry stream."""
        if len(self._holders) + len(self._added) > MAX_REMEMBERED:
            detail = f"a dry run compares up to {MAX_REMEMBERED} keys and queues"
            raise TooLarge(f"{detail}; send the rest in another dry run")


def is_rehearsed(job: Job) -> bool:
    """Return whether a dry run made this job."""
    return job.seq < 0
