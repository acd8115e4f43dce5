"""Rate limits: how many jobs of a queue start per second, and when the lane is checked again."""

from __future__ import annotations

import pytest

from erelong.duties.lifecycle import Lifecycle
from erelong.duties.waiters import NEVER_LEAVES, Waiters
from erelong.lanes.lane import INSIDE, NO_LABEL
from erelong.lanes.pollers import LeaseRequest, Pollers
from erelong.settings.queues import QueueSettings, Rate
from tests.support.lanes import Bench, at_rate, by_tenant, make_lanes

# rate


def starts_at(bench: Bench, until: float) -> list[float]:
    """Return the start times if the lanes are woken a millisecond after each requested time."""
    starts: list[float] = []
    while True:
        while slots := bench.lanes.take(200):
            starts += [bench.tick] * len(slots)
            bench.lanes.release(*slots.values())
        wait = bench.lanes.token_in()
        if wait is None or bench.tick + wait + 0.001 > until:
            return starts
        bench.tick += wait + 0.001
        bench.lanes.wake()


@pytest.mark.parametrize("burst", [{}, {"burst": 1.0}, {"burst": 1.5}], ids=str)
@pytest.mark.parametrize("per_second", [0.5, 1, 50, 500])
def test_rate_is_kept_within_two_percent(per_second: float, burst: dict[str, float]) -> None:
    bench = Bench(default=at_rate(per_second, **burst))
    at_once = int(bench.lanes.settings("default").rate.burst)  # type: ignore[union-attr]  # the rate is set
    bench.tick = 1_000.0
    for _ in range(round(per_second * 15) + at_once):
        bench.put()

    starts = [at - 1_000 for at in starts_at(bench, 1_010.1)]

    assert starts.count(0.0) == at_once
    expected = at_once + per_second * 10
    assert sum(at <= 10.05 for at in starts) == pytest.approx(expected, rel=0.02, abs=1)
    assert_never_faster(starts, per_second, bench.lanes.settings("default").rate.burst)  # type: ignore[union-attr]


def assert_never_faster(starts: list[float], per_second: float, burst: float) -> None:
    """Check the starts against a token bucket; a late timer may carry over less than one token."""
    tokens, at = burst, starts[0]
    for next_at in starts:
        tokens = min(burst, tokens + (next_at - at) * per_second) - 1
        at = next_at
        assert tokens > -1


def test_rate_allows_a_burst_after_a_quiet_time_and_no_more() -> None:
    bench = Bench(default=at_rate(10, burst=5))
    for _ in range(100):
        bench.put()
    assert len(bench.take()) == 5
    bench.tick += 0.35
    assert len(bench.take()) == 0, "the lane was not woken"
    bench.lanes.wake()
    assert len(bench.take()) == 3

    for seq in list(bench.lanes._lane("default").sublanes[INSIDE, NO_LABEL].waiting):
        bench.lanes.discard("default", seq)
    bench.tick += 3_600
    for _ in range(100):
        bench.put()

    assert len(bench.take()) == 5


@pytest.mark.parametrize("quiet", ["paused", "empty"])
def test_quiet_time_saves_up_no_more_than_the_burst(quiet: str) -> None:
    bench = Bench(default=at_rate(10, burst=1))
    job, other = bench.put(), bench.put()
    assert bench.take() == [job.seq]

    if quiet == "paused":
        bench.lanes.pause("default", True)
        bench.tick += 100
        bench.lanes.pause("default", False)
    else:
        bench.lanes.discard("default", other.seq)
        bench.tick += 100
    bench.put()
    bench.put()

    assert len(bench.take()) == 1
    assert bench.lanes.token_in() == pytest.approx(0.1)


def test_each_wait_for_a_token_takes_one_check() -> None:
    bench = Bench(default=at_rate(0.5))
    for _ in range(5):
        bench.put()
    looks = bench.ready.count

    starts_at(bench, 60)

    assert bench.ready.count - looks <= 10


def test_lane_held_back_by_labels_needs_no_timer() -> None:
    bench = Bench(default=by_tenant(1, rate=Rate(per_second=100)))
    for _ in range(3):
        bench.put(tenant="a")
    bench.take()

    assert bench.lanes.token_in() is None


def test_full_paused_or_empty_lane_needs_no_timer() -> None:
    bench = Bench(
        full=at_rate(1).model_copy(update={"concurrency": 1}),
        paused=at_rate(1),
        empty=at_rate(1),
        other=QueueSettings(),
    )
    for queue in ("full", "full", "paused", "paused", "empty", "other"):
        bench.put(queue=queue)
    bench.take()
    bench.lanes.pause("paused", True)

    assert bench.lanes.token_in() is None


def test_rate_that_is_removed_holds_no_job() -> None:
    bench = Bench(default=at_rate(0.1))
    for _ in range(50):
        bench.put()
    assert len(bench.take()) == 1

    bench.lanes.configure("default", QueueSettings(rate=None, concurrency=100))

    assert len(bench.take()) == 49
    assert bench.lanes.token_in() is None


