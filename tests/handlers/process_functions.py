"""Functions for worker processes, good and bad; the bad ones record the pid of every process that they start."""

# ruff: noqa: T201 - tests read the printed text in the output of attempts

from __future__ import annotations

import ctypes
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from erelong import Attempt, GiveUp
from tests.support.alive import write_down, written

CALLS = itertools.count(1)


def add(a: int, b: int = 2) -> int:
    print(f"{a} + {b}")
    return a + b


def number(attempt: Attempt) -> dict[str, Any]:
    return {"id": attempt.id, "number": attempt.number}


def pid() -> int:
    return os.getpid()


def calls() -> int:
    return next(CALLS)


def environment() -> dict[str, str]:
    return dict(os.environ)


def modules() -> list[str]:
    return list(sys.modules)


def nothing() -> None:
    pass


def long(size: int) -> str:
    return "x" * size


def write(size: int, last: str) -> None:
    sys.stdout.write("x" * size + last)


def write_to_both() -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.write(1, b"to the descriptor\n")
    subprocess.run(["/bin/echo", "by a child"], check=True)


def fail() -> None:
    print("before")
    raise ValueError("half a pair: \ud800")


def give_up() -> None:
    raise GiveUp("no such order")


def leave() -> None:
    sys.exit(3)


def unserialisable() -> Any:
    return threading.Lock()


def die(code: int = 3) -> None:
    print("last words")
    os._exit(code)


def die_by(number: int) -> None:
    os.kill(os.getpid(), number)


def crash() -> None:
    ctypes.string_at(0)


def close_all() -> None:
    os.closerange(0, 100)


def eat(size: int) -> int:
    return len(bytearray(size))


def hold(size: int) -> None:
    globals()["held"] = bytearray(b"x") * size


def wait(pids: str) -> None:
    write_down(pids)
    time.sleep(600)


def spin(pids: str) -> None:
    """Stay in C code forever, and hold the interpreter lock."""
    write_down(pids)
    sum(itertools.repeat(0))


def ignore(pids: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    write_down(pids)
    while True:
        time.sleep(1)


def tidy(pids: str) -> None:
    write_down(pids)
    try:
        time.sleep(600)
    finally:
        print("tidied up")


def fork(pids: str) -> None:
    """Fork children that ignore SIGTERM: in the group, in another group, in another session, and a daemon."""
    _fork_four(pids)
    ignore(pids)


def fork_and_return(pids: str) -> int:
    """Return in parent and child, and leave a third process behind."""
    if os.fork() == 0:
        write_down(pids)
        return 1
    subprocess.Popen(["/bin/sh", "-c", f'echo $$ >> "{pids}"; exec sleep 600'])
    while len(written(pids)) < 2:
        pass
    return 2


def fork_and_die(pids: str) -> None:
    _fork_four(pids)
    while len(written(pids)) < 4:
        pass
    os._exit(4)


def fork_and_stop(times: int) -> list[int]:
    """Return the exit codes of children that get SIGTERM right after their fork."""
    codes = set()
    for _ in range(times):
        pid = os.fork()
        if pid == 0:
            time.sleep(600)
        os.kill(pid, signal.SIGTERM)
        codes.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return list(codes)


def use_processes() -> list[int]:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2])


def _fork_four(pids: str) -> None:
    leaves: list[Callable[[], object]] = [os.getpid, os.setpgrp, os.setsid]
    for leave in leaves:
        if os.fork() == 0:
            leave()
            ignore(pids)
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        script = f"trap '' TERM; echo $$ >> '{pids}'; exec sleep 600"
        os.execve("/bin/sh", ["sh", "-c", script], {})
