"""Finds the jobs that match a filter, newest first, a page at a time."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.stores.base import get_readable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.model.job import Job
    from erelong.model.operations.filters import Filter
    from erelong.stores.base import Store

PAGE: Final = 1_000
SIFTED: Final = 250  # jobs that are read to check them: for a millisecond, in which others wait for the interpreter


class Page(NamedTuple):
    """Matching jobs, and the number below which the search goes on (0: it is over)."""

    jobs: Sequence[Job]
    below: int


async def find_page(store: Store, conditions: Filter, below: int, limit: int, *, is_full: bool = False) -> Page:
    """Return up to `limit` matching jobs with numbers below `below`; there may be none though the search goes on.

    Jobs are without params unless `is_full`.
    """
    if conditions.jobs is None:
        query = replace(conditions.page(below, limit), is_full=is_full)
        found = await store.search(query, _read_at_once(conditions))
        return Page(found.jobs, found.after[1] if found.after else 0)
    seen = SIFTED if conditions.query.residue else limit
    seqs = [*islice((seq for seq in conditions.jobs if seq < below), seen)]
    stored = await get_readable(store, seqs)
    jobs = [job for seq in seqs if (job := stored.get(seq)) and conditions.matches(job)]
    if len(jobs) > limit:
        return Page(jobs[:limit], jobs[limit - 1].seq)
    return Page(jobs, seqs[-1] if len(seqs) == seen else 0)


async def count_page(store: Store, conditions: Filter, below: int) -> tuple[int, int]:
    """Count matching jobs with numbers below `below`; return their number, and where the count goes on (0: it is over).

    Jobs that were submitted later do not count.
    """
    if conditions.jobs is not None:
        page = await find_page(store, conditions, below, SIFTED)
        return len(page.jobs), page.below
    most = _read_at_once(conditions)
    tally = await store.tally(conditions.page(below, most), most)
    return tally.matches, tally.after[1] if tally.after else 0


def _read_at_once(conditions: Filter) -> int:
    return SIFTED if conditions.query.residue else PAGE


async def held_keys(store: Store, jobs: Sequence[Job]) -> set[tuple[str, str]]:
    """Return the keys of these jobs that live jobs hold, each with its queue."""
    held: set[tuple[str, str]] = set()
    for job in jobs:
        if job.key is not None and await store.holder(job.queue, job.key) is not None:
            held.add((job.queue, job.key))
    return held
