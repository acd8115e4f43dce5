"""Pages of jobs, and how many match: with filters that no index serves, both read a bounded number of jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.engine.engine import Engine
    from erelong.model.job import Job
    from erelong.model.query import Query

MAX_READ: Final = 20_000
"""The most jobs that one request reads to check filters."""
MAX_PAGE: Final = 8_388_608
"""Bytes of params, results and attempts in a page, beyond which it ends early."""
SLICE: Final = 2_000
"""Jobs read at a time, for some milliseconds, after which others may read."""
SLICE_OF_CAUSES: Final = 1_000


class Page(NamedTuple):
    """A page of jobs, how many were read to find them, and the position after them (None: it is the last page)."""

    jobs: list[Job]
    scanned: int
    after: tuple[Instant, int] | None


class Count(NamedTuple):
    """How many jobs match: exactly, or at least."""

    number: int
    is_exact: bool


EMPTY: Final = Page([], 0, None)
NONE: Final = Count(0, True)


class Listings:
    """Reads listings from the store in slices."""

    def __init__(self, *, engine: Engine) -> None:
        self._store = engine.store

    async def page(self, query: Query) -> Page:
        """Return a page of a listing. It is short if too many jobs have to be read to fill it."""
        jobs: list[Job] = []
        scanned, after = 0, query.after
        while True:
            rest = replace(query, after=after, limit=query.limit - len(jobs))
            found = await self._store.search(rest, min(_slice_of(query), MAX_READ - scanned))
            jobs += found.jobs
            scanned, after = scanned + found.scanned, found.after
            if after is None or len(jobs) >= query.limit or scanned >= MAX_READ:
                return Page(jobs, scanned, after)

    async def count(self, query: Query) -> Count:
        """Count the jobs of all pages. Where no count is kept, count the matches among the first jobs."""
        matches, scanned = 0, 0
        query = replace(query, after=None)
        while True:
            tally = await self._store.tally(query, min(_slice_of(query), MAX_READ - scanned))
            matches, scanned = matches + tally.matches, scanned + tally.scanned
            if tally.after is None or scanned >= MAX_READ:
                return Count(matches, tally.after is None)
            query = replace(query, after=tally.after)


def _slice_of(query: Query) -> int:
    return SLICE if query.residue.cause is None else SLICE_OF_CAUSES
