"""A bucket of tokens: how many may go at once, and how many a second after that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from erelong.config import Rate

NEARLY = 1e-9  # what sums of floats may lack


class Bucket:
    """Full at first; `tick` is the monotonic clock."""

    __slots__ = ("_filled_at", "_rate", "_tokens")

    def __init__(self, *, rate: Rate) -> None:
        self._rate = rate
        self._tokens = rate.burst
        self._filled_at = -math.inf

    def take(self, tick: float) -> float:
        """Take a token, or tell in how many seconds there will be one; 0 is that it was taken."""
        rate = self._rate
        self._tokens = min(rate.burst, self._tokens + (tick - self._filled_at) * rate.per_second)
        self._filled_at = tick
        if self._tokens < 1 - NEARLY:
            return (1 - self._tokens) / rate.per_second
        self._tokens -= 1
        return 0.0
