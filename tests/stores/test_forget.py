"""Forgetting jobs: one by one, and those that have been kept long enough."""

from __future__ import annotations

import pytest

from erelong.model.job import SECOND, State
from erelong.model.query import Query
from erelong.model.submission import AddStatus
from erelong.stores.base import Saved, Store
from tests.support.builders import (
    ALL,
    NOW,
    make_ended,
    make_job,
    make_new_job,
    make_running,
    purge,
    put,
    put_one,
    statuses,
)

pytestmark = pytest.mark.real_loop


async def test_deleted_job_is_gone(store: Store) -> None:
    job = await put_one(store, labels={"a": "b"}, key="k")

    assert await store.delete(job) == Saved(True, None)

    assert await store.get([job.seq]) == {}
    assert await store.list(Query(labels={"a": "b"})) == []
    assert await store.list(Query(key="k")) == []
    assert await store.due((-1, -1), 1 << 62, 10) == []


async def test_job_is_deleted_once(store: Store) -> None:
    job = await put_one(store)

    assert [await store.delete(job), await store.delete(job)] == [Saved(True, None), Saved(False, None)]


async def test_job_that_has_changed_is_not_deleted(store: Store) -> None:
    job = await put_one(store, delay=60)
    changed = job.run_now(NOW)
    await store.save([changed])

    assert await store.delete(job) == Saved(False, changed)
    assert len(await store.list(ALL)) == 1


async def test_another_job_under_the_same_number_is_not_deleted(store: Store) -> None:
    job = await put_one(store)

    assert await store.delete(make_job(seq=job.seq)) == Saved(False, job)


async def test_key_of_a_deleted_job_is_free(store: Store) -> None:
    job = await put_one(store, key="k")
    await store.delete(job)

    assert statuses(await store.add([make_new_job(key="k")], now=NOW)) == [AddStatus.ADDED]


async def test_deleted_job_is_not_claimed(store: Store) -> None:
    job = await put_one(store)
    await store.delete(job)

    assert (await store.claim([job.seq], now=NOW)).jobs == []


async def test_number_of_a_deleted_job_is_not_reused(store: Store) -> None:
    job = await put_one(store)
    await store.delete(job)

    assert (await put_one(store)).seq > job.seq


async def test_purge_deletes_jobs_that_ended_before(store: Store) -> None:
    jobs = await put(store, *(make_ended(State.FAILED, now=NOW + number, labels={"a": "b"}) for number in range(4)))

    gone = await purge(store, "default", State.FAILED, before=NOW + 2, limit=100)

    assert gone == 2
    assert await store.list(ALL) == [jobs[3], jobs[2]]
    assert [job.seq for job in await store.list(Query(labels={"a": "b"}))] == [jobs[3].seq, jobs[2].seq]


async def test_purge_leaves_other_queues_and_states(store: Store) -> None:
    await put(
        store,
        make_job(),
        make_running(),
        make_ended(State.SUCCEEDED),
        make_ended(State.FAILED, queue="other"),
        make_ended(State.FAILED, kind="http"),
        make_ended(State.CANCELLED),
    )

    gone = await purge(store, "default", State.FAILED, before=NOW + SECOND, limit=100)

    assert gone == 1
    assert len(await store.list(ALL)) == 5


@pytest.mark.parametrize("state", [State.SCHEDULED, State.RUNNING])
async def test_purge_never_deletes_a_live_job(store: Store, state: State) -> None:
    await put(store, make_job(), make_running())

    assert await purge(store, "default", state, before=NOW + SECOND, limit=100) == 0


async def test_purge_deletes_the_oldest_first_up_to_the_limit(store: Store) -> None:
    jobs = await put(store, *(make_ended(State.FAILED, now=NOW + age) for age in (3, 1, 2)))

    gone = await purge(store, "default", State.FAILED, before=NOW + 9, limit=2)

    assert gone == 2
    assert await store.list(ALL) == [jobs[0]]


@pytest.mark.parametrize("how", ["retried", "deleted", "young"])
async def test_purge_leaves_a_job_that_has_not_ended_before(store: Store, how: str) -> None:
    """A job may change between the listing and the purge."""
    (job,) = await put(store, make_ended(State.FAILED, now=NOW + (5 if how == "young" else 0)))
    match how:
        case "retried":
            await store.save([job.revive(NOW)])
        case "deleted":
            await store.delete(job)

    assert await store.purge([job.seq, 99], before=NOW + 3) == []
    assert len(await store.list(ALL)) == (how != "deleted")


async def test_ended_jobs_are_paged_oldest_first(store: Store) -> None:
    jobs = await put(store, *(make_ended(State.FAILED, now=NOW + age) for age in (3, 1, 2, 2, 9)))

    first = await store.ended("default", State.FAILED, after=(-1, -1), before=NOW + 9, limit=2)
    rest = await store.ended("default", State.FAILED, after=first[-1], before=NOW + 9, limit=9)

    assert first == [(NOW + 1, jobs[1].seq), (NOW + 2, jobs[2].seq)]
    assert rest == [(NOW + 2, jobs[3].seq), (NOW + 3, jobs[0].seq)]


async def test_purge_reports_when_nothing_is_left(store: Store) -> None:
    await put(store, *(make_ended(State.FAILED) for _ in range(3)))

    gone = [await purge(store, "default", State.FAILED, before=NOW + 1, limit=2) for _ in range(3)]

    assert gone == [2, 1, 0]
