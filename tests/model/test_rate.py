"""A token bucket admits its burst and then its rate, for any pattern of requests."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erelong.model.rate import Bucket


@pytest.mark.parametrize("start", [0.0, 100.0])
def test_bucket_is_full_at_first_and_fills_up_again(start: float) -> None:
    bucket = Bucket(per_second=2, burst=3)

    assert [bucket.take(start) for _ in range(5)] == [0, 0, 0, 0.5, 0.5]
    assert bucket.take(start + 0.3) == pytest.approx(0.2)
    assert bucket.take(start + 0.5) == 0
    assert [bucket.take(start + 1_000) for _ in range(4)] == [0, 0, 0, 0.5]


@given(st.floats(0.01, 1_000), st.floats(1, 100), st.lists(st.floats(0, 10), max_size=200))
def test_burst_and_rate_are_never_exceeded(per_second: float, burst: float, gaps: list[float]) -> None:
    bucket = Bucket(per_second=per_second, burst=burst)
    tick = 0.0
    taken = 0

    for gap in gaps:
        tick += gap
        wait = bucket.take(tick)
        assert 0 <= wait <= 1 / per_second + 1e-6
        taken += wait == 0

    assert taken <= burst + tick * per_second + 1e-6


@given(st.floats(0.01, 1_000), st.floats(1, 100))
def test_token_is_available_after_the_returned_wait(per_second: float, burst: float) -> None:
    bucket = Bucket(per_second=per_second, burst=burst)
    tick = 0.0
    while (wait := bucket.take(tick)) == 0:
        pass

    for _ in range(10):
        tick += wait
        assert bucket.take(tick) == 0
        wait = bucket.take(tick)
