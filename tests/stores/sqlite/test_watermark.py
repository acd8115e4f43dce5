"""Opening the embedded store: it is whole, or refused with a remedy, and never silently empty."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

import apsw
import pytest

from erelong.errors import Exit, PlaceRefused, StoreCorrupt
from erelong.stores.sqlite import database as sqlite_file
from erelong.stores.sqlite.files import lock
from erelong.stores.sqlite.files.watermark import Watermark, WatermarkFile
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, put_one

pytestmark = pytest.mark.real_loop

PAGE = 4_096
RESTORE = "erelong restore FILE"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "erelong.db"


def mark_of(path: Path) -> Path:
    return path.with_name(path.name + ".mark")


def pages_of(path: Path) -> int:
    return path.stat().st_size // PAGE


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


async def fill(path: Path, jobs: int) -> None:
    """Store jobs one after the other and close the store."""
    store = SqliteStore(path=path)
    await store.open()
    for _ in range(jobs):
        await put_one(store)
    await store.close()


async def crash_with(path: Path, jobs: int, folder: Path) -> Path:
    """Return the files of a running store, with all jobs still in the log."""
    store = SqliteStore(path=path)
    await store.open()
    for _ in range(jobs):
        await put_one(store)
    copy_files(path.parent, folder)
    await store.close()
    return folder / path.name


def copy_files(source: Path, folder: Path) -> None:
    folder.mkdir()
    for file in source.glob("erelong.db*"):
        if not file.name.endswith("-shm"):
            shutil.copyfile(file, folder / file.name)


def lose(path: Path, content: bytes | None) -> None:
    path.unlink()
    if content is not None:
        path.write_bytes(content)


async def refusal(path: Path) -> Exit:
    with pytest.raises(Exit) as caught:
        await SqliteStore(path=path).open()
    return caught.value


async def count(path: Path) -> int:
    store = SqliteStore(path=path)
    await store.open()
    jobs = await store.list(ALL)
    await store.close()
    return len(jobs)


@pytest.mark.parametrize("content", [None, b"", bytes(PAGE)], ids=["missing", "empty", "zeros"])
async def test_missing_store_is_not_replaced_by_an_empty_one(path: Path, content: bytes | None) -> None:
    await fill(path, 3)
    lose(path, content)

    refused = await refusal(path)

    assert refused.code == 65
    assert RESTORE in str(refused)


async def test_store_is_created_in_an_empty_folder(path: Path) -> None:
    await fill(path, 0)

    assert mark_of(path).exists()
    assert await count(path) == 0


async def test_older_copy_is_refused_with_both_remedies(path: Path, tmp_path: Path) -> None:
    await fill(path, 3)
    shutil.copyfile(path, tmp_path / "copy")
    await fill(path, 2)
    shutil.copyfile(tmp_path / "copy", path)

    refused = await refusal(path)

    assert (type(refused), refused.code) == (StoreCorrupt, 65)
    assert "has lost its last 2 commits" in str(refused)
    assert RESTORE in str(refused)
    mark_of(path).unlink()
    assert await count(path) == 3


async def test_database_of_another_store_is_refused(path: Path, tmp_path: Path) -> None:
    await fill(path, 1)
    await fill(tmp_path / "other.db", 9)
    shutil.copyfile(tmp_path / "other.db", path)

    assert "is not the database that" in str(await refusal(path))


async def test_changed_byte_in_the_log_is_noticed(path: Path, tmp_path: Path) -> None:
    crashed = await crash_with(path, 20, tmp_path / "crashed")
    log = crashed.with_name("erelong.db-wal")
    flip(log, log.stat().st_size // 2)

    assert "has lost its last" in str(await refusal(crashed))
    assert log.stat().st_size > 0, "the log is kept as it is, to be looked into"


async def test_missing_log_is_noticed(path: Path, tmp_path: Path) -> None:
    crashed = await crash_with(path, 20, tmp_path / "crashed")
    crashed.with_name("erelong.db-wal").unlink()

    assert (await refusal(crashed)).code == 65


async def test_log_with_a_torn_end_is_repaired(path: Path, tmp_path: Path) -> None:
    crashed = await crash_with(path, 20, tmp_path / "crashed")
    with crashed.with_name("erelong.db-wal").open("ab") as log:
        log.write(os.urandom(3 * PAGE))

    assert await count(crashed) == 20


async def test_watermark_moves_before_calls_are_answered(path: Path) -> None:
    store = SqliteStore(path=path)
    await store.open()
    store._threads.rest = lambda: None  # type: ignore[method-assign]  # only the commit itself moves it
    await put_one(store)

    mark = WatermarkFile(path=mark_of(path)).read()

    assert mark is not None
    assert (mark.commits, mark.last_seq) == (2, 1)
    await store.close()


async def test_watermark_moves_only_with_checkpoints_when_commits_are_not_synced(path: Path) -> None:
    store = SqliteStore(path=path, durability="normal")
    await store.open()
    await put_one(store)
    before = WatermarkFile(path=mark_of(path)).read()
    await store.close()
    after = WatermarkFile(path=mark_of(path)).read()

    assert before is not None
    assert after is not None
    assert (before.commits, after.commits) == (0, 2)


@pytest.mark.parametrize("fault", ["missing", "unreadable"])
async def test_lost_watermark_is_recreated_and_logged(path: Path, fault: str, caplog: pytest.LogCaptureFixture) -> None:
    await fill(path, 3)
    if fault == "missing":
        mark_of(path).unlink()
    else:
        flip(mark_of(path), 40)

    with caplog.at_level(logging.WARNING):
        assert await count(path) == 3

    assert [record.__dict__["fields"]["reason"] for record in caplog.records if record.msg == "mark_recreated"] == [
        fault
    ]
    assert WatermarkFile(path=mark_of(path)).read() is not None


async def test_number_of_the_newest_job_is_not_reused_when_it_is_deleted(path: Path) -> None:
    store = SqliteStore(path=path)
    await store.open()
    await put_one(store)
    await store.delete(await put_one(store))
    await store.close()

    store = SqliteStore(path=path)
    await store.open()

    assert (await put_one(store)).seq == 3
    await store.close()


def test_watermark_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = WatermarkFile(path=tmp_path / "mark")
    assert file.read() is None

    file.create(Watermark("ab", 1, 2))
    file.write(Watermark("ab", 3, 4))
    file.sync()
    file.close()

    assert file.read() == Watermark("ab", 3, 4)


@pytest.mark.parametrize("offset", range(0, 99, 7))
def test_watermark_with_a_changed_byte_is_rejected(tmp_path: Path, offset: int) -> None:
    file = WatermarkFile(path=tmp_path / "mark")
    file.create(Watermark("0" * 32, 1, 2))
    file.close()
    flip(tmp_path / "mark", offset)

    with pytest.raises(ValueError, match="damaged"):
        file.read()


# checksums


async def test_every_page_has_a_checksum(path: Path) -> None:
    await fill(path, 500)

    unnoticed = []
    for page in range(pages_of(path)):
        copy = path.with_name(f"{page}.db")
        shutil.copyfile(path, copy)
        flip(copy, page * PAGE + 2_000)
        if await _reads_whole(copy):
            unnoticed.append(page)

    assert unnoticed == []


async def test_lost_declaration_of_checksums_is_noticed(path: Path) -> None:
    await fill(path, 3)
    flip(path, 20)

    refused = await refusal(path)

    assert refused.code == 65


async def test_store_without_checksums_is_logged_and_works(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_file, "has_checksum_vfs", lambda: False)

    with caplog.at_level(logging.WARNING):
        await fill(path, 3)

    assert [record.msg for record in caplog.records] == ["checksums_unavailable"]
    monkeypatch.undo()
    assert await count(path) == 3


async def test_unsupported_checksums_are_left_intact(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(path, 3)
    monkeypatch.setattr(sqlite_file, "has_checksum_vfs", lambda: False)

    assert "apsw" in str(await refusal(path))


# the file system


@pytest.mark.parametrize(
    ("path", "type_"),
    [("/data/erelong", "nfs4"), ("/data", "nfs4"), ("/database", "ext4"), ("/data/local/x", "xfs"), ("/a b/c", "9p")],
)
def test_file_system_is_that_of_the_nearest_mount(path: str, type_: str) -> None:
    mounts = "\n".join(
        f"36 35 98:0 / {point} rw,noatime shared:1 - {kind} source rw"
        for point, kind in [
            ("/", "ext4"),
            ("/data", "ext4"),
            ("/data", "nfs4"),
            ("/data/local", "xfs"),
            ("/a\\040b", "9p"),
        ]
    )

    assert lock.type_at(Path(path), mounts) == type_


async def test_network_file_system_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("36 35 98:0 / / rw - nfs4 server:/x rw\n")
    monkeypatch.setattr(lock, "MOUNTS", mounts)

    refused = await refusal(path)

    assert (type(refused), refused.code) == (PlaceRefused, 78)
    assert "is on a network file system (nfs4)" in str(refused)


async def test_unknown_file_system_is_accepted(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "MOUNTS", tmp_path / "none")

    await fill(path, 1)

    assert await count(path) == 1


async def _reads_whole(path: Path) -> bool:
    store = SqliteStore(path=path)
    try:
        await store.open()
    except Exit:
        return False
    try:
        rows = [
            row
            for table in ("jobs", "counts", "labels", "idempotency_records", "overrides")
            for row in _rows(store, table)
        ]
        indexed = store._file.write.execute("SELECT count(*) FROM jobs INDEXED BY grouped").get
        found = store._file.write.pragma("integrity_check")
    except apsw.Error:
        return False
    finally:
        await store.close()
    return bool(rows) and indexed == 500 and found == "ok"


def _rows(store: SqliteStore, table: str) -> list[tuple[object, ...]]:
    return store._file.write.execute(f"SELECT * FROM {table}").fetchall()
