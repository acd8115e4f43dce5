"""The retry policy of a job, and the seconds it makes of a number of failures."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import orjson

from erelong.model.json_text import trimmed


class RetryPolicy(NamedTuple):
    """After the n-th failed attempt a wait of delay × factor^(n-1), at most max_delay, ± jitter."""

    max_attempts: int
    delay: float
    factor: float
    max_delay: float
    jitter: float

    def to_json(self) -> bytes:
        """Return it as it is stored."""
        return trimmed(orjson.dumps(self._asdict()))


@lru_cache(maxsize=1024)
def read_policy(text: bytes) -> RetryPolicy:
    """Read a stored retry policy; there are few different ones."""
    return RetryPolicy(**orjson.loads(text))


def wait(policy: RetryPolicy, failures: int, draw: float) -> float:
    """Return how many seconds to wait after that many failed attempts, the first being 1.

    `draw`, from 0 up to but not including 1, spreads the wait evenly over ± `jitter` share; 0.5 leaves it as it is.
    The spread comes on top of `max_delay`: jobs that have all grown to the bound would else come back in one flock.
    """
    return _grown(policy, failures) * (1 + policy.jitter * (2 * draw - 1))


def _grown(policy: RetryPolicy, failures: int) -> float:
    try:
        return min(policy.delay * policy.factor ** (failures - 1), policy.max_delay)
    except OverflowError:  # of the power alone: a float that is multiplied beyond its range becomes infinite
        return policy.max_delay if policy.delay else 0.0
