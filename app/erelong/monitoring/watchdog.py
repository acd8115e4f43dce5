"""A thread that detects a blocked event loop and logs the code that blocks it."""

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
OVERSLEPT: Final = 0.5  # seconds: a thread that wakes this late was stalled too, so the whole process was
SHOWN: Final = 600.0

log = get_logger(__name__)


class Watchdog:
    """Pings the loop repeatedly. `limit` is how many seconds the loop may take to respond; 0 disables the watchdog.

    Use `async with` on the loop to watch.
    """

    def __init__(self, *, limit: float, metrics: Metrics) -> None:
        self._limit = limit
        self._period = min(limit / 2, MAX_PERIOD)
        self._metrics = metrics
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()
        self._has_responded = threading.Event()
        self._late_responses = 0  # in a row
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
        self._is_closed.set()
        self._has_responded.set()
        if self._thread is not None:
            self._thread.join(MAX_PERIOD)

    def state(self) -> str:
        """Return the state of the loop for `/readyz`."""
        if self._thread is not None and not self._thread.is_alive() and not self._is_closed.is_set():
            return "not watched: the thread of the watchdog has ended; restart, and report this bug"
        seconds, until = self._blocked
        if self._late_responses > 1:
            return f"repeatedly blocked, the last time for {seconds:.1f} s; look for loop_blocked in the log"
        if seconds and (ago := time.monotonic() - until) < SHOWN:
            return f"ok, blocked for {seconds:.1f} s {ago:.0f} s ago; look for loop_blocked in the log"
        if self._failures:
            failed = f"the watchdog failed {self._failures} times: {self._failure}"
            return f"ok, but {failed}; look for watchdog_failed in the log"
        return "ok"

    # in its own thread

    def _watch(self) -> None:
        while not self._is_closed.wait(self._period):
            pinged_at = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._respond, pinged_at)
            except RuntimeError:  # the loop is closed
                return
            if not self._has_responded.wait(self._limit):
                self._report_guarded(pinged_at)
            self._has_responded.clear()  # before the check for the end, or the last response would be lost

    def _report_guarded(self, pinged_at: float) -> None:
        """Report, and go on watching if that fails: frames of other threads change while they are read."""
        try:
            self._report(pinged_at)
        except Exception as error:
            self._failures += 1
            self._failure = f"{type(error).__name__}: {error}"
            self._metrics.laps_failed.values["watchdog",] += 1
            log.error("watchdog_failed", exc_info=error)
            self._has_responded.wait()

    def _report(self, pinged_at: float) -> None:
        """Log the code that blocks the loop and, once the loop responds, for how long it was blocked."""
        waited = time.monotonic() - pinged_at
        blocker = self._blocker()
        if waited > self._limit + OVERSLEPT:  # suspended, without a CPU, or in code that holds the GIL
            log.warning("process_stalled", seconds=round(waited, 3), **blocker)
        else:
            log.warning("loop_blocked", seconds=round(waited, 3), **blocker)
        self._has_responded.wait()
        if not self._is_closed.is_set():
            blocker.pop("stack", None)
            log.warning("loop_recovered", seconds=round(time.monotonic() - pinged_at, 3), **blocker)

    def _blocker(self) -> dict[str, Any]:
        stack = list(_frames(sys._current_frames().get(self._watched)))
        task = asyncio.current_task(self._loop)
        job = _job_in(stack) or _job_of(task)
        blocker: dict[str, Any] = {"task": task.get_name() if task else None}
        if job is not None:
            blocker |= fields_of(job)
        lines = [f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" for frame in stack[:MAX_FRAMES]]
        return blocker | {"stack": " < ".join(lines)}

    # on the loop

    def _respond(self, pinged_at: float) -> None:
        now = time.monotonic()
        lag = now - pinged_at
        self._metrics.lag.note("", lag)
        self._late_responses = self._late_responses + 1 if lag > self._limit else 0
        if lag > self._limit:
            self._metrics.blocks.values[()] += 1
            self._metrics.blocked.values[()] += lag  # type: ignore[assignment]  # a Counter also adds floats
            self._blocked = (lag, now)
        self._has_responded.set()


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the stack, innermost frame first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _job_in(stack: list[FrameType]) -> Job | None:
    """Return the job of the `Worker` in the stack's variables. This search costs workers nothing while they run."""
    values = (value for frame in stack for value in frame.f_locals.values())
    return next((value.job for value in values if type(value) is Worker), None)


def _job_of(task: asyncio.Task[Any] | None) -> Job | None:
    """Return the job for which a task was started (known from Python 3.12 on)."""
    get_context = getattr(task, "get_context", None)
    job = get_context().get(current_job) if get_context is not None else None
    return job if isinstance(job, Job) else None
