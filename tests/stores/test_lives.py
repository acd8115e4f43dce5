"""What a durable store has after its process has ended, in order or by a crash."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from erelong.model.job import Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Query
from erelong.model.submission import IdempotencyRecord, Receipt
from erelong.stores.base import Ending, Override, Pause, Store
from tests.support.builders import (
    ALL,
    NOW,
    count_both,
    make_ended,
    make_failure,
    make_job,
    make_new_job,
    make_running,
    put,
    put_one,
)
from tests.support.lives import Lives
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.real_loop

RECORD = IdempotencyRecord("caller", "key", b"digest")
RUNNING = Query(states=frozenset({State.RUNNING}), is_full=True)
WELL = Outcome(End.SUCCEEDED)


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def lives(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lives]:
    server: PostgresServer | None = None
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        server.empty()
    folder = tmp_path / "store"
    folder.mkdir()
    lives = Lives(folder=folder, server=server)
    yield lives
    await lives.end()
    shutil.rmtree(folder)


async def start(store: Store, *jobs: Job, now: int = NOW) -> list[Job]:
    return (await store.claim([job.seq for job in jobs], now=now)).jobs


async def running_in(store: Store) -> list[Job]:
    """Return the jobs that a start has loaded as running."""
    counted, stored = await count_both(store)
    assert counted == stored
    return await store.list(RUNNING)


async def test_next_process_has_everything(lives: Lives) -> None:
    store = await lives.begin()
    await put(store, make_running(), make_ended(State.FAILED, labels={"a": "b"}), make_job(key="k", delay=5))
    await store.add([make_new_job()], now=NOW, record=RECORD)
    await store.override("q", Override(b"{}", Pause(NOW)))
    jobs, counts = await store.list(ALL), dict(store.counts())

    store = await lives.begin()

    assert await store.list(ALL) == jobs
    assert dict(store.counts()) == counts
    assert await store.overrides() == {"q": Override(b"{}", Pause(NOW))}
    assert (await store.add([make_new_job()], now=NOW, record=RECORD)).replayed
    assert (await put_one(store)).seq == jobs[0].seq + 1


async def test_next_process_does_not_confuse_a_new_job_with_that_of_a_record(lives: Lives) -> None:
    store = await lives.begin()
    await store.add([make_new_job()], now=NOW, record=RECORD)
    await store.delete((await store.get([1]))[1])

    store = await lives.begin()
    await put_one(store)

    assert await store.add([make_new_job()], now=NOW, record=RECORD) == Receipt([None], replayed=True)


async def test_next_process_counts_the_same_groups(lives: Lives) -> None:
    store = await lives.begin()
    first, _, gone = await put(store, make_job(), make_job(kind="k"), make_job(queue="q"))
    await store.delete(first)
    await store.delete(gone)
    before = dict(store.counts())

    store = await lives.begin()

    assert dict(store.counts()) == before == {("default", "k", State.SCHEDULED): 1}


async def test_claims_outlive_the_process(lives: Lives) -> None:
    store = await lives.begin()
    first, second, _ = await put(store, *[make_job() for _ in range(3)])
    (one,) = await start(store, first)
    (other,) = await start(store, second, now=NOW + 5)

    assert await running_in(await lives.crash()) == [other, one]


async def test_job_with_an_ended_attempt_is_not_loaded_as_running(lives: Lives) -> None:
    store = await lives.begin()
    jobs = await start(store, *await put(store, *[make_job() for _ in range(4)]))
    await store.finish([Ending(jobs[0], WELL, NOW), Ending(jobs[1], make_failure(), NOW)])
    await store.save([jobs[2].cancel(NOW)])

    assert await running_in(await lives.crash()) == [jobs[3], jobs[2].cancel(NOW)]


async def test_job_claimed_again_is_loaded_in_its_last_attempt(lives: Lives) -> None:
    store = await lives.begin()
    (job,) = await start(store, await put_one(store))
    await store.finish([Ending(job, make_failure(), NOW)])
    (again,) = await start(store, job, now=NOW + 10)

    assert again.attempt == 2
    assert await running_in(await lives.crash()) == [again]


async def test_start_after_a_start_finds_the_same(lives: Lives) -> None:
    store = await lives.begin()
    jobs = await start(store, await put_one(store))
    await lives.crash()

    assert [await running_in(await lives.begin()) for _ in range(3)] == [jobs] * 3
