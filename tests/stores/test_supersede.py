"""A new job that takes the key of a running one: both are stored at once, and the running attempt can still end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from erelong.model.conflict import OnConflict
from erelong.model.job import Job, State
from erelong.model.outcome import End, Error, Outcome
from erelong.model.query import Query
from erelong.model.submission import AddResult, AddStatus, IdempotencyRecord, Receipt
from erelong.stores.base import Ending, Saved, Store
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, NOW, count_both, make_failure, make_job, make_new_job, put, put_one, statuses

pytestmark = pytest.mark.real_loop

TAKEOVERS = [OnConflict.REPLACE, OnConflict.RESCHEDULE]
REPLACE = OnConflict.REPLACE
OUTCOMES = {
    "with nothing to say": Outcome(End.SUCCEEDED),
    "with a result": Outcome(End.SUCCEEDED, b'{"x":1.5}'),
    "failed": make_failure(),
    "timed out": Outcome(End.TIMEOUT),
    "crashed": Outcome(End.CRASHED),
    "lost": Outcome(End.LOST),
    "lost with its lease": Outcome(End.LOST, error=Error("lost", "its lease ran out")),
    "released": Outcome(End.RELEASED),
    "cancelled": Outcome(End.CANCELLED),
}


async def begin(store: Store, **fields: Any) -> Job:
    job = await put_one(store, key="k", **fields)
    (running,) = (await store.claim([job.seq], now=NOW)).jobs
    return running


async def take_over(store: Store, on_conflict: OnConflict = REPLACE) -> Job:
    """Return the newer job."""
    receipt = await store.add([make_new_job(key="k", params={"new": 1}, on_conflict=on_conflict)], now=NOW)
    (entry,) = receipt.entries
    assert entry is not None
    assert entry.status is AddStatus.ADDED
    return entry.job


@pytest.mark.parametrize("on_conflict", TAKEOVERS)
async def test_running_holder_loses_its_key_to_a_new_job(store: Store, on_conflict: OnConflict) -> None:
    running = await begin(store, labels={"a": "b"})
    new_job = make_new_job(key="k", params={"new": 1}, delay=60, on_conflict=on_conflict)

    receipt = await store.add([new_job], now=NOW)

    new, superseded = new_job.job._replace(seq=running.seq + 1), running.supersede()
    assert receipt == Receipt([AddResult(AddStatus.ADDED, new, superseded)])
    assert await store.list(ALL) == [new, superseded]
    assert await store.get([running.seq]) == {running.seq: superseded}
    assert await store.holder("default", "k") == new
    assert await store.list(Query(key="k", is_full=True)) == [new]
    assert await store.list(Query(states=frozenset({State.RUNNING}), is_full=True)) == [superseded]
    counted, stored = await count_both(store)
    assert counted == stored


@pytest.mark.parametrize("change", ["cancel requested", "leased", "in its second attempt"])
async def test_running_holder_saved_since_its_claim_is_superseded(store: Store, change: str) -> None:
    running = await begin(store)
    if change == "in its second attempt":
        await store.finish([Ending(running, make_failure(), NOW)])
        (running,) = (await store.claim([running.seq], now=NOW)).jobs
    else:
        before = running
        running = before.cancel(NOW, "why") if change == "cancel requested" else before.lease_out("token", NOW + 9)
        await store.save([running])
        assert await store.get([running.seq]) == {running.seq: running}

    new = await take_over(store)

    assert await store.list(ALL) == [new, running.supersede()]
    assert await store.get([running.seq]) == {running.seq: running.supersede()}


@pytest.mark.parametrize("on_conflict", [OnConflict.REJECT, OnConflict.KEEP])
async def test_running_holder_keeps_its_key_under_keep_and_reject(store: Store, on_conflict: OnConflict) -> None:
    running = await begin(store)

    await store.add([make_new_job(key="k", on_conflict=on_conflict)], now=NOW)

    assert await store.list(ALL) == [running]


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
async def test_finish_of_a_superseded_job_stores_the_job_that_its_steps_make(store: Store, outcome: Outcome) -> None:
    running = await begin(store)
    new = await take_over(store)
    superseded = running.supersede()

    refused = await store.finish([Ending(running, outcome, NOW + 1)])
    saved = await store.finish([ending := Ending(superseded, outcome, NOW + 1, 5.0)])

    assert refused == [Saved(False, superseded)]
    assert [verdict.is_saved for verdict in saved] == [True]
    assert ending.after.is_final
    assert await store.list(ALL) == [new, ending.after]
    assert await store.holder("default", "k") == new
    assert (await store.claim([running.seq], now=NOW + 99)).jobs == []


async def test_superseded_job_is_retried_beside_the_holder_of_its_key(store: Store) -> None:
    running = await begin(store)
    new = await take_over(store)
    await store.finish([ending := Ending(running.supersede(), Outcome(End.RELEASED), NOW)])

    (verdict,) = await store.save([ending.after.revive(NOW)])

    assert verdict.is_saved
    assert await store.list(ALL) == [new, ending.after.revive(NOW)]
    assert len((await store.claim([running.seq, new.seq], now=NOW)).jobs) == 2


async def test_jobs_of_one_add_take_over_once_and_then_change_the_new_job(store: Store) -> None:
    running = await begin(store)
    new_jobs = [make_new_job(key="k", params={"n": n}, on_conflict=REPLACE) for n in range(3)]

    receipt = await store.add(new_jobs, now=NOW)

    first, *_, last = [entry.job for entry in receipt.entries if entry]
    assert statuses(receipt) == [AddStatus.ADDED, AddStatus.CHANGED, AddStatus.CHANGED]
    assert (last.id, last.params, last.version) == (first.id, new_jobs[-1].job.params, 3)
    assert await store.list(ALL) == [last, running.supersede()]


async def test_takeover_goes_on_from_holder_to_holder(store: Store) -> None:
    running = [await begin(store)]
    for _ in range(3):
        new = await take_over(store)
        running += (await store.claim([new.seq], now=NOW)).jobs
    last = await take_over(store)

    assert await store.list(ALL) == [last, *[job.supersede() for job in running[::-1]]]


async def test_takeover_of_a_whole_add_with_a_conflict_is_undone(store: Store) -> None:
    running = await begin(store)
    taken = await put_one(store, key="taken")
    new_jobs = [make_new_job(key="k", on_conflict=REPLACE), make_new_job(key="taken")]

    receipt = await store.add(new_jobs, now=NOW, is_whole=True)

    assert statuses(receipt) == [AddStatus.ADDED, AddStatus.CONFLICT]
    assert await store.list(ALL) == [taken, running]
    assert await store.get([running.seq]) == {running.seq: running}
    counted, stored = await count_both(store)
    assert counted == stored
    await store.finish([ending := Ending(running, Outcome(End.SUCCEEDED), NOW + 1)])
    assert await store.list(ALL) == [taken, ending.after]


async def test_takeover_of_a_whole_add_is_stored_with_the_others(store: Store) -> None:
    running = await begin(store)

    receipt = await store.add([make_new_job(), make_new_job(key="k", on_conflict=REPLACE)], now=NOW, is_whole=True)

    assert statuses(receipt) == [AddStatus.ADDED, AddStatus.ADDED]
    assert [job.superseded for job in await store.list(ALL)] == [False, False, True]
    assert (await store.list(ALL))[-1] == running.supersede()


async def test_takeover_with_a_record_is_done_once(store: Store) -> None:
    running = await begin(store)
    record = IdempotencyRecord("caller", "once", b"digest")
    new_job = make_new_job(key="k", on_conflict=REPLACE)
    first = await store.add([new_job], now=NOW, record=record)
    (again,) = (await store.claim([running.seq + 1], now=NOW)).jobs

    second = await store.add([new_job], now=NOW, record=record)

    assert statuses(first) == [AddStatus.ADDED]
    assert second == Receipt([AddResult(AddStatus.EXISTS, again)], replayed=True)
    assert len(await store.list(ALL)) == 2


async def test_superseded_jobs_are_current_among_many(store: Store) -> None:
    running = await begin(store)
    new_jobs = [make_new_job() for _ in range(100)]

    await store.add([*new_jobs, make_new_job(key="k", on_conflict=REPLACE)], now=NOW)

    assert await store.get([running.seq]) == {running.seq: running.supersede()}


@pytest.mark.parametrize("is_claimed_only", [True, False])
async def test_job_stays_superseded_after_a_restart(tmp_path: Path, is_claimed_only: bool) -> None:
    store = SqliteStore(path=tmp_path / "erelong.db")
    await store.open()
    running = await begin(store)
    if not is_claimed_only:
        await store.save([running := running.lease_out("token", NOW + 9)])
    new = await take_over(store)
    await store.close()

    again = SqliteStore(path=tmp_path / "erelong.db")
    await again.open()

    assert await again.list(ALL) == [new, running.supersede()]
    assert await again.list(Query(states=frozenset({State.RUNNING}), is_full=True)) == [running.supersede()]
    assert await again.holder("default", "k") == new
    await again.close()


async def test_many_holders_are_superseded_in_one_call(store: Store) -> None:
    jobs = await put(store, *(make_job(key=str(n), queue="ab"[n % 2]) for n in range(150)))
    running = (await store.claim([job.seq for job in jobs], now=NOW)).jobs
    new_jobs = [make_new_job(key=str(n), queue="ab"[n % 2], on_conflict=REPLACE) for n in range(150)]

    receipt = await store.add(new_jobs, now=NOW)

    assert statuses(receipt) == [AddStatus.ADDED] * 150
    found = await store.list(ALL)
    assert found[150:] == [job.supersede() for job in running[::-1]]
    assert {job.key for job in found[:150]} == {str(n) for n in range(150)}
