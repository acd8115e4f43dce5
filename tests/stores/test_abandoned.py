"""Reads after writes that nobody awaited, and of jobs that have just changed: none returns an older version."""

from __future__ import annotations

import asyncio

import pytest

from erelong.model.conflict import OnConflict
from erelong.model.job import SECOND, State
from erelong.model.outcome import End, Outcome
from erelong.model.submission import Receipt
from erelong.stores.base import Ending, Store
from erelong.stores.cache import MAX_AT_ONCE
from tests.support.builders import NOW, make_ended, make_job, make_new_job, purge, put, put_one

pytestmark = pytest.mark.real_loop


async def test_abandoned_call_is_still_done(store: Store) -> None:
    adding = asyncio.ensure_future(put_one(store))
    await asyncio.sleep(0)
    adding.cancel()

    assert (await put_one(store)).seq == 2


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)  # which count in another thread
async def test_counts_may_be_iterated_while_groups_are_added(store: Store) -> None:
    await put_one(store)
    groups = iter(store.counts())

    await put_one(store, queue="new")

    assert next(groups) == ("default", "echo", State.SCHEDULED)


async def test_cached_job_is_never_older_than_an_abandoned_write(store: Store) -> None:
    job = await put_one(store)

    saving = asyncio.ensure_future(store.save([job.start(NOW)]))
    await asyncio.sleep(0)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    await store.settle()

    assert (await store.get([job.seq]))[job.seq].state is State.RUNNING


async def test_cached_job_is_never_older_than_an_abandoned_write_that_overtook_its_own(store: Store) -> None:
    first = make_new_job(key="k")
    second = make_new_job(key="k", priority=9, on_conflict=OnConflict.REPLACE)

    adds = [asyncio.ensure_future(store.add([new_job], now=NOW)) for new_job in (first, second)]
    await asyncio.sleep(0)
    adds[1].cancel()
    (receipt, _) = await asyncio.gather(*adds, return_exceptions=True)
    assert isinstance(receipt, Receipt)
    await store.settle()

    (job,) = [entry.job for entry in receipt.entries if entry is not None]
    assert (await store.get([job.seq]))[job.seq].priority == 9


async def test_cached_job_is_never_older_than_an_abandoned_write_that_overtook_its_end(store: Store) -> None:
    job = await put_one(store)
    ((running,), _, _) = await store.claim([job.seq], now=NOW)
    ending = Ending(running, Outcome(End.CANCELLED), NOW)

    writes = [
        asyncio.ensure_future(store.finish([ending])),
        asyncio.ensure_future(store.save([ending.after.revive(NOW)])),
    ]
    await asyncio.sleep(0)
    writes[1].cancel()
    await asyncio.gather(*writes, return_exceptions=True)
    await store.settle()

    assert (await store.get([job.seq]))[job.seq].state is State.SCHEDULED


async def test_job_changed_while_running_is_read_as_it_ended_among_many(store: Store) -> None:
    jobs = [await put_one(store), *await put(store, *(make_job() for _ in range(MAX_AT_ONCE)))]
    claim = await store.claim([job.seq for job in jobs], now=NOW)
    changed = claim.jobs[0].cancel(NOW)
    await store.save([changed])

    await store.finish([Ending(job, Outcome(End.SUCCEEDED), NOW) for job in [changed, *claim.jobs[1:]]])

    assert [(await store.get([job.seq]))[job.seq].state for job in jobs] == [State.SUCCEEDED] * len(jobs)


async def test_purged_job_is_gone_at_once(store: Store) -> None:
    (job,) = await put(store, make_ended(State.SUCCEEDED))

    await purge(store, job.queue, job.state, before=NOW + 10 * SECOND, limit=10)

    assert await store.get([job.seq]) == {}
