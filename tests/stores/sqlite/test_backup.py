"""Backup and restore of the embedded store: copies of a running store, verified, and restored safely."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from erelong.cli.parser import main as run
from erelong.errors import BadCopy, Exit, StoreCorrupt, StoreFailed, StoreInUse
from erelong.model.job import State
from erelong.stores.sqlite import backup
from erelong.stores.sqlite.backup import back_up, restore
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, make_ended, make_job, make_running, put, put_one
from tests.support.disk import faulty_disk, io_error

pytestmark = pytest.mark.real_loop


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "erelong.db"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return the path of the copy, in its own folder."""
    folder = tmp_path / "copies"
    folder.mkdir()
    return folder / "copy.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path=path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def fill(path: Path, jobs: int) -> None:
    async with opened(path) as store:
        await put(store, *(make_job(params={"a": "x" * 300}) for _ in range(jobs)))


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 1_000)
        file.write(b"spoilt")


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


async def test_copy_made_under_load_is_a_complete_snapshot(path: Path, copy: Path) -> None:
    async with opened(path) as store:
        await put(store, make_running(), make_ended(State.FAILED, labels={"a": "b"}), make_job(key="k"))
        copying = asyncio.ensure_future(asyncio.to_thread(back_up, path, copy))
        added = 0
        while not copying.done():
            await put_one(store)
            added += 1
        made = await copying

    assert 3 <= made.jobs <= 3 + added
    assert made.bytes == os.stat(copy).st_size
    assert names(copy.parent) == ["copy.db"]


async def test_copy_larger_than_the_cache_has_all_checksums(path: Path, copy: Path) -> None:
    async with opened(path) as store:
        for _ in range(4):
            await put(store, *(make_job(params={"a": "x" * 3_000}) for _ in range(500)))

        assert back_up(path, copy).jobs == 2_000
    assert restore(path, copy).copy.jobs == 2_000


async def test_restored_store_is_unchanged(path: Path, copy: Path) -> None:
    async with opened(path) as store:
        await put(store, make_running(), make_ended(State.FAILED, labels={"a": "b"}), make_job(key="k"))
        jobs, counts = await store.list(ALL), dict(store.counts())
        back_up(path, copy)
        await put_one(store)

    restored = restore(path, copy)

    assert restored.copy.jobs == 3
    async with opened(path) as store:
        assert await store.list(ALL) == jobs
        assert dict(store.counts()) == counts


async def test_numbers_assigned_since_the_copy_are_not_reused(path: Path, copy: Path) -> None:
    await fill(path, 3)
    back_up(path, copy)
    await fill(path, 4)

    restore(path, copy)

    async with opened(path) as store:
        assert (await put_one(store)).seq == 8


async def test_replaced_store_is_kept_and_can_be_restored(path: Path, copy: Path) -> None:
    await fill(path, 1)
    back_up(path, copy)
    await fill(path, 4)

    aside = restore(path, copy).aside

    assert aside is not None
    assert restore(path, aside).copy.jobs == 5
    assert aside.exists()


@pytest.mark.parametrize("lost", [("",), ("", ".mark"), (".mark",)], ids=str)
async def test_lost_store_is_restored(path: Path, copy: Path, lost: tuple[str, ...]) -> None:
    await fill(path, 3)
    back_up(path, copy)
    for suffix in lost:
        path.with_name(path.name + suffix).unlink()

    restore(path, copy)

    async with opened(path) as store:
        assert len(await store.list(ALL)) == 3


@pytest.mark.parametrize("has_mark", [False, True])
async def test_restore_without_a_store_keeps_nothing_aside(path: Path, copy: Path, has_mark: bool) -> None:
    await fill(path, 3)
    back_up(path, copy)
    path.unlink()  # noqa: ASYNC240
    if not has_mark:
        path.with_name(f"{path.name}.mark").unlink()

    assert restore(path, copy).aside is None

    assert [name for name in names(path.parent) if "before" in name] == []


async def test_log_of_the_old_store_is_not_applied_to_the_copy(path: Path, copy: Path) -> None:
    await fill(path, 3)
    back_up(path, copy)
    log = path.with_name(path.name + "-wal")
    log.write_bytes(b"\x37\x7f\x06\x82" * 4_000)
    path.unlink()  # noqa: ASYNC240

    restore(path, copy)

    assert not log.exists()


