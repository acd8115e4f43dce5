"""Which due jobs may start, in which order, and why the others may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from erelong.duties.lifecycle import Lifecycle
from erelong.duties.waiters import NEVER_LEAVES, Waiters
from erelong.lanes import lane
from erelong.lanes.pollers import LeaseRequest, Pollers
from erelong.lanes.recent import Recent, lateness
from erelong.model.job import SECOND
from erelong.settings.queues import QueueSettings
from erelong.stores.base import peek_at
from tests.support.builders import NOW, make_job
from tests.support.lanes import RETRY, Bench, at_rate, by_tenant, make_lanes

# order


def test_jobs_start_in_the_order_of_their_due_times() -> None:
    bench = Bench()

    jobs = [bench.put(delay=delay) for delay in (3, 1, 2)]

    assert bench.run_dry() == [jobs[1].seq, jobs[2].seq, jobs[0].seq]


def test_jobs_of_one_instant_start_in_the_order_they_were_made() -> None:
    bench = Bench()

    jobs = [bench.put() for _ in range(50)]

    assert bench.run_dry() == [job.seq for job in jobs]


@pytest.mark.parametrize(("waited", "is_first"), [(119, False), (121, True)])
def test_point_of_priority_is_worth_aging_seconds_of_waiting(waited: float, is_first: bool) -> None:
    bench = Bench(aging=60)

    urgent, old = bench.put(priority=2), bench.put(delay=-waited, now=NOW - 200 * SECOND)
    old = old._replace(due_at=NOW - round(waited * SECOND))
    bench.lanes.put(peek_at(old))

    assert bench.run_dry() == ([old.seq, urgent.seq] if is_first else [urgent.seq, old.seq])


def test_without_aging_priority_outweighs_any_waiting() -> None:
    bench = Bench(aging=0)

    old = bench.put(priority=-1, now=NOW - 10**9 * SECOND)
    young = bench.put()
    urgent = bench.put(priority=100, delay=10**9)

    assert bench.run_dry() == [urgent.seq, young.seq, old.seq]


def test_with_the_fastest_aging_priority_has_no_effect() -> None:
    bench = Bench(aging=1e-9)

    first, urgent = bench.put(), bench.put(priority=100, delay=0.001)

    assert bench.run_dry() == [first.seq, urgent.seq]


def test_job_put_again_takes_its_new_rank() -> None:
    bench = Bench()
    first, second = bench.put(), bench.put(delay=1)

    bench.lanes.put(peek_at(second._replace(priority=10)))

    assert bench.lanes.due("default") == 2
    assert bench.run_dry() == [second.seq, first.seq]
    bench.assert_empty()


def test_lane_knows_its_oldest_due_time_unless_a_priority_hides_it() -> None:
    bench = Bench(default=by_tenant(5))
    reported = [bench.lanes.oldest_due("default")]
    later, first = bench.put(delay=2, tenant="a"), bench.put(delay=1, tenant="b")
    reported.append(bench.lanes.oldest_due("default"))
    bench.lanes.discard("default", first.seq)
    reported.append(bench.lanes.oldest_due("default"))
    bench.put(delay=3, priority=1)
    reported.append(bench.lanes.oldest_due("default"))
    bench.take()
    last = bench.put(delay=9)
    reported.append(bench.lanes.oldest_due("default"))

    assert reported == [None, first.due_at, later.due_at, None, last.due_at]


def test_lane_with_very_many_labels_leaves_the_oldest_due_time_to_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "MANY_SUBLANES", 2)
    bench = Bench(default=by_tenant(1))
    job = bench.put(tenant="a")
    bench.put(tenant="b")
    reported = [bench.lanes.oldest_due("default")]
    bench.put(tenant="c")
    reported.append(bench.lanes.oldest_due("default"))

    assert reported == [job.due_at, None]


def test_job_that_is_put_again_unchanged_starts_once() -> None:
    bench = Bench()
    job = bench.put()

    bench.lanes.put(peek_at(job))

    assert bench.run_dry() == [job.seq]


def test_job_that_is_put_again_with_another_label_counts_under_that_one() -> None:
    bench = Bench(default=by_tenant(1))
    job = bench.put(tenant="a")

    bench.lanes.put(peek_at(make_job(labels={"tenant": "b"}, seq=job.seq)))

    assert bench.lanes.due("default") == 1
    assert [slot.label for slot in bench.lanes.take(10).values()] == ["b"]


def test_discarded_job_does_not_start() -> None:
    bench = Bench()
    jobs = [bench.put() for _ in range(3)]

    bench.lanes.discard("default", jobs[1].seq)
    bench.lanes.discard("default", 999)
    bench.lanes.discard("nowhere", jobs[0].seq)

    assert bench.lanes.due("default") == 2
    assert bench.run_dry() == [jobs[0].seq, jobs[2].seq]
    bench.assert_empty()


# how many


def test_no_more_jobs_run_than_concurrency_allows() -> None:
    bench = Bench(default=QueueSettings(concurrency=3))
    jobs = [bench.put() for _ in range(5)]

    assert bench.take() == [1, 2, 3]
    assert bench.take() == []
    bench.release(2)
    assert bench.take() == [4]
    assert bench.lanes.holds(jobs[4]) == ["slot"]


def test_queues_take_turns() -> None:
    bench = Bench(a=QueueSettings(concurrency=100), b=QueueSettings(concurrency=100))
    for _ in range(50):
        bench.put(queue="a")
    late = [bench.put(queue="b").seq for _ in range(3)]

    started = bench.take(6)

    assert started[1::2] == late


def test_queue_that_may_not_start_does_not_hold_up_others() -> None:
    bench = Bench(a=QueueSettings(concurrency=1))
    for _ in range(10):
        bench.put(queue="a")
    free = [bench.put(queue="b").seq for _ in range(10)]
    bench.lanes.pause("c", True)
    bench.put(queue="c")

    assert set(bench.take()) == {1, *free}


def test_more_concurrency_lets_waiting_jobs_start_at_once() -> None:
    bench = Bench(default=QueueSettings(concurrency=1))
    for _ in range(5):
        bench.put()
    bench.take()
    calls = bench.ready.count

    bench.lanes.configure("default", QueueSettings(concurrency=3))

    assert bench.ready.count == calls + 1
    assert bench.take() == [2, 3]


def test_less_concurrency_holds_jobs_until_enough_have_ended() -> None:
    bench = Bench(default=QueueSettings(concurrency=4))
    for _ in range(6):
        bench.put()
    bench.take()

    bench.lanes.configure("default", QueueSettings(concurrency=2))

    started = []
    for seq in (1, 2, 3):
        bench.release(seq)
        started.append(bench.take())
    assert started == [[], [], [5]]


def test_paused_queue_starts_no_job_until_it_is_resumed() -> None:
    bench = Bench()
    bench.lanes.pause("default", True)
    job = bench.put()
    assert bench.ready.count == 0, "no job may start, so no wake is needed"
    assert bench.take() == []
    assert (bench.lanes.holds(job), bench.lanes.is_paused("default")) == (["pause"], True)
    calls = bench.ready.count

    bench.lanes.pause("default", False)

    assert bench.ready.count == calls + 1
    assert bench.take() == [job.seq]


def test_pause_holds_jobs_that_were_ready() -> None:
    bench = Bench()
    bench.put()

    bench.lanes.pause("default", True)

    assert bench.take() == []
    bench.lanes.pause("default", False)
    assert bench.take() == [1]


# questions


def hold_by_rate(bench: Bench) -> None:
    bench.lanes.configure("default", at_rate(1, burst=1))


def hold_by_label(bench: Bench) -> None:
    bench.lanes.configure("default", by_tenant(1))


def hold_by_slot(bench: Bench) -> None:
    bench.lanes.configure("default", QueueSettings(concurrency=1))


@pytest.mark.parametrize(
    ("hold", "reason"), [(hold_by_rate, "rate"), (hold_by_label, "label"), (hold_by_slot, "slot")], ids=str
)
def test_job_reports_why_it_waits(hold: Callable[[Bench], None], reason: str) -> None:
    bench = Bench()
    hold(bench)
    running, job = bench.put(tenant="a"), bench.put(tenant="a")
    assert bench.lanes.holds(running) == []

    assert bench.take() == [running.seq]

    assert bench.lanes.holds(job) == [reason]
    bench.lanes.pause("default", True)
    assert bench.lanes.holds(job) == ["pause", reason]
    bench.lanes.pause("default", False)
    bench.release(running.seq)
    bench.tick += 10
    assert bench.lanes.holds(job) == []


def test_job_of_an_unknown_queue_has_no_reason_to_wait() -> None:
    assert Bench().lanes.holds(make_job(queue="new")) == []


def test_reading_settings_creates_no_queue() -> None:
    bench = Bench(a=QueueSettings(concurrency=7))

    assert bench.lanes.settings("a").concurrency == 7
    assert bench.lanes.settings("b").concurrency == 100
    assert bench.lanes.due("b") == 0
    assert bench.lanes.lateness(["b"]).p99 is None
    assert bench.lanes.all_due() == {}


def test_idle_queue_is_forgotten_with_its_lateness() -> None:
    bench = Bench()
    bench.put(queue="once")
    bench.run_dry()
    bench.lanes.note_starts("once", 0.0)

    bench.lanes.forget_idle()
    assert bench.lanes.all_due() == {"once": 0}
    bench.tick += 301
    bench.lanes.take(1)  # removes it from the ready lanes
    bench.lanes.forget_idle()
    assert bench.lanes.all_due() == {}

    again = bench.put(queue="once")
    assert bench.run_dry() == [again.seq]


def test_queue_that_is_used_or_set_is_not_forgotten() -> None:
    bench = Bench(given=QueueSettings(concurrency=1))
    bench.put(queue="given")
    bench.put(queue="runs")
    bench.take()
    bench.put(queue="paused")
    bench.lanes.pause("paused", True)
    bench.lanes.configure("set", QueueSettings(concurrency=1))
    bench.lanes.pause("empty", True)

    bench.tick += 301
    bench.lanes.forget_idle()

    assert set(bench.lanes.all_due()) == {"given", "runs", "paused", "set", "empty"}
    bench.release_all()


def test_configuration_applies_after_its_override_is_dropped() -> None:
    bench = Bench(a=QueueSettings(concurrency=7))
    bench.lanes.configure("a", QueueSettings(max_backlog=5))
    assert (bench.lanes.settings("a").concurrency, bench.lanes.settings("a").max_backlog) == (7, 5)

    bench.lanes.configure("a", None)

    assert bench.lanes.settings("a") == QueueSettings(concurrency=7)


def test_due_jobs_are_counted_by_queue() -> None:
    bench = Bench()
    for queue in ("a", "b", "b"):
        bench.put(queue=queue)

    bench.take(1)

    assert bench.lanes.all_due() == {"a": 0, "b": 2}


@pytest.mark.parametrize("late_by", [0.0, 0.0001, 0.0005, 0.01, 1.0, 3_600.0, 10.0**8])
def test_lateness_is_reported_within_a_quarter(late_by: float) -> None:
    recent = Recent()
    for _ in range(100):
        recent.note(late_by, tick=0.0)

    reported = lateness(recent.steps(1.0)).p99

    assert reported is not None
    assert late_by <= reported * 1.000_001
    assert reported <= max(late_by * 1.25, 0.0001) * 1.000_001


def test_one_late_start_in_two_hundred_is_not_the_99th_percentile() -> None:
    recent = Recent()
    for number in range(200):
        recent.note(60.0 if number == 50 else 0.001, tick=0.0)

    assert lateness(recent.steps(0.0)).p99 == pytest.approx(0.001, rel=0.25)


def test_starts_noted_together_each_count() -> None:
    recent = Recent()

    recent.note(*[0.001] * 300, 60.0, tick=0.0)

    assert lateness(recent.steps(0.0)).p99 == pytest.approx(0.001, rel=0.25)


def test_lateness_is_forgotten_after_five_minutes() -> None:
    bench = Bench()
    for minute in range(10):
        bench.tick = minute * 60.0
        bench.lanes.note_starts("default", 10.0 if minute < 5 else 0.001)

    assert bench.lanes.lateness(["default"]).p99 == pytest.approx(0.001, rel=0.25)
    bench.tick += 360
    assert bench.lanes.lateness(["default"]).p99 is None


def test_pollers_are_woken_for_a_lane_still_listed_for_removed_jobs() -> None:
    waiters = Waiters(limit=10, lifecycle=Lifecycle())
    pollers = Pollers(waiters=waiters, tick=lambda: 0.0)
    lanes = make_lanes({"q": QueueSettings(concurrency=1)}, pull_kinds=["resize"], pollers=pollers)
    echo, resize, running = [
        make_job(kind=kind, queue="q", seq=seq, retry=RETRY) for seq, kind in enumerate(["echo", "resize", "resize"], 1)
    ]
    lanes.put(peek_at(echo))  # announced; no worker is free to take a job
    slot = lanes.occupy(running)
    lanes.put(peek_at(resize))
    lanes.discard("q", echo.seq)

    with pollers.poll(LeaseRequest(frozenset({"resize"}), frozenset(), 1, 30.0), NEVER_LEAVES) as waiter:
        lanes.release(slot)

        assert waiter.event.is_set()
