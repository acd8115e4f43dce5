"""The estimate of a start: from the rate, or from the starts seen, or none."""

from __future__ import annotations

import pytest

from erelong.model.blocker import Ahead, Basis, Blocker, Flow, Hold, Remover, estimate
from erelong.model.job import SECOND
from tests.support.builders import NOW

NOBODY = Ahead(0, False)
TWELVE = Ahead(12, False)


def at(seconds: float) -> int:
    return NOW + round(seconds * SECOND)


def blocked(type: Hold, until: float | None = 0.0) -> Blocker:
    remover = Remover.OPERATOR if until is None else None
    return Blocker(type, "", "", clears_at=None if until is None else at(until), clears_by=remover)


def test_job_without_blockers_starts_now() -> None:
    assert estimate([], NOBODY, Flow(), NOW)[:3] == (NOW, NOW, None)


def test_earliest_is_the_end_of_the_last_blocker() -> None:
    start = estimate([blocked(Hold.TIME, 60), blocked(Hold.RATE, 2)], NOBODY, Flow(rate=1.0, tokens=0.0), NOW)

    assert (start.earliest, start.likely) == (at(60), at(60))


def test_nothing_is_known_while_somebody_has_to_act() -> None:
    start = estimate([blocked(Hold.TIME, 60), blocked(Hold.PAUSE, None)], TWELVE, Flow(rate=5.0), NOW)

    assert start == (None, None, None, 5.0)


def test_rate_is_the_basis_with_its_tokens() -> None:
    spent = estimate([blocked(Hold.RATE, 0.1)], TWELVE, Flow(rate=5.0, tokens=0.5), NOW)
    full = estimate([], TWELVE, Flow(rate=5.0, tokens=5.0), NOW)

    assert (spent.earliest, spent.likely, spent.basis) == (at(0.1), at(0.1 + 12 / 5), Basis.RATE)
    assert (full.likely, full.basis) == (at((12 + 1 - 5) / 5), Basis.RATE)


def test_starts_seen_are_the_basis_without_a_rate() -> None:
    start = estimate([blocked(Hold.SLOT)], TWELVE, Flow(starts=2.0), NOW)

    assert (start.earliest, start.likely, start.basis) == (NOW, at(13 / 2), Basis.STARTS)


@pytest.mark.parametrize("hold", [Hold.LABEL, Hold.SLOT, Hold.WORKERS])
def test_next_free_slot_is_not_guessed(hold: Hold) -> None:
    assert estimate([blocked(hold)], NOBODY, Flow(), NOW).likely is None
    assert estimate([blocked(hold)], NOBODY, Flow(rate=5.0), NOW).likely is None


def test_queue_that_is_slower_than_its_rate_is_estimated_by_its_starts() -> None:
    slow = estimate([blocked(Hold.SLOT)], TWELVE, Flow(rate=5.0, starts=1.0), NOW)
    quick = estimate([blocked(Hold.SLOT)], TWELVE, Flow(rate=5.0, starts=6.0), NOW)

    assert (slow.likely, slow.basis) == (at(13), Basis.STARTS)
    assert (quick.likely, quick.basis) == (at(13 / 5), Basis.RATE)


def test_jobs_ahead_start_while_a_job_is_not_due() -> None:
    early = estimate([blocked(Hold.TIME, 60)], Ahead(100, False), Flow(rate=10.0, tokens=0.0), NOW)
    late = estimate([blocked(Hold.TIME, 60)], Ahead(1_000, False), Flow(rate=10.0, tokens=0.0), NOW)

    assert (early.likely, late.likely) == (at(60), at(100.1))


def test_start_after_many_jobs_that_are_not_due_yet_is_unknown() -> None:
    few = estimate([blocked(Hold.TIME, 60)], NOBODY, Flow(rate=10.0, soon=100), NOW)
    many = estimate([blocked(Hold.TIME, 60)], NOBODY, Flow(rate=10.0, soon=200), NOW)
    due = estimate([blocked(Hold.RATE, 1)], NOBODY, Flow(rate=10.0, tokens=0.0, soon=200), NOW)

    assert (few.likely, many.likely) == (at(60), None)
    assert due.likely == at(1)


def test_start_behind_an_unknown_number_of_jobs_is_unknown() -> None:
    start = estimate([], Ahead(10_000, True), Flow(rate=10.0, tokens=0.0), NOW)

    assert (start.earliest, start.likely, start.basis) == (NOW, None, None)


def test_start_in_a_queue_shared_with_other_workers_is_unknown() -> None:
    assert estimate([], TWELVE, Flow(rate=10.0, tokens=0.0, is_shared=True), NOW).likely is None


def test_start_behind_others_in_a_queue_of_unknown_pace_is_unknown() -> None:
    assert estimate([], TWELVE, Flow(), NOW).likely is None
