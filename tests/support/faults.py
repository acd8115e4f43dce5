"""A memory store that can be slow and can fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from erelong.clock.instants import Instant
from erelong.errors import Exit, StorageFull, StoreRefused, StoreUnavailable
from erelong.model.job import Job, State
from erelong.model.query import Query
from erelong.stores.base import Claim, Ending, Found, Override, Peeks, Tally, Verdicts
from erelong.stores.memory import MemoryStore

Hook = Callable[[str], Awaitable[None]]


class FaultyStore(MemoryStore):
    """Methods named in `broken` raise; those in `held` wait before their work, those in `answers_held` after it.

    A method always fails for jobs given to `refuse`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: dict[str, set[int]] = {}
        self.broken: dict[str, Exception] = {}
        self.held: dict[str, asyncio.Event] = {}
        self.answers_held: dict[str, asyncio.Event] = {}
        self.calls: list[str] = []
        self.ails: str | None = None
        self.exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def fill_disk(self) -> None:
        """Fail all later writes with a full disk."""
        self.broken |= dict.fromkeys(("add", "claim", "save", "finish"), StorageFull("the disk is full"))

    def refuse(self, method: str, *seqs: int) -> None:
        """Fail every call of a method for one of these jobs."""
        self.refused.setdefault(method, set()).update(seqs)

    def hold(self, method: str) -> asyncio.Event:
        """Make calls of a method wait until the event is set."""
        self.held[method] = asyncio.Event()
        return self.held[method]

    def hold_answer(self, method: str) -> asyncio.Event:
        """Do the work of a method, but make its caller wait until the event is set."""
        self.answers_held[method] = asyncio.Event()
        return self.answers_held[method]

    @contextmanager
    def losing_answers(self, method: str) -> Iterator[None]:
        """Do the work of a method, but fail its caller, as when a disk or a connection breaks just after it."""
        work = getattr(self, method)

        async def lose_answer(*arguments: Any, **others: Any) -> None:
            await work(*arguments, **others)
            raise StoreUnavailable("the answer was lost")

        setattr(self, method, lose_answer)
        try:
            yield
        finally:
            delattr(self, method)

    async def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        await self._before("get", seqs)
        jobs = await super().get(seqs)
        await self._after("get")
        return jobs

    async def holder(self, queue: str, key: str) -> Job | None:
        await self._before("holder")
        return await super().holder(queue, key)

    async def peek(self, seqs: Sequence[int]) -> Peeks:
        await self._before("peek", seqs)
        waiting = await super().peek(seqs)
        await self._after("peek")
        return waiting

    async def due(self, after: tuple[int, int], before: int, limit: int) -> list[tuple[int, int]]:
        await self._before("due")
        entries = await super().due(after, before, limit)
        await self._after("due")
        return entries

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        await self._before("claim", seqs)
        claim = await super().claim(seqs, now=now)
        await self._after("claim")
        return claim

    async def save(self, jobs: Sequence[Job], **others: Any) -> Verdicts:
        await self._before("save", [job.seq for job in jobs])
        verdicts = await super().save(jobs, **others)
        await self._after("save")
        return verdicts

    async def finish(self, endings: Sequence[Ending], **others: Any) -> Verdicts:
        await self._before("finish", [ending.seq for ending in endings])
        verdicts = await super().finish(endings, **others)
        await self._after("finish")
        return verdicts

    async def delete_all(self, jobs: Sequence[Job], **others: Any) -> bool:
        await self._before("delete_all", [job.seq for job in jobs])
        return await super().delete_all(jobs, **others)

    async def ended(
        self, queue: str, state: State, *, after: tuple[Instant, int], before: Instant, limit: int
    ) -> list[tuple[int, int]]:
        await self._before("ended")
        return await super().ended(queue, state, after=after, before=before, limit=limit)

    async def purge(self, seqs: Sequence[int], *, before: Instant) -> list[int]:
        await self._before("purge", seqs)
        return await super().purge(seqs, before=before)

    async def list(self, query: Query) -> list[Job]:
        await self._before("list")
        return await super().list(query)

    async def search(self, query: Query, within: int) -> Found:
        await self._before("list")
        return await super().search(query, within)

    async def tally(self, query: Query, within: int) -> Tally:
        await self._before("list")
        return await super().tally(query, within)

    async def overrides(self) -> dict[str, Override]:
        await self._before("overrides")
        overrides = await super().overrides()
        await self._after("overrides")
        return overrides

    async def settle(self) -> None:
        await self._before("settle")
        await super().settle()

    def status(self) -> str | None:
        return self.ails

    async def end(self) -> Exit:
        return await asyncio.shield(self.exit)

    async def open(self) -> None:
        await self._before("open")

    async def close(self) -> None:
        await self._before("close")

    async def _before(self, method: str, seqs: Sequence[int] = ()) -> None:
        self.calls.append(method)
        if method in self.held:
            await self.held[method].wait()
        if method in self.broken:
            raise self.broken[method]
        if not self.refused.get(method, set()).isdisjoint(seqs):
            raise StoreRefused("damaged")

    async def _after(self, method: str) -> None:
        if method in self.answers_held:
            await self.answers_held[method].wait()
