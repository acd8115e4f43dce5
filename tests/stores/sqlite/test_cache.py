"""What the embedded store remembers of the jobs written last is what is on disk, and never much."""

from __future__ import annotations

import asyncio

import pytest

from erelong.model.conflict import OnConflict
from erelong.model.job import SECOND, State
from erelong.model.outcome import End, Outcome
from erelong.model.submission import Receipt
from erelong.stores.base import Ending
from erelong.stores.sqlite.cache import MAX_AT_ONCE, MAX_BYTES, MAX_JOBS, Recent
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import NOW, make_ended, make_job, make_new_job, purge, put, put_one


def test_job_that_was_kept_is_found_as_it_was_kept_last() -> None:
    recent, job = Recent(), make_job()._replace(seq=7)

    recent.keep([job, job.start(NOW)], epoch=0)

    assert recent.find([7]) == {7: job.start(NOW)}


def test_nothing_is_found_of_several_jobs_of_which_one_is_not_there() -> None:
    recent = Recent()
    recent.keep([make_job()._replace(seq=7)], epoch=0)

    assert recent.find([7, 8]) is None


def test_job_that_has_grown_large_is_not_found_as_it_was_before() -> None:
    recent, job = Recent(), make_job()._replace(seq=7)
    recent.keep([job], epoch=0)

    recent.keep([job._replace(params=b"x" * MAX_BYTES)], epoch=0)

    assert recent.find([7]) is None


def test_jobs_written_many_at_once_are_not_found_nor_as_they_were_before() -> None:
    recent, jobs = Recent(), [make_job()._replace(seq=seq) for seq in range(MAX_AT_ONCE + 1)]
    recent.keep(jobs[:1], epoch=0)

    recent.keep([job.start(NOW) for job in jobs], epoch=0)

    assert [recent.find([job.seq]) for job in jobs] == [None] * len(jobs)


def test_job_that_was_dropped_is_not_found_however_long_ago_it_was_kept() -> None:
    recent, job = Recent(), make_job()
    for seq in range(MAX_JOBS + 1):
        recent.keep([job._replace(seq=seq)], epoch=0)

    recent.drop([0, MAX_JOBS])

    assert [recent.find([seq]) is None for seq in (0, 1, MAX_JOBS)] == [True, False, True]


def test_a_bounded_number_is_kept_and_those_written_last_are_among_them() -> None:
    recent, job = Recent(), make_job()

    for seq in range(5 * MAX_JOBS):
        recent.keep([job._replace(seq=seq)], epoch=0)

    kept = [seq for seq in range(5 * MAX_JOBS) if recent.find([seq]) is not None]
    assert MAX_JOBS <= len(kept) <= 2 * MAX_JOBS
    assert kept[-MAX_JOBS:] == list(range(4 * MAX_JOBS, 5 * MAX_JOBS))


@pytest.mark.real_loop
async def test_job_is_never_older_than_a_write_that_nobody_waited_for(sqlite: SqliteStore) -> None:
    job = await put_one(sqlite)

    saving = asyncio.ensure_future(sqlite.save([job.start(NOW)]))
    await asyncio.sleep(0)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    await sqlite.save([])  # comes after it in the one writer

    assert (await sqlite.get([job.seq]))[job.seq].state is State.RUNNING


@pytest.mark.real_loop
async def test_job_is_never_older_than_a_write_that_overtook_its_own_and_was_given_up(sqlite: SqliteStore) -> None:
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
async def test_job_is_never_older_than_a_write_that_overtook_its_end_and_was_given_up(sqlite: SqliteStore) -> None:
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
async def test_job_that_was_changed_while_it_ran_is_found_as_it_ended_with_many_others(sqlite: SqliteStore) -> None:
    jobs = [await put_one(sqlite), *await put(sqlite, *(make_job() for _ in range(MAX_AT_ONCE)))]
    claim = await sqlite.claim([job.seq for job in jobs], now=NOW)
    changed = claim.jobs[0].cancel(NOW)
    await sqlite.save([changed])

    await sqlite.finish([Ending(job, Outcome(End.SUCCEEDED), NOW) for job in [changed, *claim.jobs[1:]]])

    assert [(await sqlite.get([job.seq]))[job.seq].state for job in jobs] == [State.SUCCEEDED] * len(jobs)


@pytest.mark.real_loop
async def test_job_that_was_purged_is_gone_at_once(sqlite: SqliteStore) -> None:
    (job,) = await put(sqlite, make_ended(State.SUCCEEDED))

    await purge(sqlite, job.queue, job.state, before=NOW + 10 * SECOND, limit=10)

    assert await sqlite.get([job.seq]) == {}
