"""The cache of the embedded store: it is bounded, and its jobs are those on disk."""

from __future__ import annotations

import asyncio

import pytest

from erelong.model.conflict import OnConflict
from erelong.model.job import SECOND, State
from erelong.model.outcome import End, Outcome
from erelong.model.submission import Receipt
from erelong.stores.base import Ending
from erelong.stores.cache import MAX_AT_ONCE, MAX_BYTES, MAX_JOBS, JobCache
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import NOW, make_ended, make_job, make_new_job, purge, put, put_one


def test_cached_job_is_found_in_its_last_version() -> None:
    cache, job = JobCache(), make_job()._replace(seq=7)

    cache.keep([job, job.start(NOW)], epoch=0)

    assert cache.find([7]) == {7: job.start(NOW)}


def test_jobs_are_found_only_if_all_are_cached() -> None:
    cache = JobCache()
    cache.keep([make_job()._replace(seq=7)], epoch=0)

    assert cache.find([7, 8]) is None


def test_job_that_grew_too_large_is_not_found_in_its_old_version() -> None:
    cache, job = JobCache(), make_job()._replace(seq=7)
    cache.keep([job], epoch=0)

    cache.keep([job._replace(params=b"x" * MAX_BYTES)], epoch=0)

    assert cache.find([7]) is None


def test_job_with_large_extras_is_not_cached() -> None:
    cache, job = JobCache(), make_job(extras={"submitted_by": "x" * MAX_BYTES})._replace(seq=7)

    cache.keep([job], epoch=0)

    assert cache.find([7]) is None


def test_jobs_of_a_large_write_are_not_found_in_any_version() -> None:
    cache, jobs = JobCache(), [make_job()._replace(seq=seq) for seq in range(MAX_AT_ONCE + 1)]
    cache.keep(jobs[:1], epoch=0)

    cache.keep([job.start(NOW) for job in jobs], epoch=0)

    assert [cache.find([job.seq]) for job in jobs] == [None] * len(jobs)


def test_dropped_job_is_not_found_in_either_half() -> None:
    cache, job = JobCache(), make_job()
    for seq in range(MAX_JOBS + 1):
        cache.keep([job._replace(seq=seq)], epoch=0)

    cache.drop([0, MAX_JOBS])

    assert [cache.find([seq]) is None for seq in (0, 1, MAX_JOBS)] == [True, False, True]


def test_cache_is_bounded_and_has_the_latest_writes() -> None:
    cache, job = JobCache(), make_job()

    for seq in range(5 * MAX_JOBS):
        cache.keep([job._replace(seq=seq)], epoch=0)

    kept = [seq for seq in range(5 * MAX_JOBS) if cache.find([seq]) is not None]
    assert MAX_JOBS <= len(kept) <= 2 * MAX_JOBS
    assert kept[-MAX_JOBS:] == list(range(4 * MAX_JOBS, 5 * MAX_JOBS))


@pytest.mark.real_loop
async def test_cached_job_is_never_older_than_an_abandoned_write(sqlite: SqliteStore) -> None:
    job = await put_one(sqlite)

    saving = asyncio.ensure_future(sqlite.save([job.start(NOW)]))
    await asyncio.sleep(0)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    await sqlite.save([])  # comes after it in the one writer

    assert (await sqlite.get([job.seq]))[job.seq].state is State.RUNNING


@pytest.mark.real_loop
async def test_cached_job_is_never_older_than_an_abandoned_write_that_overtook_its_own(sqlite: SqliteStore) -> None:
    first = make_new_job(key="k")
    second = make_new_job(key="k", priority=9, on_conflict=OnConflict.REPLACE)

    adds = [asyncio.ensure_future(sqlite.add([new_job], now=NOW)) for new_job in (first, second)]
    await asyncio.sleep(0)
    adds[1].cancel()
    (receipt, _) = await asyncio.gather(*adds, return_exceptions=True)
    assert isinstance(receipt, Receipt)
    await sqlite.save([])  # comes after both in the one writer

    (job,) = [entry.job for entry in receipt.entries if entry is not None]
    assert (await sqlite.get([job.seq]))[job.seq].priority == 9


@pytest.mark.real_loop
async def test_cached_job_is_never_older_than_an_abandoned_write_that_overtook_its_end(sqlite: SqliteStore) -> None:
    job = await put_one(sqlite)
    ((running,), _, _) = await sqlite.claim([job.seq], now=NOW)
    ending = Ending(running, Outcome(End.CANCELLED), NOW)

    writes = [
        asyncio.ensure_future(sqlite.finish([ending])),
        asyncio.ensure_future(sqlite.save([ending.after.revive(NOW)])),
    ]
    await asyncio.sleep(0)
    writes[1].cancel()
    await asyncio.gather(*writes, return_exceptions=True)
    await sqlite.save([])  # comes after both in the one writer

    assert (await sqlite.get([job.seq]))[job.seq].state is State.SCHEDULED


@pytest.mark.real_loop
async def test_job_changed_while_running_is_read_as_it_ended_among_many(sqlite: SqliteStore) -> None:
    jobs = [await put_one(sqlite), *await put(sqlite, *(make_job() for _ in range(MAX_AT_ONCE)))]
    claim = await sqlite.claim([job.seq for job in jobs], now=NOW)
    changed = claim.jobs[0].cancel(NOW)
    await sqlite.save([changed])

    await sqlite.finish([Ending(job, Outcome(End.SUCCEEDED), NOW) for job in [changed, *claim.jobs[1:]]])

    assert [(await sqlite.get([job.seq]))[job.seq].state for job in jobs] == [State.SUCCEEDED] * len(jobs)


@pytest.mark.real_loop
async def test_purged_job_is_gone_at_once(sqlite: SqliteStore) -> None:
    (job,) = await put(sqlite, make_ended(State.SUCCEEDED))

    await purge(sqlite, job.queue, job.state, before=NOW + 10 * SECOND, limit=10)

    assert await sqlite.get([job.seq]) == {}
