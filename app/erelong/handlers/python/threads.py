"""The threads of one kind: daemons made on demand and used again; one that is given up on runs on, counted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from erelong.handlers.base import AttemptFailed

MAX_IDLE: Final = 16

# Only functions that outlive their timeouts for good get here; a process with more threads is of no use to anybody.
MAX_ABANDONED: Final = 1_000

T = TypeVar("T")


class ThreadPool:
    """Has no more threads at work than calls that wait, and abandoned ones; all of its state is the loop's alone."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._idle: list[_Thread] = []
        self._is_closed = False
        self._abandoned: set[_Call[Any]] = set()

    @property
    def abandoned(self) -> int:
        return len(self._abandoned)

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread. Cancelled, end at once: the thread is abandoned and what it returns dropped."""
        call = _Call(work)
        self._hand_over(call)
        try:
            return await call.future
        except asyncio.CancelledError:
            if not call.is_over:
                self._abandoned.add(call)
            elif not call.future.cancelled():
                call.future.exception()  # looked at, or asyncio logs that nobody did
            raise
        finally:
            del call  # or an error and the frames of its traceback keep one another until a collection

    def close(self) -> None:
        """Let the idle threads end, and the others when they are done; wait for none."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().calls.put(None)

    def _hand_over(self, call: _Call[Any]) -> None:
        if self._idle:
            self._idle.pop().calls.put(call)
            return
        if self.abandoned >= MAX_ABANDONED:
            raise AttemptFailed(
                "exception",
                f"{self.abandoned} threads of {self._name} outlive their attempts: let its function end by itself",
            )
        thread = _Thread(name=self._name, pool=self)
        thread.calls.put(call)
        try:
            thread.start()
        except RuntimeError as error:
            raise AttemptFailed("exception", f"no thread could be started for {self._name}: {error}") from error

    def take_back(self, thread: _Thread, call: _Call[Any]) -> None:
        call.is_over = True
        self._abandoned.discard(call)
        if not call.future.cancelled():
            call.answer()
        if self._is_closed or len(self._idle) >= MAX_IDLE:
            thread.calls.put(None)
        else:
            self._idle.append(thread)


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    """One call on its way through a thread, with its answer or its error."""

    work: Callable[[], T]
    future: asyncio.Future[T] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    result: Any = None
    error: Exception | None = None
    is_over: bool = False

    def answer(self) -> None:
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)


class _Thread:
    """One daemon thread that takes its calls from a queue of its own; None ends it."""

    def __init__(self, *, name: str, pool: ThreadPool) -> None:
        self.calls: SimpleQueue[_Call[Any] | None] = SimpleQueue()
        self._pool = pool
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _work(self) -> None:
        while (call := self.calls.get()) is not None:
            call.result, call.error = _outcome(call.work)
            loop = call.future.get_loop()
            try:
                loop.call_soon_threadsafe(self._pool.take_back, self, call)
            except RuntimeError:  # the loop is closed, so nobody waits any more
                return
            del call


def _outcome(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Run a function, whatever it raises; apart from the call, which the traceback would hold in a cycle."""
    try:
        return work(), None
    except StopIteration as error:  # a future does not take it
        return None, _caused(RuntimeError("the function raised StopIteration"), error)
    except Exception as error:  # noqa: BLE001 - around a handler: it is the attempt's
        return None, error
    except BaseException as error:  # noqa: BLE001 - SystemExit would end the loop, CancelledError mean another thing
        return None, _caused(AttemptFailed("exception", f"{type(error).__name__}: {error}"), error)


def _caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error
