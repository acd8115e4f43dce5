"""Gauges for the metrics page, read from the running parts at each scrape."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.errors import Problem
from erelong.model.job import WORDS
from erelong.telemetry import log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from erelong.service.services import Services
    from erelong.stores.base import SharedStore
    from erelong.telemetry.metrics import Labels, Metrics

MAX_QUEUES = 500  # queues with a series of their own: clients choose names, and the page must stay small
OTHERS = "(others)"  # no queue can have this name
MAX_AGES = 100
STORE_TIMEOUT = 1.0


class Gauges:
    """Sets the gauges of `metrics`, from memory and, for ages of jobs, from the store."""

    def __init__(
        self, *, services: Services, metrics: Metrics, path: Path | None, shared: SharedStore | None = None
    ) -> None:
        self._services = services
        self._metrics = metrics
        self._path = path
        self._shared = shared

    async def refresh(self) -> None:
        """Update every gauge. Leave out the ages if the store does not answer in time."""
        engine, metrics = self._services.engine, self._metrics
        metrics.oldest_due.values = await self._ages()
        metrics.pending.values = {(): len(engine.agenda) + len(engine.rechecks)}
        metrics.running.values = {(): engine.workers.running + len(engine.leases)}
        metrics.abandoned.values = {(): engine.workers.abandoned}
        metrics.unsaved.values = {(): len(engine.completer)}
        metrics.waiting.values = {
            ("job",): len(engine.waiters.jobs),
            ("lease",): len(engine.pollers),
            ("room",): len(engine.waiters.rooms),
            ("operation",): len(engine.waiters.operations),
        }
        active, paused = self._services.recurrences.states
        metrics.schedules.values = {("active",): active, ("paused",): paused}
        metrics.operations.values = {(state,): number for state, number in self._services.operations.states().items()}
        metrics.jobs.values = self._jobs()
        metrics.due.values = self._due()
        metrics.store_size.values = self._sizes()
        if self._shared is not None:
            metrics.leads.values = {(): self._shared.standby() is None}
            metrics.snapshot_age.values = {(): self._shared.snapshot_age}
        metrics.log_lost.values = {(reason,): lines for reason, lines in log.lost().items()}

    def _jobs(self) -> dict[Labels, float]:
        values: dict[Labels, float] = {}
        groups = {group: jobs for group, jobs in self._services.engine.store.counts().items() if jobs}
        sizes: dict[str, float] = {}
        for (queue, _, _), jobs in groups.items():
            sizes[queue] = sizes.get(queue, 0) + jobs
        named = _largest(sizes, MAX_QUEUES)
        for (queue, _, state), jobs in groups.items():
            labels = (queue if queue in named else OTHERS, WORDS[state])
            values[labels] = values.get(labels, 0) + jobs
        return values

    def _due(self) -> dict[Labels, float]:
        store = self._services.engine.store
        due = {queue: min(jobs, store.waiting(queue)) for queue, jobs in self._services.engine.lanes.all_due().items()}
        named = _largest(due, MAX_QUEUES)
        values: dict[Labels, float] = {(queue,): due[queue] for queue in named}
        if len(named) < len(due):
            values[OTHERS,] = sum(jobs for queue, jobs in due.items() if queue not in named)
        return values

    async def _ages(self) -> dict[Labels, float]:
        """Return the age of the oldest due job of the queues with the most due jobs."""
        now, due = self._services.engine.now(), self._services.engine.lanes.all_due()
        names = sorted(_largest({queue: jobs for queue, jobs in due.items() if jobs}, MAX_AGES))
        with suppress(TimeoutError, Problem):
            async with asyncio.timeout(STORE_TIMEOUT):
                ages = await asyncio.gather(*(self._services.queues.oldest_due_age(name, now) for name in names))
                return {(name,): age for name, age in zip(names, ages, strict=True) if age is not None}
        return {}

    def _sizes(self) -> dict[Labels, float]:
        if self._path is None:
            return {}
        paths = {"database": self._path, "wal": self._path.with_name(self._path.name + "-wal")}
        sizes: dict[Labels, float] = {}
        for name, path in paths.items():
            with suppress(OSError):  # there is no WAL before the first write
                sizes[name,] = path.stat().st_size
        return sizes


def _largest(sizes: Mapping[str, float], limit: int) -> set[str]:
    return set(sizes) if len(sizes) <= limit else set(sorted(sizes, key=lambda name: -sizes[name])[:limit])
