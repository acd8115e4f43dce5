"""Adding jobs: their numbers, their keys, and all or nothing."""

from __future__ import annotations

import asyncio

import pytest

from erelong.model.conflict import OnConflict
from erelong.model.job import State
from erelong.model.query import Query
from erelong.model.submission import AddResult, AddStatus, NewJob, Receipt
from erelong.stores.base import Store
from erelong.stores.memory import MemoryStore
from tests.support.builders import ALL, NOW, make_ended, make_job, make_new_job, put, put_one, statuses

pytestmark = pytest.mark.real_loop

LATER = NOW + 1_000_000
KEPT = [OnConflict.REJECT, OnConflict.KEEP]


async def test_added_job_is_returned_unchanged(store: Store) -> None:
    job = make_job(
        kind="http", queue="q", params={"a": "ü"}, key="k", labels={"b": "c"}, priority=-5, delay=0.1, expires_after=9.5
    )

    (added,) = await put(store, job)

    assert added == job._replace(seq=added.seq)
    assert await store.get([added.seq]) == {added.seq: added}


async def test_each_job_gets_the_next_number(store: Store) -> None:
    first = await put(store, make_job(), make_job(key="k"))
    second = await put(store, make_job())

    assert [job.seq for job in first + second] == [1, 2, 3]


async def test_adding_nothing_is_no_error(store: Store) -> None:
    assert await store.add([], now=NOW) == Receipt([])


@pytest.mark.parametrize("state", [state for state in State if state.is_final])
async def test_job_that_has_ended_can_be_added(store: Store, state: State) -> None:
    (job,) = await put(store, make_ended(state, labels={"a": "b"}))

    assert (await store.get([job.seq]))[job.seq] == job


async def test_same_key_in_another_queue_is_free(store: Store) -> None:
    await put(store, make_job(key="k", queue="a"), make_job(key="k", queue="b"))

    assert len(await store.list(Query(key="k"))) == 2


async def test_jobs_without_a_key_never_conflict(store: Store) -> None:
    assert len(await put(store, make_job(), make_job(), make_job())) == 3


async def test_taken_key_is_a_conflict_that_shows_its_holder(store: Store) -> None:
    holder = await put_one(store, key="k")

    receipt = await store.add([make_new_job(key="k", params={"new": 1})], now=NOW)

    assert receipt == Receipt([AddResult(AddStatus.CONFLICT, holder)])
    assert await store.list(ALL) == [holder]


async def test_keep_returns_the_holder(store: Store) -> None:
    holder = await put_one(store, key="k")

    receipt = await store.add([make_new_job(key="k", on_conflict=OnConflict.KEEP)], now=NOW)

    assert receipt == Receipt([AddResult(AddStatus.EXISTS, holder)])
    assert await store.list(ALL) == [holder]


async def test_replace_puts_the_new_content_under_the_old_id(store: Store) -> None:
    holder = await put_one(store, key="k", labels={"old": "1"})
    new_job = make_new_job(key="k", kind="http", params={"new": 1}, labels={"new": "1"}, on_conflict=OnConflict.REPLACE)

    receipt = await store.add([new_job], now=LATER)

    replaced = new_job.job._replace(
        seq=holder.seq, token=holder.token, created_at=holder.created_at, version=holder.version + 1
    )
    assert receipt == Receipt([AddResult(AddStatus.CHANGED, replaced)])
    assert await store.list(ALL) == [replaced]
    assert await store.list(Query(labels={"new": "1"}, is_full=True)) == [replaced]
    assert await store.list(Query(labels={"old": "1"})) == []


async def test_reschedule_moves_only_the_time(store: Store) -> None:
    holder = await put_one(store, key="k", params={"old": 1})
    new_job = make_new_job(key="k", delay=60, params={"new": 1}, on_conflict=OnConflict.RESCHEDULE)

    receipt = await store.add([new_job], now=LATER)

    moved = holder.move(new_job.job.execute_at, LATER)
    assert receipt == Receipt([AddResult(AddStatus.CHANGED, moved)])
    assert await store.list(ALL) == [moved]


