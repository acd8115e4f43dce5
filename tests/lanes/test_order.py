"""The jobs counted ahead of a job are those that start before it."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from erelong.lanes import lane as lane_module
from erelong.lanes import order as order_module
from erelong.lanes import sublane as sublane_module
from erelong.lanes.lanes import Lanes
from erelong.lanes.sublane import SLICE
from erelong.model.blocker import MAX_AHEAD, Ahead
from erelong.model.job import Job
from erelong.settings.queues import LabelConcurrency, QueueSettings
from erelong.stores.base import peek_at
from tests.support.builders import make_job
from tests.support.lanes import RETRY, Bench, by_tenant, make_lanes

T = TypeVar("T")
TENANTS = [None, "a", "b", "c"]
JOBS = st.lists(
    st.tuples(st.sampled_from(["echo", "pulled"]), st.sampled_from(TENANTS), st.integers(-2, 2), st.integers(0, 3)),
    max_size=40,
)
PICKS = st.lists(st.integers(0, 10**6), max_size=30)


def wait_for(counting: Coroutine[Any, Any, T]) -> tuple[T, int]:
    """Run to the end; return the result, and how often it yielded to the loop."""
    for turns in range(1_000_000):
        try:
            counting.send(None)
        except StopIteration as end:
            result: T = end.value
            return result, turns
    raise AssertionError("it never ends")


def ahead_of(lanes: Lanes, job: Job) -> Ahead:
    return wait_for(lanes.ahead(job))[0]


def make_jobs(jobs: list[tuple[str, str | None, int, int]]) -> list[Job]:
    return [
        make_job(
            kind=kind,
            labels=None if tenant is None else {"tenant": tenant},
            priority=priority,
            delay=delay,
            seq=seq,
            retry=RETRY,
        )
        for seq, (kind, tenant, priority, delay) in enumerate(jobs, 1)
    ]


def start_next(lanes: Lanes, kind: str) -> list[int]:
    """Start the next job of a kind and end it at once."""
    slots = lanes.take(1) if kind == "echo" else lanes.take_for(["pulled"], (), 1)
    lanes.release(*slots.values())
    return [*slots]


@given(jobs=JOBS, limit=st.sampled_from([0, 1, 2]), started=st.integers(0, 10), gone=PICKS, moved=PICKS)
@example(jobs=[("echo", "a", 0, 0), ("echo", "b", 0, 0), ("echo", "a", 0, 0)], limit=1, started=0, gone=[], moved=[])
@example(jobs=[("echo", None, 0, 0), ("echo", None, 0, 1)], limit=0, started=0, gone=[], moved=[1, 0, 1])
def test_count_agrees_with_the_order_of_starts(
    jobs: list[tuple[str, str | None, int, int]], limit: int, started: int, gone: list[int], moved: list[int]
) -> None:
    turns = LabelConcurrency(label="tenant", limit=limit) if limit else None
    lanes = make_lanes({"default": QueueSettings(label_concurrency=turns)}, pull_kinds=["pulled"])
    waiting = {job.seq: job for job in make_jobs(jobs)}
    lanes.put(*map(peek_at, waiting.values()))
    for _ in range(started):
        for seq in start_next(lanes, "echo"):
            del waiting[seq]
    for pick in gone if waiting else ():
        lanes.discard("default", pick % (len(jobs) + 1))
        waiting.pop(pick % (len(jobs) + 1), None)
    for pick in moved if waiting else ():
        seq = [*waiting][pick % len(waiting)]
        lanes.discard("default", seq)
        waiting[seq] = waiting[seq]._replace(priority=pick % 3)
        lanes.put(peek_at(waiting[seq]))

    counted = {seq: ahead_of(lanes, job) for seq, job in waiting.items()}

    for kind in ("echo", "pulled"):
        order: list[int] = []
        while started_now := start_next(lanes, kind):
            order += started_now
        assert [counted[seq] for seq in order] == [Ahead(place, False) for place in range(len(order))]
        waiting = {seq: job for seq, job in waiting.items() if seq not in order}
    assert waiting == {}


def test_job_that_is_not_due_yet_is_counted_by_its_rank() -> None:
    bench = Bench()
    for _ in range(5):
        bench.put()

    later = make_job(delay=10, seq=100, retry=RETRY)
    urgent = make_job(delay=10, seq=101, priority=1, retry=RETRY)

    assert ahead_of(bench.lanes, later) == Ahead(5, False)
    assert ahead_of(bench.lanes, urgent) == Ahead(0, False)


def test_label_at_its_limit_comes_after_those_with_a_turn() -> None:
    bench = Bench(default=by_tenant(1))
    bench.put(tenant="a")
    assert bench.take() == [1]
    held_back = [bench.put(tenant="a") for _ in range(2)]
    free = [bench.put(tenant="b") for _ in range(3)]

    assert [ahead_of(bench.lanes, job).number for job in held_back] == [1, 3]
    assert [ahead_of(bench.lanes, job).number for job in free] == [0, 2, 4]


def test_turn_among_many_labels_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "MAX_SEEN", 50)
    bench = Bench(default=by_tenant(1))
    jobs = [bench.put(tenant=f"t{number}") for number in range(100)]

    assert ahead_of(bench.lanes, jobs[30]) == Ahead(30, False)
    assert ahead_of(bench.lanes, jobs[80]) == Ahead(50, True)


def test_count_of_a_queue_without_jobs_is_zero() -> None:
    assert ahead_of(Bench().lanes, make_job(queue="new")) == Ahead(0, False)


def fill(bench: Bench, number: int, *, is_mixed: bool) -> list[Job]:
    """Put jobs into a lane; with mixed priorities, the second half ranks first and enters its heap."""
    jobs = [
        make_job(seq=seq, priority=1 if is_mixed and seq > number // 2 else 0, retry=RETRY)
        for seq in range(1, number + 1)
    ]
    bench.lanes.put(*map(peek_at, jobs))
    return jobs


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("is_stale", [False, True])
def test_count_ends_at_its_bound_and_yields_often(is_mixed: bool, is_stale: bool) -> None:
    bench = Bench()
    jobs = fill(bench, 45_000, is_mixed=is_mixed)
    for job in jobs[:100] if is_stale else ():
        bench.lanes.discard("default", job.seq)

    ahead, turns = wait_for(bench.lanes.ahead(jobs[-1]))

    assert ahead == Ahead(MAX_AHEAD, True)
    assert turns >= MAX_AHEAD // SLICE


def test_many_jobs_of_mixed_priorities_are_counted_exactly() -> None:
    bench = Bench()
    jobs = fill(bench, 15_000, is_mixed=True)
    ranked = [*jobs[7_500:], *jobs[:7_500]]

    places = [ahead_of(bench.lanes, ranked[place]) for place in (0, 2_000, 7_499, 7_500, 9_500)]

    assert places == [Ahead(place, False) for place in (0, 2_000, 7_499, 7_500, 9_500)]


def test_count_is_a_lower_bound_where_most_entries_are_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sublane_module, "MAX_SEEN", 50)
    bench = Bench()
    jobs = fill(bench, 200, is_mixed=False)
    for job in jobs[:60]:
        bench.lanes.discard("default", job.seq)

    assert ahead_of(bench.lanes, jobs[-1]) == Ahead(0, True)


def test_job_spilled_to_the_store_has_more_ahead_than_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "MAX_DUE", 90)
    bench = Bench()
    jobs = [bench.put() for _ in range(200)]

    assert ahead_of(bench.lanes, jobs[50]) == Ahead(50, False)
    assert ahead_of(bench.lanes, jobs[150]) == Ahead(80, True)


async def test_jobs_may_start_while_others_are_counted() -> None:
    bench = Bench(default=by_tenant(1))
    jobs = fill(bench, 5_000, is_mixed=True)

    counting = bench.lanes.ahead(jobs[-1])
    for _ in range(3):
        counting.send(None)
        bench.take(1_500)

    assert wait_for(counting)[0].number <= 5_000
