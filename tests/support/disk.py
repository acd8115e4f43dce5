"""A faulty disk under SQLite: fails the n-th write or sync, before or after its work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw

from erelong.stores.sqlite import database as sqlite_file

NAME, USUAL = "faulty", sqlite_file.CHECKSUMS


class FaultyDisk(apsw.VFS):
    """Counts operations; calls `fault` for each with its kind, file name and number, and raises the error it returns.

    Kinds: "write", "written" (after a write), "sync", "synced", "read".
    """

    def __init__(self) -> None:
        super().__init__(NAME, USUAL)
        self.operations: list[tuple[str, str]] = []
        self.fault: Callable[[str, str, int], Exception | None] = lambda *_: None

    @contextmanager
    def held(self, kind: str) -> Iterator[threading.Event]:
        """Block operations of a kind; return an event that is set when one waits."""
        is_held, may_go = threading.Event(), threading.Event()

        def fault(met: str, _: str, __: int) -> None:
            if met == kind:
                is_held.set()
                may_go.wait(5)

        self.fault = fault
        yield is_held
        may_go.set()

    def xOpen(self, name: Any, flags: list[int]) -> FaultyFile:  # noqa: N802 - apsw's names
        return FaultyFile(name, flags, self)

    def meet(self, kind: str, name: str) -> None:
        self.operations.append((kind, name))
        error = self.fault(kind, name, len(self.operations))
        if error is not None:
            raise error


class FaultyFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], disk: FaultyDisk) -> None:
        super().__init__(USUAL, name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._name = path.rpartition("/")[2]
        self._disk = disk

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        self._disk.meet("read", self._name)
        return super().xRead(amount, offset)

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802
        self._disk.meet("write", self._name)
        super().xWrite(data, offset)
        self._disk.meet("written", self._name)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.meet("sync", self._name)
        super().xSync(flags)
        self._disk.meet("synced", self._name)


@contextmanager
def faulty_disk() -> Iterator[FaultyDisk]:
    """Open stores on a faulty disk inside this context."""
    assert sqlite_file.has_checksum_vfs()
    disk = FaultyDisk()
    sqlite_file.CHECKSUMS = NAME  # a constant for all other code
    try:
        yield disk
    finally:
        sqlite_file.CHECKSUMS = USUAL
        disk.unregister()


def fail_once(disk: FaultyDisk, kind: str, *, nth: int = 1) -> None:
    """Fail only the n-th operation of a kind from here on."""
    seen = 0

    def fault(met: str, _: str, __: int) -> Exception | None:
        nonlocal seen
        seen += met == kind
        return io_error() if met == kind and seen == nth else None

    disk.fault = fault


def io_error() -> apsw.IOError:
    """Return the error that SQLite raises for EIO."""
    error = apsw.IOError("disk I/O error")
    error.extendedresult = apsw.SQLITE_IOERR_WRITE  # type: ignore[attr-defined]  # apsw sets it on its own errors
    return error
