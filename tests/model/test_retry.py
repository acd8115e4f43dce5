"""Waits between attempts: they grow, are bounded, and spread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erelong.model.retry import RetryPolicy, wait

UNSPREAD = 0.5
ALMOST_ONE = 1 - 2**-53


def make_retry(
    *, delay: float = 5.0, factor: float = 3.0, max_delay: float = 3600.0, jitter: float = 0.0
) -> RetryPolicy:
    return RetryPolicy(max_attempts=1000, delay=delay, factor=factor, max_delay=max_delay, jitter=jitter)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 5), (2, 15), (3, 45), (4, 135), (6, 1215)])
def test_wait_grows_by_the_factor_with_each_failure(failures: int, seconds: float) -> None:
    assert wait(make_retry(delay=5, factor=3), failures, UNSPREAD) == seconds


def test_wait_stays_the_same_with_a_factor_of_one() -> None:
    policy = make_retry(delay=7, factor=1)

    assert {wait(policy, failures, UNSPREAD) for failures in (1, 2, 1000)} == {7}


def test_wait_stops_growing_at_max_delay() -> None:
    policy = make_retry(delay=5, factor=3, max_delay=100)

    assert [wait(policy, failures, UNSPREAD) for failures in (3, 4, 5)] == [45, 100, 100]


def test_max_delay_bounds_the_first_wait_too() -> None:
    assert wait(make_retry(delay=50, max_delay=10), 1, UNSPREAD) == 10


@pytest.mark.parametrize("factor", [2.0, 1e6, 1e308])
def test_wait_beyond_the_range_of_floats_is_max_delay(factor: float) -> None:
    assert wait(make_retry(delay=5, factor=factor, max_delay=3600), 1000, UNSPREAD) == 3600


@pytest.mark.parametrize("failures", [1, 2, 1000])
def test_no_delay_means_no_wait_however_often_it_failed(failures: int) -> None:
    assert wait(make_retry(delay=0, factor=1e308, jitter=1), failures, ALMOST_ONE) == 0


@pytest.mark.parametrize(("draw", "seconds"), [(0.0, 8), (0.25, 9), (0.5, 10), (0.75, 11), (ALMOST_ONE, 12)])
def test_draw_spreads_the_wait_by_the_jitter_share(draw: float, seconds: float) -> None:
    assert wait(make_retry(delay=10, jitter=0.2), 1, draw) == pytest.approx(seconds)


def test_spread_comes_on_top_of_max_delay() -> None:
    assert wait(make_retry(delay=10, max_delay=10, jitter=0.5), 9, ALMOST_ONE) == pytest.approx(15)


@given(
    delay=st.floats(0, 1e6),
    factor=st.floats(1, allow_infinity=False),
    max_delay=st.floats(1, 1e6),
    jitter=st.floats(0, 1),
    failures=st.integers(1, 1000),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_wait_is_never_negative_and_never_beyond_the_bound_and_its_spread(
    delay: float, factor: float, max_delay: float, jitter: float, failures: int, draw: float
) -> None:
    policy = RetryPolicy(max_attempts=1000, delay=delay, factor=factor, max_delay=max_delay, jitter=jitter)

    assert 0 <= wait(policy, failures, draw) <= max_delay * (1 + jitter)
