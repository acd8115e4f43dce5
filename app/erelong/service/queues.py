"""What can be asked about queues: see, set, pause, resume, purge, drop."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from erelong.errors import QueueInUse, QueueNotFound
from erelong.model.caller import ANYBODY, Caller
from erelong.model.job import SECOND, WORDS, Job, State
from erelong.model.query import Order, Query
from erelong.settings.queues import QueueSettings
from erelong.stores.base import Override
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from erelong.clock.instants import Instant, Now
    from erelong.engine.agenda import Agenda
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Store

PURGE_SLICE = 500
NO_OVERRIDE = Override()

log = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue as it is now."""

    name: str
    is_paused: bool
    settings: QueueSettings
    counts: dict[str, int]
    oldest_due_age: float | None
    late_p99: float | None


class Queues:
    """The one door to queues. `on_cancel` hears of each job that a purge ends, as it was and as it is; `on_set` of each
    queue whose settings have changed.
    """

    def __init__(
        self,
        *,
        store: Store,
        agenda: Agenda,
        lanes: Lanes,
        config: Mapping[str, QueueSettings],
        now: Now,
        on_cancel: Callable[[Job, Job], None],
        on_set: Callable[[str], None],
    ) -> None:
        self._store = store
        self._agenda = agenda
        self._lanes = lanes
        self._config = config
        self._now = now
        self._on_cancel = on_cancel
        self._on_set = on_set
        self._overrides: dict[str, Override] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Take over what was set before the last stop."""
        for queue, override in (await self._store.overrides()).items():
            self._take_over(queue, override)

    async def read_anew(self, name: str) -> None:
        """Go by what is stored for a queue; not in the middle of a change, or what is read may be what was before."""
        async with self._writing:
            self._take_over(name, (await self._store.overrides()).get(name))

    def _take_over(self, queue: str, override: Override | None) -> None:
        settings = None
        try:
            if override is not None and override.settings:
                settings = QueueSettings.model_validate_json(override.settings)
        except ValidationError as error:
            log.error("queue_settings_unreadable", queue=queue, problem=str(error))
        self._remember(queue, override)
        self._configure(queue, settings)
        self._lanes.pause(queue, override is not None and override.paused)

    async def all(self, caller: Caller = ANYBODY) -> list[Queue]:
        """Those that the caller may use."""
        counted: dict[str, Counter[str]] = defaultdict(Counter)
        for (queue, _, state), jobs in self._groups().items():
            if jobs:
                counted[queue][state.word] += jobs
        names = [name for name in sorted({*counted, *self._config, *self._overrides}) if caller.may_use(name)]
        return [await self._queue(name, counted.get(name, Counter())) for name in names]

    async def get(self, name: str) -> Queue:
        self._check(name)
        return await self._count(name)

    async def put(self, name: str, settings: QueueSettings) -> Queue:
        """Replace what overrides the configuration; what is not given falls back to it."""
        text = settings.model_dump_json(exclude_unset=True).encode()
        async with self._writing:
            await self._store_override(name, self._override(name)._replace(settings=text))
            self._configure(name, settings)
        return await self._count(name)

    async def drop(self, name: str) -> None:
        """Forget the override and the pause of a queue in which nothing waits or runs."""
        queue = await self.get(name)
        busy = queue.counts["scheduled"] + queue.counts["running"]
        if busy:
            raise QueueInUse(f"{busy} jobs wait or run in queue {name!r}; purge it or let them finish first")
        async with self._writing:
            await self._store_override(name, None)
            self._configure(name, None)
            self._lanes.pause(name, False)

    async def pause(self, name: str, is_paused: bool) -> Queue:
        if not is_paused:
            self._check(name)
        async with self._writing:
            await self._store_override(name, self._override(name)._replace(paused=is_paused))
            self._lanes.pause(name, is_paused)
        return await self._count(name)

    async def purge(self, name: str) -> int:
        """Cancel all waiting jobs, in slices; how many comes back."""
        self._check(name)
        cancelled = 0
        query = Query(states=frozenset({State.SCHEDULED}), queues=frozenset({name}), limit=PURGE_SLICE, is_full=True)
        newest = await self._store.list(query)
        while newest:
            now = self._now()
            ended = [job.cancel(now, "its queue was purged") for job in newest]
            for before, verdict in zip(newest, await self._store.save(ended), strict=True):
                if verdict.is_saved and verdict.job is not None:
                    cancelled += 1
                    self._on_cancel(before, verdict.job)
            after = (0, newest[-1].seq)
            newest = await self._store.list(
                Query(states=query.states, queues=query.queues, limit=PURGE_SLICE, is_full=True, after=after)
            )
        return cancelled

    def refuse_strange(self, name: str, caller: Caller) -> None:
        """A queue that the caller may not use is to it one that nobody has named."""
        if not caller.may_use(name):
            raise _unknown(name)

    async def oldest_due_age(self, name: str, now: Instant) -> float | None:
        """Seconds since the waiting job that is due first was due; None if none is.

        The store is asked only where the lane cannot tell: with much running, that is 2 ms of work.
        """
        due_at = self._lanes.oldest_due(name)
        if due_at is None:
            oldest = await self._store.list(Query(queues=frozenset({name}), order=Order.DUE, limit=1))
            due_at = oldest[0].due_at if oldest else None
        return (now - due_at) / SECOND if due_at is not None and due_at <= now else None

    def _check(self, name: str) -> None:
        is_known = name in self._config or name in self._overrides
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
            counts={"scheduled": counts["scheduled"], "due": self._lanes.due(name), **counts},
            oldest_due_age=await self.oldest_due_age(name, now) if counts["scheduled"] else None,
            late_p99=self._lanes.late_p99(name),
        )

    def _override(self, name: str) -> Override:
        return self._overrides.get(name, NO_OVERRIDE)

    async def _store_override(self, name: str, override: Override | None) -> None:
        await self._store.override(name, override)
        self._remember(name, override)

    def _remember(self, name: str, override: Override | None) -> None:
        if override is None:
            self._overrides.pop(name, None)
        else:
            self._overrides[name] = override

    def _configure(self, name: str, settings: QueueSettings | None) -> None:
        """Let the scheduler read those anew whose place in the queue has changed."""
        now = self._now()
        self._agenda.extend([(now, seq) for seq in self._lanes.configure(name, settings)])
        self._on_set(name)


def _unknown(name: str) -> QueueNotFound:
    return QueueNotFound(f"no queue {name!r}; it comes to be when a job, a setting or a pause names it")
