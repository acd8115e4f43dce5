"""Claiming: due jobs start once, and all other jobs stay unchanged."""

from __future__ import annotations

import pytest

from erelong.model.job import SECOND, State
from erelong.model.query import Query
from erelong.stores.base import Claim, Store, peek_at
from tests.support.builders import ALL, NOW, make_ended, make_job, make_running, put, put_one

pytestmark = pytest.mark.real_loop


async def test_claimed_job_runs_from_now_on(store: Store) -> None:
    job = await put_one(store, delay=1, params={"a": 1}, labels={"b": "c"}, expires_after=60)
    now = NOW + 2_345_678

    claim = await store.claim([job.seq], now=now)

    assert claim == Claim([job.start(now)], [], [])
    assert await store.list(ALL) == claim.jobs


async def test_jobs_are_claimed_in_the_requested_order(store: Store) -> None:
    jobs = await put(store, *(make_job() for _ in range(5)))
    order = [jobs[index].seq for index in (3, 0, 4, 2, 1)]

    claim = await store.claim(order, now=NOW)

    assert [job.seq for job in claim.jobs] == order


async def test_job_is_claimed_at_its_time_not_a_microsecond_before(store: Store) -> None:
    job = await put_one(store, delay=1)

    early = await store.claim([job.seq], now=NOW + SECOND - 1)
    on_time = await store.claim([job.seq], now=NOW + SECOND)

    assert early == Claim([], [(NOW + SECOND, job.seq)], [])
    assert [claimed.late_by for claimed in on_time.jobs] == [0.0]


async def test_job_at_its_expiry_is_not_claimed(store: Store) -> None:
    expired, expiring = await put(store, make_job(expires_after=1), make_job(expires_after=1.000001))

    claim = await store.claim([expired.seq, expiring.seq], now=NOW + SECOND)

    assert [job.seq for job in claim.jobs] == [expiring.seq]
    assert claim.early == []


async def test_unclaimable_jobs_are_absent(store: Store) -> None:
    running, done, cancelled = await put(store, make_running(), make_ended(State.SUCCEEDED), make_job().cancel(NOW))

    claim = await store.claim([running.seq, done.seq, cancelled.seq, 99], now=NOW)

    assert claim == Claim([], [], [])
    assert await store.list(ALL) == [cancelled, done, running]


async def test_job_that_was_moved_is_early(store: Store) -> None:
    job = await put_one(store)
    await store.save([job.move(NOW + 5, NOW)])

    claim = await store.claim([job.seq], now=NOW)

    assert claim == Claim([], [(NOW + 5, job.seq)], [])


async def test_job_is_claimed_once(store: Store) -> None:
    job = await put_one(store)

    first = await store.claim([job.seq], now=NOW)
    second = await store.claim([job.seq], now=NOW)

    assert [claimed.attempt for claimed in first.jobs] == [1]
    assert second == Claim([], [], [])


async def test_running_job_is_not_early_though_the_clock_was_set_back(store: Store) -> None:
    job = await put_one(store, delay=1)
    await store.claim([job.seq], now=NOW + SECOND)

    assert await store.claim([job.seq], now=NOW) == Claim([], [], [])


async def test_claimed_job_is_no_longer_waiting(store: Store) -> None:
    claimed, waiting = await put(store, make_job(), make_job())
    await store.claim([claimed.seq], now=NOW)

    assert await store.peek([claimed.seq, waiting.seq]) == [peek_at(waiting)]
    assert await store.due((-1, -1), NOW + 1, 10) == [(NOW, waiting.seq)]


async def test_repeated_number_is_claimed_once(store: Store) -> None:
    due, early = await put(store, make_job(), make_job(delay=1))

    claim = await store.claim([due.seq, early.seq, due.seq, early.seq], now=NOW)

    assert claim == Claim([due.start(NOW)], [(NOW + SECOND, early.seq)], [])


async def test_claimed_jobs_keep_the_requested_order(store: Store) -> None:
    jobs = await put(store, *(make_job() for _ in range(20)), *(make_job(delay=1) for _ in range(20)))
    seqs = [job.seq for job in jobs[::-1]]

    claim = await store.claim(seqs, now=NOW)

    assert [job.seq for job in claim.jobs] == seqs[20:]
    assert [seq for _, seq in claim.early] == seqs[:20]


async def test_claiming_nothing_is_no_error(store: Store) -> None:
    assert await store.claim([], now=NOW) == Claim([], [], [])


async def test_claimed_job_is_counted_as_running(store: Store) -> None:
    job = await put_one(store, queue="q", kind="k")

    await store.claim([job.seq], now=NOW)

    counts = store.counts()
    assert counts["q", "k", State.SCHEDULED] == 0
    assert counts["q", "k", State.RUNNING] == 1


async def test_claimed_job_is_listed_as_running(store: Store) -> None:
    job = await put_one(store)

    await store.claim([job.seq], now=NOW)

    assert [found.seq for found in await store.list(Query(states=frozenset({State.RUNNING})))] == [job.seq]
    assert await store.due((-1, -1), NOW + 1, 10) == []
