"""Backup of the embedded store while the service runs, and restore."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import apsw

from erelong.errors import BadCopy, Exit, StoreFailed
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.database import open_connection
from erelong.stores.sqlite.failures import FailureKind, described, diagnose
from erelong.stores.sqlite.files.lock import FileLock
from erelong.stores.sqlite.files.watermark import Watermark, WatermarkFile, sync_folder
from erelong.stores.sqlite.migrations import must_be_readable

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPANIONS = ("-wal", "-shm", "-journal", ".claims")


class Copy(NamedTuple):
    """The contents of a verified copy."""

    jobs: int
    bytes: int
    entry: sql.Entry


class Restored(NamedTuple):
    """The restored copy, and the path of the previous store (None: there was none)."""

    copy: Copy
    aside: Path | None


def back_up(path: Path, target: Path) -> Copy:
    """Copy the store to a new file, which appears once it is complete, verified and on disk."""
    if not path.exists():
        raise Exit(f"there is no store at {path}; name its folder with --data, or its settings with --config")
    if target.exists():
        raise Exit(f"{target} already exists; name a new file")
    if not target.parent.is_dir():
        raise Exit(f"there is no folder {target.parent}; create it, or name a file in another folder")
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    with _exits(f"{path} cannot be copied to {target}"):
        try:
            _copy(path, partial, apsw.SQLITE_OPEN_READWRITE)
            copy = verify(partial)
            sync_file(partial)
            name_file(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(target.parent)
    return copy


def restore(path: Path, source: Path) -> Restored:
    """Replace the store by a copy and keep the old one. At any moment a start finds a whole store or refuses."""
    copy = verify(source)
    with _exits(f"{source} cannot be restored to {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        ownership = FileLock(path=path.with_name(path.name + ".lock"))
        ownership.take()
        try:
            return Restored(copy, _put_in_place(copy, source, path))
        finally:
            ownership.give_up()


def verify(path: Path) -> Copy:
    """Read every page of a copy; raise `BadCopy` if it is damaged."""
    if not path.is_file():
        raise Exit(f"{path} is not a file; name one that `erelong backup` has written")
    with _exits(f"{path} cannot be read as a copy of a store"):
        connection = open_connection(path.resolve(), apsw.SQLITE_OPEN_READONLY)
        try:
            _must_be_sound(connection, path)
            entry = sql.read_ledger(connection)
            jobs = connection.execute("SELECT count(*) FROM jobs").get
        finally:
            connection.close()
    return Copy(jobs, path.stat().st_size, entry)


def _copy(path: Path, target: Path, flags: int) -> None:
    """Copy a snapshot of the pages as a reader. The service can write meanwhile; only its log grows.

    The copy is one step, since a commit between two steps would restart it. VACUUM INTO is no alternative: if its cache
    fills up before the first page is written, it leaves pages without checksums.
    """
    source = open_connection(path, flags)
    try:
        source.set_busy_timeout(sql.BUSY_TIMEOUT)
        _must_be_sound(source, path)  # checksums do not reveal misplaced pages
        fresh = open_connection(target)
        try:
            _write_first_page(fresh, source.reserve_bytes("main"))
            with fresh.backup("main", source, "main") as copying:
                copying.step(-1)
            fresh.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, readable on read-only media
        finally:
            fresh.close()
    finally:
        source.close()


def _write_first_page(fresh: apsw.Connection, reserve: int) -> None:
    """Write the first page, which declares the checksums, before any other."""
    fresh.reserve_bytes("main", reserve)
    fresh.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TABLE first (page)").fetchall()


def _must_be_sound(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("application_id") not in sql.OURS:
        raise BadCopy(f"{path} is not a store of erelong")
    must_be_readable(connection.pragma("user_version"), path)
    result = connection.execute("PRAGMA quick_check(1)").get
    if result != "ok":
        raise BadCopy(f"{path} is damaged: {result}; use an earlier copy")


def name_file(partial: Path, target: Path) -> None:
    """Give a file its final name without replacing another file."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        partial.rename(target)


def _put_in_place(copy: Copy, source: Path, path: Path) -> Path | None:
    """Replace the store. Until the end the old watermark stays, so that a start refuses a missing or foreign store."""
    fresh = path.with_name(path.name + ".restoring")
    fresh.unlink(missing_ok=True)
    try:
        _copy(source, fresh, apsw.SQLITE_OPEN_READONLY)  # includes the log, if the source is a live store
        sync_file(fresh)
        verify(fresh)
        identity, commits, last_seq, _ = copy.entry
        mark = WatermarkFile(path=path.with_name(path.name + ".mark"))
        old = _read(mark)
        if old is None:
            # One commit ahead, so that a start refuses until the restore is complete.
            mark.create(Watermark(identity, commits + 1, last_seq))
        aside = _put_aside(path, mark.path)
        fresh.replace(path)
        sync_folder(path.parent)
    finally:
        fresh.unlink(missing_ok=True)
    last_seq = max(last_seq, old.last_seq if old else 0)  # job numbers assigned since the copy are not reused
    mark.create(Watermark(identity, commits, last_seq))
    mark.close()
    return aside


def _put_aside(path: Path, mark: Path) -> Path | None:
    """Rename the store with its companion files. A log left behind would be applied to the copy."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")  # unique, so that no earlier store is overwritten
    aside = path.with_name(f"{path.name}.before-restore-{now}")
    if path.exists():
        shutil.copyfile(mark, aside.with_name(f"{aside.name}.mark"))
    else:
        path.with_name(f"{path.name}.claims").unlink(missing_ok=True)
    for suffix in ("", *COMPANIONS):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    sync_folder(path.parent)
    return aside if aside.exists() else None


def _read(mark: WatermarkFile) -> Watermark | None:
    try:
        return mark.read()
    except ValueError:
        return None


def sync_file(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _exits(problem: str) -> Iterator[None]:
    """Turn failures into an `Exit` that begins with the problem."""
    try:
        yield
    except Exit:
        raise
    except (apsw.Error, OSError) as error:
        match diagnose(error):
            case FailureKind.DAMAGE:
                raise BadCopy(f"{problem}: it is damaged: {described(error)}") from error
            case FailureKind.FULL:
                raise StoreFailed(f"{problem}: the disk is full; free some space") from error
            case _:
                raise StoreFailed(f"{problem}: {described(error)}") from error
