"""One thread that takes every call waiting for it, runs them as one group, and answers them together."""

from __future__ import annotations

import asyncio
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from app.errors import Problem, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.metrics import GroupTimer

MAX_GROUP = 1_000

T = TypeVar("T")


class Call:
    """One call on its way through the thread, with its answer or its error."""

    __slots__ = ("arguments", "error", "function", "future", "is_soft", "result")

    def __init__(self, function: Callable[..., Any], arguments: tuple[Any, ...], *, is_soft: bool) -> None:
        self.function = function
        self.arguments = arguments
        self.is_soft = is_soft
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Take the function's answer; a problem that it raises is one too, anything else is raised."""
        self.error = None
        try:
            self.result = self.function(*self.arguments)
        except Problem as problem:
            self.error = problem

    def answer(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class GroupThread:
    """Runs calls in one thread of its own; `run_group` sets each call's result or error and never raises.

    No timer gathers a group: while one runs (say, waits for its fsync) the next one collects.
    """

    def __init__(
        self, *, name: str, run_group: Callable[[Sequence[Call]], None], timer: GroupTimer | None = None
    ) -> None:
        self._run_group = run_group
        self._timer = timer
        self._calls: SimpleQueue[list[Call] | None] = SimpleQueue()
        self._fresh: list[Call] = []  # of this turn of the loop: handed over together, for each waking costs
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, args=(loop,), name=self._name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[..., T], *arguments: Any, is_soft: bool = False) -> T:
        """Run a function in the thread. `is_soft`: its effect need not survive a power cut."""
        if self._thread is None:
            raise StoreUnavailable("the store is closed")
        call = Call(function, arguments, is_soft=is_soft)
        self._fresh.append(call)
        if len(self._fresh) == 1:
            asyncio.get_running_loop().call_soon(self._hand_over)
        result: T = await call.future
        return result

    async def stop(self) -> None:
        """Finish what was asked and end the thread."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._hand_over()
        self._calls.put(None)
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def _hand_over(self) -> None:
        if self._fresh:
            self._calls.put(self._fresh)
            self._fresh = []

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        is_last = False
        while not is_last:
            group, is_last = self._gather()
            if group:
                if self._timer is not None:
                    self._timer.begin()
                self._run_group(group)
                if self._timer is not None:
                    self._timer.end(len(group))
                loop.call_soon_threadsafe(_answer, group)

    def _gather(self) -> tuple[list[Call], bool]:
        calls = self._calls.get()
        group: list[Call] = []
        try:
            while calls is not None:
                group += calls
                if len(group) >= MAX_GROUP:
                    return group, False
                calls = self._calls.get_nowait()
        except Empty:
            return group, False
        return group, True


def _answer(group: list[Call]) -> None:
    for call in group:
        call.answer()
