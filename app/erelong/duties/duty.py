"""Supervises background loops: counts failures, backs off, restarts, and reports to `/readyz`."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from erelong.errors import Problem, StorageFull, StoreRefused
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence

    from erelong.clock.instants import Instant
    from erelong.duties.signal import Signal
    from erelong.telemetry.metrics import Metrics

FIRST_PAUSE = 0.5
MAX_PAUSE = 1.0  # short, so that work resumes soon after an outage
LOG_INTERVAL = 60.0
FIRST_RETRY = 1.0
MAX_RETRY = 60.0
SPARE_FAILURES = 8

T = TypeVar("T")
K = TypeVar("K", bound="Hashable")

log = get_logger(__name__)


class Work(Protocol):
    """The work that a duty repeats."""

    @property
    def name(self) -> str:
        """The name in `/readyz`, the log and the metrics."""
        ...

    async def ready(self) -> None:
        """Wait until there may be work."""
        ...

    async def lap(self) -> None:
        """Do the pending work. A lap that raises is repeated."""
        ...


class Settling(Protocol):
    """A part that may have something to do at the current instant. A virtual clock stands still until it is done."""

    def is_settled(self) -> bool:
        """Return whether nothing is due or under way: until time passes, only other parts can give it work."""
        ...


class TimeSource(Settling, Protocol):
    """A part that waits for instants. A virtual clock stops at each of them, and `Clock.make_timer` wakes the part."""

    def next_at(self) -> Instant | None:
        """Return the next instant at which it has something to do, without instants that became void."""
        ...


class TimedWork(Work, TimeSource, Protocol):
    """Work that waits for instants."""


class Duty:
    """One loop around a piece of work. Only `stop` ends it: a failed lap is repeated, an ended task restarted.

    A full disk is not a failure of the duty: the store reports it, and reads continue.
    """

    def __init__(self, *, work: Work, metrics: Metrics, rested: Signal | None = None) -> None:
        """Set `rested` after each lap."""
        self._work = work
        self._metrics = metrics
        self._rested = rested
        self._task: asyncio.Task[None] | None = None
        self._restart: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._is_behind = False  # a lap has failed: repeat it without waiting for work
        self._failed_laps = 0
        self._logged_at = -math.inf
        self._last_error = ""
        self.name = work.name
        self.failures = 0  # in a row
        self.lap_began_at: float | None = None  # in the loop's time; None between laps

    def start(self) -> None:
        """Run the loop on the current event loop."""
        self._restart = None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"duty {self.name}")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End the loop and cancel the current lap."""
        self._is_stopped = True
        if self._restart is not None:
            self._restart.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    @property
    def is_resting(self) -> bool:
        """Return whether it is between two laps, and the last one succeeded."""
        return self.lap_began_at is None and not self._is_behind

    def status(self) -> str:
        """Return "ok" or the reason of the failure, for `/readyz`."""
        if self._is_stopped:
            return "stopped"
        if self.failures:
            return f"failed {self.failures} times in a row: {self._last_error}; see duty_failed in the log"
        return "ok"

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                if not self._is_behind:
                    await self._work.ready()
                self.lap_began_at = loop.time()
                await self._work.lap()
                self.lap_began_at = None
            except Exception as error:  # noqa: BLE001 - around a lap: `_failed` logs and counts it
                self.lap_began_at = None
                self._failed(error)
                await asyncio.sleep(self._pause())
            else:
                if self._is_behind:
                    self._recovered()
                if self._rested is not None:
                    self._rested.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Restart a loop that ended without `stop`: it was cancelled, or a BaseException ended it."""
        if self._is_stopped:
            return
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._failed(error or RuntimeError("the loop returned"))
        self._restart = asyncio.get_running_loop().call_later(self._pause(), self.start)

    def _failed(self, error: BaseException) -> None:
        self._is_behind = True
        self._failed_laps += 1
        self._metrics.laps_failed.values[self.name,] += 1
        self._last_error = error.detail if isinstance(error, Problem) else f"{type(error).__name__}: {error}"
        if not isinstance(error, StorageFull):
            self.failures += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged_at < LOG_INTERVAL:
            return
        self._logged_at = now
        if isinstance(error, Problem):
            log.warning("duty_failed", duty=self.name, laps=self._failed_laps, problem=error.code, detail=error.detail)
        else:
            log.error("duty_failed", duty=self.name, laps=self._failed_laps, exc_info=error)

    def _recovered(self) -> None:
        log.info("duty_recovered", duty=self.name, laps=self._failed_laps)
        self._is_behind, self.failures, self._failed_laps = False, 0, 0
        self._logged_at = -math.inf

    def _pause(self) -> float:
        return FIRST_PAUSE if self._failed_laps < 2 else MAX_PAUSE


class SetAside(Generic[K]):
    """Items that failed alone: counted, shown in `/readyz`, and retried after growing pauses."""

    def __init__(self, *, name: str, metrics: Metrics) -> None:
        self._name = name
        self._metrics = metrics
        self.failures: dict[K, int] = {}  # by item, in a row
        self._last_error = ""

    def add(self, item: K, error: Exception) -> float:
        """Note that an item failed; return the seconds until its retry."""
        failures = self.failures[item] = self.failures.get(item, 0) + 1
        self._last_error = f"{item}: {error}"
        self._metrics.set_aside.values[self._name,] += 1
        if failures == 1:
            trace = None if isinstance(error, Problem) else error
            log.error("item_set_aside", duty=self._name, item=item, error=str(error), exc_info=trace or False)
        return min(FIRST_RETRY * 2.0 ** min(failures - 1, 10), MAX_RETRY)

    def remove(self, items: Iterable[K]) -> None:
        """Forget items that succeeded or are gone."""
        for item in items if self.failures else ():
            self.failures.pop(item, None)

    def status(self) -> str:
        if not self.failures:
            return "ok"
        return f"ok, but {len(self.failures)} set aside, the last {self._last_error}; see item_set_aside in the log"


async def in_halves(items: Sequence[T], do: Callable[[Sequence[T]], Awaitable[object]]) -> list[tuple[T, Exception]]:
    """Process many items at once; if that fails, in halves, until each bad item is alone.

    Return the items that failed alone, each with its error. Raise if the error is not about items (the store is full or
    down), or if every attempt fails.
    """
    alone: list[tuple[T, Exception]] = []
    has_worked, failures = False, 0
    parts = [items] if items else []
    while parts:
        part = parts.pop()
        try:
            await do(part)
            has_worked = True
        except Exception as error:
            failures += 1
            is_general = isinstance(error, Problem) and not isinstance(error, StoreRefused)
            if is_general or not (has_worked or failures <= len(items).bit_length() + SPARE_FAILURES):
                raise
            if len(part) > 1:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
            else:
                alone.append((part[0], error))
    return alone
