"""The disk reserve: space set aside so that outcomes can still be saved on a full disk."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 512  # the unit of st_blocks on every file system
CHUNK = 1 << 20


class DiskReserve:
    """A file of real blocks. `spend` frees them for the next writes, `hold` allocates them when there is room."""

    def __init__(self, *, path: Path, size: int) -> None:
        self._path = path
        self._size = size
        self.is_spent = False

    def hold(self) -> bool:
        """Allocate the space if there is room for it and a quarter more. Otherwise it would be spent again at once."""
        self.is_spent = bool(self._size) and not (self._is_held() or self._allocate())
        return not self.is_spent

    def spend(self) -> bool:
        """Free the space; return whether there was any."""
        if self.is_spent or not self._size:
            return False
        self.is_spent = True
        try:
            os.truncate(self._path, 0)
        except FileNotFoundError:
            return False
        return True

    def _is_held(self) -> bool:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return False
        return status.st_size == self._size and getattr(status, "st_blocks", self._size) * BLOCK >= self._size

    def _allocate(self) -> bool:
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
    file_system = os.fstatvfs(file)
    return file_system.f_bavail * file_system.f_frsize >= size


def _allocate(file: int, size: int) -> None:
    """Allocate real blocks, since a sparse file reserves nothing."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)
        return
    for start in range(0, size, CHUNK):
        os.write(file, bytes(min(CHUNK, size - start)))
    os.fsync(file)
