"""The due jobs of a queue in the order in which they start, as its lane knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.duties.lifecycle import Phase
from erelong.errors import NotLeading
from erelong.model.history import NO_ATTEMPTS
from erelong.model.ids import MAX_SEQ
from erelong.model.query import PREVIEW
from erelong.service.overview.listings import MAX_PAGE, MAX_READ

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.engine.engine import Engine
    from erelong.model.job import Job
    from erelong.model.query import Query

ROWS_AT_ONCE: Final = 50
MAX_ENTRIES: Final = 1_000
MARKS: Final = 4
"""Entries in a position: the last ones, since some of them may be cancelled before the position is used."""


class Page(NamedTuple):
    """Jobs in order, how many were read to find them, and the last entries read, after which the next page begins
    (none: it is the last page). It is not complete if due jobs are missing from the end of the order.
    """

    jobs: list[Job]
    scanned: int
    after: Sequence[int]
    is_complete: bool


EMPTY: Final = Page([], 0, (), True)


class Upcoming:
    """Lists the due jobs that the lane of a queue holds. Other nodes hold none."""

    def __init__(self, *, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store
        self._lanes = engine.lanes

    async def page(self, query: Query, after: Sequence[int], *, is_reverse: bool) -> Page:
        """Return a page of the jobs of one queue that match. It is short if they are large, or if too many are read."""
        if self._engine.lifecycle.phase is Phase.STARTING:
            raise NotLeading("this node does not lead, and only the leading one knows which jobs start next")
        (queue,) = query.queues
        jobs, read = _Jobs(query), [*after]
        has_more, is_cut = True, False
        while has_more and not jobs.is_full and len(read) - len(after) < MAX_READ:
            number = min(max(query.limit, len(read)), MAX_ENTRIES)
            found = await self._lanes.upcoming(queue, query.kinds, read[-MARKS:], number, is_reverse=is_reverse)
            taken = await self._read(found.entries, jobs)
            read += found.entries[:taken]
            has_more, is_cut = found.has_more or taken < len(found.entries), found.is_cut
        is_complete = not is_cut and not self._engine.overdue.may_miss(queue)
        return Page(jobs.found, len(read) - len(after), read[-MARKS:] if has_more else (), is_complete)

    async def _read(self, entries: Sequence[int], jobs: _Jobs) -> int:
        """Read the jobs of these entries until the page is full; return how many were read."""
        for start in range(0, len(entries), ROWS_AT_ONCE):
            seqs = [entry % MAX_SEQ for entry in entries[start : start + ROWS_AT_ONCE]]
            stored, now = await self._store.get(seqs), self._engine.now()
            for place, seq in enumerate(seqs, start + 1):
                job = stored.get(seq)
                if job is not None and job.due_at is not None and job.due_at <= now:  # else changed meanwhile
                    jobs.add(job)
                if jobs.is_full:
                    return place
        return len(entries)


class _Jobs:
    """The jobs of a page, with all of their params only if the query asks for these."""

    def __init__(self, query: Query) -> None:
        self.found: list[Job] = []
        self._query = query
        self._size = 0

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self._query.limit or self._size >= MAX_PAGE

    def add(self, job: Job) -> None:
        """Add a job if it matches."""
        if not self._query.matches(job):
            return
        if not self._query.is_full:
            job = job._replace(params=job.params[:PREVIEW], result=None, attempts=NO_ATTEMPTS)
        self._size += len(job.params) + len(job.attempts)
        self.found.append(job)
