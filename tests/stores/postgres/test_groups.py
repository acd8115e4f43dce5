"""Groups: calls made at once are written together, and each gets its own answer."""

from __future__ import annotations

import asyncio

import pytest

from erelong.errors import IdempotencyMismatch, NotLeading, StoreUnavailable
from erelong.model.job import State
from erelong.model.outcome import End, Outcome
from erelong.model.submission import IdempotencyRecord, NewJob, Receipt
from erelong.stores.base import Ending
from erelong.stores.postgres.store import PostgresStore
from tests.support.builders import ALL, NOW, count_both, make_failure, make_job, make_new_job, put, put_one
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.real_loop

RECORD = IdempotencyRecord("caller", "key", b"digest")


def groups(store: PostgresStore) -> int:
    """Return how many groups were written."""
    return store._session._receipts


async def test_concurrent_adds_are_one_group(postgres: PostgresStore) -> None:
    before = groups(postgres)

    jobs = await asyncio.gather(*(put_one(postgres) for _ in range(50)))

    assert [job.seq for job in jobs] == list(range(1, 51))
    assert groups(postgres) == before + 1


async def test_single_add_is_committed_before_it_is_answered(postgres: PostgresStore) -> None:
    for number in range(1, 4):
        await put_one(postgres)

        assert postgres._slow.connection.row("SELECT count(*) FROM jobs") == (number,)


async def test_broken_call_does_not_fail_its_group(postgres: PostgresStore) -> None:
    broken = NewJob(make_job()._replace(params="no bytes"))  # type: ignore[arg-type]  # which breaks the call
    new_jobs = [broken if number in (3, 7) else make_new_job() for number in range(10)]

    adding = [postgres.add([new_job], now=NOW) for new_job in new_jobs]
    answers = await asyncio.gather(*adding, return_exceptions=True)

    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [new_job is broken for new_job in new_jobs]
    assert len(await postgres.list(ALL)) == 8
    counted, stored = await count_both(postgres)
    assert counted == stored


async def test_refused_call_does_not_split_its_group(postgres: PostgresStore) -> None:
    await postgres.add([make_new_job()], now=NOW, record=RECORD)
    before = groups(postgres)

    records = (None, RECORD._replace(digest=b"other"), None)
    adding = [postgres.add([make_new_job()], now=NOW, record=record) for record in records]
    answers = await asyncio.gather(*adding, return_exceptions=True)

    assert [type(answer) for answer in answers] == [Receipt, IdempotencyMismatch, Receipt]
    assert groups(postgres) == before + 1


async def test_key_is_passed_on_in_one_group(postgres: PostgresStore) -> None:
    first = await put_one(postgres, key="k")
    (running,) = (await postgres.claim([first.seq], now=NOW)).jobs
    before = groups(postgres)

    _, receipt = await asyncio.gather(
        postgres.finish([Ending(running, Outcome(End.SUCCEEDED), NOW)]), postgres.add([make_new_job(key="k")], now=NOW)
    )

    assert groups(postgres) == before + 1
    (entry,) = receipt.entries
    assert entry is not None
    assert await postgres.holder("default", "k") == entry.job
    assert entry.job.seq != first.seq


async def test_job_is_claimed_cancelled_and_retried_in_one_group(postgres: PostgresStore) -> None:
    first, second = await put(postgres, make_job(), make_job())
    (running,) = (await postgres.claim([first.seq], now=NOW)).jobs
    before = groups(postgres)

    _, again, cancelled, refused = await asyncio.gather(
        postgres.finish([Ending(running, make_failure(), NOW)]),
        postgres.claim([first.seq, second.seq], now=NOW + 5),
        postgres.save([second.cancel(NOW)]),
        postgres.claim([second.seq], now=NOW + 5),
    )

    assert groups(postgres) == before + 1
    assert {job.seq for job in again.jobs} >= {second.seq}
    assert not cancelled[0].is_saved  # the claim came first
    assert refused.jobs == []
    found = await postgres.get([first.seq, second.seq])
    assert found[second.seq].state is State.RUNNING
    counted, stored = await count_both(postgres)
    assert counted == stored


async def test_closed_store_finishes_pending_calls_and_refuses_new_ones(
    postgres: PostgresStore, server: PostgresServer
) -> None:
    adding = asyncio.ensure_future(put_one(postgres))
    await asyncio.sleep(0)
    await postgres.close()
    job = await adding

    with pytest.raises(NotLeading):
        await put_one(postgres)

    after = PostgresStore(url=server.url, durability="normal")
    await after.open()
    assert await after.list(ALL) == [job]
    await after.close()
