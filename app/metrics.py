"""Every metric, declared once. Counting is a dict entry; Prometheus' own library only writes the page."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENESS_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0)
DURATION_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3600.0)

Labels = tuple[str, ...]


class Tally:
    """A count that only grows, for each set of label values: `tally.values[kind, state] += 1`."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, help, labels
        self.values: Counter[Labels] = Counter() if labels else Counter({(): 0})

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for values, count in self.values.items():
            family.add_metric(values, count)
        return family


class Spread:
    """How often a value fell between given bounds, for each value of one label."""

    def __init__(self, name: str, help: str, label: str, bounds: tuple[float, ...]) -> None:
        self.name, self.help, self.label = name, help, label
        self._bounds = bounds
        self._counts: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()

    def note(self, of: str, value: float) -> None:
        counts = self._counts.get(of)
        if counts is None:
            counts = self._counts[of] = [0] * (len(self._bounds) + 1)
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[of] += value  # type: ignore[assignment]  # a Counter adds floats as well

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.help, labels=[self.label])
        for of, counts in self._counts.items():
            bounds = [*map(str, self._bounds), "+Inf"]
            family.add_metric([of], list(zip(bounds, accumulate(counts), strict=True)), self._sums[of])
        return family


class Level:
    """A value read when the page is asked for; `read` is set by the one who knows it."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, help, labels
        self.read: Callable[[], Mapping[Labels, float]] = dict

    def collect(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for values, level in self.read().items():
            family.add_metric(values, level)
        return family


class Metrics(Collector):
    """All that is counted; one object, made in `main` and handed to those who count."""

    def __init__(self) -> None:
        self.submitted = Tally("erelong_jobs_submitted", "Jobs taken in.", "kind")
        self.started = Tally("erelong_attempts_started", "Attempts begun.", "kind")
        self.ended = Tally("erelong_attempts_ended", "Attempts ended, by how.", "kind", "outcome")
        self.finished = Tally("erelong_jobs_finished", "Jobs that reached a final state.", "kind", "state")
        self.late = Spread("erelong_late_seconds", "From due_at to the start.", "kind", LATENESS_BOUNDS)
        self.duration = Spread("erelong_attempt_seconds", "How long attempts took.", "kind", DURATION_BOUNDS)
        self.jobs = Level("erelong_jobs", "Jobs stored, by queue and state.", "queue", "state")
        self.pending = Level("erelong_agenda_entries", "Instants the agenda holds.")
        self.due = Level("erelong_jobs_due", "Jobs due that have not started.", "queue")
        self.running = Level("erelong_attempts_running", "Attempts under way.")
        self.abandoned = Level("erelong_attempts_abandoned", "Attempts over that still occupy a task or thread.")
        self.unsaved = Level("erelong_outcomes_unsaved", "Outcomes waiting for the disk.")
        self.outdated = Tally("erelong_outcomes_dropped", "Outcomes of attempts that were over already.")
        self.purged = Tally("erelong_jobs_purged", "Jobs forgotten after their retention.")
        self.clock_jumps = Tally("erelong_clock_jumps", "Steps of the wall clock by more than a second.")
        self.laps_failed = Tally(
            "erelong_laps_failed", "Laps of a background duty that failed and were repeated.", "duty"
        )
        self.requests = Tally("erelong_http_requests", "Requests answered.", "method", "route", "status")
        self.connections = Level("erelong_connections", "Clients connected.")
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def collect(self) -> Iterable[Metric]:
        return [item.collect() for item in vars(self).values() if isinstance(item, Tally | Spread | Level)]

    def page(self) -> bytes:
        return generate_latest(self._registry)
