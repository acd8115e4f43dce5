"""Local times and their instants, also where clocks are put forward (a gap) or back (a fold)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from erelong.clock.instants import SECOND, why_missing
from erelong.model.faults import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import tzinfo

    from erelong.clock.instants import Instant


class Gap(StrEnum):
    """What to do with a local time that does not exist: resolve it with the offset before the gap, or skip it."""

    SHIFT = "shift"
    SKIP = "skip"


class Fold(StrEnum):
    """Which instants to use of a local time that occurs twice."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class Note(StrEnum):
    """Whether a local time was moved out of a gap, or occurs twice."""

    NONE = ""
    FOLD = "fold"
    GAP = "gap"


class Occurrence(NamedTuple):
    """An instant, and a note about its local time."""

    instant: Instant
    note: Note = Note.NONE


QUIET_YEARS: Final = 50
"""A recurrence without an occurrence for this long has ended."""

_QUIET: Final = round(QUIET_YEARS * 365.25 * 86_400) * SECOND
_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# No change in any zone exceeds 24 h, and two changes are at least 6 days apart.
_REACH: Final = 25 * 3600 * SECOND
LOCAL_PATTERN: Final = r"([0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?"
_LOCAL = re.compile(LOCAL_PATTERN)
_AS_LOCAL: Final = 'send a local time without an offset, such as "2027-03-28T09:00:00"'


def parse_local(value: object) -> datetime:
    """Parse a local time from a request; raise ValueError, saying what to send instead, for anything else."""
    match = _LOCAL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{shown(value)} is not a local time: {_AS_LOCAL}")
    try:
        return datetime.fromisoformat(f"{match[1]}.{(match[2] or '').ljust(6, '0')}")
    except ValueError:
        raise ValueError(f"{shown(value)} does not exist: {why_missing(match[1])}") from None


def instant_of(local: datetime, zone: tzinfo) -> Instant:
    """Return the instant of a local time: with the offset before a gap, the first in a fold."""
    return _wall(local) - _offset(zone, local)


def format_local(instant: Instant, zone: tzinfo) -> str:
    """Write an instant as RFC 3339 with the offset of the zone, rounded up to the millisecond as in UTC."""
    local = _in_zone(-(instant // -1000) * 1000, zone)
    return local.isoformat(timespec="milliseconds" if local.microsecond else "seconds")


def occurrences(
    local_times: Callable[[datetime], Iterator[datetime]],
    start: datetime,
    zone: tzinfo,
    gap: Gap,
    fold: Fold,
    since: Instant,
) -> Iterator[Occurrence]:
    """Turn the local times after `start`, which ascend, into ascending occurrences, each instant once.

    A gap changes the order: 02:30 may become 03:30, which is after 03:00. A fold with both does so too. So an
    occurrence is held until no later local time can have an earlier instant. Of the local times in a gap to skip, only
    the first is computed. End after 50 years without an occurrence, counted from `since` at first.
    """
    held: list[Occurrence] = []
    latest = since
    following = local_times(start)
    while (local := next(following, None)) is not None:
        wall, before = _wall(local), _offset(zone, local)
        after = _offset(zone, local.replace(fold=1))
        settled = wall - max(before, after)
        if settled - latest > _QUIET:
            return
        for occurrence in _resolve(wall, before, after, gap, fold):
            heappush(held, occurrence)
        if before < after and gap is Gap.SKIP:
            following = local_times(_last_in_gap(local, zone, after - before))
        while held and held[0].instant <= settled:
            occurrence = _pop(held)
            latest = occurrence.instant
            yield occurrence
    while held:
        yield _pop(held)


def first_local(instant: Instant, zone: tzinfo) -> datetime:
    """Return a local time before which no local time has an instant after this one, as late as possible."""
    around = [_offset_at(instant + step, zone) for step in (-_REACH, 0, _REACH)]
    width = max(around) - min(around)
    offset = min(_offset_at(instant + step, zone) for step in (-width, 0, width)) if width else around[1]
    return _EPOCH + timedelta(microseconds=instant + offset)


def _resolve(wall: int, before: int, after: int, gap: Gap, fold: Fold) -> Iterator[Occurrence]:
    """Resolve one local time by its two offsets: the second is larger in a gap, smaller in a fold, otherwise equal."""
    if before == after:
        yield Occurrence(wall - before)
    elif before < after:
        if gap is Gap.SHIFT:
            yield Occurrence(wall - before, Note.GAP)
    else:
        if fold is not Fold.SECOND:
            yield Occurrence(wall - before, Note.FOLD)
        if fold is not Fold.FIRST:
            yield Occurrence(wall - after, Note.FOLD)


def _last_in_gap(local: datetime, zone: tzinfo, width: int) -> datetime:
    """Return the last second of the gap of this width in which a local time lies."""
    inside, outside = 0, width // SECOND
    while outside - inside > 1:
        middle = (inside + outside) // 2
        later = local + timedelta(seconds=middle)
        if _offset(zone, later) < _offset(zone, later.replace(fold=1)):
            inside = middle
        else:
            outside = middle
    return local + timedelta(seconds=inside)


def _pop(held: list[Occurrence]) -> Occurrence:
    """Remove and return the first; of several at one instant, the one with a note."""
    first = heappop(held)
    while held and held[0].instant == first.instant:
        first = heappop(held)
    return first


def _wall(local: datetime) -> int:
    """Return a local time in microseconds, as if it were in UTC."""
    return (local - _EPOCH) // _MICROSECOND


def _offset(zone: tzinfo, local: datetime) -> int:
    """Return the offset of a local time in microseconds: in a gap or fold the one before it, with fold=1 after it."""
    offset = zone.utcoffset(local)
    assert offset is not None
    return offset // _MICROSECOND


def _offset_at(instant: Instant, zone: tzinfo) -> int:
    offset = _in_zone(instant, zone).utcoffset()
    assert offset is not None
    return offset // _MICROSECOND


def _in_zone(instant: Instant, zone: tzinfo) -> datetime:
    return (_EPOCH_UTC + timedelta(microseconds=instant)).astimezone(zone)
