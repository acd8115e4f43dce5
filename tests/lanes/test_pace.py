"""The pace of a queue: its starts per second while jobs waited, over the last five minutes."""

from __future__ import annotations

import math

import pytest

from erelong.lanes.recent import Recent

ALWAYS = -math.inf


def start_every(recent: Recent, seconds: float, number: int, *, begin: float = 0.0, late: float = 100.0) -> float:
    """Note single starts of late jobs; return the tick of the last."""
    for count in range(number):
        recent.note(late, tick=begin + count * seconds)
    return begin + (number - 1) * seconds


@pytest.mark.parametrize("seconds", [0.1, 1.0, 10.0])
def test_pace_is_that_of_jobs_which_waited(seconds: float) -> None:
    recent = Recent()

    last = start_every(recent, seconds, 25)

    assert recent.pace(last, ALWAYS) == pytest.approx(1 / seconds)


def test_pace_falls_while_nothing_starts() -> None:
    recent = Recent()
    last = start_every(recent, 1.0, 11)

    assert recent.pace(last + 10.0, ALWAYS) == pytest.approx(0.5)


def test_jobs_that_start_on_time_tell_no_pace() -> None:
    recent = Recent()

    last = start_every(recent, 1.0, 100, late=0.001)

    assert recent.pace(last, ALWAYS) is None


def test_few_starts_tell_no_pace() -> None:
    recent = Recent()

    last = start_every(recent, 1.0, 5)

    assert recent.pace(last, ALWAYS) is None


def test_jobs_that_fill_free_slots_tell_no_pace() -> None:
    recent = Recent()
    for batch in range(10):
        recent.note(*[5.0] * 100, tick=batch * 0.01)

    last = start_every(recent, 2.0, 10, begin=2.0)

    assert recent.pace(last, ALWAYS) == pytest.approx(0.5, rel=0.05)


def test_jobs_that_came_after_a_quiet_time_tell_no_pace() -> None:
    recent = Recent()
    start_every(recent, 1.0, 10)

    recent.note(*[0.5] * 1_000, tick=100.0)

    pace = recent.pace(100.0, ALWAYS)
    assert pace is not None
    assert pace <= 1.0


def test_pause_is_no_wait() -> None:
    recent = Recent()
    last = start_every(recent, 1.0, 10)

    recent.begin_again(last + 100.0)
    last = start_every(recent, 1.0, 10, begin=last + 101.0, late=200.0)

    assert recent.pace(last, ALWAYS) == pytest.approx(1.0, rel=0.1)


def test_time_without_workers_is_no_wait() -> None:
    recent = Recent()
    recent.note(0.0, tick=0.0)

    last = start_every(recent, 1.0, 20, begin=200.0, late=250.0)

    assert recent.pace(last, 199.0) == pytest.approx(1.0, rel=0.1)


def test_starts_older_than_five_minutes_do_not_count() -> None:
    recent = Recent()
    start_every(recent, 0.1, 100)

    assert recent.pace(361.0, ALWAYS) is None


def test_pace_of_a_queue_that_never_started_a_job_is_unknown() -> None:
    assert Recent().pace(1.0, ALWAYS) is None
