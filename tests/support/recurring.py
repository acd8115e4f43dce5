"""Recurrences made of texts, and instants read and written as texts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any

from erelong.clock.instants import SECOND, Instant, format_instant
from erelong.clock.zones import Zones, load_zones
from erelong.model.times import catchup
from erelong.model.times.catchup import Catchup
from erelong.model.times.cron import Cron, parse_cron
from erelong.model.times.local_time import Fold, Gap
from erelong.model.times.recurrence import Recurrence, WallClock
from erelong.model.times.timing import Timing


class CountedCron(Cron):
    """Counts the local times that were computed."""

    counted = 0

    def after(self, local: datetime) -> Iterator[datetime]:
        for found in super().after(local):
            CountedCron.counted += 1
            yield found


def counted(text: str, zone: str, gap: Gap = Gap.SKIP, fold: Fold = Fold.BOTH) -> Recurrence:
    """A recurrence that counts the local times it computes, from 0."""
    CountedCron.counted = 0
    cron = CountedCron(text, parse_cron(text).fields)
    return Recurrence(rhythm=WallClock(cron=cron, zone=zones().find(zone), gap=gap, fold=fold))


@lru_cache
def zones() -> Zones:
    return load_zones(os.environ)


def at(text: str) -> Instant:
    return round(datetime.fromisoformat(text).timestamp()) * SECOND


def make_recurrence(cron: str | None = None, **timing: Any) -> Recurrence:
    return Timing(cron=cron, **timing).recur(zones())


def catch_up(*arguments: Any, **others: Any) -> Catchup:
    """Take all steps of the decision about missed occurrences."""
    deciding = catchup.catch_up(*arguments, **others)
    while True:
        try:
            next(deciding)
        except StopIteration as end:
            decision: Catchup = end.value
            return decision


def after(recurrence: Recurrence, start: str, count: int = 3) -> list[str]:
    """The next occurrences as texts, by the second, in UTC."""
    return [format_instant(instant)[:19] for instant in islice(recurrence.after(at(start)), count)]
