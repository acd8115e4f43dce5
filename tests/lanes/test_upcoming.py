"""Due jobs are listed in the order in which they start, from either end and in pages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from erelong.lanes import lane as lane_module
from erelong.lanes import upcoming as upcoming_module
from erelong.lanes.lanes import Lanes
from erelong.lanes.upcoming import Upcoming
from erelong.model.ids import MAX_SEQ
from erelong.model.job import Job
from erelong.settings.queues import LabelConcurrency, QueueSettings
from erelong.stores.base import peek_at
from tests.lanes.test_order import JOBS, PICKS, fill, make_jobs, start_next, wait_for
from tests.support.builders import make_job
from tests.support.lanes import RETRY, Bench, by_tenant, make_lanes

KINDS = ["echo", "pulled"]
EVERY = 1_000_000


def read(
    lanes: Lanes, kinds: Sequence[str] = (), after: Sequence[int] = (), number: int = EVERY, *, is_reverse: bool = False
) -> Upcoming:
    return wait_for(lanes.upcoming("default", kinds, after, number, is_reverse=is_reverse))[0]


def seqs_of(found: Upcoming) -> list[int]:
    return [entry % MAX_SEQ for entry in found.entries]


def in_pages(lanes: Lanes, kind: str, size: int, *, is_reverse: bool) -> list[int]:
    """Return all jobs, page by page."""
    found: list[int] = []
    after: Sequence[int] = ()
    while True:
        page = read(lanes, [kind], after, size, is_reverse=is_reverse)
        assert page.entries or not found
        found += seqs_of(page)
        after = page.entries[-4:]
        assert len(page.entries) == size or not page.has_more
        if not page.has_more:
            return found


@given(
    jobs=JOBS,
    limit=st.sampled_from([0, 1, 2]),
    started=st.integers(0, 10),
    gone=PICKS,
    moved=PICKS,
    held=st.integers(0, 3),
    size=st.integers(1, 7),
    step=st.integers(1, 40),
)
@example(jobs=[("echo", "a", 0, 0), ("echo", "b", 0, 0)], limit=1, started=0, gone=[], moved=[], held=1, size=1, step=9)
@example(
    jobs=[("echo", "a", 0, 0), ("echo", "a", 0, 1)], limit=0, started=0, gone=[], moved=[1, 0], held=0, size=1, step=9
)
def test_order_is_that_of_the_starts(
    jobs: list[tuple[str, str | None, int, int]],
    limit: int,
    started: int,
    gone: list[int],
    moved: list[int],
    held: int,
    size: int,
    step: int,
) -> None:
    turns = LabelConcurrency(label="tenant", limit=limit) if limit else None
    lanes = make_lanes({"default": QueueSettings(label_concurrency=turns)}, pull_kinds=["pulled"])
    waiting = {job.seq: job for job in make_jobs(jobs)}
    lanes.put(*map(peek_at, waiting.values()))
    for _ in range(started):
        for seq in start_next(lanes, "echo"):
            del waiting[seq]
    change(lanes, waiting, gone, moved)
    running = lanes.take(held)  # their label values may be at the limit

    with pytest.MonkeyPatch.context() as patched:
        for name in ("ROW_STEP", "HEAP_STEP", "STEP", "FEW"):
            patched.setattr(upcoming_module, name, step)
        listed = {kind: seqs_of(read(lanes, [kind])) for kind in KINDS}
        merged = seqs_of(read(lanes))
        reverse = {kind: seqs_of(read(lanes, [kind], is_reverse=True)) for kind in KINDS}
        paged = {kind: in_pages(lanes, kind, size, is_reverse=False) for kind in KINDS}
        paged_back = {kind: in_pages(lanes, kind, size, is_reverse=True) for kind in KINDS}

    lanes.release(*running.values())
    assert paged == listed
    assert reverse == paged_back == {kind: order[::-1] for kind, order in listed.items()}
    for kind in KINDS:
        assert [seq for seq in merged if seq in listed[kind]] == listed[kind]
    assert len(merged) == len(listed["echo"]) + len(listed["pulled"])
    if held and limit:  # whichever job ends first gives its label the next turn
        assert sorted(merged) == sorted(seq for seq in waiting if seq not in running)
        return
    for kind in KINDS:
        order: list[int] = []
        while now_started := start_next(lanes, kind):
            order += now_started
        assert listed[kind] == order


def change(lanes: Lanes, waiting: dict[int, Job], gone: list[int], moved: list[int]) -> None:
    """Discard some jobs, and change the priority of others."""
    for pick in gone if waiting else ():
        lanes.discard("default", pick)
        waiting.pop(pick, None)
    for pick in moved if waiting else ():
        seq = [*waiting][pick % len(waiting)]
        lanes.discard("default", seq)
        waiting[seq] = waiting[seq]._replace(priority=pick % 3)
        lanes.put(peek_at(waiting[seq]))


@given(
    jobs=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-2, 2)), min_size=1, max_size=30),
    limit=st.sampled_from([0, 1]),
    size=st.integers(1, 6),
    started=st.lists(st.integers(0, 4), max_size=20),
)
def test_pages_go_on_where_the_last_one_ended_while_jobs_start(
    jobs: list[tuple[str, int]], limit: int, size: int, started: list[int]
) -> None:
    bench = Bench(default=by_tenant(limit) if limit else QueueSettings())
    expected = {bench.put(tenant=tenant, priority=priority).seq for tenant, priority in jobs}
    listed: list[int] = []
    gone: set[int] = set()
    after: Sequence[int] = ()
    paces = iter(started)
    has_more = True
    while has_more:
        page = read(bench.lanes, (), after, size)
        listed += seqs_of(page)
        after, has_more = page.entries[-4:] or after, page.has_more
        for _ in range(next(paces, 0)):
            gone |= {*start_next(bench.lanes, "echo")}

    assert len(listed) == len({*listed})  # none is listed twice
    assert expected - {*listed} <= gone  # and only jobs are left out that have started


def test_last_entry_that_still_waits_gives_the_place() -> None:
    bench = Bench(default=by_tenant(1))
    jobs = [bench.put(tenant="ab"[number % 2]) for number in range(8)]
    page = read(bench.lanes, number=4)
    for job in jobs[2:4]:
        bench.lanes.discard("default", job.seq)

    rest = read(bench.lanes, (), page.entries)

    assert seqs_of(page) == [1, 2, 3, 4]
    assert seqs_of(rest) == [5, 6, 7, 8]


def test_jobs_of_several_kinds_are_merged_by_rank() -> None:
    lanes = make_lanes({}, pull_kinds=["pulled", "other"])
    kinds = ["echo", "pulled", "other", "echo", "pulled"]
    for seq, kind in enumerate(kinds, 1):
        lanes.put(peek_at(make_job(kind=kind, seq=seq, delay=9 - seq, retry=RETRY)))

    assert seqs_of(read(lanes)) == [5, 4, 3, 2, 1]
    assert seqs_of(read(lanes, ["pulled", "other"])) == [5, 3, 2]
    assert seqs_of(read(lanes, ["undeclared"])) == []


def test_queue_without_jobs_has_no_order() -> None:
    lanes = Bench().lanes

    assert wait_for(lanes.upcoming("new", (), (), 9, is_reverse=False))[0] == Upcoming((), False)


def test_label_at_its_limit_comes_last() -> None:
    bench = Bench(default=by_tenant(1))
    bench.put(tenant="a")
    bench.take()
    held_back = [bench.put(tenant="a").seq for _ in range(2)]
    free = [bench.put(tenant="b").seq for _ in range(3)]

    assert seqs_of(read(bench.lanes)) == [free[0], held_back[0], free[1], held_back[1], free[2]]
    assert seqs_of(read(bench.lanes, is_reverse=True)) == [free[2], held_back[1], free[1], held_back[0], free[0]]


def test_label_whose_limit_another_kind_has_reached_comes_last() -> None:
    lanes = make_lanes({"default": by_tenant(1)}, pull_kinds=["pulled"])
    for seq, tenant in ((1, "a"), (2, "b"), (3, "b")):
        lanes.put(peek_at(make_job(kind="pulled", seq=seq, labels={"tenant": tenant}, retry=RETRY)))
    lanes.put(peek_at(make_job(seq=4, labels={"tenant": "a"}, retry=RETRY)))
    running = lanes.take(1)

    assert [*running] == [4]
    assert seqs_of(read(lanes, ["pulled"])) == [2, 1, 3]


def test_job_that_was_put_again_is_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upcoming_module, "ROW_STEP", 3)
    bench = Bench()
    jobs = [bench.put() for _ in range(2)]
    bench.lanes.discard("default", jobs[1].seq)
    bench.lanes.put(peek_at(jobs[1]))
    later = [bench.put().seq for _ in range(5)]

    assert read(bench.lanes, number=2) == Upcoming(read(bench.lanes).entries[:2], True)
    assert seqs_of(read(bench.lanes)) == [1, 2, *later]


def test_jobs_spilled_to_the_store_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "MAX_DUE", 90)
    bench = Bench()
    for _ in range(200):
        bench.put()

    found = read(bench.lanes)

    assert seqs_of(found) == [*range(1, len(found.entries) + 1)]
    assert (found.has_more, found.is_cut) == (False, True)


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("is_reverse", [False, True])
def test_order_of_many_jobs_is_read_in_short_steps(is_mixed: bool, is_reverse: bool) -> None:
    bench = Bench()
    jobs = fill(bench, 45_000, is_mixed=is_mixed)
    ranked = [*jobs[22_500:], *jobs[:22_500]] if is_mixed else jobs
    order = [job.seq for job in (reversed(ranked) if is_reverse else ranked)]

    first, turns = wait_for(bench.lanes.upcoming("default", (), (), 1_000, is_reverse=is_reverse))
    middle = read(bench.lanes, (), first.entries, 30_000, is_reverse=is_reverse)

    assert seqs_of(first) == order[:1_000]
    assert seqs_of(middle) == order[1_000:31_000]
    assert turns >= 10
    assert first.has_more


@pytest.mark.parametrize("is_reverse", [False, True])
def test_order_of_turns_is_known_up_to_its_bound(is_reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upcoming_module, "MAX_PLACES", 50)
    bench = Bench(default=by_tenant(1))
    for number in range(100):
        bench.put(tenant=f"t{number % 20}")
    order = [*range(100, 0, -1)] if is_reverse else [*range(1, 101)]

    first = read(bench.lanes, (), (), 30, is_reverse=is_reverse)
    rest = read(bench.lanes, (), first.entries, 30, is_reverse=is_reverse)

    assert seqs_of(first) == order[:30]
    assert seqs_of(rest) == order[30:50]
    assert (first.has_more, first.is_cut, rest.has_more, rest.is_cut) == (True, False, False, True)


def test_last_jobs_of_very_many_labels_are_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upcoming_module, "MAX_VALUES", 10)
    bench = Bench(default=by_tenant(1))
    for number in range(11):
        bench.put(tenant=f"t{number}")

    assert read(bench.lanes, is_reverse=True) == Upcoming((), False, is_cut=True)
    assert len(read(bench.lanes).entries) == 11


@pytest.mark.parametrize("is_reverse", [False, True])
def test_one_label_with_many_jobs_is_read_in_short_steps(is_reverse: bool) -> None:
    bench = Bench(default=by_tenant(1))
    large = [make_job(seq=seq, labels={"tenant": "large"}, retry=RETRY) for seq in range(1, 20_001)]
    bench.lanes.put(*map(peek_at, large))
    for seq in range(20_001, 20_101):
        bench.lanes.put(peek_at(make_job(seq=seq, labels={"tenant": f"t{seq}"}, retry=RETRY)))
    order = [1, *range(20_001, 20_101), *range(2, 20_001)]

    found = read(bench.lanes, (), (), 3_000, is_reverse=is_reverse)

    assert seqs_of(found) == (order[::-1] if is_reverse else order)[:3_000]


async def test_jobs_may_start_while_the_order_is_read() -> None:
    bench = Bench(default=by_tenant(1))
    fill(bench, 5_000, is_mixed=True)

    reading = bench.lanes.upcoming("default", (), (), 4_000, is_reverse=True)
    for _ in range(3):
        reading.send(None)
        bench.take(1_500)

    assert len(wait_for(reading)[0].entries) <= 4_000
