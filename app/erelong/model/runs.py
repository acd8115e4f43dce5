"""Counts values that come in runs of equal ones, as what happens together mostly does."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

T = TypeVar("T")


def counted(values: Iterable[T]) -> dict[T, int]:
    """How many there are of each; for values that come in runs of equal ones, as what happens together mostly does."""
    counts: dict[T, int] = {}
    for value, run in groupby(values):
        counts[value] = counts.get(value, 0) + len([*run])
    return counts
