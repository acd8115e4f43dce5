"""How many jobs are waiting for each span of time."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import orjson

from erelong.model.job import Job, State
from erelong.stores.base import Spread
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.listing.filters import Part, where
from erelong.stores.sqlite.listing.snapshot import count_groups, one_value, view

if TYPE_CHECKING:
    from collections.abc import Mapping

    import apsw

    from erelong.model.query import Query
    from erelong.stores.base import Bins
    from erelong.stores.sqlite.claims import ClaimedJobs

MOST_COUNTED = 100_000


def count_due(connection: apsw.Connection, running: ClaimedJobs, bins: Bins, query: Query) -> Spread:
    """Count waiting jobs by due time along the index. With filters, read the rows of at most `MOST_COUNTED` jobs."""

    def select(claimed: Mapping[int, Job]) -> Spread:
        counted = count_groups(connection, claimed)
        waiting = {group: jobs for group, jobs in counted.items() if group[2] is State.SCHEDULED}
        matching = sum(jobs for group, jobs in waiting.items() if query.matches_group(*group))
        is_filtered = bool(query.labels) or matching < sum(waiting.values())
        every = 1
        if is_filtered and (rows := _walked(connection, bins, query)) > MOST_COUNTED:
            every = -(-rows // MOST_COUNTED)
        statement, values = _count_by_bin(bins, query, every, has_claims=bool(claimed))
        pairs = f"SELECT json_group_array(json_array(bin, jobs)) FROM ({statement})"
        found: dict[int, int] = dict(one_value(connection, pairs, values))
        counts = [found.get(number, 0) * every for number in range(bins.number)]
        overdue, later = found.get(-1, 0) * every, found.get(bins.number, 0) * every
        if not query.labels:
            later = max(0, matching - overdue - sum(counts))
        return Spread(counts, overdue, later, every)

    return view(connection, running, select)


def _walked(connection: apsw.Connection, bins: Bins, query: Query) -> int:
    """Return how many index entries a count walks over."""
    if query.labels:
        name, value = next(iter(query.labels.items()))
        found = connection.execute("SELECT count(*) FROM labels WHERE name = ? AND value = ?", (name, value))
    else:
        statement = "SELECT count(*) FROM jobs INDEXED BY due WHERE state = 0 AND due_at < ?"
        found = connection.execute(statement, (bins.end,))
    rows: int = found.get
    return rows


def _count_by_bin(bins: Bins, query: Query, every: int, *, has_claims: bool) -> Part:
    """Count every n-th waiting job by its bin. Job numbers are mixed, so that no pattern of submits skews the sample.

    Later jobs are left out unless a label has to find them. Otherwise each bin is a range of the index: to free the
    memory that a million jobs need to be grouped would stop the event loop for milliseconds.
    """
    first = ["state = 0"]
    if has_claims:
        first.append(f"jobs.{sql.UNCLAIMED}")
    if every > 1:
        first.append(f"(jobs.seq * 40503 >> 8) % {every} = 0")
    condition, filters = where(replace(query, labels=dict([*query.labels.items()][1:])), " AND ".join(first))
    if not query.labels:
        edges = [-1, *range(bins.start, bins.end + 1, bins.step)]
        ranges = [(number - 1, *pair) for number, pair in enumerate(pairwise(edges))]
        within = "due_at >= bin.value ->> 1 AND due_at < bin.value ->> 2"
        counted = f"SELECT count(*) FROM jobs INDEXED BY due WHERE {within} AND {condition}"
        statement = f"SELECT bin.value ->> 0 AS bin, ({counted}) AS jobs FROM json_each(?) AS bin"
        return statement, [*filters, orjson.dumps(ranges).decode()]
    bin_of = "CASE WHEN due_at < ? THEN -1 WHEN due_at >= ? THEN ? ELSE (due_at - ?) / ? END"
    source = "labels CROSS JOIN jobs USING (seq) WHERE labels.name = ? AND labels.value = ?"
    values = [bins.start, bins.end, bins.number, bins.start, bins.step, *next(iter(query.labels.items())), *filters]
    return f"SELECT {bin_of} AS bin, count(*) AS jobs FROM {source} AND {condition} GROUP BY 1", values
