"""Every metric, declared once. Counters are dict entries; the Prometheus library only renders the page."""

from __future__ import annotations

import platform
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from erelong.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENESS_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0)
DURATION_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 3600.0)
COMMIT_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
GROUP_BOUNDS = (1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1000.0)
LAG_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)

Labels = tuple[str, ...]


class CounterMetric:
    """A counter for each set of label values: `counter.values[kind, state] += 1`."""

    def __init__(self, name: str, help: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, help, labels
        self.values: Counter[Labels] = Counter() if labels else Counter({(): 0})

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for values, count in self.values.items():
            family.add_metric(values, count)
        return family


class HistogramMetric:
    """A histogram for each value of one label; without a label, for "".

    One thread may note values. Without a label it may be another thread than the reader.
    """

    def __init__(self, name: str, help: str, label: str, bounds: tuple[float, ...]) -> None:
        self.name, self.help, self.labels = name, help, (label,) if label else ()
        self.bounds = self._bounds = bounds
        self._counts: dict[str, list[int]] = {} if label else {"": [0] * (len(bounds) + 1)}
        self._sums: Counter[str] = Counter()

    def note(self, label: str, *values: float) -> None:
        counts = self._counts.get(label)
        if counts is None:
            counts = self._counts[label] = [0] * (len(self._bounds) + 1)
        if len(values) == 1:
            counts[bisect_left(self._bounds, values[0])] += 1
            self._sums[label] += values[0]  # type: ignore[assignment]  # a Counter adds floats as well
            return
        ranked, begin = sorted(values), 0
        while begin < len(ranked):
            bucket = bisect_left(self._bounds, ranked[begin])
            end = bisect_right(ranked, self._bounds[bucket], begin) if bucket < len(self._bounds) else len(ranked)
            counts[bucket] += end - begin
            begin = end
        self._sums[label] += sum(values)  # type: ignore[assignment]  # a Counter adds floats as well

    def counts(self) -> list[int]:
        """Return how many values each bucket has, under all labels together."""
        return [sum(numbers) for numbers in zip(*self._counts.values(), strict=True)] or [0] * (len(self._bounds) + 1)

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        bounds = [*map(str, self._bounds), "+Inf"]
        for label, counts in self._counts.items():
            buckets = list(zip(bounds, accumulate(counts), strict=True))
            family.add_metric([label] if self.labels else [], buckets, self._sums[label])
        return family


class GaugeMetric:
    """A value that its owner sets when the page is requested. `only_grows`: the owner counts, so it is a counter."""

    def __init__(self, name: str, help: str, *labels: str, only_grows: bool = False) -> None:
        self.name, self.help, self.labels = name, help, labels
        self.values: Mapping[Labels, float] = {}
        self._family = CounterMetricFamily if only_grows else GaugeMetricFamily

    def collect(self) -> Metric:
        family = self._family(self.name, self.help, labels=self.labels)
        for values, value in self.values.items():
            family.add_metric(values, value)
        return family


class GroupTimer:
    """Times the groups of calls that one thread runs. Any thread may read the age of the current group."""

    def __init__(self, *, seconds: HistogramMetric, calls: HistogramMetric) -> None:
        self._seconds = seconds
        self._calls = calls
        self._began_at: float | None = None

    def begin(self) -> None:
        self._began_at = time.monotonic()

    def end(self, calls: int) -> None:
        began_at, self._began_at = self._began_at, None
        if began_at is not None:
            self._seconds.note("", time.monotonic() - began_at)
            self._calls.note("", calls)

    @property
    def under_way(self) -> float:
        """Seconds since the current group began; 0 without one."""
        began_at = self._began_at
        return 0.0 if began_at is None else time.monotonic() - began_at


class Metrics(Collector):
    """All metrics of the process; made in `main` and passed to the code that counts."""

    def __init__(self) -> None:
        self._declare_jobs()
        self._declare_parts()
        self._declare_process()
        self.commits = GroupTimer(seconds=self.commit_time, calls=self.commit_calls)
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def _declare_jobs(self) -> None:
        self.submitted = CounterMetric("erelong_jobs_submitted", "Jobs submitted.", "kind")
        self.started = CounterMetric("erelong_attempts_started", "Attempts started.", "kind")
        self.ended = CounterMetric("erelong_attempts_ended", "Attempts ended, by outcome.", "kind", "outcome")
        self.finished = CounterMetric("erelong_jobs_finished", "Jobs that reached a final state.", "kind", "state")
        self.late = HistogramMetric(
            "erelong_late_seconds", "Time from due_at to the start of the attempt.", "kind", LATENESS_BOUNDS
        )
        self.duration = HistogramMetric("erelong_attempt_seconds", "Duration of attempts.", "kind", DURATION_BOUNDS)
        self.jobs = GaugeMetric("erelong_jobs", "Jobs stored, by queue and state.", "queue", "state")
        self.due = GaugeMetric("erelong_jobs_due", "Jobs due that have not started.", "queue")
        self.oldest_due = GaugeMetric(
            "erelong_oldest_due_age_seconds", "Time since the oldest due job became due.", "queue"
        )
        self.running = GaugeMetric("erelong_attempts_running", "Attempts running.")
        self.abandoned = GaugeMetric("erelong_attempts_abandoned", "Ended attempts whose task or thread still runs.")
        self.schedules = GaugeMetric("erelong_schedules", "Schedules, by state.", "state")
        self.occurrences = CounterMetric(
            "erelong_occurrences", "Occurrences of schedules, by what became of them.", "outcome"
        )
        self.operations = GaugeMetric("erelong_operations", "Operations on many jobs, by state.", "state")
        self.operation_jobs = CounterMetric(
            "erelong_operation_jobs", "Jobs that operations dealt with, by what became of them.", "action", "outcome"
        )
        self.purged = CounterMetric("erelong_jobs_purged", "Jobs deleted after their retention.")

    def _declare_parts(self) -> None:
        self.pending = GaugeMetric("erelong_agenda_entries", "Entries in the agenda.")
        self.unsaved = GaugeMetric("erelong_outcomes_unsaved", "Outcomes waiting to be saved.")
        self.outdated = CounterMetric(
            "erelong_outcomes_dropped", "Outcomes that arrived after their attempt had ended."
        )
        self.laps_failed = CounterMetric(
            "erelong_laps_failed", "Laps of a background duty that failed and were repeated.", "duty"
        )
        self.set_aside = CounterMetric(
            "erelong_items_set_aside", "Jobs that failed alone in a background duty and are tried again later.", "duty"
        )
        self.commit_time = HistogramMetric(
            "erelong_store_commit_seconds", "Duration of a commit, including fsync.", "", COMMIT_BOUNDS
        )
        self.commit_calls = HistogramMetric("erelong_store_commit_calls", "Writes in one commit.", "", GROUP_BOUNDS)
        self.store_size = GaugeMetric("erelong_store_bytes", "Sizes of the database and its write-ahead log.", "file")
        self.requests = CounterMetric("erelong_http_requests", "Requests answered.", "method", "route", "status")
        self.leads = GaugeMetric("erelong_node_leads", "Whether this node leads, 0 or 1; only on a shared store.")
        self.snapshot_age = GaugeMetric(
            "erelong_store_snapshot_age_seconds", "Age of the oldest snapshot that keeps dead rows in PostgreSQL."
        )
        self.connections = GaugeMetric("erelong_http_connections", "Clients connected.")
        self.waiting = GaugeMetric(
            "erelong_http_waiting",
            "Requests held: for a job change, a lease, room in a queue, or the end of an operation.",
            "for",
        )
        self.streams = GaugeMetric("erelong_streams", "Streams of events that are open.")
        self.stream_resets = CounterMetric(
            "erelong_stream_resets", "Times that a stream of events lost its position.", "reason"
        )

    def _declare_process(self) -> None:
        self.clock_jumps = CounterMetric("erelong_clock_jumps", "Steps of the wall clock by more than a second.")
        self.lag = HistogramMetric("erelong_loop_lag_seconds", "Delay of the event loop, sampled.", "", LAG_BOUNDS)
        self.blocks = CounterMetric(
            "erelong_loop_blocks", "Times the event loop was blocked for longer than the watchdog allows."
        )
        self.blocked = CounterMetric("erelong_loop_blocked_seconds", "Total time of these blocks.")
        self.log_lost = GaugeMetric(
            "erelong_log_lines_lost", "Log lines not written, by reason.", "reason", only_grows=True
        )
        self.build = GaugeMetric(
            "erelong_build_info", "Version of the service and of Python; always 1.", "version", "python"
        )
        self.build.values = {(VERSION, platform.python_version()): 1}

    def collect(self) -> Iterable[Metric]:
        return [
            item.collect()
            for item in vars(self).values()
            if isinstance(item, CounterMetric | HistogramMetric | GaugeMetric)
        ]

    def page(self) -> bytes:
        return generate_latest(self._registry)
