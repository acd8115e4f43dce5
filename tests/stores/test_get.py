"""get and peek: reading jobs by number."""

from __future__ import annotations

import asyncio

import pytest

from erelong.model.job import SECOND, Job, State
from erelong.stores.base import Ending, Peeks, Store, peek_at
from tests.support.builders import NOW, make_ended, make_failure, make_job, make_running, put, put_one

pytestmark = pytest.mark.real_loop


async def test_get_returns_all_states_without_unknown_jobs(store: Store) -> None:
    jobs = await put(store, make_job(labels={"a": "b"}), make_running(), make_ended(State.FAILED))

    assert await store.get([*(job.seq for job in jobs), 99]) == {job.seq: job for job in jobs}


async def test_peek_returns_waiting_jobs(store: Store) -> None:
    waiting, labelled, *_ = await put(
        store,
        make_job(priority=3, expires_after=60),
        make_job(queue="other", kind="http", labels={"tenant": "t1"}),
        make_running(),
        make_ended(State.CANCELLED),
    )

    assert await store.peek([4, 3, 2, 1, 99]) == [peek_at(labelled), peek_at(waiting)]


async def test_peek_follows_every_change_of_a_job(store: Store) -> None:
    job = await put_one(store, priority=3, labels={"tenant": "t1"})
    peeks = [await peek_twice(store, job)]
    moved = job.move(NOW + SECOND, NOW)._replace(version=2)
    await store.save([moved])
    peeks.append(await peek_twice(store, job))
    (claimed,) = (await store.claim([job.seq], now=NOW + SECOND)).jobs
    peeks.append(await peek_twice(store, job))
    ending = Ending(claimed, make_failure(), NOW + SECOND, 60.0)
    await store.finish([ending])
    peeks.append(await peek_twice(store, job))
    await store.delete(ending.after)
    peeks.append(await peek_twice(store, job))

    assert peeks == [[peek_at(job)], [peek_at(moved)], [], [peek_at(ending.after)], []]


async def peek_twice(store: Store, job: Job) -> Peeks:
    """Peek at a job among those written last, and beside an unknown one: these are read from the disk."""
    cached, stored = await store.peek([job.seq]), await store.peek([job.seq, 99])
    assert cached == stored
    return stored


async def test_gets_at_once_return_each_its_own_jobs(store: Store) -> None:
    jobs = await put(store, *[make_job(params={"index": index}) for index in range(5)])
    wanted = [[jobs[0].seq], [99], [jobs[3].seq], [jobs[1].seq, 99, jobs[2].seq], [jobs[4].seq], [jobs[0].seq]]

    found = await asyncio.gather(*map(store.get, wanted))

    assert found == [{job.seq: job for job in jobs if job.seq in seqs} for seqs in wanted]
