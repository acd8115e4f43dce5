"""Keeps the last 64 kB that a process writes to a pipe."""

from __future__ import annotations

import asyncio
import os
from typing import Final, Self

MAX_KEPT: Final = 65_536

_CHUNK: Final = 65_536
_MAX_CHUNKS: Final = 16  # at a time, so that a process that writes without end does not block the loop


class Tail:
    """Reads a pipe continuously and keeps its last bytes; `with` closes it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._kept = bytearray()
        self._count = 0
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        self._loop.add_reader(self._reader, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def writer(self) -> int:
        """Return the descriptor of the writing end, valid until `close_writer`."""
        return self._writer

    @property
    def is_cut(self) -> bool:
        return self._count > MAX_KEPT

    def close_writer(self) -> None:
        """Close our copy of the writing end, after a process has inherited it."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def clear(self) -> None:
        """Discard the bytes written so far."""
        self._drain()
        self._kept.clear()
        self._count = 0

    def take(self) -> bytes:
        """Return the last of the bytes written so far."""
        self._drain()
        return bytes(self._kept[-MAX_KEPT:])

    def text(self) -> str:
        """Return `take` as text, without a partial first character."""
        kept = self.take()
        if self.is_cut:
            kept = kept.lstrip(bytes(range(0x80, 0xC0)))
        return kept.decode(errors="replace")

    def close(self) -> None:
        self.close_writer()
        if self._reader >= 0:
            self._loop.remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1

    def _drain(self) -> None:
        for _ in range(_MAX_CHUNKS):
            if not self._read():
                return

    def _read(self) -> bool:
        """Read one chunk; return whether there may be more."""
        try:
            chunk = os.read(self._reader, _CHUNK) if self._reader >= 0 else b""
        except BlockingIOError:
            return False
        if not chunk:
            if self._reader >= 0:
                self._loop.remove_reader(self._reader)
            return False
        self._count += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * MAX_KEPT:
            del self._kept[:-MAX_KEPT]
        return True
