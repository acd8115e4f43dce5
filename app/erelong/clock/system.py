"""The clock that the service runs on: wall time, a monotonic clock for leases and rates, and alarms on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol

from erelong.clock.timer import Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from erelong.clock.instants import Now, Tick
    from erelong.clock.remote import RemoteClock
    from erelong.clock.timer import Alarm

LATE_TIMER: Final = 0.001  # loop timers may fire half a millisecond early


class Clock(Protocol):
    """What the engine needs of time. Timeouts, graces and pauses after a failure always take real time."""

    @property
    def now(self) -> Now:
        """The wall clock."""
        ...

    @property
    def tick(self) -> Tick:
        """The monotonic clock of leases and rates."""
        ...

    def call_later(self, seconds: float, wake: Callable[[], None]) -> Alarm:
        """Call `wake` after so many seconds of `tick`. It may also be called earlier, but only once."""
        ...

    def make_timer(self) -> Timer:
        """Make a timer on the wall clock, for one sleeper."""
        ...


class SystemClock:
    """The clock of the machine, or the wall clock of another one."""

    def __init__(self, *, now: Now, tick: Tick, remote: RemoteClock | None = None) -> None:
        self.now = now if remote is None else remote.now
        self.tick = tick
        self._remote = remote

    def call_later(self, seconds: float, wake: Callable[[], None]) -> Alarm:
        return asyncio.get_running_loop().call_later(seconds + LATE_TIMER, wake)

    def make_timer(self) -> Timer:
        return Timer(now=self.now, remote=self._remote)
