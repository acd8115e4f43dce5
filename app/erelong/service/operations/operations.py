"""The operations on many jobs: start, try out, read, list, wait, cancel."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from erelong.duties.waiters import NEVER_LEAVES
from erelong.engine.operations.search import PAGE, find_page
from erelong.errors import Forbidden, OperationNotFound
from erelong.model.caller import ANYBODY, Caller, Scope
from erelong.model.job import Job
from erelong.model.operations.operation import Action, Operation, Phase, Request
from erelong.model.query import Query
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.duties.waiters import Client
    from erelong.engine.engine import Engine
    from erelong.engine.operations.duty import Operations as Duty
    from erelong.model.submission import IdempotencyRecord

COUNT_TIME: Final = 5.0  # seconds of a dry run
MAX_COUNTED: Final = 1_000_000
SAMPLE: Final = 10
SCOPES: Final[Mapping[Action, Scope]] = {
    Action.CANCEL: Scope.CANCEL,
    Action.DELETE: Scope.CANCEL,
    Action.RUN: Scope.SUBMIT,
    Action.RETRY: Scope.SUBMIT,
    Action.PATCH: Scope.SUBMIT,
    Action.BACKFILL: Scope.SUBMIT,
}

log = get_logger(__name__)


@dataclass(slots=True)
class Count:
    """The jobs that match a filter. `is_cut`: there are more."""

    matches: int = 0
    is_cut: bool = False
    states: Counter[str] = field(default_factory=Counter)
    queues: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    sample: list[str] = field(default_factory=list)

    def add(self, job: Job) -> None:
        self.matches += 1
        self.states[job.state.word] += 1
        self.queues[job.queue] += 1
        self.kinds[job.kind] += 1
        if len(self.sample) < SAMPLE:
            self.sample.append(job.id)


class Operations:
    """All operations on many jobs. A caller that is limited to queues knows only those that it started."""

    def __init__(self, *, engine: Engine, duty: Duty) -> None:
        self._duty = duty
        self._store = engine.store
        self._waiters = engine.waiters
        self._lifecycle = engine.lifecycle
        self._tick = engine.tick
        self._now = engine.now

    # starting

    async def start(self, request: Request, caller: Caller, record: IdempotencyRecord | None) -> tuple[Operation, bool]:
        """Store an operation, for the jobs that exist at this moment; return it, and whether it is a replay."""
        self._lifecycle.refuse_work()
        newest = max([job.seq for job in await self._store.list(Query(limit=1))], default=0)
        return await self.submit(request, caller, record, cursor=newest + 1)

    async def submit(
        self,
        request: Request,
        caller: Caller,
        record: IdempotencyRecord | None,
        *,
        cursor: int,
        matches: int | None = None,
    ) -> tuple[Operation, bool]:
        """Store an operation that begins at a cursor; return it, and whether it is a replay."""
        request = self._of(caller, request)
        key = None if record is None else sha256(f"{record.caller}\0{record.key}".encode()).hexdigest()

        def make(id: str) -> Operation:
            return Operation(id=id, request=request, key=key, cursor=cursor, matches=matches, created_at=self._now())

        operation = await self._duty.add(make, record)
        if operation is None:
            assert key is not None
            return await self.get(self._duty.book.find_key(key), caller), True
        log.info("operation_created", operation=operation.id, action=request.action, by=request.by)
        return operation.stored(), False

    async def rehearse(self, request: Request, caller: Caller) -> Count:
        """Count the jobs that match, for some seconds."""
        conditions = self._of(caller, request).conditions()
        if Scope.READ not in caller.scopes:
            raise Forbidden(f"a dry run of an operation shows ids, so it needs the scope {Scope.READ} too")
        newest = max([job.seq for job in await self._store.list(Query(limit=1))], default=0)
        count, below, until = Count(), newest + 1, self._tick() + COUNT_TIME
        while below:
            if self._tick() >= until or count.matches >= MAX_COUNTED:
                count.is_cut = True
                break
            jobs, below = await find_page(self._store, conditions, below, PAGE)
            for job in jobs:
                count.add(job)
        return count

    def _of(self, caller: Caller, request: Request) -> Request:
        """Return a request as this caller may make it."""
        refuse_scope(caller, request.action)
        return replace(request, within=tuple(sorted(caller.queues)), by=caller.name)

    # reading

    async def get(self, id: str, caller: Caller = ANYBODY) -> Operation:
        await self._duty.load()
        operation = await self._duty.book.read(id)
        if operation is None or not _may_see(caller, operation.request.by):
            raise _unknown(id)
        return operation

    async def refuse_foreign(self, id: str, caller: Caller) -> None:
        """Raise `OperationNotFound` for an operation of another key, as for an unknown one."""
        await self.get(id, caller)

    async def wait(self, id: str, seconds: float, client: Client = NEVER_LEAVES) -> Operation:
        """Return the operation when it is over, or when the time is up."""
        with self._waiters.hold(self._waiters.operations, (id,), client) as waiter, suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while waiter.has_slot and not self._lifecycle.is_draining and not client.is_gone:
                    operation = await self.get(id)
                    if operation.state.is_over:
                        return operation
                    await waiter.event.wait()
                    waiter.event.clear()
        return await self.get(id)

    async def list(
        self, states: frozenset[str], actions: frozenset[str], before: str | None, limit: int, caller: Caller
    ) -> tuple[list[Operation], str | None]:
        """Return one page, newest first, and the id before which the next begins."""
        await self._duty.load()
        ids = [
            id
            for id, entry in sorted(self._duty.book.entries.items(), reverse=True)
            if (before is None or id < before)
            and (not states or entry.state in states)
            and (not actions or entry.action in actions)
            and _may_see(caller, entry.by)
        ]
        return await self._duty.book.read_all(ids[:limit]), ids[limit - 1] if len(ids) > limit else None

    def states(self) -> dict[str, int]:
        """Return how many operations are in each state."""
        counts = Counter(entry.state.value for entry in self._duty.book.entries.values())
        return {phase.value: counts[phase.value] for phase in Phase}

    # cancelling

    async def cancel(self, id: str, caller: Caller) -> Operation:
        """Stop an operation before its next slice. Jobs that it has changed stay changed."""
        refuse_scope(caller, (await self.get(id, caller)).request.action)
        operation, has_ended = await self._duty.cancel(id)
        if operation is None:
            raise _unknown(id)
        if has_ended:
            log.info("operation_cancelled", operation=id, action=operation.request.action, by=caller.name)
        return operation


def refuse_scope(caller: Caller, action: Action) -> None:
    """Refuse a caller whose key lacks the scope of an action."""
    if (scope := SCOPES[action]) not in caller.scopes:
        has = ", ".join(sorted(caller.scopes))
        raise Forbidden(f"the action {action} needs the scope {scope}; API key {caller.name!r} has {has}")


def _may_see(caller: Caller, by: str) -> bool:
    return not caller.queues or caller.name == by


def _unknown(id: str) -> OperationNotFound:
    return OperationNotFound(f"no operation {id!r}; GET /v1/operations lists those that are kept")
