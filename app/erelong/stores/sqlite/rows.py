"""Conversion between rows of the embedded database and jobs."""

from __future__ import annotations

from array import array
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import apsw

from erelong.model.ended_leases import NO_LEASES
from erelong.model.history import NO_ATTEMPTS
from erelong.model.job import NOTHING, PLACES, SPEC, UNBEGUN, Job, State, begun, spec_of
from erelong.model.outcome import Error
from erelong.model.spec import JobSpec
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.failures import FailureKind, diagnose
from erelong.stores.sqlite.json_columns import (
    LOST,
    NO_PROGRESS,
    STAND_INS,
    Progress,
    is_readable,
    read_progress,
    read_spec,
    write_progress,
    write_spec,
)
from erelong.stores.sqlite.statements import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from erelong.clock.instants import Instant

ROWS_AT_ONCE = (64, 8, 1)  # few sizes, so that few statements have to stay prepared

Row = tuple[Any, ...]

group_of = itemgetter(PLACES["queue"], PLACES["kind"], PLACES["state"])
queue_and_kind_of = itemgetter(PLACES["queue"], PLACES["kind"])

_OWN, _SPEC, _PROGRESS = SPEC.start, COLUMNS.index("spec"), COLUMNS.index("progress")
_TEXTS = {COLUMNS.index(name): name for name in ("token", "key", "kind", "queue")}
_UNTOUCHED = (None, None, None)  # progress, error and attempts
_NEW = (*_UNTOUCHED, int(State.SCHEDULED), None, None)

_after_spec = itemgetter(slice(SPEC.stop, None))
_progress_of = itemgetter(*[PLACES[name] for name in Progress._fields])
_key_to_params = itemgetter(slice(PLACES["key"], PLACES["params"] + 1))
_NO_KEY_TO_PARAMS = (None, None, None, NOTHING)
_UNTRIED = UNBEGUN[: PLACES["state"] - SPEC.stop]

_STATES = tuple(State)
_STATE_LOST = Error("unreadable", "its stored state cannot be read", retryable=False).to_json()
_REPLACED = "\N{REPLACEMENT CHARACTER}"
_OTHERS = {name: name for name in ("labels", "extras", "result", "error", "attempts")} | {"ended_leases": "progress"}
_others = itemgetter(*map(PLACES.__getitem__, _OTHERS))
_NO_OTHERS = (None, None, None, None, NO_ATTEMPTS, NO_LEASES)


def write_jobs(connection: apsw.Connection, statement: Callable[[int], str], rows: Sequence[Row]) -> None:
    """Write rows with few statements, since each one costs a cache lookup and a release of the interpreter lock."""
    start = 0
    for number in ROWS_AT_ONCE:
        while start + number <= len(rows):
            connection.execute(statement(number), (*chain.from_iterable(rows[start : start + number]),))
            start += number


def listed(seqs: Iterable[int]) -> apsw.CArrayBinding:
    """Bind job numbers as an array. An empty array is not accepted, so 0, which no job has, stands in."""
    return apsw.carray(array("q", seqs) or array("q", [0]))


def select_rows(connection: apsw.Connection, statement: str, seqs: Iterable[int], *arguments: int) -> list[Row]:
    """Select all or the first columns of jobs by number.

    Text that is not valid UTF-8 comes with replacement characters, so that the other rows can be read.
    """
    bound = (listed(seqs), *arguments)
    try:
        return connection.execute(statement, bound).fetchall()
    except UnicodeDecodeError:
        return [_decoded(row) for row in connection.execute(_with_bytes(statement), bound)]


def select_sound_rows(
    connection: apsw.Connection, statement: str, seqs: Sequence[int], note_damage: Callable[[apsw.Error], None]
) -> list[Row]:
    """Select rows as `select_rows` does, without those on damaged pages."""
    try:
        return select_rows(connection, statement, seqs)
    except apsw.Error as error:
        if diagnose(error) is not FailureKind.DAMAGE:
            raise
        if len(seqs) < 2:
            note_damage(error)
            return []
    middle = len(seqs) // 2
    halves = (seqs[:middle], seqs[middle:])
    return [row for half in halves for row in select_sound_rows(connection, statement, half, note_damage)]


def as_rows(jobs: Iterable[Job]) -> list[Row]:
    """Return jobs as rows of column values."""
    rows: list[Row] = []
    last: Row = ()
    rest_of_new: Row = ()
    for job in jobs:
        if (spec := spec_of(job)) != last:
            number = sql.group_number(job.queue, job.kind, State.SCHEDULED)
            last, rest_of_new = spec, (write_spec(spec), *_NEW, job.kind, job.queue, number, None)
        rows.append(job[:_OWN] + (rest_of_new if _after_spec(job) == UNBEGUN else _rest_of(job)))
    return rows


