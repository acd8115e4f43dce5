"""Final jobs in the order of their ends, the latest first.

The index of ends begins with queue and state, so a listing merges its ranges. An index of ends alone would cost every
end of a job a write to one more page.
"""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

import orjson

from erelong.stores.sqlite.listing import walks
from erelong.stores.sqlite.listing.filters import Part, group_values, where
from erelong.stores.sqlite.listing.merging import Range, Shape, merge, name
from erelong.stores.sqlite.listing.snapshot import numbers, one_value

if TYPE_CHECKING:
    import apsw

    from erelong.model.query import Query
    from erelong.stores.base import Group

MAX_RANGES = 1_000
NEVER = 1 << 62

_RANGE = "finished_at IS NOT NULL AND finished_at >= ? AND finished_at < ? AND (finished_at, seq) < (?, ?)"
_OF_EACH = f"""
queue = {name(2)} AND state = {name(3)} AND finished_at IS NOT NULL AND finished_at >= ? AND finished_at < ?
AND (finished_at, seq) < ({name(0)}, {name(1)})
"""

_LATEST_ENDS = f"""
SELECT json_group_array(json_array(latest.finished_at, latest.seq, latest.queue, latest.state))
FROM json_each(?) AS range CROSS JOIN jobs AS latest ON latest.seq = (
    SELECT seq FROM jobs INDEXED BY ended WHERE queue = range.value ->> 0 AND state = range.value ->> 1 AND {_RANGE}
    ORDER BY finished_at DESC, seq DESC LIMIT 1
)
"""


def walk_ends(connection: apsw.Connection, query: Query, groups: list[Group], jobs: int, limit: int) -> list[int]:
    """Return the next jobs by their ends; filters but those of states, queues and ends may not match them.

    If a key, a label or kinds select few jobs, these are sorted, and all filters but the residue match.
    """
    if (few := _few(connection, query, groups, jobs)) is not None:
        source, values = few
        condition, filters = where(query, _RANGE)
        statement = f"SELECT seq FROM {source} AND {condition} ORDER BY finished_at DESC, seq DESC LIMIT ?"
        return numbers(connection, statement, [*values, *_bounds(query), *filters, limit])
    ends = sorted({(queue, int(state)) for queue, _, state in groups})
    if len(ends) > MAX_RANGES:
        ends = _latest(connection, query, ends, limit)
    first, end, *_ = _bounds(query)
    shape = Shape("finished_at", "jobs INDEXED BY ended", _OF_EACH, "finished_at DESC, seq DESC", (first, end))
    return merge(connection, [Range(shape, names) for names in ends], query.after or walks.NEWEST, limit)


def _few(connection: apsw.Connection, query: Query, groups: list[Group], jobs: int) -> Part | None:
    """Return a source of few jobs, or None."""
    part: Part
    if query.key is not None:
        part = "jobs INDEXED BY keyed WHERE key = ?", [query.key]
    elif query.labels:
        part = "labels CROSS JOIN jobs USING (seq) WHERE name = ? AND value = ?", [*next(iter(query.labels.items()))]
    elif query.kinds and len(groups) <= walks.MANY_GROUPS:
        marks = ", ".join("?" * len(groups))
        numbers = [group_values(group)[0] for group in groups]
        part = f"jobs INDEXED BY grouped WHERE group_number IN ({marks})", numbers
    else:
        return None
    if jobs > walks.FEW_JOBS:
        source, values = part
        entries = f"SELECT 1 FROM {source.replace('CROSS JOIN jobs USING (seq) ', '')} LIMIT ?"
        ((number,),) = connection.execute(f"SELECT count(*) FROM ({entries})", [*values, walks.FEW_JOBS + 1])
        return part if number <= walks.FEW_JOBS else None
    return part


def _latest(
    connection: apsw.Connection, query: Query, ranges: list[tuple[str, int]], number: int
) -> list[tuple[str, int]]:
    """Return the ranges with the latest ends: at most as many ranges as jobs are wanted can have one of them."""
    latest = one_value(connection, _LATEST_ENDS, [orjson.dumps(ranges).decode(), *_bounds(query)])
    return [(queue, state) for _, _, queue, state in nlargest(number, latest)]


def _bounds(query: Query) -> list[int]:
    """Return the values for `_RANGE`."""
    bounds = query.residue.bounds
    first, end = bounds.get("finished_after", -1), bounds.get("finished_before", NEVER)
    return [first, end, *(query.after or walks.NEWEST)]
