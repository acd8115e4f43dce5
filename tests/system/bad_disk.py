"""A disk that fails on demand for one service, by `bad_disk.c`, compiled and preloaded."""

from __future__ import annotations

import errno
import mmap
import shutil
import struct
import subprocess
from enum import IntFlag
from pathlib import Path
from typing import NamedTuple

from tests.support.needs import report_missing

SOURCE = Path(__file__).with_name("bad_disk.c")
NUMBERS = struct.Struct("5q")


class Calls(IntFlag):
    """The calls that a fault can hit."""

    WRITE = 1
    SYNC = 2
    TRUNCATE = 4


class Fault(NamedTuple):
    """A fault: an error number (0: none), after half of the bytes or none."""

    calls: Calls
    error: int
    is_half: bool = False


FAULTS = {
    "EIO on write": Fault(Calls.WRITE, errno.EIO),
    "EIO in mid-write": Fault(Calls.WRITE, errno.EIO, is_half=True),
    "ENOSPC on write": Fault(Calls.WRITE, errno.ENOSPC),
    "ENOSPC in mid-write": Fault(Calls.WRITE, errno.ENOSPC, is_half=True),
    "short write": Fault(Calls.WRITE, 0, is_half=True),
    "EIO on fdatasync": Fault(Calls.SYNC, errno.EIO),
    "ENOSPC on fdatasync": Fault(Calls.SYNC, errno.ENOSPC),
    "EIO on ftruncate": Fault(Calls.TRUNCATE, errno.EIO),
}


class BadDisk:
    """Controls the library; a service must be started with `environment`."""

    def __init__(self, *, folder: Path, library: Path) -> None:
        wishes = folder / "bad_disk"
        wishes.write_bytes(bytes(NUMBERS.size))
        self.environment = {"LD_PRELOAD": str(library), "BAD_DISK": str(wishes)}
        with wishes.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), NUMBERS.size)

    def inject(self, nth: int, fault: Fault) -> None:
        """Make the n-th of the fault's calls fail, counted from here."""
        NUMBERS.pack_into(self._page, 0, nth, fault.calls, fault.error, fault.is_half, self.faults)

    def heal(self) -> None:
        NUMBERS.pack_into(self._page, 0, 0, 0, 0, 0, self.faults)

    @property
    def faults(self) -> int:
        """Return the number of failed calls."""
        count: int = NUMBERS.unpack_from(self._page)[-1]
        return count


def compile_library(folder: Path) -> Path:
    """Compile the library; without a compiler, skip the test, or fail it under CI."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        report_missing("NOT TRIED: a disk that fails needs a C compiler: apt-get install gcc libc6-dev")
    library = folder / "bad_disk.so"
    command = [compiler, "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return library
