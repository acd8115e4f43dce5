"""Waits for many jobs at once, without reading any of them more often than it changes."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, assert_never

from erelong.model.history import NO_ATTEMPTS
from erelong.model.ids import parse_id
from erelong.model.job import NOTHING, Job, State
from erelong.stores.base import get_readable

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from erelong.clock.instants import Instant
    from erelong.duties.lifecycle import Lifecycle
    from erelong.duties.waiters import Client, Waiter
    from erelong.engine.engine import Engine
    from erelong.model.caller import Caller
    from erelong.stores.base import Store

SLICE = 50  # jobs read at a time, since each may have a large result


class Until(StrEnum):
    """What ends a wait. A missing job counts as ended and failed."""

    ALL = "all"
    FIRST = "first"
    FIRST_FAILURE = "first_failure"


class News(NamedTuple):
    """The jobs that have ended, in the order of their ends, and the ids that no job has any more."""

    ended: list[Job]
    missing: list[str]


class Waits:
    """Starts waits for many jobs."""

    def __init__(self, *, engine: Engine) -> None:
        self._store = engine.store
        self._waiters = engine.waiters
        self._lifecycle = engine.lifecycle

    @contextmanager
    def watch(self, ids: Sequence[str], *, until: Until, caller: Caller, client: Client) -> Iterator[Watch]:
        """Follow jobs until the block ends. Changes count from here on, so none is missed between two reads."""
        seqs = {id: None if (parts := parse_id(id)) is None else parts[0] for id in dict.fromkeys(ids)}
        keys = {seq for seq in seqs.values() if seq is not None}
        with self._waiters.hold(self._waiters.jobs, keys, client) as waiter:
            yield Watch(
                store=self._store,
                lifecycle=self._lifecycle,
                waiter=waiter,
                client=client,
                caller=caller,
                seqs=seqs,
                until=until,
            )

    async def read_full(self, jobs: Sequence[Job]) -> dict[int, Job]:
        """Return jobs with their params, results and attempts, by `seq`; leave out those that have changed since."""
        full = await get_readable(self._store, [job.seq for job in jobs])
        return {job.seq: full[job.seq] for job in jobs if job.seq in full and full[job.seq].version == job.version}


class Watch:
    """Follows the jobs in `pending`. Jobs of queues that `caller` may not use are missing, as unknown ones are.

    The jobs that it reports have no params, results and attempts, since a thousand of them may be large.
    """

    def __init__(
        self,
        *,
        store: Store,
        lifecycle: Lifecycle,
        waiter: Waiter,
        client: Client,
        caller: Caller,
        seqs: dict[str, int | None],
        until: Until,
    ) -> None:
        self._store = store
        self._lifecycle = lifecycle
        self._waiter = waiter
        self._client = client
        self.caller = caller
        self._until = until
        self._has_ended = self._has_failed = False
        self._ids: dict[Hashable, list[str]] = {}  # by seq
        for id, seq in seqs.items():
            self._ids.setdefault(seq, []).append(id)
        self.pending = dict(seqs)  # in the order of the request

    @property
    def is_done(self) -> bool:
        """Return whether the wait has reached its aim."""
        match self._until:
            case Until.FIRST:
                return self._has_ended
            case Until.FIRST_FAILURE:
                return self._has_failed or not self.pending
            case Until.ALL:
                return not self.pending
            case _:
                assert_never(self._until)

    @property
    def is_over(self) -> bool:
        """Return whether waiting longer is useless, or not possible."""
        is_held = self._waiter.has_slot and not self._lifecycle.is_draining and not self._client.is_gone
        return self.is_done or not is_held

    async def read(self) -> News:
        """Return the jobs that have ended already."""
        return await self._read([*self.pending])

    async def wait(self, within: float) -> News:
        """Return the jobs that end next; none if that takes longer than `within` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._waiter.event.wait()
        self._waiter.event.clear()
        woken, self._waiter.woken = self._waiter.woken, {}
        return await self._read([id for seq in woken for id in self._ids.get(seq, ()) if id in self.pending])

    async def _read(self, ids: Sequence[str]) -> News:
        """Read these jobs, and remove those that are over from the pending ones."""
        news = News([], [])
        for start in range(0, len(ids), SLICE):
            part = ids[start : start + SLICE]
            jobs = await get_readable(self._store, [seq for id in part if (seq := self.pending[id]) is not None])
            for id in part:
                self._sort_out(id, jobs.get(self.pending[id] or 0), news)
        news.ended.sort(key=end_of)
        return news

    def _sort_out(self, id: str, job: Job | None, news: News) -> None:
        if job is None or job.id != id or not self.caller.may_use(job.queue):
            news.missing.append(id)
            self._has_failed = True
        elif job.is_final:
            news.ended.append(job._replace(params=NOTHING, result=None, attempts=NO_ATTEMPTS))
            self._has_failed = self._has_failed or job.state is not State.SUCCEEDED
        else:
            return
        self._has_ended = True
        del self.pending[id]


def end_of(job: Job) -> tuple[Instant, int]:
    """Return when a final job ended. Of jobs that ended at the same instant, the one submitted first is first."""
    return job.finished_at or 0, job.seq
