"""A pool of daemon threads, made on demand and reused; abandoned threads run on and are counted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from erelong.handlers.base import AttemptFailed

MAX_IDLE: Final = 16

# Reached only by functions that never end; more threads would slow the whole process down.
MAX_ABANDONED: Final = 1_000

T = TypeVar("T")


class ThreadPool:
    """One thread for each running or abandoned call. Only the loop's thread changes its state."""

    def __init__(self, *, name: str) -> None:
        self._name = name
        self._idle: list[_Thread] = []
        self._is_closed = False
        self._abandoned: set[_Call[Any]] = set()

    @property
    def abandoned(self) -> int:
        return len(self._abandoned)

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread. When cancelled, end at once, abandon the thread and drop its result."""
        call = _Call(work)
        self._hand_over(call)
        try:
            return await call.future
        except asyncio.CancelledError:
            if not call.is_over:
                self._abandoned.add(call)
            elif not call.future.cancelled():
                call.future.exception()  # otherwise asyncio logs that it was never retrieved
            raise
        finally:
            del call  # otherwise an error and the frames of its traceback form a cycle

    def close(self) -> None:
        """End idle threads at once and busy threads after their call, without waiting for them."""
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
                f"{self.abandoned} abandoned threads of {self._name} still run: give its function timeouts of its own",
            )
        thread = _Thread(name=self._name, pool=self)
        thread.calls.put(call)
        try:
            thread.start()
        except RuntimeError as error:
            raise AttemptFailed("exception", f"cannot start a thread for {self._name}: {error}") from error

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
    """One call in a thread, with its result or error."""

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
    """One daemon thread that takes calls from its own queue; None ends it."""

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
            except RuntimeError:  # the loop is closed, so nothing awaits the result
                return
            del call


def _outcome(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Return the result or error of a function. No frame here holds the call, as its traceback would form a cycle."""
    try:
        return work(), None
    except StopIteration as error:  # a future refuses it
        return None, _caused(RuntimeError("the function raised StopIteration"), error)
    except Exception as error:  # noqa: BLE001 - any exception of a handler fails its attempt
        return None, error
    except BaseException as error:  # noqa: BLE001 - SystemExit would end the loop, CancelledError look like a cancel
        return None, _caused(AttemptFailed("exception", f"{type(error).__name__}: {error}"), error)


def _caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error
