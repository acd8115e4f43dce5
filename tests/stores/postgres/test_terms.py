"""Terms: one node writes at a time, another takes over when it ends, and an old one writes nothing any more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio

from erelong.errors import NotLeading, StoreFailed, StoreUnavailable
from erelong.model.job import State
from erelong.model.submission import NewJob
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres import terms
from erelong.stores.postgres.connection import SCHEMA_NAME
from erelong.stores.postgres.store import PostgresStore
from tests.support.builders import ALL, NOW, count_both, make_job, put, put_one
from tests.support.lives import lose_connections
from tests.support.postgres import PostgresServer
from tests.system.client import looks

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]


@pytest_asyncio.fixture
async def patient(server: PostgresServer) -> AsyncIterator[PostgresStore]:
    """Return a store with a long term, open and empty."""
    store = PostgresStore(url=server.url, durability="normal", ttl=60.0)
    await store.open()
    yield store
    await store.close()


def _freeze(store: PostgresStore) -> None:
    """Stop renewing, with all connections open, as when the process is stopped."""
    store._term.halt()


def _end_session(store: PostgresStore, server: PostgresServer) -> None:
    """End the session of the term alone."""
    assert store._term._connection is not None
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", [store._term._connection.info.backend_pid])


async def _lose_session(store: PostgresStore, server: PostgresServer) -> None:
    """End the session of the term, and wait until the term is renewed."""
    before = store._term._connection
    _end_session(store, server)
    async for _ in looks():
        if store._term._connection is not before and store.is_trusted:
            break


async def _open_second(server: PostgresServer) -> tuple[PostgresStore, float]:
    start = time.monotonic()
    store = PostgresStore(url=server.url, durability="normal")
    await store.open()
    if store.standby() is not None:
        await store.lead()
    return store, time.monotonic() - start


async def test_second_node_reads_and_refuses_writes_until_the_first_resigns(
    postgres: PostgresStore, server: PostgresServer
) -> None:
    job = await put_one(postgres)
    second = PostgresStore(url=server.url, durability="normal")
    await second.open()

    (claimed,) = (await postgres.claim([job.seq], now=NOW)).jobs
    assert await second.get([job.seq]) == {job.seq: claimed}
    assert await second.list(ALL) == [claimed]
    with pytest.raises(NotLeading, match="another node leads"):
        await put_one(second)
    await asyncio.sleep(terms.TTL + 0.5)
    assert second.standby() is not None
    await put_one(postgres)

    start = time.monotonic()
    await postgres.resign()
    await second.lead()

    assert time.monotonic() - start < terms.TTL / 2  # it did not wait for the end of the term
    with pytest.raises(NotLeading):
        await put_one(postgres)
    assert len(await postgres.list(ALL)) == 2
    await put_one(second)
    assert second.counts() == {("default", "echo", State.SCHEDULED): 2, ("default", "echo", State.RUNNING): 1}
    await second.close()


async def test_node_that_may_not_lead_takes_no_term_and_hinders_none(server: PostgresServer) -> None:
    reader = PostgresStore(url=server.url, durability="normal", may_lead=False)
    await reader.open()
    await asyncio.sleep(3 * terms.LOOK_PAUSE)
    assert (reader.standby(), reader.is_vacant) == ("no node leads yet", True)

    leader = PostgresStore(url=server.url, durability="normal")
    await leader.open()
    job = await put_one(leader)
    async for _ in looks():
        if not reader.is_vacant:
            break
    assert reader.standby() == "another node leads"
    assert await reader.list(ALL) == [job]

    await leader.close()
    async for _ in looks():
        if reader.is_vacant:
            break
    assert reader.standby() == "no node leads yet"
    await reader.close()


async def test_term_lasts_as_long_as_the_settings_say(server: PostgresServer) -> None:
    store = PostgresStore(url=server.url, durability="normal", ttl=60.0)
    await store.open()
    async for _ in looks():
        if store.looks:  # the term has been renewed
            break

    (left,) = await store._lister.call(
        lambda: store._slow.connection.row("SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM terms")
    )

    assert 30.0 < left <= 60.0
    await store.close()


async def test_successor_of_a_node_that_resigned_has_the_lock_at_once(
    postgres: PostgresStore, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = PostgresStore(url=server.url, durability="normal")
    await second.open()

    with monkeypatch.context() as patch:
        patch.setattr(postgres._term, "_disconnect", lambda: None)  # its session ends later than its term
        await postgres.resign()
        await second.lead()
    (is_locked,) = second._slow.connection.row("SELECT locked FROM terms")

    postgres._term._disconnect()
    assert is_locked
    await second.close()


async def test_standby_leaves_a_lock_to_a_leader_that_does_not_have_it(
    postgres: PostgresStore, server: PostgresServer
) -> None:
    second = PostgresStore(url=server.url, durability="normal")
    await second.open()
    await asyncio.to_thread(_freeze, postgres)
    postgres._term._connection.run(terms.UNLOCK)  # type: ignore[union-attr]
    postgres._term._connection.run("UPDATE terms SET locked = false, until = 'infinity'")  # type: ignore[union-attr]
    await asyncio.sleep(4 * terms.LOOK_PAUSE)

    looks = [postgres._slow.connection.row(f"SELECT pg_try_advisory_lock({terms.LOCK})") for _ in range(100)]

    assert all(has_lock for (has_lock,) in looks)
    await second.close()


async def test_standby_that_lost_its_connections_takes_over(postgres: PostgresStore, server: PostgresServer) -> None:
    second = PostgresStore(url=server.url, durability="normal")
    await second.open()
    idle = "application_name IN ('erelong/0/writer', 'erelong/0/reader', 'erelong/0/lister')"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {idle}".encode())

    await postgres.close()
    start = time.monotonic()
    await second.lead()
    job = await put_one(second)

    assert time.monotonic() - start < terms.TTL
    assert await second.list(ALL) == [job]
    await second.close()


async def test_node_that_was_stopped_runs_no_job_that_it_has_claimed(postgres: PostgresStore) -> None:
    job = await put_one(postgres)
    await asyncio.to_thread(_freeze, postgres)
    postgres._term._trusted_until = 0.0  # as after a stop of the process while the claim was written

    with pytest.raises(StoreUnavailable, match="another node"):
        await postgres.claim([job.seq], now=NOW)


async def test_leader_whose_term_may_be_over_says_so_until_it_is_renewed(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = postgres.status()
    with monkeypatch.context() as patch:
        patch.setattr(postgres._term, "_renew", lambda _: None)
        await asyncio.sleep(terms.TTL)
        meanwhile = postgres.status()
    async for _ in looks():
        if postgres._term.is_trusted:
            break

    assert before is None
    assert meanwhile is not None
    assert meanwhile.startswith("the term may be over, so another node may lead: it was not renewed in time")
    assert postgres.status() is None


async def test_claim_waits_until_the_term_is_renewed(postgres: PostgresStore) -> None:
    job = await put_one(postgres)
    postgres._term._trusted_until = 0.0

    claim = await postgres.claim([job.seq], now=NOW)

    assert [claimed.seq for claimed in claim.jobs] == [job.seq]
    assert postgres._term.is_trusted


async def test_claim_fails_if_the_term_cannot_be_renewed(
    postgres: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await put_one(postgres)
    monkeypatch.setattr(postgres._term, "_renew", lambda _: None)
    postgres._term._trusted_until = 0.0

    with pytest.raises(StoreUnavailable, match="may have been stored"):
        await postgres.claim([job.seq], now=NOW)


async def test_cached_jobs_are_not_shown_while_another_node_may_lead(postgres: PostgresStore) -> None:
    job = await put_one(postgres)
    await asyncio.to_thread(_freeze, postgres)
    await postgres._lister.call(lambda: postgres._slow.connection.run("TRUNCATE jobs"))
    assert await postgres.get([job.seq]) == {job.seq: job}

    postgres._term._trusted_until = 0.0

    assert await postgres.get([job.seq]) == {}


async def test_idle_leader_notices_that_it_was_deposed(patient: PostgresStore) -> None:
    end = asyncio.ensure_future(patient.end())
    await patient._lister.call(lambda: patient._slow.connection.script("UPDATE terms SET node = 'another'"))

    assert isinstance(await asyncio.wait_for(end, 2 * terms.LONGEST_PAUSE), StoreFailed)
    assert not patient.is_trusted


async def test_leader_that_loses_only_the_session_of_its_term_shows_no_cached_job(
    patient: PostgresStore, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await put_one(patient)
    second = PostgresStore(url=server.url, durability="normal")
    await second.open()
    monkeypatch.setattr(patient._term, "_url", f"{server.url}-nowhere")  # so that it cannot renew its term first

    _end_session(patient, server)
    await second.lead()
    (saved,) = await second.save([job.cancel(NOW, None)])

    assert await patient.get([job.seq]) == {job.seq: saved.job}
    assert (patient.status() or "").startswith("the term may be over")
    monkeypatch.undo()
    assert isinstance(await asyncio.wait_for(patient.end(), terms.TTL), StoreFailed)
    await second.close()


async def test_leader_renews_its_term_at_once_on_a_new_session(patient: PostgresStore, server: PostgresServer) -> None:
    began = time.monotonic()
    await _lose_session(patient, server)

    assert time.monotonic() - began < terms.LONGEST_PAUSE
    assert patient.status() is None
    (is_locked,) = await patient._lister.call(lambda: patient._slow.connection.row("SELECT locked FROM terms"))
    assert is_locked


async def test_take_over_that_began_before_a_renewal_is_noticed_soon_after_it(
    patient: PostgresStore, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "LOOK_PAUSE", 0.3)
    monkeypatch.setattr(terms, "LONGEST_PAUSE", 20.0)
    await asyncio.sleep(1.0)  # until it rests that long
    end = asyncio.ensure_future(patient.end())
    await _lose_session(patient, server)

    await patient._lister.call(lambda: patient._slow.connection.script("UPDATE terms SET node = 'another'"))

    assert isinstance(await asyncio.wait_for(end, 2.0), StoreFailed)


async def test_node_need_not_wait_for_its_next_renewal_to_resign(postgres: PostgresStore) -> None:
    renewed = postgres._term.looks
    async for _ in looks():
        if postgres._term.looks > renewed:
            break

    start = time.monotonic()
    await postgres.resign()

    assert time.monotonic() - start < terms.LONGEST_PAUSE / 2


async def test_node_whose_loop_hangs_loses_its_term(
    postgres: PostgresStore, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres._term, "_beat", lambda: None)

    second, seconds = await _open_second(server)

    assert 2 * terms.TTL < seconds < 4 * terms.TTL
    await second.close()


async def test_next_node_continues_after_one_that_resigned(server: PostgresServer) -> None:
    first, _ = await _open_second(server)
    jobs = await put(first, make_job(labels={"a": "b"}), make_job())
    claim = await first.claim([jobs[0].seq], now=NOW)
    await first.close()

    second, seconds = await _open_second(server)

    assert seconds < 1.5
    assert await second.list(ALL) == [jobs[1], claim.jobs[0]]
    third = await put_one(second)
    assert third.seq == 3  # the unused numbers were returned
    counted, stored = await count_both(second)
    assert counted == stored
    await second.close()


async def test_lock_of_a_killed_node_hastens_the_take_over(server: PostgresServer) -> None:
    first, _ = await _open_second(server)
    job = await put_one(first)
    await asyncio.to_thread(lose_connections, first)

    second, seconds = await _open_second(server)

    assert seconds < terms.TTL
    assert (await put_one(second)).seq > job.seq
    with pytest.raises(StoreUnavailable):
        await put_one(first)
    await first.close()
    assert len(await second.list(ALL)) == 2
    await second.close()


async def test_frozen_node_writes_nothing_after_another_has_taken_over(server: PostgresServer) -> None:
    first, _ = await _open_second(server)
    job = await put_one(first)
    await asyncio.to_thread(_freeze, first)

    second, seconds = await _open_second(server)

    assert seconds < terms.TTL + 1.5
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="another node"):
            await first.add([NewJob(make_job())], now=NOW)
    assert isinstance(await first.end(), StoreFailed)
    assert await second.list(ALL) == [job]
    await first.close()
    assert second._term.is_lost is False
    await second.close()


async def test_node_that_hangs_inside_a_transaction_is_ended_by_its_successor(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await _open_second(server)
    await asyncio.to_thread(_freeze, first)
    with psycopg.connect(server.url, application_name=f"erelong/0/{first._session.epoch}/writer") as hanging:
        hanging.execute(f"SET search_path = {SCHEMA_NAME}")
        hanging.execute(sql.FENCE, [first._session.epoch])

        second, _ = await _open_second(server)

        with pytest.raises(psycopg.OperationalError):
            hanging.execute("SELECT 1")
    await put_one(second)
    await first.close()
    await second.close()


async def test_standby_outlives_a_restore_of_the_database(postgres: PostgresStore, server: PostgresServer) -> None:
    second = PostgresStore(url=server.url, durability="normal")
    await second.open()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"UPDATE {SCHEMA_NAME}.terms SET slice = 1".encode())
        async for _ in looks():
            if "are gone" in (second.standby() or ""):
                break

        connection.execute(f"UPDATE {SCHEMA_NAME}.terms SET slice = 0".encode())
    await postgres.resign()
    await second.lead()

    await put_one(second)
    await second.close()


async def test_term_is_renewed_while_the_node_lives(postgres: PostgresStore) -> None:
    select = "SELECT extract(epoch FROM until - clock_timestamp())::float8, locked FROM terms"
    await asyncio.sleep(2 * terms.TTL)

    left, is_locked = await postgres._lister.call(lambda: postgres._slow.connection.row(select))

    assert left > 0
    assert is_locked


async def test_node_whose_term_was_over_continues_if_nobody_came(postgres: PostgresStore) -> None:
    await postgres._lister.call(
        lambda: postgres._slow.connection.script("UPDATE terms SET until = clock_timestamp() - interval '1 minute'")
    )

    await put_one(postgres)
    await asyncio.sleep(terms.TTL / 2)

    assert postgres._term.is_lost is False
    assert len(await postgres.list(ALL)) == 1
