"""Whether all that is due has been done, and when the next thing is due: what a virtual clock needs to move."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from erelong.clock.instants import SECOND
from erelong.errors import Problem

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.duties.duty import Settling
    from erelong.engine.agenda import Agenda
    from erelong.engine.engine import Engine
    from erelong.engine.operations.duty import Operations

BATCH = 200
FLOAT_ERROR = 0.01  # microseconds, of a sum of seconds
RECHECK = 0.05  # seconds until a check even if no duty has reported a lap
UPKEEP = frozenset({"retention", "idempotency_records", "agenda_tidying", "idle_queues", "statistics"})
"""The duties that no move waits for."""


class Busy(NamedTuple):
    """The number of due jobs, of running attempts, of held leases, of outcomes not on disk, and of operations."""

    due: int
    running: int
    leased: int
    unsaved: int
    operations: int


class Standstill:
    """Asks every part of the engine. Jobs of pull kinds, held leases, pauses and full labels do not count as work."""

    def __init__(self, *, engine: Engine, leases: Settling, operations: Operations) -> None:
        self._engine = engine
        self._leases = leases
        self._operations = operations

    def is_settled(self) -> bool:
        """Return whether nothing that is due may start, nothing runs inside, and all outcomes are on disk."""
        engine = self._engine
        duties = [duty for name, duty in engine.duties.items() if name not in UPKEEP]
        parts = [*engine.settling, self._leases]
        return all(duty.is_resting for duty in duties) and all(part.is_settled() for part in parts)

    async def wait(self, within: float) -> None:
        """Wait until it may be settled, at most so many seconds of real time."""
        rested = self._engine.rested
        assert rested is not None  # the clock is virtual
        with suppress(TimeoutError):
            async with asyncio.timeout(min(within, RECHECK)):
                await rested.wait()

    def has_before(self, at: Instant) -> bool:
        """Return whether anything may be due before an instant."""
        engine = self._engine
        instants = [engine.scheduler.next_due, self._next_token(), *[source.next_at() for source in engine.sources]]
        return any(instant < at for instant in instants if instant is not None)

    async def next_at(self) -> Instant | None:
        """Return the next instant at which a job, retry, expiry, lease, token or other work is due."""
        engine = self._engine
        instants = [self._next_token(), *[source.next_at() for source in engine.sources]]
        instants += [await self._next_of(engine.agenda), await self._next_of(engine.rechecks)]
        return min((at for at in instants if at is not None), default=None)

    def _next_token(self) -> Instant | None:
        """Return when the rate of a queue permits its next job."""
        wait = self._engine.lanes.next_token_in()
        return None if wait is None else self._engine.now() + max(1, math.ceil(wait * SECOND - FLOAT_ERROR))

    async def _next_of(self, agenda: Agenda) -> Instant | None:
        """Return the earliest instant that is true; drop the stale entries before it."""
        while entries := agenda.next_entries(BATCH):
            at = entries[0][0]
            if at <= self._engine.now() or await self._is_any_true(at, [seq for _, seq in entries]):
                return at
            if agenda.next_entries(BATCH) == entries:
                agenda.pop(at, len(entries))
        return None

    async def _is_any_true(self, at: Instant, seqs: list[int]) -> bool:
        try:
            waiting = await self._engine.store.peek(seqs)
        except Problem:  # when the instant has come, the scheduler deals with it
            return True
        return any(at in (job.due_at, job.expires_at) for job in waiting)

    def busy(self) -> Busy:
        engine = self._engine
        return Busy(
            due=sum(engine.lanes.all_due().values()),
            running=len(engine.workers.running_jobs()),
            leased=len(engine.leases),
            unsaved=len(engine.completer),
            operations=self._operations.live,
        )

    def pending(self, limit: int) -> list[str]:
        """Return the ids of attempts that run."""
        return [job.id for job in self._engine.workers.running_jobs()[:limit]]
