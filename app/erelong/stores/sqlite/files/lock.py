"""The lock of a store: one process owns it, on a file system where locks work."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from erelong.errors import PlaceRefused, StoreInUse

try:
    import fcntl
except ImportError:  # pragma: no cover - only where there is no flock
    fcntl = None  # type: ignore[assignment]  # checked before use

MOUNTS = Path("/proc/self/mountinfo")

# Locks, shared memory or fsync do not work on them as on a local disk.
NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "9p", "ceph", "lustre", "gpfs", "beegfs"),
    *("gfs2", "ocfs2", "glusterfs", "davfs", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone"),
    *("fuse.ceph-fuse", "fuse.gcsfuse", "fuse.davfs2", "fuse.juicefs"),
}


class FileLock:
    """An flock, which the kernel releases with the process. SQLite's exclusive mode would shut out readers."""

    def __init__(self, *, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> None:
        """Take the lock; raise `StoreInUse`, naming the owner, if another process has it."""
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
        with suppress(OSError):  # on a full disk the lock has no owner's name
            os.ftruncate(file, 0)
            os.write(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def give_up(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None


def refuse_network(folder: Path) -> None:
    """Raise `PlaceRefused` if a folder is known to be on a network file system."""
    try:
        mounts = MOUNTS.read_text(errors="replace")
    except OSError:
        return
    type_ = type_at(folder.resolve(), mounts)
    if type_ in NETWORK:
        raise PlaceRefused(
            f"{folder} is on a network file system ({type_}), where locks and fsync are not reliable; "
            "name a folder on a local disk with --data or [store] path"
        )


def type_at(path: Path, mounts: str) -> str:
    """Return the type of a path's file system. Of two mounts at one point the later one hides the other."""
    best, type_ = -1, ""
    for line in mounts.splitlines():
        mounted, _, kind = line.partition(" - ")
        point = Path(mounted.split(" ")[4].encode().decode("unicode_escape"))
        if len(point.parts) >= best and path.is_relative_to(point):
            best, type_ = len(point.parts), kind.split(" ")[0]
    return type_
