"""The recurrences of schedules under the current time-zone rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from erelong.clock.zones import Zones
    from erelong.model.times.recurrence import Recurrence
    from erelong.model.times.timing import Timing

MAX_KEPT: Final = 256


class Rules:
    """Makes recurrences, and keeps those of the last timings: many schedules have the same."""

    def __init__(self, *, zones: Zones) -> None:
        self.zones = zones
        self._kept: dict[Timing, Recurrence] = {}

    def renew(self, zones: Zones) -> None:
        """Use other time-zone rules."""
        self.zones = zones
        self._kept.clear()

    def recurrence(self, timing: Timing) -> Recurrence:
        """Return the recurrence of a timing. Raise ValueError if its zone is not in the rules."""
        found = self._kept.get(timing)
        if found is None:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            found = self._kept[timing] = timing.recur(self.zones)
        return found
