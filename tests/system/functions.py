"""Functions of kinds that tests run in the service; this file is copied beside its settings."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from erelong.attempt import Attempt

BOOK = os.open(Path(__file__).with_name("book.txt"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
CLOCKS = os.open(Path(__file__).with_name("clocks.txt"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


async def note(attempt: Attempt, sleep: float = 0.0) -> None:
    """Record when each attempt begins and ends, one line per write, so that a kill cannot truncate a line."""
    began = time.time_ns()
    os.write(BOOK, b"%s %d begin %d\n" % (attempt.id.encode(), attempt.number, began))
    if sleep:
        await asyncio.sleep(sleep)
    os.write(BOOK, b"%s %d end %d\n" % (attempt.id.encode(), attempt.number, time.time_ns()))


async def begin(attempt: Attempt) -> None:
    """Record only when it begins."""
    os.write(BOOK, b"%s %d begin %d\n" % (attempt.id.encode(), attempt.number, time.time_ns()))


async def stall(seconds: float) -> None:
    """Block the loop."""
    time.sleep(seconds)  # noqa: ASYNC251 - the block is the point


async def tell_time(attempt: Attempt, stumble: bool = False) -> None:
    """Record the due time of each attempt and the monotonic clock; fail the first attempt on request."""
    line = f"{attempt.id} {attempt.number} {attempt.due_at} {time.monotonic()}\n"
    os.write(CLOCKS, line.encode())
    if stumble and attempt.number == 1:
        raise ValueError("stumbled")


async def hang() -> None:
    await asyncio.Event().wait()


async def swallow() -> None:
    """Ignore cancellation."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def leave() -> None:
    sys.exit("the function wants to leave")


async def interrupt() -> None:
    raise KeyboardInterrupt


def block() -> None:
    time.sleep(600)


def nap() -> None:
    time.sleep(0.01)


async def watch_loop(seconds: float) -> float:
    """Return by how many milliseconds a timer of a millisecond was late at worst."""
    worst, until = 0.0, time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - began - 0.001)
    return worst * 1e3
