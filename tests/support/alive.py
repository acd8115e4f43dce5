"""Finds which recorded processes still exist."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def write_down(pids: str | Path) -> None:
    """Record the pid of this process in one write, so that a kill cannot truncate it."""
    descriptor = os.open(pids, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, b"%d\n" % os.getpid())
    os.close(descriptor)


def written(pids: str | Path) -> list[int]:
    try:
        return [int(line) for line in Path(pids).read_text().splitlines()]
    except FileNotFoundError:
        return []


def alive(pids: str | Path) -> list[int]:
    """Return the recorded processes that exist, including zombies."""
    return [pid for pid in written(pids) if is_alive(pid)]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_running(pid: int) -> bool:
    """Return whether a process exists and is no zombie; init may reap orphans late."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(ancestor: int) -> set[int]:
    """Return the descendants of a process."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):  # the process has just ended
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {ancestor}
