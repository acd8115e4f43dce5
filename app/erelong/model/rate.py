"""A bucket of tokens: how many may go at once, and how many a second after that."""

from __future__ import annotations

import math

NEARLY = 1e-9  # what sums of floats may lack


class Bucket:
    """Full at first; `tick` is the monotonic clock."""

    __slots__ = ("_burst", "_filled_at", "_per_second", "_tokens")

    def __init__(self, *, per_second: float, burst: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._tokens = burst
        self._filled_at = -math.inf

    def take(self, tick: float) -> float:
        """Take a token, or tell in how many seconds there will be one; 0 is that it was taken."""
        self._tokens = min(self._burst, self._tokens + (tick - self._filled_at) * self._per_second)
        self._filled_at = tick
        if self._tokens < 1 - NEARLY:
            return (1 - self._tokens) / self._per_second
        self._tokens -= 1
        return 0.0
