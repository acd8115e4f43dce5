"""Label limits: how many jobs of a label run, their turns, and changes of the limit."""

from __future__ import annotations

from erelong.lanes.lane import INSIDE, NO_LABEL
from erelong.model.job import Job
from erelong.settings.queues import QueueSettings
from erelong.stores.base import peek_at
from tests.support.lanes import Bench, by_tenant

# labels


def test_no_more_jobs_of_a_label_run_than_its_limit() -> None:
    bench = Bench(default=by_tenant(2))
    a = [bench.put(tenant="a") for _ in range(5)]
    b = [bench.put(tenant="b") for _ in range(5)]
    free = [bench.put() for _ in range(5)]

    assert set(bench.take()) == {a[0].seq, a[1].seq, b[0].seq, b[1].seq, *(job.seq for job in free)}
    assert bench.lanes.holds(a[2]) == ["label"]
    bench.release(a[1].seq)
    assert bench.take() == [a[2].seq]


def test_empty_label_value_is_limited_and_a_missing_label_is_not() -> None:
    bench = Bench(default=by_tenant(1))
    empty = [bench.put(tenant="") for _ in range(3)]
    free = [bench.put() for _ in range(3)]

    assert set(bench.take()) == {empty[0].seq, *(job.seq for job in free)}
    assert bench.lanes.holds(empty[1]) == ["label"]
    bench.release(empty[0].seq)
    assert bench.take() == [empty[1].seq]


def test_ten_thousand_jobs_of_one_label_do_not_delay_the_single_job_of_another() -> None:
    bench = Bench(default=by_tenant(50, concurrency=100))
    for _ in range(10_000):
        bench.put(tenant="a")
    single = bench.put(tenant="b")

    assert bench.take(2) == [1, single.seq]


def test_labels_take_turns_and_priority_counts_within_one() -> None:
    bench = Bench(default=by_tenant(100))
    a = [bench.put(tenant="a", priority=priority) for priority in (0, 1, 2)]
    b = [bench.put(tenant="b") for _ in range(3)]

    assert bench.run_dry() == [a[2].seq, b[0].seq, a[1].seq, b[1].seq, a[0].seq, b[2].seq]


def test_full_label_is_skipped_until_one_of_its_jobs_ends() -> None:
    bench = Bench(default=by_tenant(1))
    for tenant in "aabb":
        bench.put(tenant=tenant)

    assert bench.take() == [1, 3]
    bench.release(3)
    assert bench.take() == [4]
    bench.release(1)
    assert bench.take() == [2]
    bench.release_all()
    bench.assert_empty()


def put_again(bench: Bench, jobs: list[Job], displaced: list[int]) -> None:
    for job in jobs:
        if job.seq in displaced:
            bench.lanes.put(peek_at(job))


def test_label_limit_that_is_set_sorts_waiting_jobs_again() -> None:
    bench = Bench(default=QueueSettings(concurrency=100))
    jobs = [bench.put(tenant="a") for _ in range(5)]
    bench.take(1)

    displaced = bench.lanes.configure("default", by_tenant(2, concurrency=100))
    assert sorted(displaced) == [2, 3, 4, 5]
    assert bench.lanes.due("default") == 0
    put_again(bench, jobs, displaced)

    assert bench.take() == [2, 3]
    bench.release(1)
    assert bench.take() == []
    bench.release_all()
    assert bench.take() == [4, 5]
    bench.release_all()
    bench.assert_empty()


def test_label_limit_that_is_removed_holds_no_job() -> None:
    bench = Bench(default=by_tenant(1, concurrency=100))
    jobs = [bench.put(tenant="a") for _ in range(5)]
    bench.take()

    put_again(bench, jobs, bench.lanes.configure("default", QueueSettings(label_concurrency=None)))

    assert bench.take() == [2, 3, 4, 5]
    bench.release_all()
    bench.assert_empty()


def test_settings_without_a_change_of_labels_displace_no_job() -> None:
    bench = Bench(default=by_tenant(1))
    bench.put(tenant="a")

    assert bench.lanes.configure("default", by_tenant(1, concurrency=7)) == []


def test_discarded_jobs_of_a_blocked_lane_leave_nothing_behind() -> None:
    bench = Bench(default=by_tenant(1))
    bench.lanes.pause("default", True)
    first = bench.put(tenant="first")
    for number in range(5_000):
        job = bench.put(tenant=f"t{number}")
        bench.lanes.discard("default", job.seq)

    lane = bench.lanes._lane("default")
    assert max(len(lane.turns[INSIDE]), len(lane.sublanes), len(lane.keys)) <= 100
    bench.lanes.discard("default", first.seq)
    bench.assert_empty()


def test_repeated_put_and_discard_takes_no_memory() -> None:
    bench = Bench()
    bench.lanes.pause("default", True)
    job, _ = bench.put(), bench.put()

    for number in range(5_000):
        bench.lanes.discard("default", job.seq)
        bench.lanes.put(peek_at(job._replace(priority=number % 7)))

    lane = bench.lanes._lane("default")
    assert max(len(lane.turns[INSIDE]), len(lane.sublanes[INSIDE, NO_LABEL].heap)) <= 200
