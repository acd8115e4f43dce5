"""The filters of a query as conditions on a row, and the snapshot that a listing reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import orjson

from erelong.model.job import State
from erelong.model.matching.residue import SCHEDULE_LABEL
from erelong.model.query import ORDERED, Order
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.connection import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable

    from erelong.model.matching.residue import Residue
    from erelong.model.query import Query
    from erelong.stores.base import Group
    from erelong.stores.postgres.connection import Connection, Row

DUE = f"jobs.state = 0 AND NOT {sql.IS_CLAIMED}"
WAITS = f"jobs.state + 0 = 0 AND NOT {sql.IS_CLAIMED}"  # offers no index: see `statements`
STATE = f"(CASE WHEN jobs.state = 0 AND {sql.IS_CLAIMED} THEN 1 ELSE jobs.state END)"
COUNT_CLAIMED = f"SELECT queue, kind, count(*) FROM {sql.OF_CLAIMS} GROUP BY queue, kind"
ATTEMPT = f"jobs.attempt + CASE WHEN jobs.state = 0 AND {sql.IS_CLAIMED} THEN 1 ELSE 0 END"

Part = tuple[str, list[Any]]
T = TypeVar("T")


def with_counts(connection: Connection, read: Callable[[dict[Group, int]], T]) -> T:
    """Read in one snapshot, which shows the same counts and rows."""
    connection.script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        counts = {(queue, kind, State(state)): jobs for queue, kind, state, jobs in connection.rows(sql.SELECT_COUNTS)}
        result = read({group: number for group, number in counts.items() if number > 0})
    except BaseException:
        if is_alive(connection):
            connection.script("ROLLBACK")
        raise
    connection.script("COMMIT")
    return result


def find(connection: Connection, statement: str, values: list[Any]) -> list[Row]:
    return connection.run(statement, *values, prepare=False).fetchall()


def where(query: Query, first: str = "true", *, is_keyed: bool = False) -> Part:
    """Return all filters but the residue as conditions on a row; with `is_keyed`, the key is left to a range."""
    conditions, values = [first], list[Any]()
    wanted = (STATE, [state.value for state in query.states]), ("queue", query.queues), ("kind", query.kinds)
    for column, choices in wanted:
        if choices:
            conditions.append(f"{column} IN ({', '.join(['%s'] * len(choices))})")
            values += sorted(choices)
    for condition, value in (
        ("key = %s", None if is_keyed else query.key),
        ("due_at >= %s", query.due_after),
        ("due_at < %s", query.due_before),
    ):
        if value is not None:
            conditions.append(f"jobs.{condition}")
            values.append(value)
    for name, text in query.labels.items():
        conditions.append("EXISTS (SELECT FROM labels AS l WHERE l.name = %s AND l.value = %s AND l.seq = jobs.seq)")
        values += [name, text]
    return " AND ".join(conditions), values


def residue_where(residue: Residue) -> Part:
    """Return the conditions of a residue; that of a cause finds all jobs with an error."""
    conditions, values = ["true"], list[Any]()
    for name, bound in residue.bounds.items():
        field, _, side = name.partition("_")
        conditions.append(f"jobs.{field}_at {'>=' if side == 'after' else '<'} %s")
        values.append(bound)
    if residue.attempt_min > 0:
        conditions.append(f"{ATTEMPT} >= %s")
        values.append(residue.attempt_min)
    if residue.schedules:
        marks = ", ".join(["%s"] * len(residue.schedules))
        found = f"l.name = '{SCHEDULE_LABEL}' AND l.value IN ({marks}) AND l.seq = jobs.seq"
        conditions.append(f"EXISTS (SELECT FROM labels AS l WHERE {found})")
        values += sorted(residue.schedules)
    if residue.errors:  # the text of an error begins with its type
        beginnings = [b'{"type":' + orjson.dumps(type) + b"," for type in sorted(residue.errors)]
        conditions.append(f"({' OR '.join(['substring(jobs.error FROM 1 FOR %s::int) = %s'] * len(beginnings))})")
        values += [value for beginning in beginnings for value in (len(beginning), beginning)]
    if residue.cause is not None:
        conditions.append("jobs.error IS NOT NULL")
    return " AND ".join(conditions), values


def may_match(group: Group, query: Query) -> bool:
    """Return whether rows of a group may be listed. Rows of running jobs may count as waiting."""
    queue, kind, state = group
    is_ordered = state in ORDERED[query.order]
    is_claimed = State.RUNNING in query.states and query.order is not Order.DUE
    is_wanted = state in query.states or (state is State.SCHEDULED and is_claimed)
    return (
        (not query.states or is_wanted)
        and (not query.queues or queue in query.queues)
        and (not query.kinds or kind in query.kinds)
        and (is_ordered or (state is State.SCHEDULED and query.order is Order.STARTED))
    )
