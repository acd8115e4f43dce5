"""The metrics page is in the format that Prometheus reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from erelong.telemetry.metrics import LATENESS_BOUNDS, CounterMetric, GaugeMetric, HistogramMetric, Metrics


def samples(metrics: Metrics, family: str) -> list[Sample]:
    for found in text_string_to_metric_families(metrics.page().decode()):
        if found.name == family:
            return list(found.samples)
    return []


def values(metrics: Metrics, family: str) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in samples(metrics, family)}


def test_count_of_each_set_of_labels_is_written() -> None:
    metrics = Metrics()
    metrics.ended.values["http", "succeeded"] += 3
    metrics.ended.values["http", "timeout"] += 1

    assert values(metrics, "erelong_attempts_ended") == {("http", "succeeded"): 3, ("http", "timeout"): 1}
    assert {sample.name for sample in samples(metrics, "erelong_attempts_ended")} == {"erelong_attempts_ended_total"}


def test_count_without_labels_is_there_from_the_start() -> None:
    assert values(Metrics(), "erelong_clock_jumps") == {(): 0}


def test_gauge_is_read_with_the_page() -> None:
    metrics = Metrics()
    running: dict[tuple[str, ...], float] = {(): 1.0}
    metrics.running.values = running
    assert values(metrics, "erelong_attempts_running") == {(): 1}

    running[()] = 5

    assert values(metrics, "erelong_attempts_running") == {(): 5}


@pytest.mark.parametrize(
    ("value", "bucket"),
    [(0.0, "0.0005"), (0.0005, "0.0005"), (0.000501, "0.001"), (300.0, "300.0"), (301.0, "+Inf"), (1e12, "+Inf")],
)
def test_value_counts_in_its_bucket_and_all_above(value: float, bucket: str) -> None:
    metrics = Metrics()

    metrics.late.note("echo", value)

    counts = {
        sample.labels["le"]: sample.value
        for sample in samples(metrics, "erelong_late_seconds")
        if "le" in sample.labels
    }
    bounds = [*map(str, LATENESS_BOUNDS), "+Inf"]
    assert list(counts) == bounds
    assert [counts[bound] for bound in bounds] == [float(index >= bounds.index(bucket)) for index in range(len(bounds))]


def test_histogram_sums_and_counts_by_its_label() -> None:
    metrics = Metrics()
    for kind, values_noted in (("a", [0.25, 0.5]), ("b", [2.0]), ("a", [0.25])):
        metrics.duration.note(kind, *values_noted)

    found = {
        (sample.name, sample.labels["kind"]): sample.value for sample in samples(metrics, "erelong_attempt_seconds")
    }

    assert found["erelong_attempt_seconds_sum", "a"] == 1.0
    assert found["erelong_attempt_seconds_count", "a"] == 3
    assert found["erelong_attempt_seconds_count", "b"] == 1


@given(st.lists(st.floats(0, 400) | st.sampled_from(LATENESS_BOUNDS)))
def test_values_noted_together_count_like_single_ones(noted: list[float]) -> None:
    together, alone = Metrics(), Metrics()

    together.late.note("echo", *noted)
    for value in noted:
        alone.late.note("echo", value)

    counted = [
        [sample.value for sample in samples(metrics, "erelong_late_seconds") if "le" in sample.labels]
        for metrics in (together, alone)
    ]
    assert noted == [] or counted[0] == counted[1]


def test_strange_label_values_do_not_break_the_page() -> None:
    metrics = Metrics()

    metrics.requests.values["GET", '/a"b\\c\nd', "200"] += 1

    assert values(metrics, "erelong_http_requests") == {("GET", '/a"b\\c\nd', "200"): 1}


def test_every_metric_is_on_the_page_with_its_help() -> None:
    metrics = Metrics()
    declared = [
        item for item in vars(metrics).values() if isinstance(item, CounterMetric | HistogramMetric | GaugeMetric)
    ]

    page = metrics.page().decode()

    assert len(declared) >= 15
    assert len({item.name for item in declared}) == len(declared)
    for item in declared:
        assert item.name.startswith("erelong_")
        assert item.help.endswith(".")
        assert f"# HELP {item.name}" in page


def test_two_services_in_one_process_count_separately() -> None:
    one, other = Metrics(), Metrics()

    one.purged.values[()] += 7

    assert values(other, "erelong_jobs_purged") == {(): 0}
