"""The write session: whatever happens to its connection, a group is stored once or not at all, and it knows which."""

from __future__ import annotations

import asyncio
import gc
import time

import psycopg
import pytest
from psycopg.abc import PQGen
from psycopg.waiting import Wait

from erelong.errors import StoreUnavailable
from erelong.model.job import State
from erelong.model.outcome import End, Outcome
from erelong.model.submission import NewJob
from erelong.stores.base import Ending
from erelong.stores.postgres import readers
from erelong.stores.postgres.connection import connect
from erelong.stores.postgres.store import PostgresStore
from tests.support.builders import ALL, NOW, count_both, make_job, put, put_one
from tests.support.postgres import PostgresServer
from tests.support.postgres_proxy import Proxy

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]

WRITER = "writer"


async def _assert_stored(store: PostgresStore, jobs: int) -> None:
    assert len(await store.list(ALL)) == jobs
    counted, stored = await count_both(store)
    assert counted == stored


async def test_group_whose_response_is_lost_is_acknowledged_and_stored_once(
    distant: PostgresStore, proxy: Proxy
) -> None:
    await put_one(distant)
    proxy.lose_responses(WRITER)

    job = await put_one(distant)

    assert await distant.get([job.seq]) == {job.seq: job}
    await _assert_stored(distant, 2)


def test_step_without_an_answer_leaves_nothing_that_fails_later(server: PostgresServer) -> None:
    """Python would write a traceback to standard error; here that fails the test."""
    connection = connect(server.url, role=f"0/{WRITER}", patience=0.1)

    def hang() -> PQGen[None]:
        try:
            while True:
                yield Wait.R
        finally:
            connection.pgconn.send_flush_request()  # as the end of a pipeline does

    with pytest.raises(psycopg.Error, match="timeout"):
        connection.wait(hang())

    gc.collect()
    assert connection.closed


async def test_group_that_the_server_receives_too_late_is_repeated_and_stored_once(
    distant: PostgresStore, proxy: Proxy
) -> None:
    await put_one(distant)
    held = proxy.hold_requests(WRITER)

    job = await put_one(distant)
    for link in held:
        link.is_passing_requests.set()
    await asyncio.sleep(0.3)  # the server refuses it now

    assert await distant.get([job.seq]) == {job.seq: job}
    await _assert_stored(distant, 2)


async def test_connection_that_is_cut_is_restored_without_an_error(distant: PostgresStore, proxy: Proxy) -> None:
    for _ in range(5):
        await put_one(distant)
        proxy.cut(WRITER)
        proxy.cut("reader")
        proxy.cut("lister")

    await _assert_stored(distant, 5)


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
async def test_group_in_doubt_is_found_out_before_the_next_one(
    distant: PostgresStore, proxy: Proxy, is_stored: bool
) -> None:
    job = await put_one(distant)
    held = [] if is_stored else proxy.hold_requests(WRITER)
    proxy.lose_responses(WRITER)
    proxy.is_refusing = True
    with pytest.raises(StoreUnavailable):
        await distant.add([NewJob(make_job())], now=NOW)
    assert "cannot be reached" in (distant.status() or "")

    proxy.is_refusing = False
    claim = await distant.claim([job.seq], now=NOW)
    for link in held:  # now the server gets what it must refuse
        link.is_passing_requests.set()
    await asyncio.sleep(0.3)

    assert [claimed.seq for claimed in claim.jobs] == [job.seq]
    await _assert_stored(distant, 2 if is_stored else 1)
    assert distant.status() is None


async def test_claims_and_ends_survive_lost_responses(distant: PostgresStore, proxy: Proxy) -> None:
    jobs = await put(distant, *(make_job(key=str(number)) for number in range(6)))
    proxy.lose_responses(WRITER)
    claim = await distant.claim([job.seq for job in jobs], now=NOW)
    proxy.lose_responses(WRITER)
    await distant.finish([Ending(job, Outcome(End.SUCCEEDED), NOW) for job in claim.jobs[:3]])
    proxy.hold_requests(WRITER)
    await distant.save([job.cancel(NOW) for job in claim.jobs[3:]])

    found = await distant.list(ALL)

    assert [job.state for job in found] == [State.RUNNING] * 3 + [State.SUCCEEDED] * 3
    assert all(job.cancel_requested for job in found[:3])
    await _assert_stored(distant, 6)


