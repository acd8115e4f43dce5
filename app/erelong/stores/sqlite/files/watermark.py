"""The watermark: a small file beside the database with its last durable commit, which reveals lost commits."""

from __future__ import annotations

import os
import zlib
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_WORDS = 6


class Watermark(NamedTuple):
    """The identity of a database, the number of its commits known to be on disk, and its last job number."""

    identity: str
    commits: int
    last_seq: int


class WatermarkFile:
    """One line of fixed length, overwritten in place. It fits into one sector, so a write is atomic.

    The watermark may be behind the database on disk and must never be ahead of it.
    """

    def __init__(self, *, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._is_synced = True

    def read(self) -> Watermark | None:
        """Return the watermark, or None without a file. Raise ValueError if it cannot be read."""
        try:
            line = self.path.read_bytes()
        except FileNotFoundError:
            return None
        text, _, checksum = line.rstrip(b"\n").rpartition(b" ")
        words = text.split(b" ")
        if checksum != _checksum(text) or len(words) != _WORDS - 1 or words[:2] != [b"erelong-mark", b"1"]:
            raise ValueError(f"{self.path} is damaged")
        return Watermark(words[2].decode(), int(words[3]), int(words[4]))

    def create(self, mark: Watermark) -> None:
        """Replace the file atomically."""
        self.close()
        fresh = self.path.with_name(self.path.name + ".new")
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.write(file, _line(mark))
            os.fsync(file)
        finally:
            os.close(file)
        os.replace(fresh, self.path)
        sync_folder(self.path.parent)
        self.open()

    def open(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)

    def write(self, mark: Watermark) -> None:
        """Overwrite the watermark; it survives a power cut only after `sync`."""
        if self._file is not None:
            os.pwrite(self._file, _line(mark), 0)
            self._is_synced = False

    def sync(self) -> None:
        if self._file is not None and not self._is_synced:
            os.fsync(self._file)
            self._is_synced = True

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def sync_folder(folder: Path) -> None:
    """Make creations, renames and removals in a folder survive a power cut."""
    try:
        file = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows cannot open folders and needs no sync
        return
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _line(mark: Watermark) -> bytes:
    text = b"erelong-mark 1 %s %020d %020d" % (mark.identity.encode(), mark.commits, mark.last_seq)
    return b"%s %s\n" % (text, _checksum(text))


def _checksum(text: bytes) -> bytes:
    return b"%08x" % zlib.crc32(text)
