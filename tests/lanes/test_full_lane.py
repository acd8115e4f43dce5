"""A full lane spills jobs, knows which, and signals when they should be read again."""

from __future__ import annotations

from typing import Any

import pytest

from erelong.lanes import lane as lane_module
from erelong.lanes.lane import Spill
from erelong.model.job import Job
from erelong.settings.queues import QueueSettings
from erelong.stores.base import peek_at
from tests.support.builders import NOW, make_job
from tests.support.lanes import RETRY, by_tenant, make_lanes
from tests.support.signals import CountingSignal

FULL = 90
ONE_BY_ONE = QueueSettings(concurrency=1)


@pytest.fixture(autouse=True)
def small_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_module, "MAX_DUE", FULL)


class Small:
    """Lanes that hold only a few jobs each."""

    def __init__(self, settings: QueueSettings = ONE_BY_ONE) -> None:
        self.signals = 0
        self.lanes = make_lanes(
            {"default": settings}, low=CountingSignal(self._count), tick=lambda: 0.0, pull_kinds=["pulled"]
        )
        self.last_seq = 0

    def _count(self) -> None:
        self.signals += 1

    def put(self, *, tenant: str | None = None, **fields: Any) -> Job:
        self.last_seq += 1
        labels = None if tenant is None else {"tenant": tenant}
        job = make_job(labels=labels, seq=self.last_seq, retry=RETRY, **fields)
        self.lanes.put(peek_at(job))
        return job

    def put_many(self, number: int, **fields: Any) -> list[Job]:
        return [self.put(**fields) for _ in range(number)]

    @property
    def held(self) -> int:
        return self.lanes._lanes["default"].due

    def take(self) -> list[int]:
        slots = self.lanes.take(1)
        self.lanes.release(*slots.values())
        return list(slots)


def test_lane_holds_a_bounded_number_and_counts_the_spilled_jobs() -> None:
    small = Small()

    small.put_many(1_000)

    assert small.held == FULL * 8 // 9
    assert small.lanes.due("default") == 1_000
    assert small.lanes.all_due() == {"default": 1_000}
    assert small.lanes.oldest_due("default") is None


def test_drained_lane_asks_for_its_spilled_jobs() -> None:
    small = Small()
    jobs = small.put_many(200)
    assert small.signals == 0
    assert small.lanes.take_spilled() == []

    while not small.signals:
        small.take()

    first, last = jobs[80], jobs[-1]
    assert small.held == FULL // 2
    assert small.lanes.take_spilled() == [("default", Spill((NOW, first.seq), (NOW, last.seq), 120))]
    assert small.lanes.take_spilled() == []
    assert small.lanes.due("default") == FULL // 2 + 120
    small.lanes.end_reread("default")
    assert small.lanes.due("default") == FULL // 2


def test_jobs_that_come_due_later_do_not_overtake_those_in_the_store() -> None:
    small = Small()
    jobs = small.put_many(200)
    for _ in range(10):
        small.take()

    late = small.put()

    assert late.seq not in small.lanes._lanes["default"].seqs()
    assert jobs[10].seq in small.lanes._lanes["default"].seqs()


def test_job_of_higher_priority_finds_room_in_a_full_lane() -> None:
    small = Small()
    small.put_many(200)

    urgent = small.put(priority=5)

    assert small.take() == [urgent.seq]


def test_many_jobs_of_higher_priority_keep_to_the_bound() -> None:
    small = Small()
    small.put_many(200)

    small.put_many(200, priority=5)

    assert small.held == FULL


def test_label_with_many_jobs_leaves_room_for_other_labels() -> None:
    small = Small(by_tenant(1))
    small.put_many(500, tenant="a")

    other = small.put(tenant="b")
    started = [*small.lanes.take(2)]

    assert other.seq in started


def test_pull_kind_without_pollers_keeps_no_other_kind_from_starting() -> None:
    small = Small()
    small.put_many(500, kind="pulled")

    other = small.put()

    assert small.take() == [other.seq]


def test_drained_sublane_asks_although_others_are_full() -> None:
    small = Small(by_tenant(1))
    small.put_many(500, tenant="a")
    small.lanes.take(1)
    small.put_many(500, tenant="b")

    while not small.signals:
        small.take()

    assert small.held > FULL * 7 // 9


def test_cancelled_jobs_make_room_like_started_ones() -> None:
    small = Small()
    jobs = small.put_many(200)

    for job in jobs[:40]:
        small.lanes.discard("default", job.seq)

    assert small.signals > 0


def test_lane_that_has_spilled_jobs_is_not_forgotten() -> None:
    small = Small()
    jobs = small.put_many(200)
    for job in jobs:
        small.lanes.discard("default", job.seq)

    small.lanes.forget_idle()

    assert small.lanes.take_spilled() != []


def test_range_that_was_not_read_again_stays_spilled() -> None:
    small = Small()
    small.put_many(200)
    while not small.signals:
        small.take()
    small.lanes.take_spilled()

    rest = Spill((NOW, 100), (NOW, 200), 100)
    small.lanes.end_reread("default", rest)

    assert small.lanes.due("default") == FULL // 2 + 100
    assert small.lanes.take_spilled() == []
    small.take()
    assert small.lanes.take_spilled() == [("default", rest)]


def test_lane_that_drains_during_a_reread_asks_again_after_it() -> None:
    small = Small()
    small.put_many(200)
    while not small.signals:
        small.take()
    small.lanes.take_spilled()
    small.put_many(100)
    while small.take():
        pass
    signals = small.signals

    small.lanes.end_reread("default")

    assert small.signals == signals + 1
    assert small.lanes.take_spilled() != []
