"""One process owns a store: a lock on a file beside it, held until the process ends."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from erelong.errors import StoreInUse

if TYPE_CHECKING:
    from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - only where there is no flock
    fcntl = None  # type: ignore[assignment]  # checked before use


class Ownership:
    """An flock, not SQLite's exclusive mode, which would shut out readers. The kernel frees it with the process."""

    def __init__(self, *, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> None:
        """Own the store or raise `StoreInUse`, naming the owner."""
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file, 200).decode(errors="replace").strip() or "another process"
            os.close(file)
            raise StoreInUse(
                f"the store is in use by {owner} (it holds {self._path}); stop it, or start with another --data"
            ) from None
        self._file = file
        with suppress(OSError):  # on a full disk it is owned without a name
            os.ftruncate(file, 0)
            os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def give_up(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None