@pytest.mark.parametrize("state", [state for state in State if state.is_final])
async def test_key_is_free_again_when_its_job_has_ended(store: Store, state: State) -> None:
    await put(store, make_ended(state, key="k"))

    receipt = await store.add([make_new_job(key="k")], now=NOW)

    assert statuses(receipt) == [AddStatus.ADDED]


async def test_jobs_of_one_call_are_added_in_their_order(store: Store) -> None:
    held = await put_one(store, key="held")
    policies = [
        ("a", "reject"),
        (None, "reject"),
        ("held", "replace"),
        ("b", "reject"),
        ("a", "keep"),
        ("held", "keep"),
    ]

    receipt = await store.add(
        [make_new_job(key=key, on_conflict=OnConflict(policy)) for key, policy in policies], now=NOW
    )

    added = [entry.job for entry in receipt.entries if entry is not None]
    first = added[0].seq
    assert [str(status) for status in statuses(receipt)] == ["added", "added", "changed", "added", "exists", "exists"]
    assert [job.seq for job in added] == [first, first + 1, held.seq, first + 2, first, held.seq]
    assert await store.get([job.seq for job in added]) == {job.seq: job for job in added}


@pytest.mark.parametrize(
    ("on_conflict", "status", "version"),
    [
        (OnConflict.REJECT, AddStatus.CONFLICT, 1),
        (OnConflict.KEEP, AddStatus.EXISTS, 1),
        (OnConflict.REPLACE, AddStatus.CHANGED, 2),
        (OnConflict.RESCHEDULE, AddStatus.CHANGED, 2),
    ],
)
async def test_two_jobs_of_one_add_conflict_like_two_adds(
    store: Store, on_conflict: OnConflict, status: AddStatus, version: int
) -> None:
    receipt = await store.add([make_new_job(key="k"), make_new_job(key="k", on_conflict=on_conflict)], now=NOW)

    first, second = receipt.entries
    assert first is not None
    assert second is not None
    assert (first.status, second.status) == (AddStatus.ADDED, status)
    assert (second.job.id, second.job.version) == (first.job.id, version)
    assert await store.list(ALL) == [second.job]


POLICIES = [*OnConflict]


async def test_adds_at_once_have_the_results_of_adds_in_turn(store: Store) -> None:
    held = await put(store, make_job(key="held", queue="a"), make_job(key="held", queue="b"))
    new_jobs = [
        make_new_job(key=key, queue=queue, params={"index": index}, on_conflict=POLICIES[index % len(POLICIES)])
        for index, (key, queue) in enumerate(
            [(None, "a"), ("held", "a"), ("new", "a"), ("new", "b"), ("new", "a"), (None, "b"), ("held", "b")] * 3
        )
    ]

    at_once = await asyncio.gather(
        *(store.add([new_job], now=NOW + index) for index, new_job in enumerate(new_jobs)),
        store.add(new_jobs[:3], now=LATER),
    )

    other = MemoryStore()
    await other.open()
    await put(other, *[job._replace(seq=0) for job in held])
    in_turn = [await other.add([new_job], now=NOW + index) for index, new_job in enumerate(new_jobs)]
    in_turn.append(await other.add(new_jobs[:3], now=LATER))
    assert at_once == in_turn
    assert {status for receipt in at_once for status in statuses(receipt)} == {*AddStatus}
    assert await store.list(ALL) == await other.list(ALL)


async def test_conflict_does_not_stop_the_other_jobs(store: Store) -> None:
    holder = await put_one(store, key="k")

    receipt = await store.add([make_new_job(), make_new_job(key="k"), make_new_job()], now=NOW)

    assert statuses(receipt) == [AddStatus.ADDED, AddStatus.CONFLICT, AddStatus.ADDED]
    assert [job.seq for job in await store.list(ALL)] == [holder.seq + 2, holder.seq + 1, holder.seq]


