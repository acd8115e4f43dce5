"""The way from a row of the embedded database to a job, and back."""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import apsw
import orjson

from app.history import NO_ATTEMPTS
from app.job import NO_LEASES, NOTHING, PLACES, Job, State, read_policy
from app.outcome import Error
from app.stores import sqlite_schema as sql
from app.stores.sqlite_schema import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

ROWS_AT_ONCE = (64, 8, 1)  # so that there are few statements to be kept prepared

Row = tuple[Any, ...]


group_of = itemgetter(PLACES["queue"], PLACES["kind"], PLACES["state"])
queue_and_kind_of = itemgetter(PLACES["queue"], PLACES["kind"])

_STATES = tuple(State)
_STATE, _DUE_AT, _CANCEL_REQUESTED, _RESULT_TRUNCATED, _ERROR = (
    FIELDS.index(name) for name in ("state", "due_at", "cancel_requested", "result_truncated", "error")
)
_STATE_LOST = Error("unreadable", "its stored state cannot be read", retryable=False).to_json()
_TEXTS = tuple(FIELDS.index(name) for name in ("kind", "queue", "key", "token"))
_REPLACED = "\N{REPLACEMENT CHARACTER}"

# Stands in for what cannot be read and would change what is run. Clients see an empty object; nothing else writes it
# so, and a claim knows it again: a change saved on top cannot make the job look sound.
_LOST = b" {}"
_STAND_INS: dict[str, bytes | None] = {
    "params": _LOST,
    "labels": _LOST,
    "retry": _LOST,
    "result": None,
    "error": None,
    "attempts": NO_ATTEMPTS,
    "ended_leases": NO_LEASES,
}
_OTHERS = ("labels", "result", "error", "attempts", "ended_leases")
_others = itemgetter(*map(PLACES.__getitem__, _OTHERS))
_NO_OTHERS = (None, None, None, NO_ATTEMPTS, NO_LEASES)


def write_jobs(connection: apsw.Connection, statement: Callable[[int], str], jobs: Sequence[Row]) -> None:
    """Write many jobs by few statements: each is looked up, and the interpreter's lock given up, once and not for each
    job."""
    start = 0
    for rows in ROWS_AT_ONCE:
        while start + rows <= len(jobs):
            connection.execute(statement(rows), (*chain.from_iterable(jobs[start : start + rows]),))
            start += rows


def listed(seqs: Iterable[int]) -> apsw.CArrayBinding:
    """Numbers as a statement takes them; it does not take none, so none are one that no job has."""
    return apsw.carray(array("q", seqs) or array("q", [0]))


def select_rows(connection: apsw.Connection, statement: str, seqs: Iterable[int], *arguments: int) -> list[Row]:
    """Run a statement that answers with jobs, or the first fields of them, for a list of numbers.

    A text that is no longer UTF-8 must not keep the rows beside it from being read: it comes with a mark in it.
    """
    bound = (listed(seqs), *arguments)
    try:
        return connection.execute(statement, bound).fetchall()
    except UnicodeDecodeError:
        return [_decoded(row) for row in connection.execute(_with_bytes(statement), bound)]


def read_jobs(connection: apsw.Connection, seqs: Iterable[int]) -> dict[int, Job]:
    """Read jobs by number; the unknown are absent."""
    return {job.seq: job for job in map(read_job, select_rows(connection, sql.SELECT, seqs))}


def read_job(row: Row) -> Job:
    """Make a job of a row; parts that cannot be read come out empty."""
    job = take_job(row)
    return job if flaw_of(job) is None else mend(job)


def take_job(row: Row) -> Job:
    """Make a job of a row as it stands, unread."""
    fields = list(row)
    state = fields[_STATE]
    if 0 <= state < len(_STATES):
        fields[_STATE] = _STATES[state]
    else:
        fields[_STATE], fields[_DUE_AT], fields[_ERROR] = State.FAILED, None, _STATE_LOST
    fields[_CANCEL_REQUESTED] = bool(fields[_CANCEL_REQUESTED])
    fields[_RESULT_TRUNCATED] = bool(fields[_RESULT_TRUNCATED])
    return Job._make(fields)


def flaw_of(job: Job) -> str | None:
    """Name the first stored part of a job that is not what was written there."""
    if _REPLACED in job.kind + job.queue + job.token or (job.key is not None and _REPLACED in job.key):
        return next(FIELDS[index] for index in _TEXTS if _REPLACED in str(job[index]))
    if job.params != NOTHING and not _is_readable("params", job.params):
        return "params"
    if not _is_policy(job.retry):
        return "retry"
    if (others := _others(job)) == _NO_OTHERS:  # as of nearly every job that is claimed
        return None
    return next((name for name, text in zip(_OTHERS, others, strict=True) if not _is_readable(name, text)), None)


def mend(job: Job) -> Job:
    """Put something empty in the place of what cannot be read."""
    broken = {name: stand_in for name, stand_in in _STAND_INS.items() if not _is_readable(name, getattr(job, name))}
    return job._replace(**broken)  # type: ignore[arg-type]  # the table above has a fitting value for each name


def sound_labels(labels: bytes | None) -> bytes | None:
    return labels if labels is None or _is_readable("labels", labels) else None


def read_labels(labels: bytes | None) -> dict[str, str]:
    return orjson.loads(labels) if labels and _is_readable("labels", labels) else {}


def _is_readable(name: str, text: bytes | None) -> bool:
    if text is None:
        return True
    if text == _LOST:
        return False
    try:
        if name == "retry":
            read_policy(text)
            return True
        value = orjson.loads(text)
    except ValueError:
        return False
    match name:
        case "labels":
            return isinstance(value, dict)
        case "error":
            return isinstance(value, dict) and "type" in value
        case "attempts":
            return isinstance(value, list) and all(isinstance(attempt, dict) for attempt in value)
        case "ended_leases":
            return isinstance(value, list) and all(isinstance(lease, list) and len(lease) == 2 for lease in value)
        case _:
            return True


@lru_cache(maxsize=1024)
def _is_policy(retry: bytes) -> bool:
    """Whether it can be read; there are few different ones."""
    return _is_readable("retry", retry)


def _with_bytes(statement: str) -> str:
    """Let a statement that answers with all columns answer with bytes for its texts."""
    columns, _, source = statement.partition("FROM")
    for index in _TEXTS:
        columns = columns.replace(f"jobs.{FIELDS[index]},", f"CAST(jobs.{FIELDS[index]} AS BLOB),")
    return f"{columns}FROM{source}"


def _decoded(row: Row) -> Row:
    return tuple(
        value.decode(errors="replace") if index in _TEXTS and value is not None else value
        for index, value in enumerate(row)
    )
