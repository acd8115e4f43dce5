"""The latest time during which no job could be made. The `missed` policy decides on its occurrences."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from erelong.errors import Problem, StoreRefused
from erelong.model.schedules.schedule import Reason

if TYPE_CHECKING:
    from erelong.clock.instants import Instant, Now


class Outage(NamedTuple):
    """When it ended, and why no job could be made."""

    until: Instant
    reason: Reason


class Outages:
    """Notes downtimes, steps of the clock, and failures of the store."""

    def __init__(self, *, now: Now) -> None:
        self.latest: Outage | None = None
        self._now = now
        self._goes_on = False  # since the last attempt to store jobs failed

    def started(self) -> None:
        """Note that the service was not running until now."""
        self.latest = Outage(self._now(), Reason.DOWN)

    def stepped(self, jump: float) -> None:
        """Note a step of the clock by signed seconds. A step back shortens an outage that ends in the future."""
        now = self._now()
        if jump >= 1:
            self.latest = Outage(now, Reason.CLOCK_STEPPED)
        elif self.latest is not None and self.latest.until > now:
            self.latest = self.latest._replace(until=now)

    def failed(self, error: BaseException) -> None:
        """Note that jobs could not be stored, unless the store is sound and refuses these."""
        if isinstance(error, Problem) and not isinstance(error, StoreRefused):
            self._goes_on = True

    def stored(self) -> None:
        """Note that jobs can be stored."""
        self._goes_on = False

    def extend(self) -> None:
        """Extend the outage until now if jobs still cannot be stored."""
        if self._goes_on:
            self.latest = Outage(self._now(), Reason.DOWN)
