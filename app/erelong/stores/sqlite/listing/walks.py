"""Finds the jobs of a listing, along the index that skips the fewest rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.model.job import State
from erelong.model.query import Order
from erelong.stores.sqlite.listing.filters import CLAIMED, OF_GROUP, RUNS, WAITS, Part, group_values, where
from erelong.stores.sqlite.listing.merging import Range, Shape, merge, name
from erelong.stores.sqlite.listing.snapshot import numbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import apsw

    from erelong.model.query import Query
    from erelong.stores.base import Group

FEW_JOBS = 20_000
MANY_GROUPS = 100
MAX_MERGED = 1_000  # groups, beyond which the whole table is walked along
NEWEST = (1 << 62, 1 << 62)
OLDEST = (-1, -1)

_STATE = f"state = {name(2)}"
_NAMES = f"queue = {name(4)} AND kind = {name(5)}"
_GROUP = f"group_number = {name(3)} AND {_NAMES}"


def find(connection: apsw.Connection, query: Query, groups: Sequence[Group], counted: Mapping[Group, int]) -> list[int]:
    """Return the next jobs of a listing, which are in these groups of all counted ones."""
    jobs = sum(map(counted.__getitem__, groups))
    if (part := _choose(query, groups, jobs, counted)) is not None:
        return numbers(connection, *part)
    return merge(connection, _of_groups(query, groups), query.after or NEWEST, query.limit)


def _choose(query: Query, groups: Sequence[Group], jobs: int, counted: Mapping[Group, int]) -> Part | None:
    """Choose the statement for a query, whose groups hold `jobs` jobs; None if the groups are merged."""
    if not groups:
        return "SELECT seq FROM jobs WHERE 0", []
    if query.order is Order.DUE:
        waiting = sum(number for (_, _, state), number in counted.items() if state is State.SCHEDULED)
        return _by_due(query, groups, jobs, waiting)
    if query.key is not None:
        return _walk("jobs INDEXED BY keyed", query, where(query))
    if query.labels and jobs > FEW_JOBS:
        return _by_label(query)
    if (query.due_after is not None or query.due_before is not None) and jobs > FEW_JOBS:
        return _by_due_range(query)
    are_most = len(groups) > MANY_GROUPS and 2 * jobs > sum(counted.values())
    if not (query.states or query.queues or query.kinds) or are_most or len(groups) > MAX_MERGED:
        return _walk("jobs", query, where(query))
    return None


def _by_due(query: Query, groups: Sequence[Group], jobs: int, waiting: int) -> Part:
    """Waiting jobs in order of due time. A few jobs of rare groups are sorted instead of searched for."""
    after = query.after or OLDEST
    is_rare = jobs <= min(FEW_JOBS, waiting // 2) and len(groups) <= MANY_GROUPS
    if query.key is None and is_rare:
        return _sorted_groups(query, groups, after)
    condition, values = where(query, WAITS)
    index = "keyed" if query.key is not None else "due"
    statement = f"""
        SELECT seq FROM jobs INDEXED BY {index} WHERE {condition} AND (due_at, seq) > (?, ?)
        ORDER BY due_at, seq LIMIT ?"""
    return statement, [*values, *after, query.limit]


def _sorted_groups(query: Query, groups: Sequence[Group], after: tuple[int, int]) -> Part:
    parts = []
    values: list[Any] = []
    for group in groups:
        condition, filters = where(query, f"{WAITS} AND {OF_GROUP}")
        parts.append(f"SELECT seq, due_at FROM jobs INDEXED BY grouped WHERE {condition} AND (due_at, seq) > (?, ?)")
        values += [*group_values(group), *filters, *after]
    statement = f"SELECT seq FROM ({' UNION ALL '.join(parts)}) ORDER BY due_at, seq LIMIT ?"
    return statement, [*values, query.limit]


def _by_due_range(query: Query) -> Part:
    """Waiting and running jobs within a range of due times, newest first."""
    waiting, values = _walk("jobs INDEXED BY due", query, where(query, WAITS))
    running, others = _walk("jobs INDEXED BY grouped", query, where(query, RUNS))
    claimed, more = _walk(CLAIMED, query, where(query))
    parts = " UNION ALL ".join(f"SELECT seq FROM ({part})" for part in (waiting, running, claimed))
    return f"{parts} ORDER BY seq DESC LIMIT ?", [*values, *others, *more, query.limit]


def _by_label(query: Query) -> Part:
    (name, value), *_ = query.labels.items()
    condition, values = where(query)
    statement = f"""
        SELECT seq FROM labels CROSS JOIN jobs USING (seq) WHERE labels.name = ? AND labels.value = ? AND labels.seq < ?
        AND {condition} ORDER BY labels.seq DESC LIMIT ?"""
    return statement, [name, value, (query.after or NEWEST)[1], *values, query.limit]


def _of_groups(query: Query, groups: Sequence[Group]) -> list[Range]:
    """Return a range of the index for each group, and one of the claimed jobs for each group of running ones."""
    waiting, others = (_shape("jobs INDEXED BY grouped", f"{first} AND {_GROUP}", query) for first in (WAITS, _STATE))
    claimed = _shape(CLAIMED, _NAMES, query)
    ranges: list[Range] = []
    for group in groups:
        state, names = group[2], [int(group[2]), *group_values(group)]
        ranges.append(Range(waiting if state is State.SCHEDULED else others, names))
        if state is State.RUNNING:
            ranges.append(Range(claimed, names))
    return ranges


def _shape(source: str, first: str, query: Query) -> Shape:
    condition, filters = where(query, f"{first} AND seq < {name(1)}")
    return Shape("0", source, condition, "seq DESC", tuple(filters))


def _walk(source: str, query: Query, where: Part) -> Part:
    """Walk along a table or index, newest first."""
    condition, values = where
    statement = f"SELECT seq FROM {source} WHERE {condition} AND seq < ? ORDER BY seq DESC LIMIT ?"
    return statement, [*values, (query.after or NEWEST)[1], query.limit]
