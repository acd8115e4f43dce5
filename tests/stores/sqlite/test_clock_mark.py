"""The mark of a file that was made under a virtual clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from erelong.errors import WrongClock
from erelong.stores.sqlite.backup import back_up, restore
from erelong.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.real_loop


async def open_once(path: Path, *, is_virtual: bool) -> None:
    store = SqliteStore(path=path, is_virtual=is_virtual)
    await store.open()
    await store.close()


@pytest.mark.parametrize("is_virtual", [True, False])
async def test_file_keeps_the_clock_that_it_was_made_under(tmp_path: Path, is_virtual: bool) -> None:
    await open_once(tmp_path / "jobs.db", is_virtual=is_virtual)
    await open_once(tmp_path / "jobs.db", is_virtual=is_virtual)

    with pytest.raises(WrongClock, match="--virtual-clock") as refused:
        await open_once(tmp_path / "jobs.db", is_virtual=not is_virtual)

    assert refused.value.code == 65


async def test_empty_file_is_marked(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()

    await open_once(tmp_path / "jobs.db", is_virtual=True)

    with pytest.raises(WrongClock):
        await open_once(tmp_path / "jobs.db", is_virtual=False)


@pytest.mark.parametrize("is_virtual", [True, False])
async def test_backup_and_restore_keep_the_mark(tmp_path: Path, is_virtual: bool) -> None:
    await open_once(tmp_path / "jobs.db", is_virtual=is_virtual)
    back_up(tmp_path / "jobs.db", tmp_path / "copy.db")
    restore(tmp_path / "other.db", tmp_path / "copy.db")

    await open_once(tmp_path / "other.db", is_virtual=is_virtual)
    with pytest.raises(WrongClock):
        await open_once(tmp_path / "other.db", is_virtual=not is_virtual)
