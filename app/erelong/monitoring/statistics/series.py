"""Points at equal steps of the wall clock, for lines on a screen."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from erelong.clock.instants import SECOND
from erelong.monitoring.statistics.totals import FLOWS, NOTHING, Totals, lateness

if TYPE_CHECKING:
    from erelong.clock.instants import Instant


class Point(NamedTuple):
    """What happened in a step, and the due and running jobs at its end."""

    happened: Totals = NOTHING
    due: int = 0
    running: int = 0


class Series:
    """The latest points, each numbered by its step since the epoch; steps without a point are gaps."""

    def __init__(self, *, step: int, size: int) -> None:
        self.step, self.size = step, size
        self._points: deque[tuple[int, Point]] = deque(maxlen=size)

    def number_at(self, now: Instant) -> int:
        """Return the number of the step that an instant is in."""
        return now // (self.step * SECOND)

    def add(self, number: int, point: Point) -> None:
        """Add the point of a step. Points from there on, noted before the clock was set back, are dropped."""
        while self._points and self._points[-1][0] >= number:
            self._points.pop()
        self._points.append((number, point))

    def latest(self, steps: int, before: int) -> list[Point]:
        """Return the points of the last steps before a number."""
        return [point for number, point in self._points if before - steps <= number < before]

    def lines(self, now: Instant) -> dict[str, Any]:
        """Return the lines of all whole steps up to now: numbers a second, jobs, and seconds of lateness."""
        end = self.number_at(now)
        points = dict(self._points)
        window = [points.get(number) for number in range(end - self.size, end)]
        lates = [None if point is None else lateness(point.happened.late) for point in window]
        return {
            "from": (end - self.size) * self.step * SECOND,
            "step": self.step,
            **{name: [_per_second(point, name, self.step) for point in window] for name in FLOWS},
            "due": [None if point is None else point.due for point in window],
            "running": [None if point is None else point.running for point in window],
            "late_p50": [None if late is None else late.p50 for late in lates],
            "late_p99": [None if late is None else late.p99 for late in lates],
            "late_max": [None if late is None else late.max for late in lates],
        }


def _per_second(point: Point | None, name: str, step: int) -> float | None:
    return None if point is None else round(getattr(point.happened, name) / step, 3)
