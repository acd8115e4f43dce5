"""The occurrences of a schedule: by the wall clock or at a fixed interval, between two bounds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from erelong.clock.instants import SECOND, Instant
from erelong.model.times.cron import Cron
from erelong.model.times.local_time import Fold, Gap, Occurrence, first_local, format_local, occurrences

if TYPE_CHECKING:
    from collections.abc import Iterator

_LAST_DAY: Final = 253_402_214_400 * SECOND  # 9999-12-31: beyond it no instant can be written
_AT_ONCE: Final = 64  # of a range that has more, the later half is searched first
_UNITS: Final = (("w", 604_800), ("d", 86_400), ("h", 3_600), ("m", 60))


@dataclass(frozen=True, slots=True, kw_only=True)
class WallClock:
    """The local times of a cron in a zone."""

    cron: Cron
    zone: tzinfo
    gap: Gap
    fold: Fold

    def after(self, instant: Instant) -> Iterator[Occurrence]:
        """Return the occurrences strictly after an instant, in order."""
        start = first_local(instant, self.zone)
        found = occurrences(self.cron.after, start, self.zone, self.gap, self.fold, instant)
        return dropwhile(lambda occurrence: occurrence.instant <= instant, found)

    def describe(self) -> str:
        return self.cron.describe()


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Instants that are multiples of `every` microseconds from an anchor, on both sides of it."""

    every: int
    anchor: Instant = 0

    @property
    def zone(self) -> tzinfo:
        return UTC

    def after(self, instant: Instant) -> Iterator[Occurrence]:
        """Return the occurrences strictly after an instant, in order."""
        due_at = instant + self.every - (instant - self.anchor) % self.every
        while True:
            yield Occurrence(due_at)
            due_at += self.every

    def describe(self) -> str:
        """Describe it in English, with the short form of a duration: "Every 1h30m"."""
        seconds, rest = divmod(self.every, SECOND)
        text = ""
        for unit, size in _UNITS:
            count, seconds = divmod(seconds, size)
            text += f"{count}{unit}" if count else ""
        if seconds or rest:
            text += f"{seconds + rest / SECOND:.6f}".rstrip("0").rstrip(".") + "s"
        return f"Every {text}"


Rhythm: TypeAlias = WallClock | Interval


class Preview(NamedTuple):
    """An upcoming occurrence as clients see it."""

    occurrence: Instant
    local: str
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """All occurrences of a rhythm with `starts_at` ≤ t < `ends_at`."""

    rhythm: Rhythm
    starts_at: Instant | None = None
    ends_at: Instant | None = None

    def after(self, instant: Instant) -> Iterator[Instant]:
        """Return the occurrences strictly after an instant, in order, each computed on demand."""
        return (occurrence.instant for occurrence in self._after(instant))

    def between(self, first: Instant, end: Instant) -> Iterator[Instant]:
        """Return the occurrences with `first` ≤ t < `end`, in order."""
        return takewhile(lambda instant: instant < end, self.after(first - 1))

    def latest(self, first: Instant, end: Instant) -> Iterator[Instant]:
        """Return the occurrences with `first` ≤ t < `end`, the latest first, without walking through all of them."""
        found = [*islice(self.between(first, end), _AT_ONCE + 1)]
        if len(found) <= _AT_ONCE:
            yield from reversed(found)
        else:
            middle = (found[0] + end) // 2
            yield from self.latest(middle, end)
            yield from self.latest(found[0], middle)

    def preview(self, instant: Instant) -> Iterator[Preview]:
        """Return the occurrences strictly after an instant as clients see them, each computed on demand."""
        zone = self.rhythm.zone
        for due_at, note in self._after(instant):
            yield Preview(due_at, format_local(due_at, zone), note or None)

    def _after(self, instant: Instant) -> Iterator[Occurrence]:
        found = self.rhythm.after(instant if self.starts_at is None else max(instant, self.starts_at - 1))
        ends_at = _LAST_DAY if self.ends_at is None else self.ends_at
        return takewhile(lambda occurrence: occurrence.instant < ends_at, found)
