"""Missed occurrences: which are made late, and which are only counted."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from erelong.clock.instants import SECOND
from erelong.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from erelong.clock.instants import Instant
    from erelong.model.times.recurrence import Recurrence

MAX_MADE: Final = 1_000
MAX_COUNTED: Final = 10_000
AT_ONCE: Final = 50
MAX_CATCHUP: Final = 366 * 86_400.0
SKIP_CATCHUP: Final = 60.0


class MissedPolicy(StrEnum):
    """Which missed occurrences are made: the latest, the latest if it is recent, or all."""

    ONCE = "once"
    SKIP = "skip"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Missed:
    """Occurrences that are not made: how many, the first and the last; `more` if they are too many to count."""

    count: int
    first: Instant
    last: Instant
    more: bool


class Catchup(NamedTuple):
    """The occurrences to make, oldest first, and those that were missed."""

    made: tuple[Instant, ...]
    missed: Missed | None


Deciding: TypeAlias = Generator[None, None, Catchup]
"""A decision in steps."""


def check_missed(policy: MissedPolicy, catchup: float | None, *, may_overlap: bool) -> list[Fault]:
    """Return the faults of fields that cannot be combined, with what to write instead."""
    faults = []
    if policy is MissedPolicy.SKIP and catchup is not None:
        faults.append(Fault("/catchup", f"cannot be combined with missed skip ({SKIP_CATCHUP:g} s): remove it"))
    if policy is MissedPolicy.ALL and catchup is None:
        faults.append(Fault("/catchup", 'is required with missed all: how old an occurrence may be, such as "1d"'))
    elif policy is MissedPolicy.ALL and catchup is not None and catchup > MAX_CATCHUP:
        faults.append(Fault("/catchup", 'should be at most 366 days with missed all, such as "1d"'))
    if policy is MissedPolicy.ALL and not may_overlap:
        faults.append(Fault("/missed", "all makes jobs that overlap: set overlap to allow, or missed to once"))
    return faults


def catch_up(
    recurrence: Recurrence, policy: MissedPolicy, catchup: float | None, *, cursor: Instant, now: Instant
) -> Deciding:
    """Decide on the occurrences after `cursor`, the last one handled, up to and including `now`.

    The work is bounded: the latest are searched from the end, the others counted up to 10,000. It yields after every
    `AT_ONCE` occurrences, so that the event loop can do other work meanwhile.
    """
    within = SKIP_CATCHUP if policy is MissedPolicy.SKIP else catchup
    oldest = cursor + 1 if within is None else max(cursor + 1, now - round(within * SECOND))
    most = MAX_MADE if policy is MissedPolicy.ALL else 1
    latest = yield from _collect(recurrence.latest(oldest, now + 1), most)
    made = tuple(reversed(latest))
    missed = yield from _missed(recurrence, cursor + 1, made[0] if made else now + 1)
    return Catchup(made, missed)


def _collect(occurrences: Iterator[Instant], most: int) -> Generator[None, None, list[Instant]]:
    collected: list[Instant] = []
    while len(collected) < most and (part := [*islice(occurrences, min(AT_ONCE, most - len(collected)))]):
        collected += part
        yield
    return collected


def _missed(recurrence: Recurrence, first: Instant, end: Instant) -> Generator[None, None, Missed | None]:
    counted = yield from _collect(recurrence.between(first, end), MAX_COUNTED + 1)
    if not counted:
        return None
    more = len(counted) > MAX_COUNTED
    last = next(recurrence.latest(counted[-1], end)) if more else counted[-1]
    return Missed(min(len(counted), MAX_COUNTED), counted[0], last, more)
