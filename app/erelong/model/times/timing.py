"""The time fields of a schedule: checked, given their defaults, and turned into a recurrence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from erelong.clock.instants import SECOND
from erelong.errors import Fault
from erelong.model.faults import shown, unfit
from erelong.model.times.cron import NEVER, parse_cron
from erelong.model.times.local_time import Fold, Gap
from erelong.model.times.recurrence import Interval, Recurrence, Rhythm, WallClock

if TYPE_CHECKING:
    from erelong.clock.instants import Instant
    from erelong.clock.zones import Zones
    from erelong.model.times.cron import Cron

SHORTEST_INTERVAL: Final = 1.0
LONGEST_INTERVAL: Final = 3_652 * 86_400.0
DEFAULT_ZONE: Final = "UTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """The time fields as a client writes them. None means the default; `fill` a timing to show or compare it."""

    cron: str | None = None
    every: float | None = None
    anchor: Instant | None = None
    zone: str | None = None
    gap: Gap | None = None
    fold: Fold | None = None
    starts_at: Instant | None = None
    ends_at: Instant | None = None

    def check(self, zones: Zones, now: Instant) -> list[Fault]:
        """Return the faults of each field, with what to write instead."""
        details = {**self._clashes(), **self._unreadable(zones)}
        if not details and self.cron is not None and self._never_comes(zones, now):
            details["cron"] = f"{shown(self.cron)} {NEVER}"
        return [Fault.at([field], detail) for field, detail in details.items()]

    def fill(self) -> Timing:
        """Return a checked timing with the defaults in place of None, where the field applies."""
        if self.cron is None:
            return replace(self, anchor=self.anchor or 0)
        cron = parse_cron(self.cron)
        return replace(self, zone=self.zone or DEFAULT_ZONE, gap=self._gap(cron), fold=self._fold(cron))

    def recur(self, zones: Zones) -> Recurrence:
        """Return the recurrence of a checked timing; raise ValueError if its zone has disappeared since."""
        return Recurrence(rhythm=self._rhythm(zones), starts_at=self.starts_at, ends_at=self.ends_at)

    def _rhythm(self, zones: Zones) -> Rhythm:
        if self.every is not None:
            return Interval(every=round(self.every * SECOND), anchor=self.anchor or 0)
        assert self.cron is not None
        cron = parse_cron(self.cron)
        return WallClock(
            cron=cron, zone=zones.find(self.zone or DEFAULT_ZONE), gap=self._gap(cron), fold=self._fold(cron)
        )

    def _gap(self, cron: Cron) -> Gap:
        return self.gap or (Gap.SKIP if cron.is_steady else Gap.SHIFT)

    def _fold(self, cron: Cron) -> Fold:
        return self.fold or (Fold.BOTH if cron.is_steady else Fold.FIRST)

    def _clashes(self) -> dict[str, str]:
        """Return the faults of fields that cannot be combined, or are out of bounds."""
        details: dict[str, str] = {}
        if self.every is None:
            if self.cron is None:
                details["cron"] = "is required, or every in its place"
            if self.anchor is not None:
                details["anchor"] = "applies only to every: remove it"
        else:
            if self.cron is not None:
                details["every"] = "cannot be combined with cron: remove one of them"
            elif not SHORTEST_INTERVAL <= self.every <= LONGEST_INTERVAL:
                details["every"] = unfit(self.every, "should be from 1 s to 10 years")
            for field in ("zone", "gap", "fold"):
                if self.cron is None and getattr(self, field) is not None:
                    details[field] = "applies only to cron: remove it, or write a cron for times of day"
        if self.starts_at is not None and self.ends_at is not None and self.ends_at <= self.starts_at:
            details["ends_at"] = "should be after starts_at"
        return details

    def _unreadable(self, zones: Zones) -> dict[str, str]:
        details: dict[str, str] = {}
        try:
            if self.cron is not None:
                parse_cron(self.cron)
        except ValueError as error:
            details["cron"] = str(error)
        try:
            if self.zone is not None:
                zones.find(self.zone)
        except ValueError as error:
            details["zone"] = str(error)
        return details

    def _never_comes(self, zones: Zones, now: Instant) -> bool:
        endless = replace(self.recur(zones), ends_at=None)
        return next(endless.after(now), None) is None
