"""A disk that fails on demand, for one service: `bad_disk.c`, compiled and preloaded into it."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import struct
import subprocess
from enum import IntFlag
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).with_name("bad_disk.c")
NUMBERS = struct.Struct("5q")


class WorkerLoop(IntFlag):
    """What a fault can hit."""

    WRITE = 1
    SYNC = 2
    TRUNCATE = 4


class Spoil(NamedTuple):
    """What happens to a call: an error (0: none), after half of its bytes were written or none."""

    calls: WorkerLoop
    error: int
    is_half: bool = False


SPOILS = {
    "EIO on write": Spoil(WorkerLoop.WRITE, errno.EIO),
    "EIO in mid-write": Spoil(WorkerLoop.WRITE, errno.EIO, is_half=True),
    "ENOSPC on write": Spoil(WorkerLoop.WRITE, errno.ENOSPC),
    "ENOSPC in mid-write": Spoil(WorkerLoop.WRITE, errno.ENOSPC, is_half=True),
    "short write": Spoil(WorkerLoop.WRITE, 0, is_half=True),
    "EIO on fdatasync": Spoil(WorkerLoop.SYNC, errno.EIO),
    "ENOSPC on fdatasync": Spoil(WorkerLoop.SYNC, errno.ENOSPC),
    "EIO on ftruncate": Spoil(WorkerLoop.TRUNCATE, errno.EIO),
}


class BadDisk:
    """The wishes of a test to the library; `environment` is what a service must be started with."""

    def __init__(self, *, folder: Path, library: Path) -> None:
        wishes = folder / "bad_disk"
        wishes.write_bytes(bytes(NUMBERS.size))
        self.environment = {"LD_PRELOAD": str(library), "BAD_DISK": str(wishes)}
        with wishes.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), NUMBERS.size)

    def mark_unreadable(self, nth: int, mark_unreadable: Spoil) -> None:
        """Let the n-th of these calls from now on fail."""
        NUMBERS.pack_into(
            self._page, 0, nth, mark_unreadable.calls, mark_unreadable.error, mark_unreadable.is_half, self.faults
        )

    def heal(self) -> None:
        NUMBERS.pack_into(self._page, 0, 0, 0, 0, 0, self.faults)

    @property
    def faults(self) -> int:
        """How many calls have failed so far."""
        count: int = NUMBERS.unpack_from(self._page)[-1]
        return count


def compile_library(folder: Path) -> Path:
    """Skips the test where there is no compiler, but not under CI."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        if os.environ.get("CI") == "true":
            pytest.fail("a C compiler is needed to make a disk fail: apt-get install gcc libc6-dev")
        pytest.skip("NOT TRIED: a disk that fails needs a C compiler (gcc)")
    library = folder / "bad_disk.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library
