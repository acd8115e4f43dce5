"""What a listing reads: one snapshot of the store with its running jobs, and the numbers of jobs in it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import apsw
import orjson

from erelong.model.job import Job, State
from erelong.stores.rows import move
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.claims import unreadable, waiting_still
from erelong.stores.sqlite.failures import FailureKind, diagnose
from erelong.stores.sqlite.rows import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from erelong.stores.base import Group
    from erelong.stores.sqlite.claims import ClaimedJobs

T = TypeVar("T")

BREATH = 100e-6
"""Seconds for which a thread sleeps now and then, without which the event loop would not get the interpreter lock."""
_STATES = tuple(State)


def view(connection: apsw.Connection, running: ClaimedJobs, select: Callable[[Mapping[int, Job]], T]) -> T:
    """Run a selection on a snapshot of the store with its claimed jobs, leaving out damaged ones."""
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
    select: Callable[[Mapping[int, Job]], T],
) -> T:
    connection.execute("BEGIN")
    try:
        if claimed := {**waiting_still(connection, running), **damaged}:
            connection.execute(sql.SET_CLAIMS, (listed(claimed),))
        return select(claimed)
    finally:
        if connection.in_transaction:  # a disk failure ends it
            connection.execute("ROLLBACK")  # also empties the table of claims


def count_groups(connection: apsw.Connection, claimed: Mapping[int, Job]) -> dict[Group, int]:
    """Return the number of jobs in each group that has any.

    The counts in memory do not match the snapshot, so with them a job that is just starting could be missed.
    """
    groups = f"SELECT json_group_array(json_array(queue, kind, state, jobs)) FROM ({sql.SELECT_COUNTS})"
    rows = one_value(connection, groups)
    counted = Counter({(queue, kind, _STATES[state]): jobs for queue, kind, state, jobs in rows})
    move(counted, claimed.values(), State.SCHEDULED, State.RUNNING)
    return {group: jobs for group, jobs in counted.items() if jobs}


def numbers(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> list[int]:
    """Return the job numbers that a statement finds, in its order."""
    found: list[int] = one_value(connection, f"SELECT json_group_array(seq) FROM ({statement})", values)
    return found


def one_value(connection: apsw.Connection, statement: str, values: Sequence[Any] = ()) -> Any:
    """Return the JSON value of a single row.

    Each row that a cursor returns releases the interpreter lock for an instant and takes it back before the event loop
    has woken up to take it: while it returns a hundred, the loop stands still for milliseconds.
    """
    ((text,),) = connection.execute(statement, values)
    return orjson.loads(text)
