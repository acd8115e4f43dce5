"""The first jobs of several ranges of an index: a few of each are read, and more of those that are used up."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from erelong.stores.sqlite.listing.snapshot import BREATH, one_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

FEW: Final = 8
MERGED_AT_ONCE: Final = 500

_OF_EACH_RANGE: Final = """
SELECT json_group_array(json_array(range.key, json((
    SELECT json_group_array(json_array(at, seq))
    FROM (SELECT {at} AS at, seq FROM {source} WHERE {condition} ORDER BY {order} LIMIT ?)
)))) FROM json_each(?) AS range
"""

Position = tuple[int, int]


class Shape(NamedTuple):
    """A selection of jobs in one of several ranges. The conditions contain the values of a range as `name(0)` and so
    on; the first two are the position before which the jobs come, in the descending order of `at` and `seq`.
    """

    at: str
    source: str
    condition: str
    order: str
    filters: tuple[Any, ...]


def name(number: int) -> str:
    """Return the term for a value of the range."""
    return f"range.value ->> {number}"


@dataclass(slots=True)
class Range:
    """The jobs of a range that were read and are not taken, the first one last, and how many to read next (0: none)."""

    shape: Shape
    names: Sequence[Any]
    jobs: list[Position] = field(default_factory=list)
    more: int = 0


def merge(connection: apsw.Connection, ranges: Sequence[Range], before: Position, limit: int) -> list[int]:
    """Return the numbers of the first jobs in these ranges before a position."""
    by_shape: defaultdict[Shape, list[Range]] = defaultdict(list)
    for each in ranges:
        each.more = min(limit, max(FEW, 2 * limit // len(ranges)))
        by_shape[each.shape].append(each)
    for alike in by_shape.values():
        _read(connection, alike, before)
    heads = [(_descending(each.jobs[-1]), place) for place, each in enumerate(ranges) if each.jobs]
    heapify(heads)
    found: list[int] = []
    while heads and len(found) < limit:
        _, place = heads[0]
        current = ranges[place]
        position = current.jobs.pop()
        found.append(position[1])
        if not current.jobs and current.more and len(found) < limit:
            _read(connection, [current], position)
        if current.jobs:
            heapreplace(heads, (_descending(current.jobs[-1]), place))
        else:
            heappop(heads)
        if len(found) % MERGED_AT_ONCE == 0:
            time.sleep(BREATH)
    return found


def _descending(position: Position) -> Position:
    return -position[0], -position[1]


def _read(connection: apsw.Connection, ranges: Sequence[Range], before: Position) -> None:
    """Read the next jobs of ranges of one shape, equally many of each."""
    shape, number = ranges[0].shape, ranges[0].more
    statement = _OF_EACH_RANGE.format(**shape._asdict())
    given = orjson.dumps([[*before, *each.names] for each in ranges]).decode()
    for place, jobs in one_value(connection, statement, [*shape.filters, number, given]):
        ranges[place].jobs = jobs[::-1]
        ranges[place].more = 2 * number if len(jobs) == number else 0
