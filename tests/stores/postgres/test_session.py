"""The write session: whatever happens to its connection, a group is stored once or not at all, and it knows which."""

from __future__ import annotations

import asyncio
import gc
import math
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
from erelong.stores.postgres import logs, readers, session, writer
from erelong.stores.postgres.connection import Connection, connect
from erelong.stores.postgres.failures import TermLost
from erelong.stores.postgres.session import WriteSession
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

    with pytest.raises(psycopg.Error, match="no answer within"):
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


async def test_store_settles_once_it_knows_what_became_of_a_group_in_doubt(
    distant: PostgresStore, proxy: Proxy
) -> None:
    await put_one(distant)
    proxy.lose_responses(WRITER)
    proxy.is_refusing = True
    with pytest.raises(StoreUnavailable):
        await put_one(distant)
    with pytest.raises(StoreUnavailable):
        await distant.settle()
    proxy.is_refusing = False

    await distant.settle()

    await _assert_stored(distant, 2)


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


async def test_read_that_takes_too_long_is_not_repeated(server: PostgresServer) -> None:
    store = PostgresStore(url=server.url, durability="normal", timeout=1.0)
    await store.open()
    calls = []

    def read() -> None:
        calls.append(1)
        store._slow.connection.rows("SELECT pg_sleep(3)")

    with pytest.raises(StoreUnavailable, match="within 1 s"):
        await store._lister.call(read)
    assert await store.list(ALL) == []

    assert calls == [1]
    await store.close()


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


@pytest.mark.parametrize("log", ["claims", "tallies"])
async def test_log_that_somebody_reads_for_long_costs_no_write_a_wait(
    postgres: PostgresStore, server: PostgresServer, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    """Such as pg_dump, which holds all tables until its end."""
    monkeypatch.setattr(writer, "LONG_LOG", 2)
    name = {"claims": "turn_claims", "tallies": "fold_tallies"}[log]
    turn, tries = getattr(logs, name), []

    def count(*arguments: object) -> None:
        tries.append(1)
        turn(*arguments)

    monkeypatch.setattr(writer, name, count)
    postgres._writes._fold_at = 0.0 if log == "tallies" else time.monotonic() + 60

    with psycopg.connect(server.url) as dump:
        dump.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        for half in (0, 1):
            await asyncio.to_thread(dump.execute, f"SELECT count(*) FROM erelong.{log}_{half}".encode())
        for _ in range(8):
            jobs = await put(postgres, *(make_job() for _ in range(5)))
            claim = await postgres.claim([job.seq for job in jobs], now=NOW)
            await postgres.finish([Ending(job, Outcome(End.SUCCEEDED), NOW) for job in claim.jobs])
        assert tries == [1]

    postgres._writes._turn_at = postgres._writes._fold_at = 0.0
    await put_one(postgres)
    await put_one(postgres)
    assert len(tries) >= 2
    await _assert_stored(postgres, 42)


async def test_large_group_is_written_in_parts(postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_SIZE", 20_000)
    before = postgres._session._receipts
    large = [NewJob(make_job(params={"text": "x" * 8_000})) for _ in range(12)]

    receipts = await asyncio.gather(*(postgres.add([new_job], now=NOW) for new_job in large))

    assert postgres._session._receipts - before == 4
    entries = [entry for receipt in receipts for entry in receipt.entries]
    assert [entry.job.params for entry in entries if entry] == [new_job.job.params for new_job in large]
    await _assert_stored(postgres, 12)


async def test_group_that_takes_long_to_send_is_given_more_time_and_stored_once(
    distant: PostgresStore, proxy: Proxy
) -> None:
    await put_one(distant)
    proxy.bytes_per_second = 1_000_000

    await put(distant, *(make_job(params={"text": "x" * 50_000}) for _ in range(40)))

    proxy.bytes_per_second = math.inf
    await _assert_stored(distant, 41)


async def test_node_that_takes_over_waits_longer_for_what_it_reads(proxy: Proxy, server: PostgresServer) -> None:
    store = PostgresStore(url=proxy.url, durability="normal")
    await store.open()
    await put_one(store)
    store._writes._fold_at = 0.0
    await put_one(store)
    await store.close()
    with psycopg.connect(server.url, autocommit=True) as slow:
        slow.execute(
            """
            ALTER TABLE erelong.counts RENAME TO quick_counts;
            CREATE VIEW erelong.counts AS SELECT quick_counts.* FROM erelong.quick_counts, pg_sleep(1.2)
            """
        )

        second = PostgresStore(url=proxy.url, durability="normal")
        await second.open()

        slow.execute("DROP VIEW erelong.counts; ALTER TABLE erelong.quick_counts RENAME TO counts")
    assert second.counts() == {("default", "echo", State.SCHEDULED): 2}
    await second.close()


async def test_node_whose_prepared_connection_is_dead_takes_over(distant: PostgresStore, proxy: Proxy) -> None:
    """As when the machine of the server has lost its power, and another one serves in its place."""
    second = PostgresStore(url=proxy.url, durability="normal")
    await second.open()
    distant._session.end(distant._writes._numbers)
    held = proxy.hold_requests(WRITER)

    await distant.resign()
    await second.lead()

    assert held

    await put_one(second)
    await second.close()


async def test_epoch_that_the_standbys_may_lack_is_not_used(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _take_term(server, "me")
    made: list[Connection] = []

    def connect_in_doubt(*arguments: str, **options: float) -> Connection:
        made.append(connect(*arguments, **options))  # type: ignore[arg-type]
        made[-1].doubts += ["the epoch was not confirmed"] * (len(made) == 1)
        return made[-1]

    monkeypatch.setattr(session, "connect", connect_in_doubt)
    writes = WriteSession(url=server.url, node="me")

    writes.begin()

    assert [connection.closed for connection in made] == [True, False]
    made[1].drop()


async def test_node_that_waits_for_the_fence_of_its_successor_begins_no_epoch(server: PostgresServer) -> None:
    await _take_term(server, "me")
    writes = WriteSession(url=server.url, node="me")
    with psycopg.connect(server.url) as successor:
        successor.execute("UPDATE erelong.fences SET epoch = epoch + 1")
        successor.execute("UPDATE erelong.terms SET node = 'other'")
        beginning = asyncio.ensure_future(asyncio.to_thread(writes.begin))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(successor.commit)

    with pytest.raises(TermLost):
        await beginning


async def _take_term(server: PostgresServer, node: str) -> None:
    """Make the tables, and let a node have the term."""
    store = PostgresStore(url=server.url, durability="normal")
    await store.open()
    await store.close()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("UPDATE erelong.terms SET node = %s", [node])
