"""What the service does now, as one reading that all clients share."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from erelong.clock.instants import SECOND
from erelong.model.job import WORDS, State
from erelong.model.query import Order, Query
from erelong.monitoring.statistics.totals import FLOWS, Late, lateness
from erelong.service.overview.readings import Readings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from erelong.clock.instants import Instant
    from erelong.model.caller import Caller
    from erelong.monitoring.health import Health
    from erelong.monitoring.statistics.flows import Rates
    from erelong.monitoring.statistics.host import Host
    from erelong.monitoring.statistics.sampling import Sampling
    from erelong.monitoring.statistics.series import Series
    from erelong.service.queues import Queue
    from erelong.service.services import Services
    from erelong.telemetry.notes import Note

LIFE = 1.0
"""Seconds for which all clients get the same reading."""
LONGEST = 2.0
"""Seconds for which they get one that was slow, as any is on a busy machine: people watch the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Stats:
    """The state of the service, or of some of its queues: then without host, checks and series."""

    started_at: Instant
    is_ready: bool
    checks: Mapping[str, str] | None
    jobs: Mapping[str, int]
    next_due_at: Instant | None
    oldest_due_age: float | None
    rates: Mapping[str, float | None]
    late: Late
    abandoned: int
    running: int
    workers: int
    host: Host | None
    notes: Sequence[Note]
    series: Mapping[str, Any] | None


class Statistics:
    """Makes the readings, each at most once a second."""

    def __init__(self, *, services: Services, health: Health, sampling: Sampling) -> None:
        self._services = services
        self._health = health
        self._sampling = sampling
        self._readings: Readings[Stats] = Readings(tick=services.engine.tick, life=LIFE, longest=LONGEST)

    async def read(self, span: str, queues: frozenset[str], caller: Caller) -> Stats:
        """Return the statistics of these queues (none: of all that the caller may use), with a span of series."""
        if caller.queues:
            queues = queues & caller.queues if queues else caller.queues
        is_all = not queues and not caller.queues
        series = {"1h": self._sampling.fine, "24h": self._sampling.coarse}.get(span) if is_all else None
        return await self._readings.get(
            (span if is_all else "", is_all, queues), lambda: self._make(None if is_all else queues, series)
        )

    def rates_of(self, queue: Queue) -> Rates:
        """Return what comes into a queue and what becomes of it, per second over the last minute."""
        return self._sampling.flows.rates_of(queue.name, queue.counts)

    async def _make(self, queues: frozenset[str] | None, series: Series | None) -> Stats:
        engine, now = self._services.engine, self._services.engine.now()
        checks = self._health.checks()
        first, following = await self._next_due(queues, now)
        workers = engine.config.workers.concurrency
        return Stats(
            started_at=engine.started_at,
            is_ready=all(state.startswith("ok") for state in checks.values()),
            checks=checks if queues is None else None,
            jobs=self._jobs(queues),
            next_due_at=following,
            oldest_due_age=None if first is None or first > now else (now - first) / SECOND,
            rates=self._rates(queues),
            late=self._late(queues),
            abandoned=engine.workers.abandoned,
            running=workers - engine.workers.free,
            workers=workers,
            host=self._sampling.host.read() if queues is None else None,
            notes=[note for note in engine.notes.latest() if queues is None or note.queue in (None, *queues)],
            series=None if series is None else series.lines(now),
        )

    async def _next_due(self, queues: frozenset[str] | None, now: Instant) -> tuple[Instant | None, Instant | None]:
        """Return the earliest due time of a waiting job, and the earliest that is still to come."""
        if queues is not None and not queues:
            return None, None
        names = queues or frozenset()
        first = await self._services.jobs.list(Query(queues=names, order=Order.DUE, limit=1))
        due_at = first[0].due_at if first else None
        if due_at is None or due_at > now:
            return due_at, due_at
        later = Query(queues=names, order=Order.DUE, due_after=now + 1, after=(now, 1 << 62), limit=1)
        following = await self._services.jobs.list(later)
        return due_at, following[0].due_at if following else None

    def _jobs(self, queues: frozenset[str] | None) -> dict[str, int]:
        engine = self._services.engine
        counted: Counter[str] = Counter()
        for (queue, _, state), jobs in dict(engine.store.counts()).items():
            if queues is None or queue in queues:
                counted[WORDS[state]] += jobs
        due = engine.lanes.all_due()
        waiting = sum(jobs for queue, jobs in due.items() if queues is None or queue in queues)
        numbers = {**dict.fromkeys(WORDS, 0), **counted}
        scheduled = numbers.pop(WORDS[State.SCHEDULED])
        return {"scheduled": scheduled, "due": min(waiting, scheduled), **numbers}

    def _rates(self, queues: frozenset[str] | None) -> dict[str, float | None]:
        if queues is not None:
            return {**self._sampling.flows.rates(queues)._asdict(), "retried": None}
        happened, seconds = self._sampling.rates()
        return {name: round(getattr(happened, name) / seconds, 3) for name in FLOWS}

    def _late(self, queues: frozenset[str] | None) -> Late:
        if queues is None:
            return lateness(self._sampling.late().late)
        return Late(*self._services.engine.lanes.lateness(queues))
