"""The operations on queues: list, read, set, pause, resume, purge, drop."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, assert_never

from erelong.clock.instants import SECOND
from erelong.errors import QueueInUse, QueueNotFound
from erelong.model.caller import ANYBODY, Caller
from erelong.model.job import WORDS, State
from erelong.model.query import Order, Query
from erelong.service.overview.readings import Readings
from erelong.settings.names import how_to_create
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.model.job import Job
    from erelong.settings.queues import QueueSettings
    from erelong.stores.base import Group, Pause

PURGE_SLICE = 500
LATE_SLICE = 50
LATE_LIFE = 1.0

log = get_logger(__name__)


class QueueOrder(StrEnum):
    """The order of a listing: by name, or the queue with the most due jobs, the latest starts or most failed first."""

    NAME = "name"
    DUE = "due"
    LATE = "late"
    FAILED = "failed"


class Place(NamedTuple):
    """Where a page of a listing ends: at a queue, which had this rank."""

    rank: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The current state of a queue. A brief one does not have `oldest_due_age`, which may be read from the store."""

    name: str
    is_paused: bool
    pause: Pause | None
    settings: QueueSettings
    counts: dict[str, int]
    oldest_due_age: float | None
    late_p50: float | None
    late_p99: float | None
    is_overridden: bool
    is_brief: bool = False


