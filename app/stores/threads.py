"""One thread that takes every call waiting for it, runs them as one group, and answers them together."""

from __future__ import annotations

import asyncio
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from app.errors import Problem, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.metrics import GroupTimer

MAX_GROUP = 1_000

T = TypeVar("T")


class Split(NamedTuple):
    """How a call may be taken apart: its first argument is a sequence, and answers to parts of it can be joined.

    `spare` is the answer for one thing that cannot be dealt with (None: there is none, and the call fails).
    """

    join: Callable[[Any, Any], Any]
    spare: Any


class Call:
    """One call on its way through the thread, with its answer or its error."""

    __slots__ = ("arguments", "error", "function", "future", "result", "split")

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        future: asyncio.Future[Any],
        *,
        split: Split | None,
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.future = future
        self.split = split
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Take the function's answer; a problem that it raises is one too, anything else is raised."""
        self.error = None
        try:
            self.result = self.function(*self.arguments)
        except Problem as problem:
            self.error = problem

    def take_apart(self, run: Callable[[Sequence[Call]], None]) -> bool:
        """Deal with halves of what could not be dealt with as a whole; whether that can be done."""
        if self.split is None:
            return False
        things, *others = self.arguments
        if len(things) < 2:
            self.result = self.split.spare
            return self.result is not None
        middle = len(things) // 2
        halves = [self._part(part, others) for part in (things[:middle], things[middle:])]
        for half in halves:
            run([half])
        self.error = halves[0].error or halves[1].error
        if self.error is None:
            self.result = self.split.join(halves[0].result, halves[1].result)
        return True

    def _part(self, things: Sequence[Any], others: Sequence[Any]) -> Call:
        return Call(self.function, (things, *others), self.future, split=self.split)

    def answer(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class GroupThread:
    """Runs calls in one thread of its own; `run_group` sets each call's result or error and never raises.

    No timer gathers a group: while one runs (say, waits for its fsync) the next one collects. `rest` is what the thread
    does at first, when a group has been answered, and by itself after as many seconds as it answers (None: it need
    not).
    """

    def __init__(
        self,
        *,
        name: str,
        run_group: Callable[[Sequence[Call]], None],
        rest: Callable[[], float | None] = lambda: None,
        timer: GroupTimer | None = None,
    ) -> None:
        self._run_group = run_group
        self._rest = rest
        self._timer = timer
        self._calls: SimpleQueue[list[Call] | None] = SimpleQueue()
        self._fresh: list[Call] = []  # of this turn of the loop: handed over together, for each waking costs
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, args=(self._loop,), name=self._name, daemon=True)
        self._thread.start()

    async def call(self, function: Callable[..., T], *arguments: Any, split: Split | None = None) -> T:
        """Run a function in the thread."""
        if self._thread is None:
            raise StoreUnavailable("the store is closed")
        future = self._loop.create_future()
        call = Call(function, arguments, future, split=split)
        self._fresh.append(call)
        if len(self._fresh) == 1:
            self._loop.call_soon(self._hand_over)
        result: T = await call.future
        return result

    def wake(self) -> None:
        """Let the thread rest anew, from any thread."""
        self._calls.put([])

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
        is_last, patience = False, self._rest()
        while not is_last:
            group, is_last = self._gather(patience)
            if group:
                if self._timer is not None:
                    self._timer.begin()
                self._run_group(group)
                if self._timer is not None:
                    self._timer.end(len(group))
                loop.call_soon_threadsafe(_answer, group)
            patience = self._rest()

    def _gather(self, patience: float | None) -> tuple[list[Call], bool]:
        try:
            calls = self._calls.get(timeout=patience)
        except Empty:
            return [], False
        group: list[Call] = []
        while calls is not None:
            group += calls
            if len(group) >= MAX_GROUP or self._calls.empty():
                return group, False
            calls = self._calls.get()
        return group, True


def _answer(group: list[Call]) -> None:
    for call in group:
        call.answer()
