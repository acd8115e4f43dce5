"""Statements that find the jobs of a listing: each walks along the index that skips the fewest rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.model.job import State
from erelong.model.query import Order
from erelong.stores.sqlite.listing.filters import CLAIMED, OF_GROUP, RUNS, WAITS, Part, group_values, where

if TYPE_CHECKING:
    from erelong.model.query import Query
    from erelong.stores.base import Group

FEW_JOBS = 20_000
MANY_GROUPS = 100
NEWEST = (1 << 62, 1 << 62)
OLDEST = (-1, -1)


def choose(query: Query, groups: list[Group], jobs: int, waiting: int) -> Part:
    """Choose the statement for a query, whose groups hold `jobs` jobs; `waiting` jobs wait in all groups."""
    if not groups:
        return "SELECT seq FROM jobs WHERE 0", []
    if query.order is Order.DUE:
        return _by_due(query, groups, jobs, waiting)
    if query.key is not None:
        return _walk("jobs INDEXED BY keyed", query, where(query))
    if query.labels and jobs > FEW_JOBS:
        return _by_label(query)
    if (query.due_after is not None or query.due_before is not None) and jobs > FEW_JOBS:
        return _by_due_range(query)
    if not (query.states or query.queues or query.kinds) or len(groups) > MANY_GROUPS:
        return _walk("jobs", query, where(query))
    return _by_group(query, groups)


def _by_due(query: Query, groups: list[Group], jobs: int, waiting: int) -> Part:
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


def _sorted_groups(query: Query, groups: list[Group], after: tuple[int, int]) -> Part:
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


def _by_group(query: Query, groups: list[Group]) -> Part:
    """Merge the newest jobs of each group; a group is one range of the index, newest last."""
    parts = []
    values: list[Any] = []
    for group in groups:
        queue, kind, state = group
        first = f"{WAITS if state is State.SCHEDULED else f'state = {state}'} AND {OF_GROUP}"
        sources = {"jobs INDEXED BY grouped": (first, group_values(group))}
        if state is State.RUNNING:
            sources[CLAIMED] = ("queue = ? AND kind = ?", [queue, kind])
        for source, (condition, names) in sources.items():
            statement, filters = _walk(source, query, where(query, condition))
            parts.append(f"SELECT seq FROM ({statement})")
            values += [*names, *filters]
    return " UNION ALL ".join(parts) + " ORDER BY seq DESC LIMIT ?", [*values, query.limit]


def _walk(source: str, query: Query, where: Part) -> Part:
    """Walk along a table or index, newest first."""
    condition, values = where
    statement = f"SELECT seq FROM {source} WHERE {condition} AND seq < ? ORDER BY seq DESC LIMIT ?"
    return statement, [*values, (query.after or NEWEST)[1], query.limit]
