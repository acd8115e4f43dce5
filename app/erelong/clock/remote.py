"""The wall clock of another machine, estimated from round trips to it."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.clock import instants
from erelong.clock.instants import SECOND

if TYPE_CHECKING:
    from erelong.clock.instants import Instant

BASE: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock of this machine that is never stepped and goes on while the machine sleeps."""
SAMPLES: Final = 16
STEP: Final = SECOND // 10
"""A difference beyond this is followed at once, as a step; a smaller one is evened out."""
SLEW: Final = 500
"""Microseconds per second by which a small difference is evened out."""


def uptime() -> int:
    """Return the microseconds of the base."""
    return time.clock_gettime_ns(BASE) // 1000


class Sample(NamedTuple):
    """By how much the other clock was ahead of the base in a round trip, and how wrong that may be, in microseconds."""

    error: int
    offset: int


class RemoteClock:
    """Tells the time of the other machine, and never a later one: a job that is due here is due there.

    Steps of the wall clock of this machine have no effect. Before the first round trip, the time is that of this
    machine at the start. `note` may be called by another thread than `now`.
    """

    base: Final = BASE

    def __init__(self) -> None:
        self.offset = instants.now() - uptime()
        """Microseconds to be added to the base."""
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._noted_at: int | None = None

    def now(self) -> Instant:
        return uptime() + self.offset

    @property
    def shift(self) -> int:
        """Return the microseconds to be added to the wall clock of this machine."""
        return self.now() - instants.now()

    def note(self, *, sent: int, theirs: Instant, received: int) -> None:
        """Take a round trip into account: `sent` and `received` by `uptime`."""
        error = (received - sent + 1) // 2
        sample = Sample(error, theirs - sent - error)
        if any(abs(sample.offset - other.offset) > STEP + error + other.error for other in self._samples):
            self._samples.clear()
        self._samples.append(sample)
        best = min(self._samples)
        self._follow(best.offset - best.error, received)

    def _follow(self, target: int, now: int) -> None:
        elapsed = None if self._noted_at is None else now - self._noted_at
        self._noted_at = now
        missing = target - self.offset
        if elapsed is None or abs(missing) > STEP:
            self.offset = target
        else:
            most = elapsed * SLEW // SECOND
            self.offset += max(-most, min(most, missing))