class Queues:
    """All operations on queues."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._lanes = engine.lanes
        self._overrides = engine.overrides
        self._config = engine.config.queues
        self._now = engine.now
        self._lates: Readings[dict[str, float]] = Readings(tick=engine.tick, life=LATE_LIFE)

    async def page(
        self,
        caller: Caller = ANYBODY,
        *,
        order: QueueOrder = QueueOrder.NAME,
        after: Place | None = None,
        limit: int | None = None,
        is_brief: bool = False,
    ) -> tuple[list[Queue], Place | None]:
        """Return the queues that the caller may use, and where the page ends, unless it is the last."""
        groups = self._groups()
        counted = {queue for (queue, _, _), jobs in groups.items() if jobs}
        names = [name for name in {*counted, *self._config, *self._overrides.names} if caller.may_use(name)]
        await asyncio.sleep(0)  # clients can make any number of queues
        ranks = await self._ranks(order, groups)
        ordered = sorted((-ranks.get(name, 0.0), name) for name in names)
        if after is not None:
            ordered = [place for place in ordered if place > (-after.rank, after.name)]
        page = ordered if limit is None else ordered[:limit]
        await asyncio.sleep(0)
        counts = _counts_of({name for _, name in page}, groups)
        queues = [await self._queue(name, counts[name], is_brief=is_brief) for _, name in page]
        return queues, Place(-page[-1][0], page[-1][1]) if len(page) < len(ordered) else None

    async def _ranks(self, order: QueueOrder, groups: Mapping[Group, int]) -> Mapping[str, float]:
        """Return the ranks of queues in an order; a queue without one has 0."""
        match order:
            case QueueOrder.NAME:
                return {}
            case QueueOrder.DUE:
                return {
                    name: min(jobs, self._store.waiting(name)) for name, jobs in self._lanes.all_due().items() if jobs
                }
            case QueueOrder.LATE:
                return await self._lates.get(order, self._latenesses)
            case QueueOrder.FAILED:
                failed: Counter[str] = Counter()
                for (queue, _, state), jobs in groups.items():
                    if state is State.FAILED:
                        failed[queue] += jobs
                return failed
            case _:
                assert_never(order)

    async def _latenesses(self) -> dict[str, float]:
        """Return how late the jobs of each queue start. Let others run in between."""
        found: dict[str, float] = {}
        for number, name in enumerate([*self._lanes.all_due()]):
            if number % LATE_SLICE == LATE_SLICE - 1:
                await asyncio.sleep(0)
            if (late := self._lanes.lateness([name]).p99) is not None:
                found[name] = late
        return found

    async def get(self, name: str) -> Queue:
        self._check(name)
        return await self._count(name)

    async def put(self, name: str, settings: QueueSettings, caller: Caller = ANYBODY) -> Queue:
        """Replace the override; settings not given fall back to the configuration."""
        await self._overrides.set(name, settings)
        given = ",".join(sorted(settings.model_fields_set))
        self._engine.notes.add("configured", queue=name, by=caller.name, detail=given or None)
        log.info("queue_configured", queue=name, settings=given, by=caller.name)
        return await self._count(name)

    async def rehearse_put(self, name: str, settings: QueueSettings) -> Queue:
        """Return the queue as `put` would leave it, and store nothing."""
        after = self._lanes.settings_with(name, settings)
        return replace(await self._count(name), settings=after, is_overridden=bool(settings.model_fields_set))

    async def drop(self, name: str, caller: Caller = ANYBODY) -> None:
        """Remove the override and the pause of a queue without waiting or running jobs."""
        queue = await self.get(name)
        busy = queue.counts["scheduled"] + queue.counts["running"]
        if busy:
            raise QueueInUse(f"{busy} jobs wait or run in queue {name!r}; purge it or let them finish first")
        await self._overrides.drop(name)
        log.info("queue_dropped", queue=name, by=caller.name)

    async def pause(self, name: str, reason: str | None = None, caller: Caller = ANYBODY) -> Queue:
        """Stop the jobs of a queue from starting."""
        await self._overrides.pause(name, caller.name or None, reason)
        self._engine.notes.add("paused", queue=name, by=caller.name, detail=reason)
        log.info("queue_paused", queue=name, reason=reason, by=caller.name)
        return await self._count(name)

    async def resume(self, name: str, caller: Caller = ANYBODY) -> Queue:
        """Let the jobs of a queue start again. A repeat succeeds, though the first call may have made it unknown."""
        if self._lanes.find(name) is None:
            self._check(name)
        await self._overrides.resume(name)
        self._engine.notes.add("resumed", queue=name, by=caller.name)
        log.info("queue_resumed", queue=name, by=caller.name)
        return await self._count(name)

    async def purge(self, name: str, caller: Caller = ANYBODY) -> int:
        """Cancel all waiting jobs, in slices; return their number."""
        self._check(name)
        cancelled, after = 0, None
        states, queues = frozenset({State.SCHEDULED}), frozenset({name})
        try:
            while newest := await self._store.list(
                Query(states=states, queues=queues, limit=PURGE_SLICE, is_full=True, after=after)
            ):
                cancelled += await self._cancel(newest)
                after = (0, newest[-1].seq)
        finally:
            self._engine.notes.add("purged", queue=name, by=caller.name, detail=f"{cancelled} cancelled")
            log.info("queue_purged", queue=name, cancelled=cancelled, by=caller.name)
        return cancelled

    async def _cancel(self, jobs: Sequence[Job]) -> int:
        now, cancelled = self._now(), 0
        ended = [job.cancel(now, "its queue was purged") for job in jobs]
        for before, verdict in zip(jobs, await self._store.save(ended), strict=True):
            if verdict.is_saved:
                cancelled += 1
                self._engine.changes.changed(before, verdict)
        return cancelled

    def refuse_foreign(self, name: str, caller: Caller) -> None:
        """Raise `QueueNotFound` for a queue that the caller may not use, whether or not it exists."""
        if not caller.may_use(name):
            has = ", ".join(sorted(caller.queues))
            raise QueueNotFound(f"API key {caller.name!r} may not use queue {name!r}; its queues: {has}")

    async def oldest_due_age(self, name: str, now: Instant) -> float | None:
        """Return the seconds since the first due time of a waiting job; None if none is due.

        Read the store only if the lane cannot tell, because that is slow while many jobs run.
        """
        due_at = None if self._engine.overdue.is_walking else self._lanes.oldest_due(name)
        if due_at is None:
            oldest = await self._store.list(Query(queues=frozenset({name}), order=Order.DUE, limit=1))
            due_at = oldest[0].due_at if oldest else None
        return (now - due_at) / SECOND if due_at is not None and due_at <= now else None

    def _check(self, name: str) -> None:
        is_known = name in self._config or name in self._overrides.names
        if not is_known and not any(jobs and name == queue for (queue, _, _), jobs in self._groups().items()):
            raise _unknown(name)

    def _groups(self) -> dict[Group, int]:
        return dict(self._store.counts())

    async def _count(self, name: str) -> Queue:
        return await self._queue(name, _counts_of({name}, self._groups())[name])

    async def _queue(self, name: str, counted: Mapping[str, int], *, is_brief: bool = False) -> Queue:
        counts, late = {**dict.fromkeys(WORDS, 0), **counted}, self._lanes.lateness([name])
        asks_age = counts["scheduled"] and not is_brief
        return Queue(
            name=name,
            is_paused=self._lanes.is_paused(name),
            pause=self._overrides.pause_of(name),
            settings=self._lanes.settings(name),
            counts={"scheduled": counts["scheduled"], "due": min(self._lanes.due(name), counts["scheduled"]), **counts},
            oldest_due_age=await self.oldest_due_age(name, self._now()) if asks_age else None,
            late_p50=late.p50,
            late_p99=late.p99,
            is_overridden=self._overrides.is_set(name),
            is_brief=is_brief,
        )


def _counts_of(names: Collection[str], groups: Mapping[Group, int]) -> dict[str, Counter[str]]:
    """Return the jobs of these queues by state."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    for (queue, _, state), jobs in groups.items():
        if queue in counts:
            counts[queue][WORDS[state]] += jobs
    return counts


def _unknown(name: str) -> QueueNotFound:
    remedy = "submit a job to it, or PUT /v1/queues/{} to configure it first"
    return QueueNotFound(f"no queue {name!r}{how_to_create(name, remedy)}")
