"""The filters of a query as conditions on a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from erelong.model.matching.residue import SCHEDULE_LABEL
from erelong.stores import rows
from erelong.stores.sqlite import statements as sql

if TYPE_CHECKING:
    from collections.abc import Collection

    from erelong.model.matching.residue import Residue
    from erelong.model.query import Query
    from erelong.stores.base import Group

WAITS = f"state = 0 AND {sql.UNCLAIMED}"
RUNS = f"state = 1 AND group_number >= {rows.NUMBERS_OF_A_STATE} AND group_number < {2 * rows.NUMBERS_OF_A_STATE}"
OF_GROUP = "group_number = ? AND queue = ? AND kind = ?"
CLAIMED = "claims CROSS JOIN jobs USING (seq)"
ATTEMPT = f"iif(jobs.{sql.UNCLAIMED}, attempt, attempt + 1)"

Part = tuple[str, list[Any]]


def where(query: Query, first: str = "1") -> Part:
    """Return all filters but the residue."""
    conditions, values = [first], []
    for column, wanted in ((sql.STATE, query.states), ("queue", query.queues), ("kind", query.kinds)):
        if wanted:
            conditions.append(f"{column} IN ({_marks(wanted)})")
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


def residue_where(residue: Residue) -> Part:
    """Return the conditions of a residue; that of a cause finds all jobs with an error."""
    conditions, values = ["1"], list[Any]()
    for name, bound in residue.bounds.items():
        field, _, side = name.partition("_")
        conditions.append(f"{field}_at {'>=' if side == 'after' else '<'} ?")
        values.append(bound)
    if residue.attempt_min > 0:
        conditions.append(f"{ATTEMPT} >= ?")
        values.append(residue.attempt_min)
    if residue.schedules:
        marks = _marks(residue.schedules)
        conditions.append(
            f"EXISTS (SELECT 1 FROM labels WHERE name = '{SCHEDULE_LABEL}' AND value IN ({marks}) AND seq = jobs.seq)"
        )
        values += sorted(residue.schedules)
    if residue.errors:  # the text of an error begins with its type
        beginnings = [b'{"type":' + orjson.dumps(type) + b"," for type in sorted(residue.errors)]
        conditions.append(f"({' OR '.join(['substr(error, 1, ?) = ?'] * len(beginnings))})")
        values += [value for beginning in beginnings for value in (len(beginning), beginning)]
    if residue.cause is not None:
        conditions.append("error IS NOT NULL")
    return " AND ".join(conditions), values


def group_values(group: Group) -> list[Any]:
    """Return the values for `OF_GROUP`."""
    queue, kind, state = group
    return [rows.group_number(queue, kind, state), queue, kind]


def _marks(values: Collection[Any]) -> str:
    return ", ".join("?" * len(values))
