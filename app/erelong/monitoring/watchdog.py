"""A thread that sees when the event loop does not turn, and says who keeps it while that lasts."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self

from erelong.engine.job_log import fields_of
from erelong.engine.workers import Worker
from erelong.model.job import Job
from erelong.telemetry.log import current_job, get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from erelong.telemetry.metrics import Metrics

MAX_FRAMES: Final = 8
MAX_PERIOD: Final = 1.0
OVERSLEPT: Final = 0.5  # by so many seconds: then nothing of this process ran, not only the loop
SHOWN: Final = 600.0

log = get_logger(__name__)


class Watchdog:
    """Asks the loop again and again for an answer; `limit` is how many seconds that may take, 0 asks nothing.

    `async with` it on the loop that is to be watched.
    """

    def __init__(self, *, limit: float, metrics: Metrics) -> None:
        self._limit = limit
        self._period = min(limit / 2, MAX_PERIOD)
        self._metrics = metrics
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self._has_answered = threading.Event()
        self._late_answers = 0  # in a row
        self._blocked = (0.0, 0.0)  # for how long, until when
        self._failures = 0
        self._failure = ""

    async def __aenter__(self) -> Self:
        if self._limit > 0:
            self._loop = asyncio.get_running_loop()
            self._watched = threading.get_ident()
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_over.set()
        self._has_answered.set()
        if self._thread is not None:
            self._thread.join(MAX_PERIOD)

    def state(self) -> str:
        """Return the state of the loop for `/readyz`."""
        if self._thread is not None and not self._thread.is_alive() and not self._is_over.is_set():
            return "not watched: the thread of the watchdog has ended; restart, and report it"
        seconds, until = self._blocked
        if self._late_answers > 1:
            return f"it stands still again and again, now for {seconds:.1f} s; look for loop_blocked in the log"
        if seconds and (ago := time.monotonic() - until) < SHOWN:
            return f"ok, stood still for {seconds:.1f} s {ago:.0f} s ago; look for loop_blocked in the log"
        if self._failures:
            failed = f"the watchdog failed {self._failures} times: {self._failure}"
            return f"ok, but {failed}; look for watchdog_failed in the log"
        return "ok"

    # in its own thread

    def _watch(self) -> None:
        while not self._is_over.wait(self._period):
            asked_at = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answer, asked_at)
            except RuntimeError:  # the loop is closed
                return
            if not self._has_answered.wait(self._limit):
                self._guarded_tell(asked_at)
            self._has_answered.clear()  # before it looks whether it is over, or the last answer of all would be lost

    def _guarded_tell(self, asked_at: float) -> None:
        """Go on watching whatever the look at other threads meets: their frames change while they are read."""
        try:
            self._tell(asked_at)
        except Exception as error:
            self._failures += 1
            self._failure = f"{type(error).__name__}: {error}"
            self._metrics.laps_failed.values["watchdog",] += 1
            log.error("watchdog_failed", exc_info=error)
            self._has_answered.wait()

    def _tell(self, asked_at: float) -> None:
        """Say who keeps the loop, and when it is over, for how long."""
        waited = time.monotonic() - asked_at
        who = self._who()
        if waited > self._limit + OVERSLEPT:  # suspended, without a CPU, or in code that keeps the interpreter's lock
            log.warning("process_stalled", seconds=round(waited, 3), **who)
        else:
            log.warning("loop_blocked", seconds=round(waited, 3), **who)
        self._has_answered.wait()
        if not self._is_over.is_set():
            who.pop("stack", None)
            log.warning("loop_recovered", seconds=round(time.monotonic() - asked_at, 3), **who)

    def _who(self) -> dict[str, Any]:
        stack = list(_frames(sys._current_frames().get(self._watched)))
        task = asyncio.current_task(self._loop)
        job = _job_in(stack) or _job_of(task)
        who: dict[str, Any] = {"task": task.get_name() if task else None}
        if job is not None:
            who |= fields_of(job)
        places = [f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in stack[:MAX_FRAMES]]
        return who | {"stack": " < ".join(places)}

    # on the loop

    def _answer(self, asked_at: float) -> None:
        now = time.monotonic()
        lag = now - asked_at
        self._metrics.lag.note("", lag)
        self._late_answers = self._late_answers + 1 if lag > self._limit else 0
        if lag > self._limit:
            self._metrics.blocks.values[()] += 1
            self._metrics.blocked.values[()] += lag  # type: ignore[assignment]  # a Counter adds floats as well
            self._blocked = (lag, now)
        self._has_answered.set()


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """The stack, what is run now first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _job_in(stack: list[FrameType]) -> Job | None:
    """The job of the worker among whose variables it is: looking for it there costs those that run nothing."""
    values = (value for frame in stack for value in frame.f_locals.values())
    return next((value.job for value in values if type(value) is Worker), None)


def _job_of(task: asyncio.Task[Any] | None) -> Job | None:
    """The running job for which a task was begun (told from Python 3.12 on)."""
    get_context = getattr(task, "get_context", None)
    job = get_context().get(current_job) if get_context is not None else None
    return job if isinstance(job, Job) else None
