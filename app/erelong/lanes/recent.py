"""The starts of one queue in the last five minutes: how late they were, and how many a second while jobs waited."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import NamedTuple

from erelong.model.runs import counted

MINUTES = 5
FLOOR = 0.0001
STEP = math.log(1.25)
SETTLING = 1.0  # seconds in which the first waiting jobs fill free slots, which says nothing about the next ones
CLOCKS_DIFFER = 0.001  # by which the wall clock, for lateness, and the monotonic clock may disagree
MIN_STARTS = 5  # fewer do not tell a pace


class Lateness(NamedTuple):
    """Percentiles of lateness in seconds, each the upper edge of its step; None without a start."""

    p50: float | None
    p99: float | None
    max: float | None


class Minute:
    """A count of starts per step of 25 % of lateness, and the starts of a minute while jobs waited."""

    __slots__ = ("number", "starts", "steps", "waited")

    def __init__(self, number: int) -> None:
        self.number = number
        self.steps: Counter[int] = Counter()
        self.starts = 0
        self.waited = 0.0  # seconds before these starts


class Recent:
    """Counts starts in a row per minute.

    A start tells the pace of the queue if some job was waiting ever since the start before it.
    """

    def __init__(self) -> None:
        self._minutes: deque[Minute] = deque(maxlen=MINUTES)
        self._noted_at = -math.inf
        self._waiting_since = math.inf

    def note(self, *lates: float, tick: float) -> None:
        """Note starts at the same moment."""  # hot: drain
        number = int(tick // 60)
        if not self._minutes or self._minutes[-1].number != number:
            self._minutes.append(Minute(number))
        minute = self._minutes[-1]
        steps = minute.steps
        for late_by, starts in counted(lates).items():  # jobs due together that start together are equally late
            step = int(math.log(late_by / FLOOR) / STEP) + 1 if late_by > FLOOR else 0
            steps[step] += starts
        latest, since = max(lates), tick - self._noted_at
        if latest < since - CLOCKS_DIFFER:
            self._waiting_since = tick
        elif tick - self._waiting_since >= SETTLING:
            minute.starts += len(lates)
            minute.waited += since
        self._noted_at = tick

    def begin_again(self, tick: float) -> None:
        """Forget that jobs wait: until here, a pause kept them from starting."""
        self._noted_at = self._waiting_since = tick

    def is_over(self, tick: float) -> bool:
        """Return whether there was no start in the last five minutes."""
        return not self._minutes or self._minutes[-1].number <= int(tick // 60) - MINUTES

    def steps(self, tick: float) -> Counter[int]:
        """Return the starts in each step of lateness."""
        counts: Counter[int] = Counter()
        for minute in self._latest(tick):
            counts.update(minute.steps)
        return counts

    def per_second(self, tick: float) -> float:
        """Return the starts per second over about the last minute."""
        current = int(tick // 60)
        into = tick - 60 * current
        starts = {minute.number: minute.steps.total() for minute in self._minutes if minute.number >= current - 1}
        return (starts.get(current, 0) + starts.get(current - 1, 0) * (60 - into) / 60) / 60

    def pace(self, tick: float, served_since: float) -> float | None:
        """Return the starts per second while jobs waited, as they do at this moment; None if there were too few.

        Nothing could start before `served_since`.
        """
        minutes = [minute for minute in self._latest(tick) if 60 * (minute.number + 1) > served_since]
        starts = sum(minute.starts for minute in minutes)
        waited = min(sum(minute.waited for minute in minutes) + tick - self._noted_at, tick - served_since)
        return starts / waited if starts >= MIN_STARTS and waited > 0 else None

    def _latest(self, tick: float) -> list[Minute]:
        oldest = int(tick // 60) - MINUTES
        return [minute for minute in self._minutes if minute.number > oldest]


def lateness(counts: Counter[int]) -> Lateness:
    """Return the percentiles of starts in steps of lateness."""
    return Lateness(_percentile(counts, 0.5), _percentile(counts, 0.99), _percentile(counts, 1.0))


def _percentile(counts: Counter[int], share: float) -> float | None:
    left = math.ceil(counts.total() * share)
    for step in sorted(counts):
        left -= counts[step]
        if left <= 0:
            return round(FLOOR * math.exp(step * STEP), 6)
    return None
