"""Virtual time: an event loop that jumps to its next timer instead of sleeping, and a wall clock based on it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple

EPOCH = 1_767_225_600_000_000
"""The instant at which virtual time begins: 2026-01-01T00:00:00Z."""

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")


class Stuck(RuntimeError):
    """All tasks wait, and nothing can end the wait."""


class VirtualClock:
    """The wall clock of a virtual loop, in microseconds; a test may step it."""

    def __init__(self, *, loop: VirtualLoop) -> None:
        self._loop = loop
        self._skew = 0

    def now(self) -> int:
        return EPOCH + round(self._loop.time() * 1e6) + self._skew

    def step(self, seconds: float) -> None:
        """Step the wall clock forward, or back if negative; loop.time() does not change."""
        self._skew += round(seconds * 1e6)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no time; work, sockets and threads are real."""

    def __init__(self) -> None:
        self._elapsed = 0.0
        self._threads_busy = 0
        super().__init__(_JumpingSelector(loop=self))
        # It must exceed the rounding error of a float at large virtual times; otherwise a jump ends before its
        # timer and the loop spins. Below half a microsecond (half the unit of now()), no timer fires early.
        self._clock_resolution = 4e-7

    def time(self) -> float:
        return self._elapsed

    def run_in_executor(self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts) -> asyncio.Future[_T]:
        """Run in a thread; time does not pass until it returns, since it would lose any race against a jump."""
        future = super().run_in_executor(executor, func, *args)
        self._threads_busy += 1
        future.add_done_callback(self._thread_is_back)
        return future

    async def shutdown_default_executor(self, *args: float | None) -> None:
        self._threads_busy += 1  # asyncio joins the threads in a thread that is not counted
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._threads_busy -= 1

    def has_busy_threads(self) -> bool:
        return self._threads_busy > 0

    def jump(self, seconds: float | None) -> None:
        """Pass the time until the next timer (None: no timer)."""
        if seconds is None:
            raise Stuck(_describe_waiting(self))
        self._elapsed += seconds

    def _thread_is_back(self, _: asyncio.Future[_T]) -> None:
        self._threads_busy -= 1


class _JumpingSelector(selectors.DefaultSelector):
    """Selects ready sockets first; time passes only when none is ready."""

    def __init__(self, *, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self._loop.has_busy_threads():
            return super().select(None)
        self._loop.jump(timeout)
        return []


def _describe_waiting(loop: asyncio.AbstractEventLoop) -> str:
    waiting = [f"{task.get_name()} at {_place(task)}" for task in asyncio.all_tasks(loop)]
    return (
        "nothing is scheduled and no I/O is ready, so nothing can wake "
        + (", ".join(sorted(waiting)) or "the loop")
        + "; tests that wait for threads, processes or timerfds need @pytest.mark.real_loop"
    )


def _place(task: asyncio.Task[object]) -> str:
    frames = task.get_stack(limit=1)
    return f"{frames[-1].f_code.co_filename}:{frames[-1].f_lineno}" if frames else "its start"
