"""A copy of a store, in either direction: it holds everything, or nothing."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from erelong.errors import BadCopy, Exit, StoreCorrupt, StoreFailed, StoreInUse, WrongClock
from erelong.model.job import State
from erelong.model.submission import NewJob
from erelong.stores.copying.copy import copy_store
from erelong.stores.copying.tables import JOBS, TABLES, Table
from erelong.stores.postgres.connection import SCHEMA_NAME
from erelong.stores.rows import Row
from tests.stores.copying.conftest import MakePlace
from tests.support.builders import ALL, NOW, count_both, make_job, put, put_one
from tests.support.copied import Place, Silent, contents, copy_between
from tests.support.schema_file import fill

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

WAYS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]
KINDS = ("sqlite", "postgres")


@pytest.fixture(params=WAYS, ids=" to ".join)
def way(request: pytest.FixtureRequest, make_place: MakePlace) -> tuple[Place, Place]:
    """Return a place for the source and one for the target."""
    source, target = request.param
    return make_place(source), make_place(target)


@pytest.fixture(params=KINDS)
def other(request: pytest.FixtureRequest, make_place: MakePlace) -> Place:
    """Return a place of each kind."""
    return make_place(request.param)


@pytest.fixture
def sqlite(make_place: MakePlace) -> Place:
    return make_place("sqlite")


async def filled(place: Place) -> Place:
    async with place.opened() as store:
        await fill(store)
    return place


def assert_empty(place: Place) -> None:
    """Assert that a service would find no store, not even a part of one."""
    if place.path is not None:
        assert {path.name for path in place.path.parent.iterdir()} <= {"erelong.db.lock"}
        return
    with psycopg.connect(place.url) as connection:
        rows = connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA_NAME]).fetchall()
    assert rows == []


async def test_copy_holds_everything(way: tuple[Place, Place]) -> None:
    source, target = way
    await filled(source)

    copied = copy_between(source, target)

    async with source.opened() as store:
        expected = await contents(store)
    async with target.opened() as store:
        assert await contents(store) == expected
        counted, stored = await count_both(store)
        assert counted == stored
    assert {job.state for job in expected["jobs"]} == {*State}
    assert (copied.rows[JOBS], copied.missing) == (len(expected["jobs"]), 0)
    assert all(copied.rows[table] for table in TABLES)


async def test_running_jobs_still_run_and_can_be_finished_as_lost(way: tuple[Place, Place]) -> None:
    source, target = way
    async with source.opened() as store:
        job = await put_one(store)
        (running,) = (await store.claim([job.seq], now=NOW)).jobs

    copy_between(source, target)

    async with target.opened() as store:
        assert await store.get([job.seq]) == {job.seq: running}
        (saved,) = await store.save([running.cancel(NOW)])
        assert saved.is_saved


async def test_numbers_of_deleted_jobs_are_not_assigned_again(way: tuple[Place, Place]) -> None:
    source, target = way
    async with source.opened() as store:
        jobs = await put(store, *(make_job() for _ in range(3)))
        for job in jobs:
            await store.delete(job)

    copy_between(source, target)

    async with target.opened() as store:
        assert (await put_one(store)).seq == 4


async def test_clock_mark_is_kept(way: tuple[Place, Place]) -> None:
    source, target = way
    async with source.opened(is_virtual=True) as store:
        await put_one(store)

    copy_between(source, target)

    with pytest.raises(WrongClock):
        await target.store().open()
    async with target.opened(is_virtual=True) as store:
        assert len(await store.list(ALL)) == 1


async def test_empty_store_is_copied(way: tuple[Place, Place]) -> None:
    source, target = way
    async with source.opened():
        pass

    copy_between(source, target)

    async with target.opened() as store:
        assert (await put_one(store)).seq == 1


async def test_source_is_unchanged(other: Place, make_place: MakePlace) -> None:
    await filled(other)
    async with other.opened() as store:
        before = await contents(store)

    copy_between(other, make_place("sqlite"))

    async with other.opened() as store:
        assert await contents(store) == before


# refusals


async def test_target_with_a_store_is_refused(other: Place, sqlite: Place) -> None:
    await filled(sqlite)
    async with other.opened() as store:
        job = await put_one(store)

    with pytest.raises(Exit, match="already"):
        copy_between(sqlite, other)

    async with other.opened() as store:
        assert await store.list(ALL) == [job]


async def test_target_of_another_program_is_refused(make_place: MakePlace, sqlite: Place) -> None:
    await filled(sqlite)
    target = make_place("postgres")
    with psycopg.connect(target.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA_NAME}".encode())
        connection.execute(f"CREATE TABLE {SCHEMA_NAME}.theirs (a int)".encode())

    with pytest.raises(Exit, match="another program"):
        copy_between(sqlite, target)


async def test_prepared_schema_without_tables_is_filled(make_place: MakePlace, sqlite: Place) -> None:
    await filled(sqlite)
    target = make_place("postgres")
    with psycopg.connect(target.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {SCHEMA_NAME}".encode())

    copy_between(sqlite, target)

    async with target.opened() as store:
        assert await store.list(ALL)


async def test_mark_of_a_lost_store_keeps_its_place(sqlite: Place, make_place: MakePlace) -> None:
    await filled(sqlite)
    target = await filled(make_place("sqlite"))
    assert target.path is not None
    target.path.unlink()

    with pytest.raises(Exit, match=r"erelong\.db\.mark already exists"):
        copy_between(sqlite, target)


async def test_missing_folder_of_the_target_is_refused(sqlite: Place, tmp_path: Path) -> None:
    await filled(sqlite)

    with pytest.raises(Exit, match="there is no folder"):
        copy_between(sqlite, Place(path=tmp_path / "nowhere" / "erelong.db"))


async def test_missing_source_is_refused(other: Place, sqlite: Place) -> None:
    with pytest.raises(Exit, match=r"no store at|no jobs of erelong"):
        copy_between(other, sqlite)

    assert_empty(other)
    assert_empty(sqlite)


async def test_source_in_use_is_refused(other: Place, make_place: MakePlace) -> None:
    target = make_place("sqlite")
    async with other.opened() as store:
        await put_one(store)

        with pytest.raises(StoreInUse, match=r"in use by|a node at .* leads"):
            await asyncio.to_thread(copy_between, other, target)

        await put_one(store)
    assert_empty(target)


async def test_source_of_a_newer_version_is_refused(other: Place, make_place: MakePlace) -> None:
    await filled(other)
    if other.path is not None:
        async with other.opened() as store:
            store._file.write.pragma("user_version", 99)  # type: ignore[union-attr]  # the embedded store
    else:
        with psycopg.connect(other.url, autocommit=True) as connection:
            connection.execute(f"UPDATE {SCHEMA_NAME}.meta SET schema_version = 99".encode())

    with pytest.raises(StoreCorrupt, match="schema version 99"):
        copy_between(other, make_place("sqlite"))


# interruptions


class Interrupted(Silent):
    """Ends a copy at its n-th report."""

    def __init__(self, at: int) -> None:
        self._left = at

    def begin(self, phase: str, total: int) -> None:
        self.advance(total)

    def advance(self, rows: int) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", range(1, 14))
async def test_interrupted_copy_leaves_nothing_and_can_be_repeated(other: Place, sqlite: Place, at: int) -> None:
    await filled(sqlite)

    with pytest.raises(KeyboardInterrupt):
        copy_store(sqlite.source(), other.target(), Interrupted(at))

    assert_empty(other)
    copy_between(sqlite, other)
    async with other.opened() as store:
        assert len(await store.list(ALL)) == 12


async def test_copy_reports_no_more_than_the_sweep_interrupts(other: Place, sqlite: Place) -> None:
    await filled(sqlite)

    copy_store(sqlite.source(), other.target(), Interrupted(14))

    async with other.opened() as store:
        assert len(await store.list(ALL)) == 12


class Serving(Silent):
    """Starts a service on the target in the middle of a copy."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.refused: Exit | None = None

    def begin(self, phase: str, total: int) -> None:
        if phase == "comparing":
            try:
                asyncio.run(self._place.store().open())
            except Exit as exit:
                self.refused = exit