async def test_whole_add_with_a_conflict_stores_and_changes_nothing(store: Store) -> None:
    taken = await put_one(store, key="taken")
    changed = await put_one(store, key="changed", labels={"old": "1"})
    counts = dict(store.counts())
    new_jobs = [
        make_new_job(key="new", queue="new", labels={"new": "1"}),
        make_new_job(key="changed", labels={"new": "1"}, on_conflict=OnConflict.REPLACE),
        make_new_job(key="taken"),
    ]

    receipt = await store.add(new_jobs, now=NOW, is_whole=True)

    assert statuses(receipt) == [AddStatus.ADDED, AddStatus.CHANGED, AddStatus.CONFLICT]
    assert await store.list(ALL) == [changed, taken]
    assert await store.list(Query(labels={"new": "1"})) == []
    assert {group: jobs for group, jobs in store.counts().items() if jobs} == counts


async def test_whole_add_reports_every_conflict(store: Store) -> None:
    await put(store, make_job(key="a"), make_job(key="b"))

    receipt = await store.add([make_new_job(key=key) for key in "acb"], now=NOW, is_whole=True)

    assert statuses(receipt) == [AddStatus.CONFLICT, AddStatus.ADDED, AddStatus.CONFLICT]


async def test_whole_add_without_a_conflict_stores_all(store: Store) -> None:
    receipt = await store.add([make_new_job(key="a"), make_new_job()], now=NOW, is_whole=True)

    assert statuses(receipt) == [AddStatus.ADDED, AddStatus.ADDED]
    assert len(await store.list(ALL)) == 2


async def test_key_of_an_undone_add_is_free(store: Store) -> None:
    await put(store, make_job(key="taken"))
    await store.add([make_new_job(key="k"), make_new_job(key="taken")], now=NOW, is_whole=True)

    receipt = await store.add([make_new_job(key="k")], now=NOW)

    assert statuses(receipt) == [AddStatus.ADDED]


async def test_get_leaves_out_the_unknown(store: Store) -> None:
    job = await put_one(store)

    assert await store.get([0, job.seq, 99, job.seq]) == {job.seq: job}
    assert await store.get([]) == {}


async def test_many_jobs_are_added_in_one_call(store: Store) -> None:
    receipt = await store.add([NewJob(make_job(queue=str(number % 3))) for number in range(2_500)], now=NOW)

    assert [entry.job.seq for entry in receipt.entries if entry] == list(range(1, 2_501))


async def test_each_of_many_jobs_is_stored_unchanged(store: Store) -> None:
    new_jobs = [
        make_new_job(queue="ab"[number % 2], params={"n": number}, priority=number % 10) for number in range(150)
    ]

    receipt = await store.add(new_jobs, now=NOW)

    added = [entry.job for entry in receipt.entries if entry is not None]
    assert [job._replace(seq=0) for job in added] == [new_job.job for new_job in new_jobs]
    assert await store.list(ALL) == added[::-1]


async def test_jobs_are_unchanged_after_a_refused_whole_add(store: Store) -> None:
    moved, _ = await put(store, make_job(key="moved"), make_job(key="kept"))
    new_jobs = [
        make_new_job(key="moved", delay=9, on_conflict=OnConflict.RESCHEDULE),
        make_new_job(),
        make_new_job(key="kept", on_conflict=OnConflict.REJECT),
    ]

    refused = await store.add(new_jobs, now=NOW, is_whole=True)

    assert refused.entries[2] is not None
    assert refused.entries[2].status is AddStatus.CONFLICT
    seqs = [entry.job.seq for entry in refused.entries if entry is not None]
    assert {**await store.get(seqs[:1]), **await store.get(seqs[1:2])} == {moved.seq: moved}
