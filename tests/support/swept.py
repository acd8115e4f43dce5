"""A memory store whose n-th write fails, before or after its work."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from erelong.clock.instants import Instant
from erelong.errors import StorageFull, StoreUnavailable
from erelong.model.job import Job
from erelong.model.submission import NewJob, Receipt
from erelong.stores.base import Claim, Ending, Override, Saved, Verdicts
from erelong.stores.memory import MemoryStore

T = TypeVar("T")


class Fault(StrEnum):
    """How a write fails. A full disk changes nothing, so it has no `after`."""

    FULL = "full disk"
    BEFORE = "I/O error, not done"
    AFTER = "I/O error, done"


class SweptStore(MemoryStore):
    """Fails only its `nth` write; `failed` is the name of that write."""

    def __init__(self, *, nth: int, fault: Fault) -> None:
        super().__init__()
        self._nth = nth
        self._fault = fault
        self.writes = 0
        self.failed = ""

    def heal(self) -> None:
        """Stop failing writes."""
        self._nth = 0

    def left_by_a_crash(self) -> SweptStore:
        """Return a copy for the next process, unaffected by this one."""
        left = type(self)(nth=0, fault=self._fault)
        left._jobs, left._counts = self._jobs.copy(), self._counts.copy()
        left._overrides, left._records, left._last_seq = self._overrides.copy(), self._records.copy(), self._last_seq
        left._documents = self._documents.copy()
        return left

    def snapshot(self) -> dict[str, Job]:
        return {job.id: job for job in self._jobs.values()}

    async def add(self, new_jobs: Sequence[NewJob], **others: Any) -> Receipt:
        return await self._write("add", super().add(new_jobs, **others))

    async def claim(self, seqs: Sequence[int], *, now: Instant) -> Claim:
        return await self._write("claim", super().claim(seqs, now=now))

    async def save(self, jobs: Sequence[Job], **others: Any) -> Verdicts:
        return await self._write("save", super().save(jobs, **others))

    async def finish(self, endings: Sequence[Ending], **others: Any) -> Verdicts:
        return await self._write("finish", super().finish(endings, **others))

    async def delete(self, job: Job, **others: Any) -> Saved:
        return await self._write("delete", super().delete(job, **others))

    async def delete_all(self, jobs: Sequence[Job], **others: Any) -> bool:
        return await self._write("delete_all", super().delete_all(jobs, **others))

    async def purge(self, seqs: Sequence[int], *, before: Instant) -> list[int]:
        return await self._write("purge", super().purge(seqs, before=before))

    async def forget_records(self, *, now: Instant, limit: int) -> int:
        return await self._write("forget_records", super().forget_records(now=now, limit=limit))

    async def override(self, queue: str, override: Override | None) -> None:
        await self._write("override", super().override(queue, override))

    async def _write(self, name: str, work: Awaitable[T]) -> T:
        self.writes += 1
        is_it = self.writes == self._nth
        if is_it:
            self.failed = name
        if is_it and self._fault is not Fault.AFTER:
            work.close()  # type: ignore[attr-defined]  # a coroutine warns if it is never awaited
            raise StorageFull("no room") if self._fault is Fault.FULL else StoreUnavailable("not written")
        answer = await work
        if is_it:
            raise StoreUnavailable("written, and then the disk failed")
        return answer
