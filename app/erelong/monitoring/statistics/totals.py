"""Totals of the counters at one moment, their differences, and percentiles of lateness."""

from __future__ import annotations

from operator import add, sub
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.job import State
from erelong.model.outcome import End
from erelong.telemetry.metrics import LATENESS_BOUNDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.telemetry.metrics import HistogramMetric, Metrics

FLOWS = ("submitted", "started", "succeeded", "failed", "retried")
FAILURES = frozenset({End.ERROR, End.TIMEOUT, End.CRASHED, End.LOST})


class Totals(NamedTuple):
    """How often each has happened since the start. `late` has the starts in each bucket of lateness."""

    submitted: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    late: tuple[int, ...] = (0,) * (len(LATENESS_BOUNDS) + 1)

    def since(self, earlier: Totals) -> Totals:
        """Return what has happened since earlier totals."""
        return Totals(
            self.submitted - earlier.submitted,
            self.started - earlier.started,
            self.succeeded - earlier.succeeded,
            self.failed - earlier.failed,
            self.retried - earlier.retried,
            tuple(map(sub, self.late, earlier.late)),
        )

    def plus(self, other: Totals) -> Totals:
        return Totals(
            self.submitted + other.submitted,
            self.started + other.started,
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.retried + other.retried,
            tuple(map(add, self.late, other.late)),
        )


NOTHING = Totals()


class Late(NamedTuple):
    """Percentiles of lateness in seconds; None without a start."""

    p50: float | None = None
    p99: float | None = None
    max: float | None = None


def read_totals(metrics: Metrics) -> Totals:
    finished = metrics.finished.values
    failed = sum(jobs for (_, state), jobs in finished.items() if state == State.FAILED.word)
    failures = sum(attempts for (_, outcome), attempts in metrics.ended.values.items() if outcome in FAILURES)
    return Totals(
        submitted=sum(metrics.submitted.values.values()),
        started=sum(metrics.started.values.values()),
        succeeded=sum(jobs for (_, state), jobs in finished.items() if state == State.SUCCEEDED.word),
        failed=failed,
        retried=failures - failed,
        late=tuple(metrics.late.counts()),
    )


def lateness(counts: Sequence[int]) -> Late:
    """Return the percentiles of starts in the buckets of `LATENESS_BOUNDS`, the highest as an upper bound."""
    if not any(counts):
        return Late()
    highest = max(bucket for bucket, starts in enumerate(counts) if starts)
    return Late(
        percentile(LATENESS_BOUNDS, counts, 0.5),
        percentile(LATENESS_BOUNDS, counts, 0.99),
        LATENESS_BOUNDS[min(highest, len(LATENESS_BOUNDS) - 1)],
    )


def percentile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return a percentile, by interpolation within its bucket; the last bucket counts as its lower bound."""
    left = share * sum(counts)
    for bucket, number in enumerate(counts):
        if number and left <= number:
            if bucket == len(bounds):
                return bounds[-1]
            low = bounds[bucket - 1] if bucket else 0.0
            return round(low + (bounds[bucket] - low) * left / number, 6)
        left -= number
    return None


def p99_of(histogram: HistogramMetric, before: Sequence[int]) -> tuple[float | None, tuple[int, ...]]:
    """Return the 99th percentile of the values noted since `before`, and the counts to continue from."""
    counts = tuple(histogram.counts())
    return percentile(histogram.bounds, [*map(sub, counts, before)], 0.99), counts
