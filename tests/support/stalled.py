"""A memory store whose writer can hang: its calls fail by their timeout, and take effect when it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from erelong.clock.instants import Instant
from erelong.errors import StoreUnavailable
from erelong.model.job import Job
from erelong.model.submission import NewJob, Receipt
from erelong.stores.base import Claim, Ending, Verdicts
from tests.support.faults import FaultyStore

TIMEOUT = 1.0

T = TypeVar("T")


class StalledStore(FaultyStore):
    """Hangs while `goes_on` is not set. Reads still work, and find what was written before."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._writer = asyncio.Lock()  # its waiters take turns in the order in which they came

    async def add(self, new_jobs: Sequence[NewJob], *, now: Instant, **others: Any) -> Receipt:
        return await self._call(super().add(new_jobs, now=now, **others))

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        return await self._call(super().claim(seqs, now=now))

    async def save(self, jobs: Sequence[Job], **others: Any) -> Verdicts:
        return await self._call(super().save(jobs, **others))

    async def finish(self, endings: Sequence[Ending], **others: Any) -> Verdicts:
        return await self._call(super().finish(endings, **others))

    async def settle(self) -> None:
        await self._call(super().settle())

    async def _call(self, work: Coroutine[Any, Any, T]) -> T:
        turn = asyncio.create_task(self._take_turn(work))
        try:
            return await asyncio.wait_for(asyncio.shield(turn), TIMEOUT)
        except TimeoutError:
            raise StoreUnavailable(f"the store did not answer within {TIMEOUT:g} s") from None

    async def _take_turn(self, work: Coroutine[Any, Any, T]) -> T:
        async with self._writer:
            await self.goes_on.wait()
            return await work
