"""Old snapshots of other sessions are reported while they last."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from erelong.stores.postgres import snapshots
from erelong.stores.postgres.snapshots import OLD, Snapshots
from erelong.stores.postgres.store import PostgresStore
from tests.support.builders import ALL, put_one
from tests.support.postgres import PostgresServer
from tests.system.client import looks


def test_snapshot_is_as_old_as_the_database_says() -> None:
    seen = Snapshots()

    seen.note([("session 1", "700", 3.0), ("session 2", "690", OLD + 60)], now=100.0)

    assert seen.age == OLD + 60
    assert seen.status() == "ok, but session 2 keeps dead rows for 11 min: end it, or reads of jobs become slower"


def test_snapshot_of_unknown_age_is_as_old_as_the_first_look() -> None:
    seen = Snapshots()

    seen.note([("replication slot a", "700", None)], now=100.0)
    assert seen.age == 0
    seen.note([("replication slot a", "700", None)], now=100.0 + OLD + 1)

    assert seen.age == OLD + 1


def test_slot_that_advances_is_not_old() -> None:
    seen = Snapshots()
    for look in range(20):
        seen.note([("replication slot a", str(700 + look), None)], now=100.0 + 60 * look)

    assert (seen.age, seen.status()) == (0, None)


def test_end_of_a_snapshot_is_noted() -> None:
    seen = Snapshots()
    seen.note([("session 1", "700", 2 * OLD)], now=100.0)
    seen.note([], now=160.0)

    assert (seen.age, seen.status()) == (0, None)


@pytest.mark.real_loop
async def test_store_names_the_session_that_keeps_a_snapshot(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "OLD", 0.05)
    monkeypatch.setattr(snapshots, "CHECK_INTERVAL", 0.1)
    store = PostgresStore(url=server.url, durability="normal")
    await store.open()
    await put_one(store)
    with psycopg.connect(server.url, application_name="dump") as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT 1")
        pid = holder.info.backend_pid
        async for _ in looks():
            if (store.status() or "").startswith("ok"):
                break

        assert (store.status() or "").startswith(f"ok, but session {pid} of dump keeps dead rows")

    async for _ in looks():
        if not store.status():
            break
    assert store.snapshot_age == 0
    await store.close()


@pytest.mark.real_loop
async def test_look_that_fails_is_repeated(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "CHECK_INTERVAL", 0.05)
    store = PostgresStore(url=server.url, durability="normal")
    await store.open()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'erelong/0/lister'"
        )
    await asyncio.sleep(0.2)

    assert await store.list(ALL) == []
    await store.close()