async def test_service_cannot_start_on_a_target_that_is_being_made(other: Place, sqlite: Place) -> None:
    await filled(sqlite)
    serving = Serving(other)

    await asyncio.to_thread(copy_store, sqlite.source(), other.target(), serving)

    assert isinstance(serving.refused, StoreInUse | StoreFailed)
    assert "in use by" in str(serving.refused) or "wait for the end of a copy" in str(serving.refused)
    async with other.opened() as store:
        assert len(await store.list(ALL)) == 12


async def test_service_cannot_start_on_a_source_that_is_being_copied(other: Place, sqlite: Place) -> None:
    await filled(other)
    serving = Serving(other)

    await asyncio.to_thread(copy_store, other.source(), sqlite.target(), serving)

    assert isinstance(serving.refused, StoreInUse | StoreFailed)


# damage


async def test_copy_that_differs_is_refused(other: Place, sqlite: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(sqlite)
    target = other.target()
    rows = target.rows

    def spoilt(table: Table) -> Iterator[Row]:
        for row in rows(table):
            yield (*row[:-1], b"spoilt") if table is JOBS else row

    monkeypatch.setattr(target, "rows", spoilt)

    with pytest.raises(BadCopy, match="differs from its source in jobs"):
        copy_store(sqlite.source(), target, Silent())

    assert_empty(other)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE jobs SET params = x'7B' WHERE seq = 2",
        "UPDATE jobs SET spec = x'7B7D' WHERE seq = 2",
        "UPDATE jobs SET token = CAST(x'FF' AS TEXT) WHERE seq = 2",
        "UPDATE jobs SET key = CAST(x'FF' AS TEXT) WHERE seq = 2",
        "UPDATE jobs SET attempts = x'00', labels = x'00', error = x'00', extras = x'FF' WHERE seq = 2",
    ],
)
async def test_unreadable_values_are_copied_as_they_are(other: Place, sqlite: Place, damage: str) -> None:
    async with sqlite.opened() as store:
        await put(store, *(make_job(key=f"k{n}", labels={"a": "b"}) for n in range(3)))
        store._file.write.execute(damage)  # type: ignore[union-attr]  # the embedded store
    async with sqlite.opened() as store:
        expected = await store.get([1, 2, 3])

    copy_between(sqlite, other)

    async with other.opened() as store:
        assert await store.get([1, 2, 3]) == expected
        claim = await store.claim([1, 2, 3], now=NOW)
        assert [job.seq for job in claim.unreadable] == [2]


