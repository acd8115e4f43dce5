"""Due times and expiries of waiting jobs, page by page."""

from __future__ import annotations

import pytest

from erelong.model.job import SECOND, State
from erelong.stores.base import Store
from tests.support.builders import NOW, make_ended, make_failure, make_job, make_running, put, put_one

pytestmark = pytest.mark.real_loop

START = (-1, -1)
FOREVER = 1 << 62


async def test_waiting_jobs_are_ordered_by_due_time(store: Store) -> None:
    jobs = await put(store, make_job(delay=3), make_job(delay=1), make_job(delay=2))

    instants = await store.due(START, FOREVER, 10)

    assert instants == [(NOW + seconds * SECOND, jobs[index].seq) for seconds, index in ((1, 1), (2, 2), (3, 0))]


async def test_jobs_due_together_are_ordered_by_creation(store: Store) -> None:
    jobs = await put(store, *(make_job() for _ in range(5)))

    assert await store.due(START, FOREVER, 10) == [(NOW, job.seq) for job in jobs]


async def test_only_waiting_jobs_are_due(store: Store) -> None:
    await put(store, make_running(), *(make_ended(state) for state in State if state.is_final))
    retried = await put(store, make_running().finish(make_failure(), NOW, backoff=5))

    assert await store.due(START, FOREVER, 10) == [(NOW + 5 * SECOND, retried[0].seq)]


async def test_job_that_expires_before_it_is_due_is_returned_twice(store: Store) -> None:
    job = await put_one(store, expires_after=2)
    await store.save([job._replace(due_at=NOW + 5 * SECOND, version=2)])

    assert await store.due(START, FOREVER, 10) == [(NOW + 2 * SECOND, job.seq), (NOW + 5 * SECOND, job.seq)]


async def test_expiry_after_the_due_time_is_not_returned(store: Store) -> None:
    job = await put_one(store, delay=1, expires_after=2)

    assert await store.due(START, FOREVER, 10) == [(NOW + SECOND, job.seq)]


async def test_before_is_not_included(store: Store) -> None:
    job = await put_one(store, delay=1)

    assert await store.due(START, NOW + SECOND, 10) == []
    assert await store.due(START, NOW + SECOND + 1, 10) == [(NOW + SECOND, job.seq)]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
async def test_pages_join_without_gap_or_overlap(store: Store, limit: int) -> None:
    jobs = [make_job(delay=number % 3, expires_after=number % 2 + 0.5) for number in range(12)]
    await put(store, *(job._replace(due_at=NOW + number // 2 * SECOND) for number, job in enumerate(jobs)))
    everything = await store.due(START, FOREVER, 100)

    pages = []
    after = START
    while page := await store.due(after, FOREVER, limit):
        assert len(page) <= limit
        pages += page
        after = page[-1]

    assert pages == everything == sorted(set(everything))
    assert len(everything) > 12
