"""The wall clock of another machine, estimated from round trips to it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.clock import instants
from erelong.clock.instants import SECOND

if TYPE_CHECKING:
    from erelong.clock.instants import Instant

SAMPLES: Final = 16
STEP: Final = SECOND // 10
"""A difference beyond this is a step of one of the clocks; a smaller one is evened out."""
SLEW: Final = 500
"""Microseconds per second by which a small difference is evened out."""


class Sample(NamedTuple):
    """By how much the other clock was ahead in a round trip, and how wrong that may be, in microseconds."""

    error: int
    offset: int


class RemoteClock:
    """Tells the time of the other machine, and never a later one: a job that is due here is due there.

    `note` may be called by another thread than `now`.
    """

    def __init__(self) -> None:
        self.shift = 0
        """Microseconds to be added to the clock of this machine."""
        self._samples: deque[Sample] = deque(maxlen=SAMPLES)
        self._noted_at: Instant | None = None

    def now(self) -> Instant:
        return instants.now() + self.shift

    def note(self, *, sent: Instant, theirs: Instant, received: Instant) -> None:
        """Take a round trip into account: `sent` and `received` by the clock of this machine."""
        error = (received - sent + 1) // 2
        sample = Sample(error, theirs - sent - error)
        if any(abs(sample.offset - other.offset) > STEP + error + other.error for other in self._samples):
            self._samples.clear()
        self._samples.append(sample)
        best = min(self._samples)
        self._follow(best.offset - best.error, received)

    def _follow(self, target: int, now: Instant) -> None:
        elapsed = None if self._noted_at is None else max(0, now - self._noted_at)
        self._noted_at = now
        missing = target - self.shift
        if elapsed is None or abs(missing) > STEP:
            self.shift = target
        else:
            most = elapsed * SLEW // SECOND
            self.shift += max(-most, min(most, missing))
