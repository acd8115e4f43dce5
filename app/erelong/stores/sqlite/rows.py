"""Rows of the embedded database, written and read by number."""

from __future__ import annotations

from array import array
from itertools import chain
from typing import TYPE_CHECKING, Any

import apsw

from erelong.stores.rows import TEXTS, Row, read_job
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.failures import FailureKind, diagnose

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from erelong.model.job import Job

ROWS_AT_ONCE = (64, 8, 1)  # few sizes, so that few statements have to stay prepared


def write_rows(connection: apsw.Connection, statement: Callable[[int], str], rows: Sequence[Row]) -> None:
    """Write rows with few statements, since each one costs a cache lookup and a release of the interpreter lock."""
    start = 0
    for number in ROWS_AT_ONCE:
        while start + number <= len(rows):
            connection.execute(statement(number), (*chain.from_iterable(rows[start : start + number]),))
            start += number


def listed(seqs: Iterable[int]) -> apsw.CArrayBinding:
    """Bind job numbers as an array. An empty array is not accepted, so 0, which no job has, stands in."""
    return apsw.carray(array("q", seqs) or array("q", [0]))


def select_rows(connection: apsw.Connection, statement: str, seqs: Iterable[int], *arguments: Any) -> list[Row]:
    """Select all or the first columns of jobs by number.

    Text that is not valid UTF-8 comes with replacement characters, so that the other rows can be read.
    """
    bound = (listed(seqs), *arguments)
    try:
        return connection.execute(statement, bound).fetchall()
    except UnicodeDecodeError:
        return [_decoded(row) for row in connection.execute(_with_bytes(statement), bound)]


def select_sound_rows(
    connection: apsw.Connection,
    statement: str,
    seqs: Sequence[int],
    note_damage: Callable[[apsw.Error], None],
    *arguments: Any,
) -> list[Row]:
    """Select rows as `select_rows` does, without those on damaged pages."""
    try:
        return select_rows(connection, statement, seqs, *arguments)
    except apsw.Error as error:
        if diagnose(error) is not FailureKind.DAMAGE:
            raise
        if len(seqs) < 2:
            note_damage(error)
            return []
    middle = len(seqs) // 2
    halves = (seqs[:middle], seqs[middle:])
    return [row for half in halves for row in select_sound_rows(connection, statement, half, note_damage, *arguments)]


def read_jobs(connection: apsw.Connection, seqs: Iterable[int]) -> dict[int, Job]:
    """Return jobs by number, without unknown ones."""
    return {job.seq: job for job in map(read_job, select_rows(connection, sql.SELECT, seqs))}


def _with_bytes(statement: str) -> str:
    """Return the statement with its text columns selected as bytes."""
    columns, _, source = statement.partition("FROM")
    for name in TEXTS.values():
        columns = columns.replace(f"jobs.{name},", f"CAST(jobs.{name} AS BLOB),")
    return f"{columns}FROM{source}"


def _decoded(row: Row) -> Row:
    return tuple(
        value.decode(errors="replace") if index in TEXTS and value is not None else value
        for index, value in enumerate(row)
    )
