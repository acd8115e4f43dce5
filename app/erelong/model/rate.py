"""Token bucket for rate limits: a burst, then a number per second."""

from __future__ import annotations

import math

NEARLY = 1e-9  # tolerance for the rounding of float sums


class Bucket:
    """A token bucket that starts full."""

    __slots__ = ("_burst", "_filled_at", "_per_second", "_tokens")

    def __init__(self, *, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._filled_at = -math.inf

    def take(self, tick: float) -> float:
        """Take a token and return 0, or return the seconds until one is available. `tick` is monotonic time."""
        self._tokens = min(self._burst, self._tokens + (tick - self._filled_at) * self._per_second)
        self._filled_at = tick
        if self._tokens < 1 - NEARLY:
            return (1 - self._tokens) / self._per_second
        self._tokens -= 1
        return 0.0
