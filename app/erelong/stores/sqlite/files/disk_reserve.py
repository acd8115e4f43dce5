"""The reserve: space on the disk kept back for the day it is full, so that what runs can still be written down."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 512  # what st_blocks counts in, whatever the file system's own are
CHUNK = 1 << 20


class DiskReserve:
    """A file of real blocks. `spend` gives them to whoever writes next, `hold` takes them back when there is room."""

    def __init__(self, *, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self.is_spent = False

    def hold(self) -> bool:
        """Have the space, if there is room for it and a quarter more: taking the last would spend it at once."""
        self.is_spent = bool(self._size) and not (self._is_there() or self._take())
        return not self.is_spent

    def spend(self) -> bool:
        """Give up the space; whether there was any."""
        if self.is_spent or not self._size:
            return False
        self.is_spent = True
        try:
            os.truncate(self._path, 0)
        except FileNotFoundError:
            return False
        return True

    def _is_there(self) -> bool:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return False
        return found.st_size == self._size and getattr(found, "st_blocks", self._size) * BLOCK >= self._size

    def _take(self) -> bool:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            if not _has_room(file, self._size + self._size // 4):
                return False
            _allocate(file, self._size)
        except OSError:
            os.ftruncate(file, 0)
            return False
        finally:
            os.close(file)
        return True


def _has_room(file: int, size: int) -> bool:
    if not hasattr(os, "fstatvfs"):
        return True
    found = os.fstatvfs(file)
    return found.f_bavail * found.f_frsize >= size


def _allocate(file: int, size: int) -> None:
    """Take blocks, not a promise of them: a sparse file keeps nothing back."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    for start in range(0, size, CHUNK):
        os.write(file, bytes(min(CHUNK, size - start)))
    os.fsync(file)
