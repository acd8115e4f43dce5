"""Counting of values that arrive in runs of equal ones."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def counted(values: Iterable[T]) -> dict[T, int]:
    """Return the number of each value. Fast for runs of equal values, such as the kinds of a batch."""
    counts: dict[T, int] = {}
    for value, run in groupby(values):
        counts[value] = counts.get(value, 0) + len([*run])
    return counts