def test_rate_that_is_set_while_jobs_wait_holds_them() -> None:
    bench = Bench(default=QueueSettings(concurrency=1))
    for _ in range(50):
        bench.put()
    bench.take()

    bench.lanes.configure("default", at_rate(10, burst=2))

    assert len(bench.take()) == 2
    assert bench.lanes.token_in() == pytest.approx(0.1)


def test_raised_rate_shortens_the_wait() -> None:
    bench = Bench(default=at_rate(0.001))
    for _ in range(50):
        bench.put()
    bench.take()

    bench.lanes.configure("default", at_rate(10, burst=1))
    bench.take()

    assert bench.lanes.token_in() == pytest.approx(0.1)


def test_clock_that_does_not_move_gives_no_tokens() -> None:
    bench = Bench(default=at_rate(1_000_000, burst=1))
    for _ in range(50):
        bench.put()

    starts = [bench.take() for _ in range(20)]
    bench.lanes.wake()

    assert (starts[0], starts[1:], bench.take()) == ([1], [[]] * 19, [])


def test_token_of_a_job_that_did_not_start_is_returned() -> None:
    bench = Bench(default=at_rate(0.1, burst=1))
    for _ in range(3):
        bench.put()
    (first,) = bench.take()

    bench.lanes.release_unused(bench.running.pop(first))

    assert len(bench.take()) == 1
    assert bench.lanes.token_in() == pytest.approx(10)


def test_returned_tokens_never_exceed_the_burst() -> None:
    bench = Bench(default=at_rate(1, burst=1))
    for _ in range(3):
        bench.put()
    (first,) = bench.take()
    bench.tick += 0.9

    bench.lanes.release_unused(bench.running.pop(first))

    assert len(bench.take()) == 1
    assert bench.lanes.token_in() == pytest.approx(1)


def test_slot_without_a_rate_is_released_unused() -> None:
    bench = Bench(default=QueueSettings(concurrency=1))
    bench.put()
    bench.put()
    (first,) = bench.take()

    bench.lanes.release_unused(bench.running.pop(first))

    assert len(bench.take()) == 1


def lent_and_run() -> tuple[Bench, Pollers]:
    """Return a lane of pull jobs and a lane of jobs that run here, both without a token."""
    bench = Bench()
    pollers = Pollers(waiters=Waiters(limit=100, lifecycle=Lifecycle()), tick=lambda: bench.tick)
    queues = {"lent": at_rate(1, burst=1), "run": at_rate(0.1, burst=1)}
    bench.lanes = make_lanes(queues, tick=lambda: bench.tick, pull_kinds=("pull",), pollers=pollers)
    for _ in range(2):
        bench.put(queue="lent", kind="pull")
        bench.put(queue="run")
    bench.take()
    bench.lanes.take_for(("pull",), (), 2)
    return bench, pollers


def test_token_that_no_worker_takes_needs_no_timer() -> None:
    bench, _ = lent_and_run()

    bench.tick += 5  # the queue of the pull jobs has its token

    assert bench.lanes.token_in() == pytest.approx(5)


def test_next_token_is_one_that_a_job_here_or_a_request_waits_for() -> None:
    bench, pollers = lent_and_run()
    assert bench.lanes.next_token_in() == pytest.approx(10)

    with pollers.poll(LeaseRequest(frozenset({"pull"}), frozenset(), 1, 30.0), NEVER_LEAVES):
        assert bench.lanes.next_token_in() == pytest.approx(1)
        bench.tick += 5
        assert bench.lanes.next_token_in() == pytest.approx(5)


def shared_lane() -> tuple[Bench, Pollers]:
    """Return a lane with two jobs that run here and two pull jobs, whose timer is late by a token."""
    bench = Bench()
    pollers = Pollers(waiters=Waiters(limit=100, lifecycle=Lifecycle()), tick=lambda: bench.tick)
    queues = {"shared": at_rate(1, burst=2)}
    bench.lanes = make_lanes(queues, tick=lambda: bench.tick, pull_kinds=("pull",), pollers=pollers)
    for _ in range(2):
        bench.put(queue="shared")
        bench.put(queue="shared", kind="pull")
    bench.lanes.take_for(("pull",), (), 1)
    bench.lanes.take(1)
    assert (bench.lanes.take(1), bench.lanes.take_for(("pull",), (), 1)) == ({}, {})
    bench.tick += 2
    return bench, pollers


def test_token_that_a_worker_leaves_is_for_a_job_that_runs_here() -> None:
    bench, _ = shared_lane()
    assert len(bench.lanes.take_for(("pull",), (), 1)) == 1

    assert bench.lanes.token_in() == 0
    bench.lanes.wake()

    assert len(bench.take()) == 1


def test_token_that_a_job_here_leaves_is_for_a_waiting_request() -> None:
    bench, pollers = shared_lane()

    with pollers.poll(LeaseRequest(frozenset({"pull"}), frozenset(), 1, 30.0), NEVER_LEAVES) as waiter:
        bench.lanes.configure("shared", at_rate(1, burst=2))
        waiter.event.clear()  # it was woken just before the token came
        assert len(bench.take(1)) == 1

        assert bench.lanes.token_in() == 0
        bench.lanes.wake()

        assert waiter.event.is_set()
