"""What can be asked about jobs: submit, get, list, change, cancel, run, retry, forget, wait for."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.duties.waiters import STAYS
from erelong.errors import Draining, JobNotFound, KeyTaken, VersionMismatch, WrongState
from erelong.model.caller import ANYBODY, Caller
from erelong.model.ids import parse_id
from erelong.model.job import Job, State
from erelong.model.submission import ADDED, CHANGED, CONFLICT, Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from erelong.clock.instants import Instant, Now
    from erelong.duties.waiters import Client, Watchers
    from erelong.engine.agenda import Agenda
    from erelong.engine.workers import Workers
    from erelong.lanes.backlog import Backlog
    from erelong.lanes.lanes import Lanes
    from erelong.model.query import Query
    from erelong.model.submission import Added, Memo, Receipt
    from erelong.service.factory import Change, Drafts
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Metrics

MAX_PAGE = 8_388_608  # bytes of params, results and attempts in one listing; a page that would have more is shorter
PAGE_SLICE = 50


class Service:
    """The one door to jobs. `expect` is what `If-Match` names: versions, or None for any."""

    def __init__(
        self,
        *,
        store: Store,
        agenda: Agenda,
        lanes: Lanes,
        workers: Workers,
        backlog: Backlog,
        watchers: Watchers,
        drafts: Drafts,
        metrics: Metrics,
        now: Now,
    ) -> None:
        self._store = store
        self._agenda = agenda
        self._lanes = lanes
        self._workers = workers
        self._backlog = backlog
        self._watchers = watchers
        self._drafts = drafts
        self._metrics = metrics
        self._now = now
        self.is_draining = False

    # submitting

    async def add(
        self,
        offers: Sequence[Offer],
        *,
        now: Instant,
        is_whole: bool = False,
        memo: Memo | None = None,
        client: Client = STAYS,
    ) -> Receipt:
        """Store drafts; when it returns they are durable and on the agenda."""
        self.refuse_when_draining()
        if memo is not None and (receipt := await self._store.recall(memo, now=now)) is not None:
            return receipt  # before it would need room
        room = await self._backlog.take_room(offers, client)
        try:
            self.refuse_when_draining()  # there may have been a wait
            receipt = await self._store.add(offers, now=now, is_whole=is_whole, memo=memo)
        finally:
            self._backlog.give_back(room)
        if receipt.replayed or (is_whole and any(entry and entry.fate is CONFLICT for entry in receipt.entries)):
            return receipt
        self._take_in([entry for entry in receipt.entries if entry is not None])
        return receipt

    def _take_in(self, entries: Sequence[Added]) -> None:
        """See to what follows from an add."""
        instants = []
        submitted: dict[str, int] = {}
        for fate, job in entries:
            if fate is ADDED:
                kind = job.kind
                submitted[kind] = submitted.get(kind, 0) + 1
            elif fate is CHANGED:
                self._lanes.discard(job.queue, job.seq)
                self._watchers.tell(job.seq)
            else:
                continue
            if (wakes_at := job.wakes_at) is not None:
                instants.append((wakes_at, job.seq))
        for kind, number in submitted.items():
            self._metrics.submitted.values[kind,] += number
        if len(instants) == 1:
            self._agenda.add(*instants[0])
        else:
            self._agenda.extend(instants)

    def drain(self) -> None:
        """Take no new work from now on, and let all go that wait."""
        self.is_draining = True
        self._watchers.close()
        self._backlog.close()

    def refuse_when_draining(self) -> None:
        if self.is_draining:
            raise Draining("the service is stopping and takes no new work")

    # asking

    async def get(self, id: str, caller: Caller = ANYBODY) -> Job:
        """The job, if the caller may use its queue."""
        name = parse_id(id)
        if name is not None:
            seq, token = name
            job = (await self._store.get([seq])).get(seq)
            if job is not None and job.token == token and caller.may_use(job.queue):
                return job
        raise JobNotFound(f"no job {id!r}; it was never made, or it is gone after its retention")

    async def whole(self, brief: Sequence[Job]) -> tuple[list[Job], int]:
        """These jobs with all that is stored of them, as far as a page goes; and how many it took to fill it."""
        page: list[Job] = []
        taken = size = 0
        while taken < len(brief) and size < MAX_PAGE:
            some = brief[taken : taken + PAGE_SLICE]
            found = await self._store.get([job.seq for job in some])
            for job in some:
                if size >= MAX_PAGE:
                    break
                taken += 1
                if (full := found.get(job.seq)) is not None:  # else it was deleted meanwhile
                    size += len(full.params) + len(full.result or b"") + len(full.attempts)
                    page.append(full)
        return page, taken

    async def list(self, query: Query) -> list[Job]:
        return await self._store.list(query)

    async def wait(self, id: str, seconds: float, known: frozenset[int] | None = None, client: Client = STAYS) -> Job:
        """The job as soon as it is final, or not one of the known versions; or as it is when the time is up."""
        name = parse_id(id)
        with self._watchers.watch(name[0] if name else 0, client) as event, suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while event is not None and not self._watchers.is_closed and not client.is_gone:
                    job = await self.get(id)
                    if job.is_final or (known is not None and job.version not in known):
                        return job
                    await event.wait()
                    event.clear()
        return await self.get(id)

    def waiting_for(self, job: Job, now: Instant) -> str | None:
        """Why a scheduled job does not run: the first that holds."""
        if job.state is not State.SCHEDULED or job.due_at is None:
            return None
        if job.due_at > now:
            return "time"
        return self._lanes.waiting_for(job) or ("slot" if self._workers.is_full else None)

    # changing

    async def patch(self, id: str, change: Change, expect: frozenset[int] | None) -> Job:
        """Change a scheduled job; nothing given changes nothing."""
        return await self._step(id, expect, lambda job, now: self._drafts.change(job, change, now))

    async def cancel(self, id: str, reason: str | None, expect: frozenset[int] | None) -> Job:
        """End a waiting job at once, ask a running one to stop."""
        job = await self._step(id, expect, lambda job, now: job.cancel(now, reason))
        if job.state is State.RUNNING:
            self._workers.cancel(job.seq)
        return job

    async def run(self, id: str, expect: frozenset[int] | None) -> Job:
        self.refuse_when_draining()
        return await self._step(id, expect, lambda job, now: job.run_now(now))

    async def retry(self, id: str, expect: frozenset[int] | None) -> Job:
        self.refuse_when_draining()
        return await self._step(id, expect, lambda job, now: job.again(now))

    async def delete(self, id: str, expect: frozenset[int] | None) -> None:
        """Forget a job that is not running."""
        while True:
            job = await self.get(id)
            _check_version(job, expect)
            if job.state is State.RUNNING:
                raise WrongState(f"cannot delete job {id}", state=job.state.word, job=job)
            if await self._store.delete(job):
                self._left(job)
                self._watchers.tell(job.seq)
                return

    async def _step(self, id: str, expect: frozenset[int] | None, step: Callable[[Job, Instant], Job]) -> Job:
        """Take one step with a job as it is now; when somebody else was quicker, look again."""
        while True:
            before = await self.get(id)
            _check_version(before, expect)
            after = step(before, self._now())
            if after is before:
                return before
            (verdict,) = await self._store.save([after])
            if verdict.is_saved:
                self.changed(before, after)
                return after
            if verdict.job is not None and verdict.job.seq != after.seq:
                detail = f"key {after.key!r} has a new holder, job {verdict.job.id}; cancel that one first"
                raise KeyTaken(detail, job=verdict.job)

    def changed(self, before: Job, after: Job) -> None:
        """See to what follows from a stored change."""
        was_in_lane = before.state is State.SCHEDULED and self._left(before)
        if (wakes_at := after.wakes_at) is not None:
            self._agenda.add(wakes_at, after.seq)
        elif was_in_lane:  # perhaps already of a next life, if the answer to this came late: the row decides
            self._agenda.add(self._now(), after.seq)
        if after.is_final:
            self._metrics.finished.values[after.kind, after.state.word] += 1
        self._watchers.tell(after.seq)

    def _left(self, job: Job) -> bool:
        """See to what follows when a job does not wait any more; whether its lane had it."""
        self._backlog.left(job.queue)
        return self._lanes.discard(job.queue, job.seq)


def _check_version(job: Job, expect: frozenset[int] | None) -> None:
    if expect is not None and job.version not in expect:
        wanted = ", ".join(f'"{version}"' for version in sorted(expect)) or "none"
        raise VersionMismatch(f'job {job.id} is at version "{job.version}", If-Match names {wanted}; read it again')
