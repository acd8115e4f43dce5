"""Running jobs, the longest first. They are few, so they are sorted."""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING

from erelong.stores.sqlite.listing.filters import CLAIMED, RUNS, where
from erelong.stores.sqlite.listing.snapshot import numbers, one_value
from erelong.stores.sqlite.listing.walks import OLDEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    import apsw

    from erelong.model.job import Job
    from erelong.model.query import Query


def walk_starts(connection: apsw.Connection, claimed: Mapping[int, Job], query: Query, limit: int) -> list[int]:
    """Return the next jobs by their starts; all filters but the residue match them."""
    after = query.after or OLDEST
    condition, values = where(query, RUNS)
    statement = f"""
        SELECT started_at, seq FROM jobs INDEXED BY grouped WHERE {condition} AND (started_at, seq) > (?, ?)
        ORDER BY started_at, seq LIMIT ?"""
    pairs = f"SELECT json_group_array(json_array(started_at, seq)) FROM ({statement})"
    stored = map(tuple, one_value(connection, pairs, [*values, *after, limit]))
    condition, values = where(query)
    found = numbers(connection, f"SELECT seq FROM {CLAIMED} WHERE {condition}", values)
    begun = [(claimed[seq].started_at or 0, seq) for seq in found]
    return [seq for _, seq in nsmallest(limit, [*stored, *(position for position in begun if position > after)])]
