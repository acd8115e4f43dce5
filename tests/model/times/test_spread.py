"""Spread: the offset of a name is fixed, even, and never as large as the spread."""

from __future__ import annotations

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from erelong.clock.instants import SECOND
from erelong.model.ids import write_id
from erelong.model.times.spread import MAX_SPREAD, job_offset, schedule_offset


def test_offset_of_a_schedule_is_its_share_by_the_hash_of_its_name() -> None:
    share = int(sha256(b"report").hexdigest()[:16], 16) / 2**64

    assert schedule_offset("report", 3600.0) == int(share * 3600 * SECOND)


def test_offset_of_a_job_is_its_share_by_the_random_digits_of_its_id() -> None:
    assert job_offset(write_id(7, "8000000000000000"), 10.0) == 5 * SECOND
    assert job_offset(write_id(7, "0000000000000000"), 10.0) == 0
    assert job_offset(write_id(7, "ffffffffffffffff"), 10.0) == 10 * SECOND - 1


@given(name=st.text(max_size=100), spread=st.floats(0, MAX_SPREAD))
def test_offset_is_fixed_and_within_the_spread(name: str, spread: float) -> None:
    offset = schedule_offset(name, spread)

    assert offset == schedule_offset(name, spread)
    assert 0 <= offset <= spread * SECOND


def test_offsets_of_many_names_are_even() -> None:
    offsets = [schedule_offset(f"schedule-{number}", 10.0) // SECOND for number in range(10_000)]

    assert all(900 < offsets.count(second) < 1100 for second in range(10))
