"""The interval around a ratio of two trees."""

from __future__ import annotations

import random

from tests.bench.against import interval


def test_interval_of_twelve_omits_two_at_each_end() -> None:
    assert interval([float(number) for number in range(12)]) == (2.0, 9.0)


def test_interval_of_few_values_is_their_whole_range() -> None:
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_interval_holds_the_median_with_its_confidence() -> None:
    chance = random.Random(7)
    held = 0
    for _ in range(2_000):
        low, high = interval([chance.lognormvariate(0, 0.3) for _ in range(12)])
        held += low <= 1 <= high

    assert 0.94 <= held / 2_000 <= 0.985
