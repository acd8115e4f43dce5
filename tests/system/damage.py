"""Every kind of damage to the files of a stopped store."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

DATABASE = "erelong.db"
MARKER = b"payload-of-a-trial"
WAL_HEADER = 32
FRAME_HEADER = 24
LEAF = 13  # the first byte of a page with rows


class Left(NamedTuple):
    """Folders of services (killed, stopped, an older copy of the stopped one, another service) and a backup."""

    killed: Path
    stopped: Path
    old: Path
    other: Path
    backup: Path


Damage = Callable[[Path, Left], None]


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x40
    path.write_bytes(content)


def _row_pages(data: Path) -> list[int]:
    """Return the offsets of pages with rows of jobs."""
    content, size = (data / DATABASE).read_bytes(), page_size(data / DATABASE)
    pages = range(0, len(content), size)
    return [offset for offset in pages if content[offset] == LEAF and MARKER in content[offset : offset + size]]


def page_size(database: Path) -> int:
    return int.from_bytes(database.read_bytes()[16:18], "big")


def _flip_payload(data: Path, _: Left) -> None:
    offset = _row_pages(data)[1]
    flip(data / DATABASE, (data / DATABASE).read_bytes().index(MARKER, offset) + 3)


def _flip_index(data: Path, _: Left) -> None:
    size = page_size(data / DATABASE)
    with closing(sqlite3.connect(f"file:{data / DATABASE}?immutable=1", uri=True)) as database:
        (root,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'due'").fetchone()
    flip(data / DATABASE, root * size - 40)


def _flip_header(data: Path, _: Left) -> None:
    flip(data / DATABASE, 3)


def _flip_size(data: Path, _: Left) -> None:
    flip(data / DATABASE, 18)


def _flip_wal(data: Path, _: Left) -> None:
    wal = data / f"{DATABASE}-wal"
    frame = FRAME_HEADER + page_size(data / DATABASE)
    frames = (wal.stat().st_size - WAL_HEADER) // frame
    flip(wal, WAL_HEADER + frames // 2 * frame + FRAME_HEADER + 100)


def _flip_wal_header(data: Path, _: Left) -> None:
    flip(data / f"{DATABASE}-wal", 17)


def _truncate(name: str, share: float) -> Damage:
    def truncate(data: Path, _: Left) -> None:
        path = data / name
        with path.open("r+b") as file:
            file.truncate(int(path.stat().st_size * share))

    return truncate


def _delete(*names: str) -> Damage:
    def delete(data: Path, _: Left) -> None:
        for name in names:
            (data / name).unlink()

    return delete


def _overwrite(name: str, content: bytes) -> Damage:
    def overwrite(data: Path, _: Left) -> None:
        (data / name).write_bytes(content)

    return overwrite


def _foreign_database(data: Path, _: Left) -> None:
    _forget_database(data)
    with closing(sqlite3.connect(data / DATABASE)) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
        database.commit()


def _put_back_old(data: Path, left: Left) -> None:
    _forget_database(data)
    shutil.copy(left.old / DATABASE, data / DATABASE)


def _put_other(data: Path, left: Left) -> None:
    _forget_database(data)
    shutil.copy(left.other / DATABASE, data / DATABASE)


def _put_other_wal(data: Path, left: Left) -> None:
    shutil.copy(left.other / f"{DATABASE}-wal", data / f"{DATABASE}-wal")


def _forget_database(data: Path) -> None:
    for path in [*data.glob(f"{DATABASE}-*"), data / DATABASE]:
        path.unlink()


def _zero_page(data: Path, _: Left) -> None:
    """Overwrite a page with rows by zeros."""
    path = data / DATABASE
    content, size = bytearray(path.read_bytes()), page_size(path)
    offset = _row_pages(data)[1]
    content[offset : offset + size] = bytes(size)
    path.write_bytes(content)


def _tear_page(data: Path, left: Left) -> None:
    """Replace half of the file with its older copy."""
    path, size = data / DATABASE, page_size(data / DATABASE)
    content, old = bytearray(path.read_bytes()), (left.old / DATABASE).read_bytes()
    for start in range(size, len(old), size):
        half = slice(start, start + size // 2)
        if content[half] != old[half] and content[start : start + size] != bytes(size):
            content[half] = old[half]
            path.write_bytes(content)
            return
    raise AssertionError("no page differs from the older copy")


def _append(name: str) -> Damage:
    def append(data: Path, _: Left) -> None:
        with (data / name).open("ab") as file:
            file.write(b"\xa5" * 10_000)

    return append


GARBAGE = b"\xa5\x17" * 16_384

OF_STOPPED: dict[str, Damage] = {
    "flipped byte in a row": _flip_payload,
    "flipped byte in an index": _flip_index,
    "flipped byte in the magic": _flip_header,
    "flipped byte in the header": _flip_size,
    "truncated database": _truncate(DATABASE, 0.5),
    "emptied database": _truncate(DATABASE, 0.0),
    "deleted database": _delete(DATABASE),
    "text in place of the database": _overwrite(DATABASE, b"no database at all" * 1_000),
    "database of another program": _foreign_database,
    "database of another service": _put_other,
    "older copy of the database": _put_back_old,
    "zeroed page": _zero_page,
    "torn page": _tear_page,
    "garbage after the database": _append(DATABASE),
    "deleted mark": _delete(f"{DATABASE}.mark"),
    "garbage in the mark": _overwrite(f"{DATABASE}.mark", GARBAGE),
}
OF_KILLED: dict[str, Damage] = {
    "flipped byte in the WAL": _flip_wal,
    "flipped byte in the header of the WAL": _flip_wal_header,
    "truncated WAL": _truncate(f"{DATABASE}-wal", 0.5),
    "emptied WAL": _truncate(f"{DATABASE}-wal", 0.0),
    "deleted WAL": _delete(f"{DATABASE}-wal"),
    "WAL of another service": _put_other_wal,
    "garbage after the WAL": _append(f"{DATABASE}-wal"),
    "garbage in the shared memory": _overwrite(f"{DATABASE}-shm", GARBAGE),
    "emptied database beside its WAL": _truncate(DATABASE, 0.0),
    "deleted database beside its WAL": _delete(DATABASE),
    "deleted mark beside a WAL": _delete(f"{DATABASE}.mark"),
}
