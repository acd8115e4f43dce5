"""One thread that takes every call waiting for it, runs them as one group, and answers them together."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from erelong.errors import Problem, StoreUnavailable
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from erelong.telemetry.metrics import GroupTimer

MAX_GROUP = 1_000
GUARD_PAUSE = 1.0

T = TypeVar("T")

log = get_logger(__name__)


class Split(NamedTuple):
    """How a call may be taken apart: its first argument is a sequence, and answers to parts of it can be joined.

    `fallback` is the answer for one thing that cannot be dealt with (None: there is none, and the call fails).
    """

    join: Callable[[Any, Any], Any]
    fallback: Any


@dataclass(slots=True, eq=False)
class Call:
    """One call on its way through the thread, with its answer or its error."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    split: Split | None
    result: Any = None
    error: BaseException | None = None

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
            self.result = self.split.fallback
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
        return Call(self.function, (things, *others), self.future, self.split)

    def answer(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class GroupWork(Protocol):
    """What a thread does."""

    def run(self, group: Sequence[Call]) -> None:
        """Set the result or the error of each call."""
        ...

    def rest(self) -> float | None:
        """Called at first, when a group has been answered, and again after as many seconds as it returns (None: when
        the next group has been answered).
        """
        ...


class GroupThread:
    """Runs calls in one thread of its own, in groups.

    No timer gathers a group: while one runs (say, waits for its fsync) the next one collects. A call that is not
    answered within `timeout` seconds is refused; the thread may still carry it out.
    """

    def __init__(self, *, name: str, work: GroupWork, timer: GroupTimer | None = None, timeout: float) -> None:
        self._group_work = work
        self._timer = timer
        self._timeout = timeout
        self._asked: deque[tuple[float, list[Call]]] = deque()  # with the time at which each must have an answer
        self._check: asyncio.TimerHandle | None = None
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
        call = Call(function, arguments, future, split)
        self._fresh.append(call)
        if len(self._fresh) == 1:
            self._loop.call_soon(self._hand_over)
        result: T = await call.future
        return result

    def status(self) -> str | None:
        """Return what is wrong with the thread, None if nothing is."""
        if self._thread is None or self._thread.is_alive():
            return None
        return f"the thread {self._name} has ended: restart the service"

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
        if self._check is not None:
            self._check.cancel()

    def _hand_over(self) -> None:
        if not self._fresh:
            return
        self._calls.put(self._fresh)
        self._asked.append((self._loop.time() + self._timeout, self._fresh))
        self._fresh = []
        if self._check is None:
            self._check = self._loop.call_later(self._timeout, self._refuse_late)

    def _refuse_late(self) -> None:
        """Refuse the calls that have waited too long, and come back when the next ones may have."""
        now = self._loop.time()
        late = [call for until, calls in self._asked if until <= now for call in calls if not call.future.done()]
        for call in late:
            call.future.set_exception(StoreUnavailable(f"the store did not answer within {self._timeout:g} s"))
        if late:
            log.error("store_stalled", thread=self._name, calls=len(late), seconds=self._timeout)
        upcoming = next((until for until, _ in self._asked if until > now), None)
        self._check = None if upcoming is None else self._loop.call_at(upcoming, self._refuse_late)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take group after group until there are no more; the thread survives whatever its work meets."""
        work, timer, is_last = self._group_work, self._timer, False
        patience: float | None = 0.0
        group: list[Call] = []
        while not is_last:
            lists, is_last = self._gather(patience)
            try:
                if lists:
                    group = lists[0] if len(lists) == 1 else [call for calls in lists for call in calls]
                    if timer is not None:
                        timer.begin()
                    work.run(group)
                    if timer is not None:
                        timer.end(len(group))
                    loop.call_soon_threadsafe(self._answer, lists)
                    lists, group = [], []
                patience = work.rest()
            except BaseException as error:
                log.error("store_thread_failed", thread=self._name, exc_info=error)
                if lists:
                    self._refuse(lists, error)
                    loop.call_soon_threadsafe(self._answer, lists)
                patience = GUARD_PAUSE

    def _refuse(self, lists: list[list[Call]], error: BaseException) -> None:
        for call in (call for calls in lists for call in calls):
            call.error = StoreUnavailable(f"the store failed: {type(error).__name__}")
        if self._timer is not None:
            self._timer.end(0)

    def _gather(self, patience: float | None) -> tuple[list[list[Call]], bool]:
        """Take the lists of calls that wait, and say whether they are the last."""
        try:
            calls = self._calls.get(timeout=patience)
        except Empty:
            return [], False
        lists: list[list[Call]] = []
        number = 0
        while calls is not None:
            lists += [calls] if calls else []
            number += len(calls)
            if number >= MAX_GROUP or self._calls.empty():
                return lists, False
            calls = self._calls.get()
        return lists, True

    def _answer(self, lists: list[list[Call]]) -> None:
        for calls in lists:
            for call in calls:
                call.answer()
            self._asked.popleft()
