"""Listings merge the ranges of many groups: more is read of those whose jobs come first."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from erelong.model.job import Job, State
from erelong.model.query import Order, Query
from erelong.stores.sqlite.listing import ends, merging, walks
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import NOW, make_ended, make_job, put

pytestmark = pytest.mark.real_loop

FAILED = Query(states=frozenset({State.FAILED}))


async def fill(store: SqliteStore) -> list[Job]:
    """Store failed jobs of many queues, of which one has most of the newest ones; return all, the oldest first."""
    dice = random.Random(7)
    queues = [f"q{number % 12}" for number in range(36)] + [dice.choice(["q3", "q3", "q3", "q9"]) for _ in range(60)]
    jobs = [make_ended(State.FAILED, queue=queue, now=NOW + dice.randrange(50)) for queue in queues]
    return await put(store, *jobs, make_job(queue="q3"))


@pytest.mark.parametrize("limit", [1, 3, 10, 50, 200])
@pytest.mark.parametrize("few", [1, 8])
async def test_newest_jobs_of_many_groups_come_in_order(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch, few: int, limit: int
) -> None:
    monkeypatch.setattr(merging, "FEW", few)
    monkeypatch.setattr(merging, "MERGED_AT_ONCE", 7)
    jobs = [job.seq for job in await fill(sqlite) if job.state is State.FAILED]

    assert await numbers_of(sqlite, replace(FAILED, limit=limit)) == jobs[::-1]


@pytest.mark.parametrize("limit", [1, 10, 200])
@pytest.mark.parametrize("most", [5, 1_000])
async def test_latest_ends_of_many_groups_come_in_order(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch, most: int, limit: int
) -> None:
    monkeypatch.setattr(merging, "FEW", 1)
    monkeypatch.setattr(ends, "MAX_RANGES", most)
    jobs = [job for job in await fill(sqlite) if job.state is State.FAILED]
    ordered = sorted(jobs, key=lambda job: (job.finished_at or 0, job.seq), reverse=True)

    found = await numbers_of(sqlite, replace(FAILED, order=Order.FINISHED, limit=limit))

    assert found == [job.seq for job in ordered]


@pytest.mark.parametrize("many", [2, 100])
async def test_groups_of_most_jobs_are_not_merged(
    sqlite: SqliteStore, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(walks, "MANY_GROUPS", many)
    jobs = [job.seq for job in await fill(sqlite) if job.state is State.FAILED]
    monkeypatch.setattr(walks, "merge", lambda *_: [])

    assert (await numbers_of(sqlite, FAILED) == jobs[::-1]) is (many == 2)


async def numbers_of(store: SqliteStore, query: Query) -> list[int]:
    """Return the numbers of all jobs, page by page."""
    found: list[int] = []
    while page := await store.list(query):
        found += [job.seq for job in page]
        query = replace(query, after=query.position(page[-1]))
    return found
