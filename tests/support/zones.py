"""Time zones whose rules a test can change."""

from __future__ import annotations

from datetime import timedelta, timezone, tzinfo

from erelong.clock.zones import Zones, ZoneSource

HERE, THERE = "Test/Here", "Test/There"


class FakeZones(Zones):
    """Rules of a version: zones with fixed offsets, in hours."""

    def __init__(self, version: str, **hours: float) -> None:
        super().__init__([])
        self.version = version
        self._fixed = {name: timezone(timedelta(hours=offset)) for name, offset in hours.items()}

    def find(self, name: str) -> tzinfo:
        if name not in self._fixed:
            raise ValueError(f"no time zone {name}")
        return self._fixed[name]


class FakeZoneSource(ZoneSource):
    """Finds the rules that the test has set last."""

    def __init__(self, newest: Zones | None = None) -> None:
        self.newest = newest or make_zones()
        super().__init__()

    def load(self) -> Zones:
        return self.newest


def make_zones(version: str = "2026a", here: float | None = 1.0, there: float = 0.5) -> FakeZones:
    """Make rules for HERE and THERE; without an offset, HERE has disappeared."""
    offsets = {THERE: there} if here is None else {HERE: here, THERE: there}
    return FakeZones(version, **offsets)
