"""Listings that stay quick with a million jobs: each walks along the index that skips the fewest rows.

No statement here names an index, so each is written such that only the intended one gives its order: a range of two
columns, ordered by both.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from erelong.model.job import State
from erelong.model.query import Order
from erelong.stores import rows as stored
from erelong.stores.base import Spread
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.listing.filters import COUNT_CLAIMED, DUE, WAITS, Part, find, may_match, where, with_counts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.model.query import Query
    from erelong.stores.base import Bins, Group
    from erelong.stores.postgres.connection import Connection

FEW_JOBS = 20_000
MOST_COUNTED = 100_000
MANY_GROUPS = 32  # each is planned by itself
NEWEST = (1 << 62, 1 << 62)
OLDEST = (-1, -1)

# Jobs at the last instant of the previous page are skipped by the index, however many they are.
SELECT_DUE = f"""
SELECT * FROM (
    SELECT due_at AS at, seq FROM jobs
    WHERE state = 0 AND (due_at, seq) > (%s, %s) AND due_at < %s AND NOT {sql.IS_CLAIMED}
    ORDER BY due_at, seq LIMIT %s
) AS due UNION ALL SELECT * FROM (
    SELECT expires_at AS at, seq FROM jobs
    WHERE state = 0 AND expires_at < due_at AND (expires_at, seq) > (%s, %s) AND expires_at < %s
    ORDER BY expires_at, seq LIMIT %s
) AS expiring ORDER BY 1, 2 LIMIT %s
"""
SELECT_ENDED = """
SELECT finished_at, seq FROM jobs
WHERE queue = %s AND state = %s AND (finished_at, seq) > (%s, %s) AND finished_at < %s AND finished_at IS NOT NULL
ORDER BY finished_at, seq LIMIT %s
"""
# A step of the recursion skips all jobs with the same value.
SELECT_LABEL_VALUES = """
WITH RECURSIVE found (value) AS (
    SELECT min(value) FROM labels WHERE name = %s
    UNION ALL
    SELECT (SELECT min(value) FROM labels WHERE name = %s AND labels.value > found.value)
    FROM found WHERE value IS NOT NULL
)
SELECT value FROM found WHERE value IS NOT NULL
"""


def count_due(connection: Connection, bins: Bins, query: Query) -> Spread:
    """Count waiting jobs by due time along the index. With filters, read the rows of at most `MOST_COUNTED` jobs."""
    return with_counts(connection, lambda counts: _count(connection, bins, query, counts))


def _count(connection: Connection, bins: Bins, query: Query, counts: dict[Group, int]) -> Spread:
    waiting = {group: jobs for group, jobs in counts.items() if group[2] is State.SCHEDULED}
    for queue, kind, jobs in find(connection, COUNT_CLAIMED, []):
        waiting[queue, kind, State.SCHEDULED] -= jobs
    matching = sum(jobs for group, jobs in waiting.items() if may_match(group, query))
    every = 1
    if query.labels or matching < sum(waiting.values()):
        every = max(1, -(-_walked(connection, bins, query) // MOST_COUNTED))
    found: dict[int, int] = dict(find(connection, *_count_by_bin(bins, query, every)))
    numbers = [found.get(number, 0) * every for number in range(bins.number)]
    overdue, later = found.get(-1, 0) * every, found.get(bins.number, 0) * every
    if not query.labels:
        later = max(0, matching - overdue - sum(numbers))
    return Spread(numbers, overdue, later, every)


def _walked(connection: Connection, bins: Bins, query: Query) -> int:
    """Return how many index entries a count walks over."""
    statement, values = "SELECT count(*) FROM jobs WHERE state = 0 AND due_at < %s", list[Any]([bins.end])
    if query.labels:
        statement = "SELECT count(*) FROM labels WHERE name = %s AND value = %s"
        values = [*next(iter(query.labels.items()))]
    ((rows,),) = find(connection, statement, values)
    return int(rows)


def _count_by_bin(bins: Bins, query: Query, every: int) -> Part:
    """Group every n-th waiting job by its bin. Job numbers are mixed, so that no pattern of submits skews the sample.

    Later jobs are left out unless a label has to find them.
    """
    first = [f"jobs.seq NOT IN (SELECT jobs.seq FROM {sql.OF_CLAIMS})"]
    if every > 1:
        first.append(f"(jobs.seq * 40503 >> 8) %% {every} = 0")
    condition, values = where(replace(query, labels=dict([*query.labels.items()][1:])), " AND ".join(first))
    bin_of = "CASE WHEN due_at < %s THEN -1 WHEN due_at >= %s THEN %s ELSE (due_at - %s) / %s END"
    numbers = [bins.start, bins.end, bins.number, bins.start, bins.step]
    if query.labels:
        name, value = next(iter(query.labels.items()))
        source = """
            labels CROSS JOIN LATERAL (SELECT * FROM jobs WHERE seq = labels.seq AND state + 0 = 0 LIMIT 1) AS jobs
            WHERE labels.name = %s AND labels.value = %s"""
        return f"SELECT {bin_of}, count(*) FROM {source} AND {condition} GROUP BY 1", [*numbers, name, value, *values]
    source = "jobs WHERE state = 0 AND due_at < %s"
    return f"SELECT {bin_of}, count(*) FROM {source} AND {condition} GROUP BY 1", [*numbers, bins.end, *values]


def select_due(connection: Connection, after: tuple[int, int], before: int, limit: int) -> list[tuple[int, int]]:
    page = [*after, before, limit]
    return [(at, seq) for at, seq in connection.rows(SELECT_DUE, *page, *page, limit)]


def select_ended(
    connection: Connection, queue: str, state: State, after: tuple[int, int], before: int, limit: int
) -> list[tuple[int, int]]:
    rows = find(connection, SELECT_ENDED, [queue, state.value, *after, before, limit])
    return [(at, seq) for at, seq in rows]


def select_label_values(connection: Connection, name: str) -> Sequence[str]:
    return [value for (value,) in find(connection, SELECT_LABEL_VALUES, [name, name])]


def choose(query: Query, groups: list[Group], jobs: int, waiting: int) -> Part:
    """Choose the statement for a query, whose groups hold `jobs` rows; `waiting` rows wait in all groups."""
    if not groups:
        return "SELECT seq FROM jobs WHERE false", []
    if query.order is Order.DUE:
        return _by_due(query, groups, jobs, waiting)
    if query.key is not None:
        return walk_key(query, "jobs.seq", where(query, is_keyed=True))
    if query.labels and jobs > FEW_JOBS:
        return walk_label(query, "labels.seq", where(query))
    if (query.due_after is not None or query.due_before is not None) and jobs > FEW_JOBS:
        return _by_due_range(query)
    if not (query.states or query.queues or query.kinds) or len(groups) > MANY_GROUPS:
        return _walk(query, where(query))
    return _by_group(query, groups)


def _by_due(query: Query, groups: list[Group], jobs: int, waiting: int) -> Part:
    """Waiting jobs in order of due time. Those of one key, or few of rare groups, are sorted."""
    after = query.after or OLDEST
    is_rare = jobs <= min(FEW_JOBS, waiting // 2) and len(groups) <= MANY_GROUPS
    later = "(jobs.due_at + 0, jobs.seq) > (%s, %s)"
    if query.key is not None:
        condition, values = where(query, f"{WAITS} AND {later}", is_keyed=True)
        unbounded = replace(query, after=None, limit=NEWEST[0])
        return _sorted(query, [walk_key(unbounded, "jobs.seq, jobs.due_at", (condition, [*after, *values]))])
    if is_rare:
        condition, values = where(_ungrouped(query), f"{WAITS} AND {later}")
        return _sorted(query, [_range(group, condition, [*after, *values]) for group in groups])
    condition, values = where(query, f"{DUE} AND (jobs.due_at, jobs.seq) > (%s, %s)")
    statement = f"SELECT seq FROM jobs WHERE {condition} ORDER BY due_at, seq LIMIT %s"
    return statement, [*after, *values, query.limit]


def _sorted(query: Query, parts: list[Part]) -> Part:
    union = " UNION ALL ".join(f"SELECT * FROM ({part}) AS part" for part, _ in parts)
    statement = f"SELECT seq FROM ({union}) AS parts ORDER BY due_at, seq LIMIT %s"
    return statement, [*(value for _, values in parts for value in values), query.limit]


def _range(group: Group, condition: str, values: list[Any]) -> Part:
    """All waiting jobs of a group, with their due times."""
    queue, kind, state = group
    number = stored.group_number(queue, kind, state)
    statement = f"""
        SELECT jobs.seq, jobs.due_at FROM jobs
        WHERE (group_number, jobs.seq) > (%s, 0) AND (group_number, jobs.seq) < (%s, 0)
        AND jobs.state >= 0 AND queue = %s AND kind = %s AND {condition} ORDER BY group_number, jobs.seq"""
    return statement, [number, number + 1, queue, kind, *values]


def _by_due_range(query: Query) -> Part:
    """Waiting and running jobs within a range of due times, newest first."""
    first, after = stored.NUMBERS_OF_A_STATE, (query.after or NEWEST)[1]
    parts: list[Part] = []
    for source, condition, values, order in (
        ("jobs", DUE, [], "jobs.due_at, jobs.seq"),
        (
            "jobs",
            "(group_number, jobs.seq) >= (%s, 0) AND (group_number, jobs.seq) < (%s, 0) AND jobs.state >= 0",
            [first, 2 * first],
            "group_number, jobs.seq",
        ),
        (sql.OF_CLAIMS, "true", [], "jobs.seq"),
    ):
        conditions, filters = where(query, f"{condition} AND jobs.seq < %s")
        statement = f"SELECT jobs.seq FROM {source} WHERE {conditions} ORDER BY {order}"
        parts.append((statement, [*values, after, *filters]))
    return _newest(query, parts)


def walk_label(query: Query, columns: str, condition: Part) -> Part:
    """Walk along the jobs of the first label, newest first."""
    (name, value), *_ = query.labels.items()
    conditions, values = condition
    statement = f"""
        SELECT {columns} FROM labels JOIN jobs ON jobs.seq = labels.seq
        WHERE (labels.name, labels.value, labels.seq) > (%s, %s, 0)
        AND (labels.name, labels.value, labels.seq) < (%s, %s, %s) AND {conditions}
        ORDER BY labels.name DESC, labels.value DESC, labels.seq DESC LIMIT %s"""
    return statement, [name, value, name, value, (query.after or NEWEST)[1], *values, query.limit]


def _by_group(query: Query, groups: list[Group]) -> Part:
    """Merge the newest jobs of each group; a group is one range of the index, newest last."""
    parts = [_newest_of(query, group) for group in groups]
    if not query.states or State.RUNNING in query.states:
        condition, values = where(replace(query, states=frozenset()), "jobs.seq < %s")
        claimed = f"SELECT jobs.seq FROM {sql.OF_CLAIMS} WHERE {condition}"
        parts.append((claimed, [(query.after or NEWEST)[1], *values]))
    return _newest(query, parts)


def _newest_of(query: Query, group: Group) -> Part:
    queue, kind, state = group
    number = stored.group_number(queue, kind, state)
    is_wanted = not query.states or state in query.states
    first = WAITS if state is State.SCHEDULED else f"jobs.state + 0 = {state.value}"
    condition, values = where(_ungrouped(query), first if is_wanted else "false")
    statement = f"""
        SELECT jobs.seq FROM jobs WHERE (group_number, jobs.seq) > (%s, 0) AND (group_number, jobs.seq) < (%s, %s)
        AND jobs.state >= 0 AND queue = %s AND kind = %s AND {condition}
        ORDER BY group_number DESC, jobs.seq DESC LIMIT %s"""
    return statement, [number, number, (query.after or NEWEST)[1], queue, kind, *values, query.limit]


def _ungrouped(query: Query) -> Query:
    """Return the query without the filters that a group meets as a whole."""
    return replace(query, states=frozenset(), queues=frozenset(), kinds=frozenset())


def _newest(query: Query, parts: list[Part]) -> Part:
    union = " UNION ALL ".join(f"SELECT * FROM ({part}) AS part" for part, _ in parts)
    values = [value for _, values in parts for value in values]
    return f"SELECT seq FROM ({union}) AS parts ORDER BY seq DESC LIMIT %s", [*values, query.limit]


def _walk(query: Query, where: Part) -> Part:
    """Walk along all jobs, newest first."""
    condition, values = where
    statement = f"SELECT jobs.seq FROM jobs WHERE {condition} AND jobs.seq < %s ORDER BY jobs.seq DESC LIMIT %s"
    return statement, [*values, (query.after or NEWEST)[1], query.limit]


def walk_key(query: Query, columns: str, where: Part) -> Part:
    """Walk along the jobs of a key, newest first."""
    condition, values = where
    statement = f"""
        SELECT {columns} FROM jobs WHERE (key, jobs.seq) > (%s, 0) AND (key, jobs.seq) < (%s, %s) AND key IS NOT NULL
        AND jobs.state >= 0 AND {condition} ORDER BY key DESC, jobs.seq DESC LIMIT %s"""
    return statement, [query.key, query.key, (query.after or NEWEST)[1], *values, query.limit]
