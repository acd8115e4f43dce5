"""From a retry policy to the seconds until the next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from erelong.config import Retry


def wait(policy: Retry, failures: int, draw: float) -> float:
    """Return how many seconds to wait after that many failed attempts, the first being 1.

    `draw`, from 0 up to but not including 1, spreads the wait evenly over ± `jitter` share; 0.5 leaves it as it is.
    The spread comes on top of `max_delay`: jobs that have all grown to the bound would else come back in one flock.
    """
    return _grown(policy, failures) * (1 + policy.jitter * (2 * draw - 1))


def _grown(policy: Retry, failures: int) -> float:
    try:
        return min(policy.delay * policy.factor ** (failures - 1), policy.max_delay)
    except OverflowError:  # of the power alone: a float that is multiplied beyond its range becomes infinite
        return policy.max_delay if policy.delay else 0.0
