"""Idempotency keys: a repeated add is done once."""

from __future__ import annotations

import pytest

from erelong.errors import IdempotencyMismatch
from erelong.model.conflict import OnConflict
from erelong.model.job import SECOND
from erelong.model.submission import AddResult, AddStatus, IdempotencyRecord, Receipt
from erelong.stores.base import Store
from tests.support.builders import ALL, NOW, make_new_job, put_one, statuses

pytestmark = pytest.mark.real_loop

DAY = 24 * 3600 * SECOND
RECORD = IdempotencyRecord("caller", "key", b"digest")


async def test_second_add_under_a_record_returns_the_jobs_of_the_first(store: Store) -> None:
    first = await store.add([make_new_job(), make_new_job(key="k")], now=NOW, record=RECORD)

    second = await store.add([make_new_job(), make_new_job(key="k")], now=NOW + 1, record=RECORD)

    assert not first.replayed
    assert second.replayed
    assert statuses(second) == [AddStatus.EXISTS, AddStatus.EXISTS]
    assert [entry and entry.job for entry in second.entries] == [entry and entry.job for entry in first.entries]
    assert len(await store.list(ALL)) == 2


async def test_replayed_job_is_current(store: Store) -> None:
    await store.add([make_new_job()], now=NOW, record=RECORD)
    (running,) = (await store.claim([1], now=NOW)).jobs

    replay = await store.add([make_new_job()], now=NOW, record=RECORD)

    assert replay == Receipt([AddResult(AddStatus.EXISTS, running)], replayed=True)


async def test_replayed_job_that_was_deleted_is_missing(store: Store) -> None:
    first = await store.add([make_new_job(), make_new_job()], now=NOW, record=RECORD)
    gone, kept = [entry.job for entry in first.entries if entry]
    await store.delete(gone)

    replay = await store.add([make_new_job(), make_new_job()], now=NOW, record=RECORD)

    assert replay == Receipt([None, AddResult(AddStatus.EXISTS, kept)], replayed=True)


async def test_record_of_another_body_is_a_mismatch(store: Store) -> None:
    await store.add([make_new_job()], now=NOW, record=RECORD)

    with pytest.raises(IdempotencyMismatch, match="'key' was used for another request"):
        await store.add([make_new_job()], now=NOW, record=RECORD._replace(digest=b"other"))

    assert len(await store.list(ALL)) == 1


async def test_callers_do_not_share_records(store: Store) -> None:
    await store.add([make_new_job()], now=NOW, record=RECORD)

    receipt = await store.add([make_new_job()], now=NOW, record=RECORD._replace(caller="other", digest=b"other"))

    assert not receipt.replayed
    assert len(await store.list(ALL)) == 2


@pytest.mark.parametrize(("age", "is_replayed"), [(DAY - 1, True), (DAY, False)])
async def test_record_is_valid_for_a_day(store: Store, age: int, is_replayed: bool) -> None:
    await store.add([make_new_job()], now=NOW, record=RECORD)

    receipt = await store.add([make_new_job()], now=NOW + age, record=RECORD)

    assert receipt.replayed is is_replayed


async def test_day_of_a_record_counts_from_its_first_use(store: Store) -> None:
    await store.add([make_new_job()], now=NOW, record=RECORD)
    await store.add([make_new_job()], now=NOW + DAY - 1, record=RECORD)

    receipt = await store.add([make_new_job()], now=NOW + DAY, record=RECORD)

    assert not receipt.replayed


async def test_expired_record_accepts_another_body(store: Store) -> None:
    await store.add([make_new_job()], now=NOW, record=RECORD)
    other = RECORD._replace(digest=b"other")

    await store.add([make_new_job()], now=NOW + DAY, record=other)

    assert (await store.add([make_new_job()], now=NOW + DAY + 1, record=other)).replayed


@pytest.mark.parametrize("is_whole", [False, True])
async def test_add_with_a_conflict_is_not_remembered(store: Store, is_whole: bool) -> None:
    holder = await put_one(store, key="k")
    await store.add([make_new_job(key="k")], now=NOW, is_whole=is_whole, record=RECORD)
    await store.save([holder.cancel(NOW)])

    receipt = await store.add([make_new_job(key="k")], now=NOW, is_whole=is_whole, record=RECORD)

    assert not receipt.replayed
    assert statuses(receipt) == [AddStatus.ADDED]


async def test_record_keeps_a_job_found_by_its_key(store: Store) -> None:
    holder = await put_one(store, key="k")
    new_job = make_new_job(key="k", on_conflict=OnConflict.KEEP)
    await store.add([new_job], now=NOW, record=RECORD)

    replay = await store.add([new_job], now=NOW, record=RECORD)

    assert replay == Receipt([AddResult(AddStatus.EXISTS, holder)], replayed=True)


async def test_expired_records_are_deleted_a_few_at_a_time(store: Store) -> None:
    for number in range(5):
        await store.add(
            [make_new_job()], now=NOW, record=IdempotencyRecord("caller", str(number), b"", life=number + 1)
        )

    gone = [await store.forget_records(now=NOW + 3, limit=2) for _ in range(3)]

    assert gone == [2, 1, 0]
    assert (await store.add([make_new_job()], now=NOW + 3, record=IdempotencyRecord("caller", "3", b""))).replayed
    assert not (await store.add([make_new_job()], now=NOW, record=IdempotencyRecord("caller", "2", b""))).replayed


async def test_record_is_kept_for_its_life(store: Store) -> None:
    record = IdempotencyRecord("caller", "k", b"", life=100)
    await store.add([make_new_job()], now=NOW, record=record)

    last, next_one = await store.find_replay(record, now=NOW + 99), await store.find_replay(record, now=NOW + 100)

    assert (last is not None, next_one) == (True, None)


async def test_record_of_an_empty_add_is_kept(store: Store) -> None:
    await store.add([], now=NOW, record=RECORD)

    assert await store.add([make_new_job()], now=NOW, record=RECORD) == Receipt([], replayed=True)
