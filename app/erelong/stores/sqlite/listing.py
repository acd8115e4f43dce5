"""Listings that stay quick with a million jobs: each walks along the index that skips the fewest rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from erelong.model.job import Job, State
from erelong.model.query import Order
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.claims import move, unreadable, waiting_still
from erelong.stores.sqlite.failures import FailureKind, diagnose
from erelong.stores.sqlite.rows import Row, listed, read_job, select_sound_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from erelong.model.query import Query
    from erelong.stores.base import Group
    from erelong.stores.sqlite.claims import ClaimedJobs

FEW_JOBS = 20_000
MANY_GROUPS = 100
NEWEST = (1 << 62, 1 << 62)
OLDEST = (-1, -1)

WAITS = f"state = 0 AND {sql.UNCLAIMED}"
RUNS = f"state = 1 AND group_number >= {sql.NUMBERS_OF_A_STATE} AND group_number < {2 * sql.NUMBERS_OF_A_STATE}"
OF_GROUP = "group_number = ? AND queue = ? AND kind = ?"
CLAIMED = "claims CROSS JOIN jobs USING (seq)"

Part = tuple[str, list[Any]]
T = TypeVar("T")


def select_jobs(
    connection: apsw.Connection, running: ClaimedJobs, query: Query, note_damage: Callable[[apsw.Error], None]
) -> list[Job]:
    """Find job numbers along an index, then read their rows. Unreadable rows are reported and left out.

    The counts on disk show which ranges of the index hold jobs. The counts in memory do not match this snapshot, so a
    job that is just starting could be missed.
    """

    def select(claimed: Mapping[int, Job]) -> list[Job]:
        counted = _count(connection, claimed)
        groups = [group for group in counted if _matches(group, query)]
        waiting = sum(jobs for (_, _, state), jobs in counted.items() if state is State.SCHEDULED)
        jobs = map(read_job, read(groups, sum(map(counted.__getitem__, groups)), waiting))
        return [_as_claimed(job, claimed[job.seq], query) if job.seq in claimed else job for job in jobs]

    def read(groups: list[Group], jobs: int, waiting: int) -> list[Row]:
        limit, columns = query.limit, sql.SELECT if query.is_full else sql.SELECT_BRIEF
        while True:
            statement, values = _choose(replace(query, limit=limit), groups, jobs, waiting)
            seqs = [seq for (seq,) in connection.execute(statement, values)]
            rows = select_sound_rows(connection, columns, seqs, note_damage)
            if len(rows) >= query.limit or len(seqs) < limit:
                return rows[: query.limit]
            limit += query.limit - len(rows)

    return _view(connection, running, select)


def select_due(
    connection: apsw.Connection, running: ClaimedJobs, after: tuple[int, int], before: int, limit: int
) -> list[tuple[int, int]]:
    def select(_: object) -> list[tuple[int, int]]:
        return [(at, seq) for at, seq in connection.execute(sql.SELECT_DUE, (*after, before, limit))]

    return _view(connection, running, select)


def select_ended(
    connection: apsw.Connection, queue: str, state: State, after: tuple[int, int], before: int, limit: int
) -> list[tuple[int, int]]:
    rows: list[Any] = connection.execute(sql.SELECT_ENDED, (queue, state, *after, before, limit)).fetchall()
    return rows


def _view(connection: apsw.Connection, running: ClaimedJobs, select: Callable[[Mapping[int, Job]], list[T]]) -> list[T]:
    """Run a selection on a snapshot of the store with its running jobs, leaving out damaged ones."""
    jobs = running.all()  # before the rows: see `ClaimedJobs`
    try:
        return _view_with(connection, jobs, {}, select)
    except apsw.Error as error:
        if not jobs or diagnose(error) is not FailureKind.DAMAGE:
            raise
        damaged = unreadable(connection, jobs)
        return _view_with(connection, {seq: job for seq, job in jobs.items() if seq not in damaged}, damaged, select)


def _view_with(
    connection: apsw.Connection,
    running: Mapping[int, Job],
    damaged: Mapping[int, Job],
    select: Callable[[Mapping[int, Job]], list[T]],
) -> list[T]:
    connection.execute("BEGIN")
    try:
        if claimed := {**waiting_still(connection, running), **damaged}:
            connection.execute(sql.SET_CLAIMS, (listed(claimed),))
        return select(claimed)
    finally:
        if connection.in_transaction:  # a disk failure ends it
            connection.execute("ROLLBACK")  # also empties the table of claims


def _as_claimed(row: Job, job: Job, query: Query) -> Job:
    return job if query.is_full else job._replace(params=row.params, result=row.result, attempts=row.attempts)


def _count(connection: apsw.Connection, claimed: Mapping[int, Job]) -> dict[Group, int]:
    rows = connection.execute(sql.SELECT_COUNTS)
    counted = Counter({(queue, kind, State(state)): jobs for queue, kind, state, jobs in rows})
    move(counted, claimed.values(), State.SCHEDULED, State.RUNNING)
    return {group: jobs for group, jobs in counted.items() if jobs}


def _choose(query: Query, groups: list[Group], jobs: int, waiting: int) -> Part:
    """Choose the statement for a query, whose groups hold `jobs` jobs; `waiting` jobs wait in all groups."""
    if not groups:
        return "SELECT seq FROM jobs WHERE 0", []
    if query.order is Order.DUE:
        return _by_due(query, groups, jobs, waiting)
    if query.key is not None:
        return _walk("jobs INDEXED BY keyed", query, _where(query))
    if query.labels and jobs > FEW_JOBS:
        return _by_label(query)
    if (query.due_after is not None or query.due_before is not None) and jobs > FEW_JOBS:
        return _by_due_range(query)
    if not (query.states or query.queues or query.kinds) or len(groups) > MANY_GROUPS:
        return _walk("jobs", query, _where(query))
    return _by_group(query, groups)


def _by_due(query: Query, groups: list[Group], jobs: int, waiting: int) -> Part:
    """Waiting jobs in order of due time. A few jobs of rare groups are sorted instead of searched for."""
    after = query.after or OLDEST
    is_rare = jobs <= min(FEW_JOBS, waiting // 2) and len(groups) <= MANY_GROUPS
    if query.key is None and is_rare:
        return _sorted_groups(query, groups, after)
    condition, values = _where(query, WAITS)
    index = "keyed" if query.key is not None else "due"
    statement = f"""
        SELECT seq FROM jobs INDEXED BY {index} WHERE {condition} AND (due_at, seq) > (?, ?)
        ORDER BY due_at, seq LIMIT ?"""
    return statement, [*values, *after, query.limit]


def _sorted_groups(query: Query, groups: list[Group], after: tuple[int, int]) -> Part:
    parts = []
    values: list[Any] = []
    for group in groups:
        condition, filters = _where(query, f"{WAITS} AND {OF_GROUP}")
        parts.append(f"SELECT seq, due_at FROM jobs INDEXED BY grouped WHERE {condition} AND (due_at, seq) > (?, ?)")
        values += [*_group_values(group), *filters, *after]
    statement = f"SELECT seq FROM ({' UNION ALL '.join(parts)}) ORDER BY due_at, seq LIMIT ?"
    return statement, [*values, query.limit]


def _by_due_range(query: Query) -> Part:
    """Waiting and running jobs within a range of due times, newest first."""
    waiting, values = _walk("jobs INDEXED BY due", query, _where(query, WAITS))
    running, others = _walk("jobs INDEXED BY grouped", query, _where(query, RUNS))
    claimed, more = _walk(CLAIMED, query, _where(query))
    parts = " UNION ALL ".join(f"SELECT seq FROM ({part})" for part in (waiting, running, claimed))
    return f"{parts} ORDER BY seq DESC LIMIT ?", [*values, *others, *more, query.limit]


def _by_label(query: Query) -> Part:
    (name, value), *_ = query.labels.items()
    condition, values = _where(query)
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
        sources = {"jobs INDEXED BY grouped": (first, _group_values(group))}
        if state is State.RUNNING:
            sources[CLAIMED] = ("queue = ? AND kind = ?", [queue, kind])
        for source, (condition, names) in sources.items():
            statement, filters = _walk(source, query, _where(query, condition))
            parts.append(f"SELECT seq FROM ({statement})")
            values += [*names, *filters]
    return " UNION ALL ".join(parts) + " ORDER BY seq DESC LIMIT ?", [*values, query.limit]


def _walk(source: str, query: Query, where: Part) -> Part:
    """Walk along a table or index, newest first."""
    condition, values = where
    statement = f"SELECT seq FROM {source} WHERE {condition} AND seq < ? ORDER BY seq DESC LIMIT ?"
    return statement, [*values, (query.after or NEWEST)[1], query.limit]


def _where(query: Query, first: str = "1") -> Part:
    """Return all filters as conditions on a row."""
    conditions, values = [first], []
    for column, wanted in ((sql.STATE, query.states), ("queue", query.queues), ("kind", query.kinds)):
        if wanted:
            conditions.append(f"{column} IN ({', '.join('?' * len(wanted))})")
            values += sorted(wanted)
    for condition, value in (
        ("key = ?", query.key),
        ("due_at >= ?", query.due_after),
        ("due_at < ?", query.due_before),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    for name, text in query.labels.items():
        conditions.append("jobs.seq IN (SELECT seq FROM labels WHERE name = ? AND value = ? AND seq = jobs.seq)")
        values += [name, text]
    return " AND ".join(conditions), values


def _group_values(group: Group) -> list[Any]:
    """Return the values for `OF_GROUP`."""
    queue, kind, state = group
    return [sql.group_number(queue, kind, state), queue, kind]


def _matches(group: Group, query: Query) -> bool:
    queue, kind, state = group
    return (
        (not query.states or state in query.states)
        and (not query.queues or queue in query.queues)
        and (not query.kinds or kind in query.kinds)
        and (query.order is not Order.DUE or state is State.SCHEDULED)
    )
