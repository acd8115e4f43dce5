"""The operations on queues: read, set, pause, resume, purge, drop."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from erelong.clock.instants import SECOND
from erelong.errors import QueueInUse, QueueNotFound
from erelong.model.caller import ANYBODY, Caller
from erelong.model.job import WORDS, State
from erelong.model.query import Order, Query
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.model.job import Job
    from erelong.settings.queues import QueueSettings

PURGE_SLICE = 500

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The current state of a queue."""

    name: str
    is_paused: bool
    settings: QueueSettings
    counts: dict[str, int]
    oldest_due_age: float | None
    late_p99: float | None


class Queues:
    """All operations on queues."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._lanes = engine.lanes
        self._overrides = engine.overrides
        self._config = engine.config.queues
        self._now = engine.now

    async def all(self, caller: Caller = ANYBODY) -> list[Queue]:
        """Return the queues that the caller may use."""
        counted: dict[str, Counter[str]] = defaultdict(Counter)
        for (queue, _, state), jobs in self._groups().items():
            if jobs:
                counted[queue][state.word] += jobs
        names = [name for name in sorted({*counted, *self._config, *self._overrides.names}) if caller.may_use(name)]
        return [await self._queue(name, counted.get(name, Counter())) for name in names]

    async def get(self, name: str) -> Queue:
        self._check(name)
        return await self._count(name)

    async def put(self, name: str, settings: QueueSettings) -> Queue:
        """Replace the override; settings not given fall back to the configuration."""
        await self._overrides.set(name, settings)
        log.info("queue_configured", queue=name, settings=",".join(sorted(settings.model_fields_set)))
        return await self._count(name)

    async def drop(self, name: str) -> None:
        """Remove the override and the pause of a queue without waiting or running jobs."""
        queue = await self.get(name)
        busy = queue.counts["scheduled"] + queue.counts["running"]
        if busy:
            raise QueueInUse(f"{busy} jobs wait or run in queue {name!r}; purge it or let them finish first")
        await self._overrides.drop(name)
        log.info("queue_dropped", queue=name)

    async def pause(self, name: str, is_paused: bool) -> Queue:
        """Stop the jobs of a queue from starting, or let them start again."""
        if not is_paused:
            self._check(name)
        await self._overrides.pause(name, is_paused)
        log.info("queue_paused" if is_paused else "queue_resumed", queue=name)
        return await self._count(name)

    async def purge(self, name: str) -> int:
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
            log.info("queue_purged", queue=name, cancelled=cancelled)
        return cancelled

    async def _cancel(self, jobs: Sequence[Job]) -> int:
        now, cancelled = self._now(), 0
        ended = [job.cancel(now, "its queue was purged") for job in jobs]
        for before, after, verdict in zip(jobs, ended, await self._store.save(ended), strict=True):
            if verdict.is_saved:
                cancelled += 1
                self._engine.changes.changed(before, after)
        return cancelled

    def refuse_foreign(self, name: str, caller: Caller) -> None:
        """Raise `QueueNotFound` for a queue that the caller may not use, as for an unknown one."""
        if not caller.may_use(name):
            raise _unknown(name)

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

    def _groups(self) -> dict[tuple[str, str, State], int]:
        return dict(self._store.counts())

    async def _count(self, name: str) -> Queue:
        counted: Counter[str] = Counter()
        for (queue, _, state), jobs in self._groups().items():
            if queue == name:
                counted[state.word] += jobs
        return await self._queue(name, counted)

    async def _queue(self, name: str, counted: Mapping[str, int]) -> Queue:
        counts = {**dict.fromkeys(WORDS, 0), **counted}
        now = self._now()
        return Queue(
            name=name,
            is_paused=self._lanes.is_paused(name),
            settings=self._lanes.settings(name),
            counts={"scheduled": counts["scheduled"], "due": min(self._lanes.due(name), counts["scheduled"]), **counts},
            oldest_due_age=await self.oldest_due_age(name, now) if counts["scheduled"] else None,
            late_p99=self._lanes.late_p99(name),
        )


def _unknown(name: str) -> QueueNotFound:
    return QueueNotFound(f"no queue {name!r}; a queue exists once a job, a setting or a pause names it")