async def test_interrupted_restore_leaves_a_store_that_refuses_to_start(
    path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(path, 3)
    back_up(path, copy)
    await fill(path, 2)

    for call in range(1, 8):
        with monkeypatch.context() as patch:
            patch.setattr(backup, "sync_folder", _raise_at(call))
            try:
                restore(path, copy)
                break
            except StoreFailed:
                pass
        with pytest.raises(StoreCorrupt, match="restore FILE"):
            await SqliteStore(path=path).open()

    assert call > 1
    async with opened(path) as store:
        assert len(await store.list(ALL)) == 3


async def test_restore_fails_while_the_store_is_in_use(path: Path, copy: Path) -> None:
    async with opened(path) as store:
        await put_one(store)
        back_up(path, copy)

        with pytest.raises(StoreInUse):
            restore(path, copy)


async def test_backup_overwrites_no_file(path: Path, copy: Path) -> None:
    await fill(path, 3)
    write(copy, b"mine")

    with pytest.raises(Exit, match="already exists") as caught:
        back_up(path, copy)

    assert (caught.value.code, os.stat(copy).st_size) == (1, 4)


async def test_damaged_store_is_not_copied(path: Path, copy: Path) -> None:
    await fill(path, 100)
    damage(path)

    with pytest.raises(BadCopy, match="is damaged") as caught:
        back_up(path, copy)

    assert caught.value.code == 65
    assert names(copy.parent) == []


@pytest.mark.parametrize("content", ["damaged", "diary", "empty"])
async def test_damaged_copy_is_not_restored(path: Path, copy: Path, content: str) -> None:
    await fill(path, 100)
    back_up(path, copy)
    before = names(path.parent)
    if content == "damaged":
        damage(copy)
    else:
        write(copy, b"Dear diary, " * 1_000 if content == "diary" else b"")

    with pytest.raises(BadCopy) as caught:
        restore(path, copy)

    assert caught.value.code == 65
    assert names(path.parent) == before
    async with opened(path) as store:
        assert len(await store.list(ALL)) == 100


async def test_failed_backup_leaves_no_file(path: Path, copy: Path) -> None:
    await fill(path, 100)
    with faulty_disk() as disk:
        disk.fault = _on_partial

        with pytest.raises(StoreFailed, match="cannot be copied") as caught:
            back_up(path, copy)

    assert caught.value.code == 74
    assert names(copy.parent) == []


# the commands


async def test_commands_report_their_result(path: Path, copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await fill(path, 3)
    data = ["--data", str(path.parent)]

    assert run(["backup", str(copy), *data]) == 0
    assert run(["restore", str(copy), *data]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{copy} holds 3 jobs in ")
    assert lines[1] == f"{path} holds the 3 jobs of {copy}"
    assert ".before-restore-" in lines[2]
    assert "may run again" in lines[3]


async def test_backup_into_a_missing_folder_is_refused(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await fill(path, 1)

    assert run(["backup", str(tmp_path / "none" / "copy.db"), "--data", str(path.parent)]) == 1

    assert f"there is no folder {tmp_path / 'none'}; create it" in capsys.readouterr().err
    assert names(tmp_path) == ["data"]


@pytest.mark.parametrize(
    ("command", "error"), [("backup", "there is no store at"), ("restore", "is not a file; name one")]
)
def test_commands_name_the_missing_file(tmp_path: Path, capsys: Any, command: str, error: str) -> None:
    assert run([command, str(tmp_path / "x"), "--data", str(tmp_path / "none")]) == 1
    assert error in capsys.readouterr().err


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_memory_store_has_no_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, command: str) -> None:
    monkeypatch.setenv("ERELONG_STORE__KIND", "memory")

    assert run([command, str(tmp_path / "x")]) == 78
    assert "nothing to back up or restore" in capsys.readouterr().err


def _raise_at(failing: int) -> Callable[[Path], None]:
    calls = 0

    def sync(_: Path) -> None:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError("cut off")

    return sync


def _on_partial(kind: str, name: str, _: int) -> Exception | None:
    return io_error() if kind == "write" and "partial" in name else None
