"""Functions of kinds that tests run in processes; this file is copied beside the settings."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

from erelong import Attempt

FOLDER = Path(__file__).parent


def note(attempt: Attempt) -> None:
    """Record the process and the start of each attempt."""
    _write("begun.txt", f"{attempt.id} {time.time_ns()}")
    _write("pids.txt", f"{os.getpid()}")


def quick(attempt: Attempt) -> int:
    return attempt.number


def spin(attempt: Attempt) -> None:
    note(attempt)
    sum(itertools.repeat(0))


def ignore(attempt: Attempt) -> None:
    note(attempt)
    _ignore()


def fork(attempt: Attempt) -> None:
    """Fork children in the group, in a new group and in a new session, and a daemon; all ignore SIGTERM."""
    for leave in ("stay", "group", "session", "daemon"):
        if os.fork() == 0:
            _leave(leave)
            _write("pids.txt", f"{os.getpid()}")
            _ignore()
    note(attempt)
    _ignore()


def die(attempt: Attempt) -> None:
    note(attempt)
    if os.fork() == 0:
        _leave("session")
        _write("pids.txt", f"{os.getpid()}")
        _ignore()
    os._exit(3)


def eat(attempt: Attempt) -> None:
    """Allocate all memory, and ignore MemoryError."""
    note(attempt)
    held = []
    while True:
        try:
            held.append(bytearray(1_000_000))
        except MemoryError:
            continue


def _leave(way: str) -> None:
    if way == "group":
        os.setpgrp()
    elif way != "stay":
        os.setsid()
    if way == "daemon" and os.fork():
        os._exit(0)


def _ignore() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1)


def _write(name: str, line: str) -> None:
    """Append a line in one write, so that a kill cannot truncate it."""
    descriptor = os.open(FOLDER / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