@pytest.mark.parametrize("value", ["state = 77", "version = 4294967296"])
async def test_job_that_no_store_can_hold_is_left_out_on_request(other: Place, sqlite: Place, value: str) -> None:
    async with sqlite.opened() as store:
        await put(store, *(make_job(labels={"tenant": "t1"}) for _ in range(3)))
        store._file.write.execute(f"UPDATE jobs SET {value} WHERE seq = 2")  # type: ignore[union-attr]  # as above

    with pytest.raises(BadCopy, match=r"1 jobs of .* cannot be read, among the numbers 2; .*--skip-damaged"):
        copy_between(sqlite, other)
    assert_empty(other)
    copied = copy_between(sqlite, other, skips_damaged=True)

    assert copied.missing == 1
    async with other.opened() as store:
        assert [job.seq for job in await store.list(ALL)] == [3, 1]
        counted, stored = await count_both(store)
        assert counted == stored


async def test_jobs_on_a_damaged_page_are_left_out_on_request(other: Place, sqlite: Place) -> None:
    assert sqlite.path is not None
    async with sqlite.opened() as store:
        await put(store, *(make_job(params={"text": f"canary{n}" + "x" * 900}) for n in range(40)))
    content = bytearray(sqlite.path.read_bytes())
    content[content.index(b"canary17") + 3] ^= 0x40
    sqlite.path.write_bytes(content)

    with pytest.raises(BadCopy, match="nothing was copied"):
        copy_between(sqlite, other)
    assert_empty(other)
    copied = copy_between(sqlite, other, skips_damaged=True)

    assert 1 <= copied.missing <= 5  # a page has four of them
    async with other.opened() as store:
        jobs = await store.list(ALL)
        assert len(jobs) == 40 - copied.missing
        assert not any(b"canary17" in job.params for job in jobs)


async def test_missing_jobs_are_noticed_by_the_counts(other: Place, sqlite: Place) -> None:
    async with sqlite.opened() as store:
        await put(store, *(make_job() for _ in range(3)))
        store._file.write.execute("DELETE FROM jobs WHERE seq = 2")  # type: ignore[union-attr]  # the embedded store

    with pytest.raises(BadCopy, match="1 jobs of"):
        copy_between(sqlite, other)


async def test_store_that_is_damaged_all_over_is_refused(other: Place, sqlite: Place) -> None:
    assert sqlite.path is not None
    async with sqlite.opened() as store:
        await put(store, *(make_job(params={"text": "x" * 900}) for n in range(400)))
    content = bytearray(sqlite.path.read_bytes())
    for page in range(10 * 4096, len(content), 4096):
        content[page + 2000] ^= 0x40
    sqlite.path.write_bytes(content)

    with pytest.raises(Exit):
        copy_between(sqlite, other)

    assert_empty(other)


# size


async def test_memory_does_not_grow_with_the_store(way: tuple[Place, Place]) -> None:
    source, target = way
    async with source.opened() as store:
        for _ in range(20):
            jobs = [NewJob(make_job(params={"text": "x" * 50_000})) for _ in range(20)]
            await store.add(jobs, now=NOW)

    tracemalloc.start()
    copy_between(source, target)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8_000_000  # of 20 MB
