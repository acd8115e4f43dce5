"""Copies of the embedded store: one made while the service runs on, and one put back in its place."""

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
    """What is in a copy that was read as a whole and is sound."""

    jobs: int
    bytes: int
    entry: sql.Entry


class Restored(NamedTuple):
    """What was put in place, and what was there before is now (None: nothing)."""

    copy: Copy
    aside: Path | None


def back_up(path: Path, target: Path) -> Copy:
    """Copy the store to a file that is not there yet; it appears there when it is whole, verified and on disk."""
    if not path.exists():
        raise Exit(f"there is no store at {path}; name its folder with --data, or its settings with --config")
    if target.exists():
        raise Exit(f"{target} exists and is left as it is; name a file that does not")
    if not target.parent.is_dir():
        raise Exit(f"there is no folder {target.parent}; make it, or name a file in one that is there")
    partial = target.with_name(f"{target.name}.partial-{os.getpid()}")
    with _told(f"{path} cannot be copied to {target}"):
        try:
            _copy(path, partial, apsw.SQLITE_OPEN_READWRITE)
            copy = verify(partial)
            _sync(partial)
            _name(partial, target)
        finally:
            partial.unlink(missing_ok=True)
        sync_folder(target.parent)
    return copy


def restore(path: Path, source: Path) -> Restored:
    """Put a copy in the place of the store, and that aside. At each moment a start finds a whole store, or refuses."""
    copy = verify(source)
    with _told(f"{source} cannot be put back to {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        ownership = FileLock(path=path.with_name(path.name + ".lock"))
        ownership.take()
        try:
            return Restored(copy, _put_in_place(copy, source, path))
        finally:
            ownership.give_up()


def verify(path: Path) -> Copy:
    """Read every page of a copy; raise `BadCopy` if it is not sound."""
    if not path.is_file():
        raise Exit(f"{path} is not a file; name one that `erelong backup` has written")
    with _told(f"{path} cannot be read as a copy of a store"):
        connection = open_connection(path.resolve(), apsw.SQLITE_OPEN_READONLY)
        try:
            _must_be_sound(connection, path)
            entry = sql.read_ledger(connection)
            jobs = connection.execute("SELECT count(*) FROM jobs").get
        finally:
            connection.close()
    return Copy(jobs, path.stat().st_size, entry)


def _copy(path: Path, target: Path, flags: int) -> None:
    """Copy the pages of one moment, as a reader: who writes goes on meanwhile, only the log grows.

    In one step, since it would begin anew at each commit between two; not by VACUUM INTO, which leaves pages without
    their checksums when it needs room in its cache before the first page is written.
    """
    source = open_connection(path, flags)
    try:
        source.set_busy_timeout(sql.BUSY_TIMEOUT)
        _must_be_sound(source, path)  # pages in the wrong place have checksums that fit
        fresh = open_connection(target)
        try:
            _begin(fresh, source.reserve_bytes("main"))
            with fresh.backup("main", source, "main") as copying:
                copying.step(-1)
            fresh.execute("PRAGMA journal_mode = DELETE").fetchall()  # one file, that can be read where none is written
        finally:
            fresh.close()
    finally:
        source.close()


def _begin(fresh: apsw.Connection, reserve: int) -> None:
    """Let a new file have its first page, which says that there are checksums, before any other."""
    fresh.reserve_bytes("main", reserve)
    fresh.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TABLE first (page)").fetchall()


def _must_be_sound(connection: apsw.Connection, path: Path) -> None:
    if connection.pragma("application_id") != sql.APPLICATION_ID:
        raise BadCopy(f"{path} is not a store of erelong")
    must_be_readable(connection.pragma("user_version"), path)
    found = connection.execute("PRAGMA quick_check(1)").get
    if found != "ok":
        raise BadCopy(f"{path} is damaged: {found}; take an earlier copy")


def _name(partial: Path, target: Path) -> None:
    """Give a file its name, but not another's."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        partial.rename(target)


def _put_in_place(copy: Copy, source: Path, path: Path) -> Path | None:
    """The mark of before stays until the end: with it, a store that is missing or another is refused at a start."""
    fresh = path.with_name(path.name + ".restoring")
    fresh.unlink(missing_ok=True)
    try:
        _copy(source, fresh, apsw.SQLITE_OPEN_READONLY)  # with what is in its log, should it be no copy but a store
        _sync(fresh)
        verify(fresh)
        identity, commits, last_seq, _ = copy.entry
        mark = WatermarkFile(path=path.with_name(path.name + ".mark"))
        old = _read(mark)
        if old is None:
            mark.create(Watermark(identity, commits + 1, last_seq))  # as of a store that is not there
        aside = _put_aside(path, mark.path)
        fresh.replace(path)
        sync_folder(path.parent)
    finally:
        fresh.unlink(missing_ok=True)
    last_seq = max(last_seq, old.last_seq if old else 0)  # numbers given since the copy are not given again
    mark.create(Watermark(identity, commits, last_seq))
    mark.close()
    return aside


def _put_aside(path: Path, mark: Path) -> Path | None:
    """Rename the store and what belongs to it: a log that was left would be taken for that of the copy."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")  # of two within a second the other must not be written over
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


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Say what could not be done, in the exit codes of the service."""
    try:
        yield
    except Exit:
        raise
    except (apsw.Error, OSError) as error:
        match diagnose(error):
            case FailureKind.DAMAGE:
                raise BadCopy(f"{what}: it is damaged: {described(error)}") from error
            case FailureKind.FULL:
                raise StoreFailed(f"{what}: the disk is full; free some space") from error
            case _:
                raise StoreFailed(f"{what}: {described(error)}") from error
