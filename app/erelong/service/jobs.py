"""The operations on jobs: submit, get, list, wait, change, cancel, run, retry, delete."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from erelong.duties.lifecycle import Phase
from erelong.duties.waiters import NEVER_LEAVES
from erelong.errors import JobNotFound, KeyTaken, VersionMismatch, WrongState
from erelong.model.caller import ANYBODY, Caller
from erelong.model.ids import parse_id
from erelong.model.job import Job, State
from erelong.model.spec import DEFAULT_QUEUE
from erelong.model.submission import CONFLICT, NewJob
from erelong.service.factory import NO_CHANGE
from erelong.service.overview.listings import MAX_PAGE
from erelong.service.rehearsal import Rehearsal
from erelong.service.room import Room
from erelong.settings.names import KEY
from erelong.stores.base import get_readable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from erelong.clock.instants import Instant
    from erelong.duties.waiters import Client, Waiter
    from erelong.engine.engine import Engine
    from erelong.model.query import Query
    from erelong.model.submission import IdempotencyRecord, Receipt
    from erelong.service.factory import Change, JobFactory

PAGE_SLICE = 50
STANDBY_PAUSE = 0.3  # seconds between two reads of a job that another node may change

_KEY = re.compile(KEY)


class Holder(NamedTuple):
    """Names the live job that holds a key of a queue, in place of an id."""

    queue: str
    key: str


JobName = str | Holder
BY_KEY = "~"
"""The prefix of a key in place of an id."""


class Jobs:
    """All operations on jobs. `expect` has the versions in `If-Match`, or None for any.

    An operation re-reads its job when another change came first, so a key always names its current holder.
    """

    def __init__(self, *, engine: Engine, factory: JobFactory) -> None:
        self._engine = engine
        self._store = engine.store
        self._changes = engine.changes
        self._lifecycle = engine.lifecycle
        self._now = engine.now
        self._room = Room(engine=engine)
        self._factory = factory

    # submitting

    async def add(
        self,
        new_jobs: Sequence[NewJob],
        *,
        now: Instant,
        is_whole: bool = False,
        record: IdempotencyRecord | None = None,
        client: Client = NEVER_LEAVES,
    ) -> Receipt:
        """Store jobs; on return they are durable and on the agenda."""
        self._lifecycle.refuse_work()
        if record is not None and (receipt := await self._store.find_replay(record, now=now)) is not None:
            return receipt  # a replay needs no room
        room = await self._room.take(new_jobs, client)
        try:
            self._lifecycle.refuse_work()  # the drain may have started during the wait
            receipt = await self._store.add(new_jobs, now=now, is_whole=is_whole, record=record)
        finally:
            self._room.release(room)
        if receipt.replayed or (is_whole and any(entry and entry.status is CONFLICT for entry in receipt.entries)):
            return receipt
        self._changes.added(receipt.entries)
        return receipt

    def rehearsal(self) -> Rehearsal:
        """Return a dry run of submits."""
        return Rehearsal(engine=self._engine, room=self._room)

    # reading

    async def get(self, name: JobName, caller: Caller = ANYBODY) -> Job:
        """Return the job, if the caller may use its queue."""
        if isinstance(name, Holder):
            return await self._get_holder(name, caller)
        parts = parse_id(name)
        if parts is not None:
            seq, token = parts
            job = (await self._store.get([seq])).get(seq)
            if job is not None and job.token == token and caller.may_use(job.queue):
                return job
        raise JobNotFound(f"no job {name!r}; it never existed, or was deleted by a client or retention")

    async def _get_holder(self, name: Holder, caller: Caller) -> Job:
        queue, key = name
        job = await self._store.holder(queue, key) if caller.may_use(queue) and _KEY.fullmatch(key) else None
        if job is None and not _KEY.fullmatch(key):
            raise JobNotFound("no job has this key: a job key is 1 to 255 printable ASCII characters, behind the ~")
        if job is None:
            where = f"GET /v1/jobs?key={quote(key, safe='')}&queue={quote(queue, safe='')}"
            none = f"no live job in queue {queue!r} holds the job key {key!r}"
            raise JobNotFound(f"{none}; for another queue add ?queue=<name>. {where} lists former holders")
        return job

    async def read_page(self, summaries: Sequence[Job]) -> tuple[list[Job], int]:
        """Return full jobs for a page, up to its size limit, and how many of `summaries` they cover."""
        page: list[Job] = []
        taken = size = 0
        while taken < len(summaries) and size < MAX_PAGE:
            part = summaries[taken : taken + PAGE_SLICE]
            jobs = await get_readable(self._store, [job.seq for job in part])
            for job in part:
                if size >= MAX_PAGE:
                    break
                taken += 1
                if (full := jobs.get(job.seq)) is not None:  # otherwise it was deleted meanwhile, or is unreadable
                    size += len(full.params) + len(full.result or b"") + len(full.attempts)
                    page.append(full)
        return page, taken

    async def list(self, query: Query) -> list[Job]:
        return await self._store.list(query)

    async def wait(
        self,
        name: JobName,
        seconds: float,
        is_known: Callable[[int], bool] | None = None,
        client: Client = NEVER_LEAVES,
    ) -> Job:
        """Return the job when it is final, when its version is not known, or when the time is up.

        A job named by key is followed by its id, even if another job takes the key.
        """
        id = (await self.get(name)).id if isinstance(name, Holder) else name
        parts = parse_id(id)
        waiters = self._engine.waiters
        with waiters.hold(waiters.jobs, (parts[0] if parts else 0,), client) as waiter, suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while waiter.has_slot and not self._lifecycle.is_draining and not client.is_gone:
                    job = await self.get(id)
                    if job.is_final or (is_known is not None and not is_known(job.version)):
                        return job
                    await self._changed(waiter)
        return await self.get(id)

    async def _changed(self, waiter: Waiter) -> None:
        """Wait until the job may have changed. Before the engine has started, memory learns of no change."""
        pause = None if self._lifecycle.phase is not Phase.STARTING else STANDBY_PAUSE
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await waiter.event.wait()
        waiter.event.clear()

    # changing

    async def patch(self, name: JobName, change: Change, expect: frozenset[int] | None) -> Job:
        """Change a scheduled job; an empty change has no effect."""
        return await self._step(name, expect, lambda job, now: self._factory.change(job, change, now))

    async def rehearse_patch(self, name: JobName, change: Change, expect: frozenset[int] | None) -> Job:
        """Return the job as `patch` would leave it, and store nothing."""
        job = await self.get(name)
        _check_version(job, expect)
        return self._factory.change(job, change, self._now())

    async def cancel(self, name: JobName, reason: str | None, expect: frozenset[int] | None) -> Job:
        """End a waiting job at once; request a running one to stop."""
        job = await self._step(name, expect, lambda job, now: job.cancel(now, reason))
        if job.state is State.RUNNING:
            self._engine.dispatcher.cancel(job.seq)
        return job

    async def run(self, name: JobName, expect: frozenset[int] | None) -> Job:
        self._lifecycle.refuse_work()
        return await self._step(name, expect, lambda job, now: job.run_now(now))

    async def retry(self, name: JobName, expect: frozenset[int] | None, change: Change = NO_CHANGE) -> Job:
        """Schedule a job again that did not succeed, with a change."""
        self._lifecycle.refuse_work()
        return await self._step(name, expect, lambda job, now: self._factory.revive(job, change, now))

    async def delete(self, name: JobName, expect: frozenset[int] | None) -> None:
        """Delete a job that is not running."""
        while True:
            job = await self.get(name)
            _check_version(job, expect)
            if job.state is State.RUNNING:
                raise WrongState(f"cannot delete job {job.id}", state=job.state.word, job=job)
            if (await self._store.delete(job)).is_saved:
                self._changes.deleted(job)
                return

    async def _step(self, name: JobName, expect: frozenset[int] | None, step: Callable[[Job, Instant], Job]) -> Job:
        """Apply a step to the current job; if another change came first, re-read and repeat."""
        while True:
            before = await self.get(name)
            _check_version(before, expect)
            after = step(before, self._now())
            if after is before:
                return before
            (verdict,) = await self._store.save([after])
            if verdict.is_saved:
                self._changes.changed(before, verdict)
                return verdict.job or after
            if verdict.job is not None and verdict.job.seq != after.seq:
                detail = f"job key {after.key!r} has a new holder, job {verdict.job.id}; cancel that one first"
                raise KeyTaken(detail, job=verdict.job)


def name_by_key(text: str, queue: str | None) -> Holder:
    """Read `~` and a key in place of an id."""
    return Holder(queue or DEFAULT_QUEUE, text.removeprefix(BY_KEY))


def _check_version(job: Job, expect: frozenset[int] | None) -> None:
    if expect is not None and job.version not in expect:
        wanted = ", ".join(f'"{version}"' for version in sorted(expect)) or "none"
        raise VersionMismatch(f'job {job.id} is at version "{job.version}", If-Match names {wanted}; read it again')
