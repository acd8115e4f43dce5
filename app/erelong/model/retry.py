"""Retry policies: how often a failed job is tried again, and after which waits."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import orjson

from erelong.model.json_text import trimmed


class RetryPolicy(NamedTuple):
    """The wait after the n-th failed attempt is delay × factor^(n-1), at most max_delay, ± jitter."""

    max_attempts: int
    delay: float
    factor: float
    max_delay: float
    jitter: float

    def to_json(self) -> bytes:
        """Return the stored form."""
        return trimmed(orjson.dumps(self._asdict()))


@lru_cache(maxsize=1024)
def read_policy(text: bytes) -> RetryPolicy:
    """Read a stored retry policy. Cached, since few policies differ."""
    return RetryPolicy(**orjson.loads(text))


def wait(policy: RetryPolicy, failures: int, draw: float) -> float:
    """Return the seconds to wait after this many failed attempts (1 or more).

    `draw` (0 ≤ draw < 1) spreads the wait evenly over ± `jitter`; 0.5 leaves it unchanged. Jitter also applies to
    `max_delay`: otherwise jobs that have reached it would all retry at once.
    """
    return _exponential(policy, failures) * (1 + policy.jitter * (2 * draw - 1))


def _exponential(policy: RetryPolicy, failures: int) -> float:
    try:
        return min(policy.delay * policy.factor ** (failures - 1), policy.max_delay)
    except OverflowError:  # only from the power: a product of floats that is too large becomes infinite
        return policy.max_delay if policy.delay else 0.0
