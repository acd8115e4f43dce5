"""When waiting jobs are due, and when final ones ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.listing.snapshot import view

if TYPE_CHECKING:
    import apsw

    from erelong.model.job import State
    from erelong.stores.sqlite.claims import ClaimedJobs


def select_due(
    connection: apsw.Connection, running: ClaimedJobs, after: tuple[int, int], before: int, limit: int
) -> list[tuple[int, int]]:
    def select(_: object) -> list[tuple[int, int]]:
        return [(at, seq) for at, seq in connection.execute(sql.SELECT_DUE, (*after, before, limit))]

    return view(connection, running, select)


def select_ended(
    connection: apsw.Connection, queue: str, state: State, after: tuple[int, int], before: int, limit: int
) -> list[tuple[int, int]]:
    rows: list[Any] = connection.execute(sql.SELECT_ENDED, (queue, state, *after, before, limit)).fetchall()
    return rows
