"""Departures: counted by queue and state, and forgotten when a queue has been gone for a while."""

from __future__ import annotations

from erelong.duties.signal import Signal
from erelong.lanes.departures import MAX_ABSENCES, MAX_LIVE_AGAIN, Departures, LiveAgain
from erelong.model.job import State


def test_queue_that_is_gone_for_a_while_is_forgotten() -> None:
    departures = Departures()
    departures.deleted["gone", State.SUCCEEDED] += 3
    departures.revived["there", State.FAILED] += 1

    for _ in range(MAX_ABSENCES):
        departures.forget({"there"})
    kept = departures.queues
    departures.forget({"there"})

    assert (kept, departures.queues) == ({"gone", "there"}, {"there"})


def test_queue_that_returns_is_kept() -> None:
    departures = Departures()
    departures.deleted["mail", State.SUCCEEDED] += 3

    for _ in range(3):
        departures.forget(set())
        departures.forget(set())
        departures.forget({"mail"})

    assert departures.deleted["mail", State.SUCCEEDED] == 3


def test_revived_jobs_are_kept_for_schedules_that_exist() -> None:
    live_again = LiveAgain()
    for schedule in ("gone", "report"):
        live_again.note(schedule, "1")

    live_again.learn({"report": False}, Signal())
    live_again.note("gone", "2")
    live_again.note("report", "2")

    assert (live_again.of("gone"), live_again.of("report")) == ((), {"1", "2"})


def test_revived_jobs_are_forgotten_when_they_end_and_with_their_schedule() -> None:
    live_again = LiveAgain()
    for job in ("1", "2"):
        live_again.note("report", job)

    live_again.remove("report", ["1"])
    kept = live_again.of("report")
    live_again.forget("report")

    assert kept == {"2"}
    assert not live_again


def test_schedule_with_a_revived_job_is_noted_once_and_wakes_its_duty() -> None:
    live_again, wake = LiveAgain(), Signal()
    live_again.learn({"report": False}, wake)

    for job in ("1", "2"):
        live_again.note("report", job)
    live_again.note("gone", "3")

    assert wake.is_set
    assert live_again.take_noted() == {"report"}
    assert live_again.take_noted() == set()


def test_number_of_revived_jobs_of_a_schedule_is_bounded() -> None:
    live_again = LiveAgain()
    for job in range(MAX_LIVE_AGAIN + 10):
        live_again.note("report", str(job))

    assert len(live_again.of("report")) == MAX_LIVE_AGAIN
