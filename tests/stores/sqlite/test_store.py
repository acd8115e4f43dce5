"""The embedded store: opening and locking its file, groups of calls, and a full disk."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from erelong.errors import (
    Exit,
    IdempotencyMismatch,
    StorageFull,
    StoreCorrupt,
    StoreFailed,
    StoreInUse,
    StoreUnavailable,
)
from erelong.model.job import State
from erelong.model.submission import IdempotencyRecord, NewJob, Receipt
from erelong.stores.sqlite.files.lock import FileLock
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, NOW, count_both, make_job, make_new_job, put_one

pytestmark = pytest.mark.real_loop

RECORD = IdempotencyRecord("caller", "key", b"digest")


async def test_store_makes_the_folders_of_its_path(tmp_path: Path) -> None:
    async with opened(tmp_path / "not" / "there") as store:
        await put_one(store)

    assert (tmp_path / "not" / "there" / "erelong.db").exists()


async def test_second_owner_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    async with opened(tmp_path):
        with pytest.raises(StoreInUse, match=rf"in use by process {os.getpid()} on .*stop it, or start with") as caught:
            await SqliteStore(path=tmp_path / "erelong.db").open()

        assert caught.value.code == 75


async def test_store_is_free_again_after_close(tmp_path: Path) -> None:
    for _ in range(2):
        async with opened(tmp_path) as store:
            await put_one(store)


async def test_file_that_is_not_a_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "erelong.db").write_bytes(b"Dear diary, " * 1_000)

    assert "cannot be read as a database" in str(await refused(tmp_path, StoreCorrupt, code=65))


async def test_database_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "erelong.db"
    with_connection(path, "CREATE TABLE diary (entry)")
    before = path.read_bytes()

    assert "belongs to another program" in str(await refused(tmp_path, StoreCorrupt, code=65))
    assert path.read_bytes() == before


async def test_schema_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    with_connection(tmp_path / "erelong.db", "PRAGMA user_version = 99")

    assert "schema version 99; this erelong reads versions up to 1" in str(
        await refused(tmp_path, StoreCorrupt, code=65)
    )


async def test_database_that_has_lost_its_tables_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path):
        pass
    with_connection(tmp_path / "erelong.db", "DROP TABLE jobs")

    assert "no such table: jobs" in str(await refused(tmp_path, StoreCorrupt, code=65))


@pytest.mark.parametrize("obstacle", ["a folder", "under a file"])
async def test_path_that_cannot_be_opened_is_refused(tmp_path: Path, obstacle: str) -> None:
    if obstacle == "a folder":
        (tmp_path / "erelong.db").mkdir()
    else:
        tmp_path = tmp_path / "file"
        tmp_path.write_text("")

    assert "cannot be opened" in str(await refused(tmp_path, StoreFailed, code=74))


async def test_refused_store_is_not_locked(tmp_path: Path) -> None:
    path = tmp_path / "erelong.db"
    with_connection(path, "CREATE TABLE diary (entry)")
    await refused(tmp_path, StoreCorrupt, code=65)

    path.unlink()
    async with opened(tmp_path) as store:
        await put_one(store)


def test_lock_error_names_another_process_when_the_owner_left_no_name(tmp_path: Path) -> None:
    first, second = FileLock(path=tmp_path / "lock"), FileLock(path=tmp_path / "lock")
    first.take()
    (tmp_path / "lock").write_text("")

    with pytest.raises(StoreInUse, match="in use by another process"):
        second.take()

    first.give_up()
    second.take()
    second.give_up()


@pytest.mark.parametrize(("durability", "synchronous"), [("full", 2), ("normal", 1)])
async def test_every_connection_has_its_settings(tmp_path: Path, durability: str, synchronous: int) -> None:
    wanted = {
        "journal_mode": "wal",
        "synchronous": synchronous,
        "busy_timeout": 5_000,
        "foreign_keys": 1,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "mmap_size": 0,
        "temp_store": 2,
        "wal_autocheckpoint": 0,
        "journal_size_limit": 8_388_608,
    }

    async with opened(tmp_path, durability=durability) as store:
        found = [{name: connection.pragma(name) for name in wanted} for connection in store._file._connections]

    assert found == [wanted] * 3


async def test_concurrent_adds_share_a_commit(sqlite: SqliteStore) -> None:
    commits = count_commits(sqlite)

    async with held_writer(sqlite):
        adding = [asyncio.ensure_future(put_one(sqlite)) for _ in range(50)]
        await asyncio.sleep(0)
    jobs = await asyncio.gather(*adding)

    assert [job.seq for job in jobs] == list(range(1, 51))
    _of_the_holder, *others = commits
    assert len(others) == 1


async def test_single_add_is_committed_before_it_is_answered(sqlite: SqliteStore, tmp_path: Path) -> None:
    for number in range(1, 4):
        await put_one(sqlite)

        assert with_connection(tmp_path / "erelong.db", "SELECT count(*) FROM jobs") == number


async def test_broken_call_does_not_fail_its_group(sqlite: SqliteStore) -> None:
    broken = NewJob(make_job()._replace(params="no bytes"))  # type: ignore[arg-type]  # which breaks the call
    new_jobs = [broken if number in (3, 7) else make_new_job() for number in range(10)]

    async with held_writer(sqlite):
        adding = [asyncio.ensure_future(sqlite.add([new_job], now=NOW)) for new_job in new_jobs]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*adding, return_exceptions=True)

    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [new_job is broken for new_job in new_jobs]
    assert len(await sqlite.list(ALL)) == 8
    counted, stored = await count_both(sqlite)
    assert counted == stored


async def test_refused_call_does_not_cost_its_group_a_second_commit(sqlite: SqliteStore) -> None:
    await sqlite.add([make_new_job()], now=NOW, record=RECORD)
    commits = count_commits(sqlite)

    async with held_writer(sqlite):
        adding = [
            asyncio.ensure_future(sqlite.add([make_new_job()], now=NOW, record=record))
            for record in (None, RECORD._replace(digest=b"other"), None)
        ]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*adding, return_exceptions=True)

    assert [type(answer) for answer in answers] == [Receipt, IdempotencyMismatch, Receipt]
    _of_the_holder, *others = commits
    assert len(others) == 1


async def test_closed_store_finishes_pending_calls_and_refuses_new_ones(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        async with held_writer(store):
            adding = asyncio.ensure_future(put_one(store))
            await asyncio.sleep(0)
        await store.close()
        job = await adding

        with pytest.raises(StoreUnavailable, match="the store is closed"):
            await put_one(store)

    async with opened(tmp_path) as store:
        assert await store.list(ALL) == [job]


async def test_claim_alone_is_not_a_commit(sqlite: SqliteStore) -> None:
    job = await put_one(sqlite)
    commits = sqlite._counters.commits, sqlite._threads.checkpointer.log_pages

    await sqlite.claim([job.seq], now=NOW)

    assert (sqlite._counters.commits, sqlite._threads.checkpointer.log_pages) == commits
    assert (await sqlite.get([job.seq]))[job.seq].state is State.RUNNING


async def test_undone_claim_does_not_count(sqlite: SqliteStore) -> None:
    job = await put_one(sqlite)
    sqlite._file.write.exec_trace = lambda _, statement, __: statement != "COMMIT"
    with pytest.raises(StoreUnavailable):
        await sqlite.claim([job.seq], now=NOW)
    sqlite._file.write.exec_trace = None

    cancelled = job.cancel(NOW)
    await sqlite.save([cancelled])
    await sqlite.save([cancelled.revive(NOW)])  # with the version that the outcome of the claim would have

    counted, stored = await count_both(sqlite)
    assert counted == stored


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize("key", [None, "k"])
async def test_full_disk_refuses_and_recovers(sqlite: SqliteStore, key: str | None, is_whole: bool) -> None:
    small = await put_one(sqlite)
    counts = dict(sqlite.counts())
    sqlite._file.write.pragma("max_page_count", sqlite._file.write.pragma("page_count"))

    with pytest.raises(StorageFull, match="the disk is full; nothing was stored") as caught:
        await sqlite.add([make_new_job(key=key, params={"a": "x" * 100_000})], now=NOW, is_whole=is_whole)

    assert caught.value.headers["Retry-After"] == "5"
    assert await sqlite.list(ALL) == [small]
    assert dict(sqlite.counts()) == counts

    sqlite._file.write.pragma("max_page_count", 1 << 30)
    large = await put_one(sqlite, key=key, params={"a": "x" * 100_000})
    assert await sqlite.list(ALL) == [large, small]


async def test_full_disk_refuses_a_group_at_the_first_try(sqlite: SqliteStore) -> None:
    sqlite._file.write.pragma("max_page_count", sqlite._file.write.pragma("page_count"))
    tries: list[str] = []

    def note(_: object, statement: str, __: object) -> bool:
        tries.extend([statement] if statement.startswith("BEGIN") else [])
        return True

    async with held_writer(sqlite):
        sqlite._file.write.exec_trace = note
        adding = [asyncio.ensure_future(put_one(sqlite, params={"a": "x" * 9_000})) for _ in range(5)]
        await asyncio.sleep(0)
    answers = await asyncio.gather(*adding, return_exceptions=True)

    assert [type(answer) for answer in answers] == [StorageFull] * 5
    assert len(tries) == 1
    assert await sqlite.list(ALL) == []


@asynccontextmanager
async def opened(folder: Path, durability: str = "full") -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path=folder / "erelong.db", durability=durability)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def held_writer(store: SqliteStore) -> AsyncIterator[None]:
    """Keep the writer busy, so that all calls made meanwhile form one group."""
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        may_go.wait(timeout=5)

    holding = asyncio.ensure_future(store._writer.call(hold))
    await asyncio.to_thread(is_held.wait, 5)
    yield
    may_go.set()
    await holding


def count_commits(store: SqliteStore) -> list[None]:
    commits: list[None] = []

    def note() -> bool:
        commits.append(None)
        return False

    store._file.write.set_commit_hook(note)
    return commits


async def refused(folder: Path, exit_: type[Exit], *, code: int) -> Exit:
    with pytest.raises(exit_) as caught:
        await SqliteStore(path=folder / "erelong.db").open()
    assert caught.value.code == code
    return caught.value


def with_connection(path: Path, statement: str) -> object:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(statement).get
    finally:
        connection.close()
