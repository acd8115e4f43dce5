"""A clock that stands still until it is moved, or flows at real speed from where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from erelong.clock.instants import SECOND
from erelong.clock.system import LATE_TIMER
from erelong.clock.timer import Timer

if TYPE_CHECKING:
    from erelong.clock.instants import Instant, Tick


class VirtualClock:
    """Stands at an instant. Whenever it is moved, every alarm rings, and its owner checks whether it is time.

    `tick` is real time: it drives the clock while it flows.
    """

    def __init__(self, *, at: Instant, tick: Tick) -> None:
        self._at = self._origin = at
        self._real_tick = tick
        self._since: float | None = None  # when it began to flow, in real time
        self._alarms: dict[VirtualAlarm, None] = {}

    @property
    def is_frozen(self) -> bool:
        return self._since is None

    def now(self) -> Instant:
        return self._at if self._since is None else self._at + int((self._real_tick() - self._since) * SECOND)

    def tick(self) -> float:
        """Return the seconds since the start of the clock."""
        return (self.now() - self._origin) / SECOND

    def start(self, at: Instant) -> None:
        """Begin at an instant, before anything sleeps on the clock."""
        self._at = self._origin = at

    def move(self, at: Instant) -> None:
        """Move to an instant, which must not be past."""
        if at < self.now():
            raise ValueError(f"the clock stands at {self.now()} and cannot go back to {at}")
        self._at = at
        self._since = None if self._since is None else self._real_tick()
        self._ring()

    def freeze(self) -> None:
        self._at, self._since = self.now(), None
        self._ring()

    def flow(self) -> None:
        """Let the clock go at real speed."""
        self._at, self._since = self.now(), self._real_tick()
        self._ring()

    def call_later(self, seconds: float, wake: Callable[[], None]) -> VirtualAlarm:
        alarm = VirtualAlarm(clock=self, wake=wake)
        self._alarms[alarm] = None
        if self._since is not None:
            alarm.handle = asyncio.get_running_loop().call_later(seconds + LATE_TIMER, alarm.ring)
        return alarm

    def make_timer(self) -> Timer:
        return Timer(now=self.now, clock=self)

    def remove(self, alarm: VirtualAlarm) -> None:
        self._alarms.pop(alarm, None)

    def _ring(self) -> None:
        for alarm in [*self._alarms]:
            alarm.ring()


@dataclass(slots=True, eq=False, kw_only=True)
class VirtualAlarm:
    """One call to make when the clock is moved, or when it has flowed far enough."""

    clock: VirtualClock
    wake: Callable[[], None]
    handle: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        self.cancel()
        self.wake()

    def cancel(self) -> None:
        self.clock.remove(self)
        if self.handle is not None:
            self.handle.cancel()
