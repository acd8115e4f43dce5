"""A memory store with random delays before each operation and before its return."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from erelong.clock.instants import Instant
from erelong.model.job import Job
from erelong.model.submission import NewJob, Receipt
from erelong.stores.base import Saved
from tests.support.faults import FaultyStore


class DawdlingStore(FaultyStore):
    def __init__(self, *, chance: random.Random, longest: float = 0.03) -> None:
        super().__init__()
        self._chance = chance
        self._longest = longest

    def snapshot(self, seq: int) -> Job | None:
        return self._jobs.get(seq)

    def peek_all(self) -> list[Job]:
        return [*self._jobs.values()]

    def copy_from(self, other: DawdlingStore) -> None:
        """Take over the contents of another store, as a service does after a kill."""
        self._jobs, self._last_seq = other._jobs.copy(), other._last_seq
        self._recount()

    async def add(self, new_jobs: Sequence[NewJob], *, now: Instant, **options: Any) -> Receipt:
        await self._before("add")
        receipt = await super().add(new_jobs, now=now, **options)
        await self._after("add")
        return receipt

    async def delete(self, job: Job, **others: Any) -> Saved:
        await self._before("delete")
        saved = await super().delete(job, **others)
        await self._after("delete")
        return saved

    async def _before(self, method: str, seqs: Sequence[int] = ()) -> None:
        await super()._before(method, seqs)
        await self._dawdle()

    async def _after(self, method: str) -> None:
        await super()._after(method)
        await self._dawdle()

    async def _dawdle(self) -> None:
        draw = self._chance.random()
        if draw < 0.3:
            await asyncio.sleep(self._chance.random() * self._chance.choice([0.001, 0.004, self._longest]))
        elif draw < 0.6:
            for _ in range(self._chance.randrange(1, 5)):
                await asyncio.sleep(0)
