"""The size of the trials: small by default, full with ERELONG_TRIALS=full in the environment."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

IS_FULL = os.environ.get("ERELONG_TRIALS") == "full"


def sized(small: T, full: T) -> T:
    return full if IS_FULL else small


def percentile(values: list[float], share: float) -> float:
    """Return a quantile of the values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