def _rest_of(job: Job) -> Row:
    progress = _progress_of(job)
    attempts = None if job.attempts == NO_ATTEMPTS else job.attempts
    tried = (None if progress == NO_PROGRESS else write_progress(progress), job.error, attempts)
    number = sql.group_number(job.queue, job.kind, job.state)
    last = (job.state, job.started_at, job.finished_at, job.kind, job.queue, number, job.result)
    return (write_spec(spec_of(job)), *tried, *last)


def begin_jobs(rows: Iterable[Row], now: Instant) -> tuple[list[Job], list[tuple[int, str]]]:
    """Start the jobs of claimed rows; return them, and the numbers of unreadable jobs with their flaws."""
    jobs, flawed = [], []
    rests: dict[bytes, Row] = {}  # by spec: the fields from the spec on of a job in its first attempt
    first, last = _UNTRIED + begun(now), (State.RUNNING, now, None, "", "", 0, None)
    for row in rows:
        text = row[_SPEC]
        if (rest := rests.get(text)) is None:
            rest = rests[text] = (read_spec(text) or ()) + first
        if row[_PROGRESS:] == _UNTOUCHED and len(rest) > len(first):
            job = tuple.__new__(Job, row[:_OWN] + rest)
            if _key_to_params(job) == _NO_KEY_TO_PARAMS and job.token.isascii():
                jobs.append(job)
                continue
        else:
            job = take_job(row + last)
        if (flaw := flaw_of(job)) is None:
            jobs.append(job)
        else:
            flawed.append((job.seq, flaw))
    return jobs, flawed


def read_jobs(connection: apsw.Connection, seqs: Iterable[int]) -> dict[int, Job]:
    """Return jobs by number, without unknown ones."""
    return {job.seq: job for job in map(read_job, select_rows(connection, sql.SELECT, seqs))}


def read_job(row: Row) -> Job:
    """Make a job from a row; unreadable parts are replaced by empty ones."""
    job = take_job(row)
    return job if flaw_of(job) is None else mend(job)


def take_job(row: Row) -> Job:
    """Make a job from a row, without checking most of its texts."""
    text, progress, error, attempts, state, started_at, finished_at, kind, queue, _, result = row[_OWN:]
    spec = read_spec(text) or JobSpec(kind, queue, 0, 0.0, LOST, None)
    failures, losses, is_cancelled, is_superseded, is_cut, lease, lease_until, ended_leases = (
        NO_PROGRESS if progress is None else read_progress(progress)
    )
    tried = (error, NO_ATTEMPTS if attempts is None else attempts, failures, losses, ended_leases)
    last = (is_cancelled, is_superseded, started_at, finished_at, result, is_cut, lease, lease_until)
    if 0 <= state < len(_STATES):
        return tuple.__new__(Job, (*row[:_OWN], *spec, *tried, _STATES[state], *last))
    lost = Job._make((*row[:_OWN], *spec, *tried, State.FAILED, *last))
    return lost._replace(due_at=None, error=_STATE_LOST)


def flaw_of(job: Job) -> str | None:
    """Return the column of the first unreadable part of a job, or None."""
    if _REPLACED in job.token:
        return "token"
    if job.key is not None and _REPLACED in job.key:
        return "key"
    if job.params != NOTHING and not is_readable("params", job.params):
        return "params"
    if job.retry == LOST:
        return "spec"
    if (others := _others(job)) == _NO_OTHERS:  # as in nearly every claimed job
        return None
    parts = zip(_OTHERS.items(), others, strict=True)
    return next((column for (name, column), text in parts if not is_readable(name, text)), None)


def mend(job: Job) -> Job:
    """Replace the unreadable parts of a job by empty ones."""
    broken = {name: stand_in for name, stand_in in STAND_INS.items() if not is_readable(name, getattr(job, name))}
    return job._replace(**broken)  # type: ignore[arg-type]  # the table has a fitting value for each name


def _with_bytes(statement: str) -> str:
    """Return the statement with its text columns selected as bytes."""
    columns, _, source = statement.partition("FROM")
    for name in _TEXTS.values():
        columns = columns.replace(f"jobs.{name},", f"CAST(jobs.{name} AS BLOB),")
    return f"{columns}FROM{source}"


def _decoded(row: Row) -> Row:
    return tuple(
        value.decode(errors="replace") if index in _TEXTS and value is not None else value
        for index, value in enumerate(row)
    )
