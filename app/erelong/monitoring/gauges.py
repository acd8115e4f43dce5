"""What the metrics page reads off the running parts, when it is asked for."""

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

    from erelong.clock.instants import Now
    from erelong.duties.waiters import Watchers
    from erelong.engine.agenda import Agenda
    from erelong.engine.completer import Outcomes
    from erelong.engine.workers import Workers
    from erelong.lanes.backlog import Backlog
    from erelong.lanes.lanes import Lanes
    from erelong.lanes.pollers import Askers
    from erelong.service.leases import Leases
    from erelong.service.queues import Queues
    from erelong.stores.base import Store
    from erelong.telemetry.metrics import Labels, Metrics

MAX_QUEUES = 500  # queues that stand on the page by name: clients make up names, and a page must stay readable
OTHERS = "(others)"  # no queue can have this name
MAX_AGES = 100
STORE_PATIENCE = 1.0


class Readings:
    """Sets what `metrics` reads: levels of parts that know them at once, and ages that the store must be asked for."""

    def __init__(
        self,
        *,
        metrics: Metrics,
        store: Store,
        agenda: Agenda,
        lanes: Lanes,
        workers: Workers,
        leases: Leases,
        askers: Askers,
        backlog: Backlog,
        outcomes: Outcomes,
        watchers: Watchers,
        queues: Queues,
        path: Path | None,
        now: Now,
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._queues = queues
        self._path = path
        self._now = now
        self._ages: dict[Labels, float] = {}
        metrics.pending.read = lambda: {(): len(agenda)}
        metrics.running.read = lambda: {(): workers.running + leases.held}
        metrics.abandoned.read = lambda: {(): workers.abandoned}
        metrics.unsaved.read = lambda: {(): len(outcomes)}
        metrics.waiting.read = lambda: {("job",): len(watchers), ("lease",): len(askers), ("room",): len(backlog)}
        metrics.jobs.read = self._jobs
        metrics.due.read = self._due
        metrics.oldest_due.read = lambda: self._ages
        metrics.store_size.read = self._sizes
        metrics.log_lost.read = lambda: {(reason,): lines for reason, lines in log.lost().items()}
        metrics.refresh = self._ask_ages

    def _jobs(self) -> dict[Labels, float]:
        levels: dict[Labels, float] = {}
        groups = {group: jobs for group, jobs in self._store.counts().items() if jobs}
        sizes: dict[str, float] = {}
        for (queue, _, _), jobs in groups.items():
            sizes[queue] = sizes.get(queue, 0) + jobs
        named = _largest(sizes, MAX_QUEUES)
        for (queue, _, state), jobs in groups.items():
            labels = (queue if queue in named else OTHERS, WORDS[state])
            levels[labels] = levels.get(labels, 0) + jobs
        return levels

    def _due(self) -> dict[Labels, float]:
        due = self._lanes.all_due()
        named = _largest(due, MAX_QUEUES)
        levels: dict[Labels, float] = {(queue,): due[queue] for queue in named}
        if len(named) < len(due):
            levels[OTHERS,] = sum(jobs for queue, jobs in due.items() if queue not in named)
        return levels

    async def _ask_ages(self) -> None:
        """Ask for the queues with most due jobs; a store that does not answer leaves the page without them."""
        self._ages = {}
        now, names = (
            self._now(),
            sorted(_largest({q: due for q, due in self._lanes.all_due().items() if due}, MAX_AGES)),
        )
        with suppress(TimeoutError, Problem):
            async with asyncio.timeout(STORE_PATIENCE):
                ages = await asyncio.gather(*(self._queues.oldest_due_age(name, now) for name in names))
                self._ages = {(name,): age for name, age in zip(names, ages, strict=True) if age is not None}

    def _sizes(self) -> dict[Labels, float]:
        if self._path is None:
            return {}
        paths = {"database": self._path, "wal": self._path.with_name(self._path.name + "-wal")}
        sizes: dict[Labels, float] = {}
        for name, path in paths.items():
            with suppress(OSError):  # there is no log before the first write
                sizes[name,] = path.stat().st_size
        return sizes


def _largest(sizes: Mapping[str, float], limit: int) -> set[str]:
    return set(sizes) if len(sizes) <= limit else set(sorted(sizes, key=lambda name: -sizes[name])[:limit])
