"""Room for waiting jobs: how many a queue may hold, and what a submit meets when it is full."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from erelong.duties.waiters import STAYS
from erelong.errors import BacklogFull
from erelong.model.job import Job, State
from erelong.model.query import Order, Query
from erelong.model.submission import Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from erelong.clock.instants import Now
    from erelong.duties.waiters import Client, Places
    from erelong.lanes.lanes import Lanes
    from erelong.stores.base import Store

MAX_DROP = 500
WAIT_FOR_ROOM = 10.0


class Backlog:
    """Counts what waits and what is on its way in. `on_drop` hears of each job that had to make room."""

    def __init__(
        self,
        *,
        store: Store,
        lanes: Lanes,
        places: Places,
        kinds: Iterable[str],
        now: Now,
        on_drop: Callable[[Job, Job], None],
    ) -> None:
        self._store = store
        self._lanes = lanes
        self._places = places
        self._kinds = tuple(kinds)
        self._now = now
        self._on_drop = on_drop
        self._incoming: dict[str, int] = {}
        self._held: dict[str, list[asyncio.Event]] = {}
        self._is_closed = False

    def __bool__(self) -> bool:
        """Whether any submit is held: asked for all that begins or ends, so they are not counted."""
        return bool(self._held)

    def __len__(self) -> int:
        """How many submits are held until there is room."""
        return sum(len(events) for events in self._held.values())

    def waiting(self, queue: str) -> int:
        counts, waiting = self._store.counts(), 0
        for kind in self._kinds:
            waiting += counts.get((queue, kind, State.SCHEDULED), 0)
        return waiting

    async def take_room(self, offers: Sequence[Offer], client: Client = STAYS) -> Mapping[str, int]:
        """Hold room for jobs while they are added; raises `BacklogFull` if there is none. Give it back in any case."""
        needs = {offers[0].job.queue: 1} if len(offers) == 1 else Counter([offer.job.queue for offer in offers])
        room: dict[str, int] = {}
        try:
            for queue, number in needs.items():
                if self._excess(queue, number) > 0:
                    await self._make_room(queue, await self._needed(queue, offers), client)
                self._incoming[queue] = self._incoming.get(queue, 0) + number
                room[queue] = number
        except BaseException:
            self.give_back(room)
            raise
        return room

    def give_back(self, room: Mapping[str, int]) -> None:
        for queue, number in room.items():
            left = self._incoming[queue] - number
            if left:
                self._incoming[queue] = left
            else:
                del self._incoming[queue]
            if self._held:
                self.left(queue)

    def left(self, queue: str) -> None:
        """A job of the queue does not wait any more: there may be room."""
        for event in self._held.get(queue, ()):
            event.set()

    def close(self) -> None:
        """Let those go on who wait for room, and let nobody wait any more."""
        self._is_closed = True
        for queue in self._held:
            self.left(queue)

    def _excess(self, queue: str, number: int) -> int:
        bound = self._lanes.settings(queue).max_backlog
        return self.waiting(queue) + self._incoming.get(queue, 0) + number - bound if bound else 0

    async def _needed(self, queue: str, offers: Sequence[Offer]) -> int:
        """How many of the offers would be new jobs: one that meets the key of a job, or of another offer, is none."""
        keys = [offer.job.key for offer in offers if offer.job.queue == queue]
        needed = keys.count(None)
        for key in {key for key in keys if key is not None}:
            live = frozenset({State.SCHEDULED, State.RUNNING})
            needed += not await self._store.list(Query(states=live, queues=frozenset({queue}), key=key, limit=1))
        return needed

    async def _make_room(self, queue: str, number: int, client: Client) -> None:
        settings = self._lanes.settings(queue)
        if self._excess(queue, number) <= 0:
            return
        if settings.overflow == "reject" or number > settings.max_backlog:
            raise self._full(queue)
        if settings.overflow == "wait":
            await self._wait(queue, number, client)
        else:
            await self._drop_oldest(queue, number)

    async def _drop_oldest(self, queue: str, number: int) -> None:
        """Let go of as many as come, and of no more: a lowered bound drops nobody."""
        left = number
        while (limit := min(left, self._excess(queue, number), MAX_DROP)) > 0:
            query = Query(queues=frozenset({queue}), order=Order.DUE, limit=limit, is_full=True)
            jobs = await self._store.list(query)
            if not jobs:
                raise self._full(queue)
            now = self._now()
            dropped = [job.drop(now) for job in jobs]
            for old, verdict in zip(jobs, await self._store.save(dropped), strict=True):
                if verdict.is_saved and verdict.job is not None:
                    left -= 1
                    self._on_drop(old, verdict.job)

    async def _wait(self, queue: str, number: int, client: Client) -> None:
        """Hold a submit until there is room; refuse it when the time is up, its client gone, or too many are held."""
        with self._places.take() as has_place, self._hold(queue) as event, client.wakes(event), suppress(TimeoutError):
            async with asyncio.timeout(WAIT_FOR_ROOM if has_place else 0):
                while not client.is_gone:
                    if self._excess(queue, number) <= 0 or self._is_closed:
                        return
                    await event.wait()
                    event.clear()
        raise self._full(queue)

    @contextmanager
    def _hold(self, queue: str) -> Iterator[asyncio.Event]:
        """An event set when a job of the queue has left."""
        event = asyncio.Event()
        self._held.setdefault(queue, []).append(event)
        try:
            yield event
        finally:
            self._held[queue].remove(event)
            if not self._held[queue]:
                del self._held[queue]

    def _full(self, queue: str) -> BacklogFull:
        bound = self._lanes.settings(queue).max_backlog
        detail = f"queue {queue!r} has {self.waiting(queue)} waiting jobs and takes at most {bound} (max_backlog)"
        return BacklogFull(f"{detail}; try again later or raise the bound", queue=queue)