async def test_acknowledged_commits_that_are_gone_are_reported(postgres: PostgresStore, server: PostgresServer) -> None:
    await put_one(postgres)
    await postgres._lister.call(lambda: postgres._slow.connection.script("TRUNCATE jobs, tallies_0, tallies_1"))
    await postgres._lister.call(
        lambda: postgres._slow.connection.script(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'erelong/0/%/writer'"
        )
    )

    await put_one(postgres)

    assert "has lost commits" in (postgres.status() or "")


async def test_read_waits_for_a_server_that_is_away_for_a_moment(distant: PostgresStore, proxy: Proxy) -> None:
    job = await put_one(distant)
    distant._cache.drop_all()
    proxy.is_refusing = True
    proxy.cut("reader")
    reading = asyncio.ensure_future(distant.get([job.seq]))
    await asyncio.sleep(0.3)
    assert not reading.done()

    proxy.is_refusing = False

    assert await reading == {job.seq: job}


async def test_reads_are_refused_soon_while_the_server_is_away(
    distant: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "RESTORE_PATIENCE", 0.2)
    proxy.is_refusing = True
    proxy.cut("reader")
    began = time.monotonic()

    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            await distant.get([1])

    assert time.monotonic() - began < 1.0


async def test_reads_of_one_group_wait_only_once_for_a_server_that_is_away(
    distant: PostgresStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "RESTORE_PATIENCE", 0.5)
    proxy.is_refusing = True
    proxy.cut("reader")
    began = time.monotonic()

    reads = [distant.document("sort", str(number)) for number in range(40)]
    results = await asyncio.gather(*reads, return_exceptions=True)

    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert time.monotonic() - began < 10.0  # 20 s, if each waited

    proxy.is_refusing = False
    assert await distant.document("sort", "0") is None


async def test_reads_of_one_group_wait_only_once_for_a_lock(postgres: PostgresStore, server: PostgresServer) -> None:
    with psycopg.connect(server.url) as locking:
        await asyncio.to_thread(locking.execute, "LOCK TABLE erelong.documents IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        reads = [postgres.document("sort", str(number)) for number in range(20)]
        results = await asyncio.gather(*reads, return_exceptions=True)

    assert all(isinstance(result, StoreUnavailable) for result in results)
    assert time.monotonic() - began < 10.0  # 30 s, if each waited
    assert await postgres.document("sort", "0") is None


async def test_read_whose_transaction_is_ended_is_repeated(postgres: PostgresStore) -> None:
    pauses = [0.3, 0.0]

    def read() -> int:
        connection = postgres._slow.connection
        connection.script("BEGIN; SET LOCAL idle_in_transaction_session_timeout = '50ms'")
        time.sleep(pauses.pop(0))
        (found,) = connection.row("SELECT 1")
        connection.script("COMMIT")
        return int(found)

    assert await postgres._lister.call(read) == 1


async def test_bad_call_fails_alone(postgres: PostgresStore) -> None:
    bad = make_job(queue="a\0b")  # no text of PostgreSQL has a NUL

    results = await asyncio.gather(
        *(postgres.add([NewJob(job)], now=NOW) for job in (make_job(), bad, make_job())), return_exceptions=True
    )

    assert [isinstance(result, StoreUnavailable) for result in results] == [False, True, False]
    await _assert_stored(postgres, 2)


async def test_logs_turn_to_their_other_half(postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("erelong.stores.postgres.writer.LONG_LOG", 2)
    for turn in range(4):
        jobs = await put(postgres, *(make_job(queue=f"q{turn}") for _ in range(5)))
        await postgres.claim([job.seq for job in jobs], now=NOW)
        postgres._writes._fold_at = 0.0
        await put_one(postgres)
        await _assert_stored(postgres, 6 * (turn + 1))
    (counted,) = await postgres._lister.call(
        lambda: postgres._slow.connection.row("SELECT sum(jobs)::bigint FROM counts")
    )
    assert counted > 0
