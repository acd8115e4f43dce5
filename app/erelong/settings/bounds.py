"""The bounds that the settings set to times of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.errors import Fault
from erelong.model.faults import too_long
from erelong.settings.queues import long_waits

if TYPE_CHECKING:
    from erelong.settings.queues import RetryPatch
    from erelong.settings.sections import JobsSection


def time_faults(bounds: JobsSection, timeout: float | None, retry: RetryPatch | None) -> list[Fault]:
    """Return a fault for a timeout, and for each delay of a retry policy, that exceeds its bound."""
    faults = []
    if timeout is not None and timeout > bounds.max_timeout:
        faults.append(Fault("/timeout", too_long(timeout, bounds.max_timeout, "max_timeout")))
    for name, seconds in long_waits(bounds.max_horizon, retry):
        faults.append(Fault(f"/retry/{name}", too_long(seconds, bounds.max_horizon, "max_horizon")))
    return faults
