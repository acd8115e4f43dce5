"""How large the trials are: small in every run of the tests, full with ERELONG_TRIALS=full in the environment."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

IS_FULL = os.environ.get("ERELONG_TRIALS") == "full"


def sized(small: T, full: T) -> T:
    return full if IS_FULL else small


def percentile(values: list[float], share: float) -> float:
    """The value that this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
