"""Running jobs by their starts, and final jobs by their ends."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from erelong.stores import rows as stored
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.arrays import ints, texts
from erelong.stores.postgres.listing import walks
from erelong.stores.postgres.listing.filters import Part, find, where

if TYPE_CHECKING:
    from erelong.model.query import Query
    from erelong.stores.base import Group
    from erelong.stores.postgres.connection import Connection

NEVER = 1 << 62

_ENDS = """
finished_at IS NOT NULL AND finished_at >= %s AND finished_at < %s AND (finished_at, jobs.seq) < (%s, %s)"""
_RANGES = sql.unnest({"queue": "text", "state": "int"}, "ranges")
# At most as many ranges as jobs are wanted can have one of them: those with the latest ends.
SELECT_ENDS = f"""
WITH latest AS (
    SELECT ranges.queue, ranges.state FROM {_RANGES} CROSS JOIN LATERAL (
        SELECT finished_at, jobs.seq FROM jobs WHERE queue = ranges.queue AND state = ranges.state AND {_ENDS}
        ORDER BY queue DESC, state DESC, finished_at DESC, jobs.seq DESC LIMIT 1
    ) AS head ORDER BY head.finished_at DESC, head.seq DESC LIMIT %s
)
SELECT ended.seq FROM latest CROSS JOIN LATERAL (
    SELECT finished_at, jobs.seq FROM jobs WHERE queue = latest.queue AND state = latest.state AND {_ENDS}
    ORDER BY queue DESC, state DESC, finished_at DESC, jobs.seq DESC LIMIT %s
) AS ended ORDER BY ended.finished_at DESC, ended.seq DESC LIMIT %s
"""


def walk_starts(connection: Connection, query: Query, limit: int) -> list[int]:
    """Return the next running jobs, which are few, by their starts; all filters but the residue match them."""
    first, after = stored.NUMBERS_OF_A_STATE, query.after or walks.OLDEST
    condition, values = where(query)
    statement = f"""
        SELECT seq FROM (
            SELECT * FROM (
                SELECT jobs.seq, jobs.started_at AS at FROM jobs
                WHERE (group_number, jobs.seq) >= (%s, 0) AND (group_number, jobs.seq) < (%s, 0) AND jobs.state >= 0
                AND {condition} ORDER BY group_number, jobs.seq
            ) AS stored
            UNION ALL SELECT * FROM (
                SELECT jobs.seq, claims.started_at AS at FROM {sql.OF_CLAIMS} WHERE {condition}
            ) AS claimed
        ) AS running WHERE (at, seq) > (%s, %s) ORDER BY at, seq LIMIT %s"""
    found = find(connection, statement, [first, 2 * first, *values, *values, *after, limit])
    return [seq for (seq,) in found]


def walk_ends(connection: Connection, query: Query, groups: list[Group], limit: int) -> list[int]:
    """Return the next jobs by their ends; filters but those of states, queues and ends may not match them.

    If a key or a label selects few jobs, these are sorted, and all filters but the residue match.
    """
    bounds = query.residue.bounds
    range = [bounds.get("finished_after", -1), bounds.get("finished_before", NEVER), *(query.after or walks.NEWEST)]
    if (few := _few(connection, query, range)) is not None:
        part, values = few
        statement = f"SELECT seq FROM ({part}) AS few ORDER BY finished_at DESC, seq DESC LIMIT %s"
        return [seq for (seq,) in find(connection, statement, [*values, limit])]
    ranges = sorted({(queue, state.value) for queue, _, state in groups})
    if not ranges:
        return []
    queues, states = zip(*ranges, strict=True)
    found = find(connection, SELECT_ENDS, [texts(queues), ints(states), *range, limit, *range, limit, limit])
    return [seq for (seq,) in found]


def _few(connection: Connection, query: Query, range: list[int]) -> Part | None:
    """Return the jobs of a key or a label, if they are few."""
    if query.key is None and not query.labels:
        return None
    whole = replace(query, after=None, limit=walks.FEW_JOBS + 1)
    if query.key is not None:
        part, values = walks.walk_key(whole, "jobs.seq, jobs.finished_at", ("true", []))
    else:
        part, values = walks.walk_label(whole, "jobs.seq, jobs.finished_at", ("true", []))
    ((number,),) = find(connection, f"SELECT count(*) FROM ({part}) AS entries", values)
    if number > walks.FEW_JOBS:
        return None
    condition, filters = where(query, _ENDS)
    walk = walks.walk_key if query.key is not None else walks.walk_label
    return walk(whole, "jobs.seq, jobs.finished_at", (condition, [*range, *filters]))
