"""A thread that runs all waiting calls as one group and answers them together."""

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
MAX_TURNS = 4  # of the loop, in which calls gather
GUARD_PAUSE = 1.0

T = TypeVar("T")

log = get_logger(__name__)


class Split(NamedTuple):
    """How to split a call: its first argument is a sequence, and `join` merges the results for its parts.

    `fallback` is the result for a single item that fails (None: the call fails). With a `share`, calls in a row run as
    one: it takes the result for all of their items, the items of one call and the position of the first, and returns
    the result of that call.
    """

    join: Callable[[Any, Any], Any]
    fallback: Any
    share: Callable[[Any, Sequence[Any], int], Any] | None = None


@dataclass(slots=True, eq=False)
class Call:
    """One call on its way through the thread, with its result or error."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    split: Split | None
    result: Any = None
    error: BaseException | None = None

    def run(self) -> None:
        """Keep the function's result, or the `Problem` that it raises; any other exception propagates."""
        self.error = None
        try:
            self.result = self.function(*self.arguments)
        except Problem as problem:
            self.error = problem

    def run_halves(self, run: Callable[[Sequence[Call]], None]) -> bool:
        """Run the halves of a failed call, or use its fallback; return False if the call cannot be split."""
        if self.split is None:
            return False
        items, *others = self.arguments
        if len(items) < 2:
            self.result = self.split.fallback
            return self.result is not None
        middle = len(items) // 2
        halves = [self._part(part, others) for part in (items[:middle], items[middle:])]
        for half in halves:
            run([half])
        self.error = halves[0].error or halves[1].error
        if self.error is None:
            self.result = self.split.join(halves[0].result, halves[1].result)
        return True

    def _part(self, items: Sequence[Any], others: Sequence[Any]) -> Call:
        return Call(self.function, (items, *others), self.future, self.split)

    def answer(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


def in_runs(calls: Sequence[Call]) -> list[Sequence[Call]]:
    """Return the calls in order; those in a row that can run as one come together."""
    runs: list[Sequence[Call]] = []
    start = 0
    while start < len(calls):
        end, split = start + 1, calls[start].split
        if split is not None and split.share is not None:
            while end < len(calls) and calls[end].split is split:
                end += 1
        runs.append(calls[start:end])
        start = end
    return runs


def run_as_one(calls: Sequence[Call]) -> None:
    """Run the calls of one run. Their function takes the items of all of them."""
    first = calls[0]
    if len(calls) == 1:
        first.run()
        return
    assert first.split is not None
    assert first.split.share is not None
    whole = Call(first.function, ([item for call in calls for item in call.arguments[0]],), first.future, None)
    whole.run()
    start = 0
    for call in calls:
        (items,) = call.arguments
        call.error = whole.error
        if whole.error is None:
            call.result = first.split.share(whole.result, items, start)
        start += len(items)


class GroupWork(Protocol):
    """The work of a thread."""

    def run(self, group: Sequence[Call]) -> None:
        """Set the result or the error of each call."""
        ...

    def rest(self) -> float | None:
        """Do background work; return the seconds until it is called again (None: after the next group).

        It is called at the start and after each group.
        """
        ...


class GroupThread:
    """Runs calls in its own thread, in groups.

    No timer forms the groups: while one runs (waits for its fsync, say) the next one collects. A call that is not
    answered within `timeout` seconds fails, although the thread may still run it.
    """

    def __init__(self, *, name: str, work: GroupWork, timer: GroupTimer | None = None, timeout: float) -> None:
        self._group_work = work
        self._timer = timer
        self._timeout = timeout
        self._unanswered: deque[tuple[float, list[Call]]] = deque()  # each list with its deadline
        self._check: asyncio.TimerHandle | None = None
        self._calls: SimpleQueue[list[Call] | None] = SimpleQueue()
        self._fresh: list[Call] = []  # handed over together: a group of few calls costs nearly as much as one of many
        self._gathered = self._turns = 0  # their number in the last turn of the loop, and their turns
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
            self._gathered, self._turns = 1, 0
            self._loop.call_soon(self._hand_over)
        result: T = await call.future
        return result

    def status(self) -> str | None:
        """Return the problem of the thread, or None."""
        if self._thread is None or self._thread.is_alive():
            return None
        return f"the thread {self._name} has ended: restart the service"

    def wake(self) -> None:
        """Make the thread call `rest` again. Safe from any thread."""
        self._calls.put([])

    async def stop(self) -> None:
        """Finish the pending calls and end the thread."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._turns = MAX_TURNS
        self._hand_over()
        self._calls.put(None)
        await asyncio.get_running_loop().run_in_executor(None, thread.join)
        if self._check is not None:
            self._check.cancel()

    def _hand_over(self) -> None:
        """Hand the calls over once a turn of the loop brings no more: other requests may have arrived with theirs."""
        number = len(self._fresh)
        if number > self._gathered and self._turns < MAX_TURNS:
            self._gathered, self._turns = number, self._turns + 1
            self._loop.call_soon(self._hand_over)
            return
        if not self._fresh:
            return
        self._calls.put(self._fresh)
        self._unanswered.append((self._loop.time() + self._timeout, self._fresh))
        self._fresh = []
        if self._check is None:
            self._check = self._loop.call_later(self._timeout, self._refuse_late)

    def _refuse_late(self) -> None:
        """Fail the calls whose deadline has passed; check again at the next deadline."""
        now = self._loop.time()
        late = [call for until, calls in self._unanswered if until <= now for call in calls if not call.future.done()]
        for call in late:
            call.future.set_exception(StoreUnavailable(f"the store did not answer within {self._timeout:g} s"))
        if late:
            log.error("store_stalled", thread=self._name, calls=len(late), seconds=self._timeout)
        upcoming = next((until for until, _ in self._unanswered if until > now), None)
        self._check = None if upcoming is None else self._loop.call_at(upcoming, self._refuse_late)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run groups until the thread is stopped; it survives any exception of its work."""
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
        """Take the waiting lists of calls; return them and whether they are the last."""
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
            self._unanswered.popleft()
