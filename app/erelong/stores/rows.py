"""Conversion between jobs and the rows that databases store: their columns, and the number of a group."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from erelong.model.ended_leases import NO_LEASES
from erelong.model.history import NO_ATTEMPTS
from erelong.model.job import NOTHING, PLACES, SPEC, UNBEGUN, Job, State, begun, spec_of
from erelong.model.outcome import Error
from erelong.model.runs import counted
from erelong.model.spec import JobSpec
from erelong.stores.json_columns import (
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

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterable

    from erelong.clock.instants import Instant
    from erelong.stores.base import Group

Row = tuple[Any, ...]

# The columns that are bound and selected: the first fields of a job in their order, then those that are made here.
OWN = Job._fields[: SPEC.start]
COLUMNS = (
    *OWN,
    "spec",
    "progress",
    "error",
    "attempts",
    "state",
    "started_at",
    "finished_at",
    "kind",
    "queue",
    "group_number",
    "result",
)

NUMBERS_OF_A_STATE = 1 << 56
SUCCEEDS = (State.SUCCEEDED - State.SCHEDULED) * NUMBERS_OF_A_STATE

group_of = itemgetter(PLACES["queue"], PLACES["kind"], PLACES["state"])
queue_and_kind_of = itemgetter(PLACES["queue"], PLACES["kind"])

_OWN, _SPEC, _PROGRESS = SPEC.start, COLUMNS.index("spec"), COLUMNS.index("progress")
TEXTS = {COLUMNS.index(name): name for name in ("token", "key", "kind", "queue")}
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


@lru_cache(maxsize=4_096)
def group_number(queue: str, kind: str, state: int) -> int:
    """Return the index number of a group. Groups may share a number, so a query also compares their names."""
    names = blake2b(f"{queue}\n{kind}".encode(), digest_size=7).digest()
    return state * NUMBERS_OF_A_STATE + int.from_bytes(names, "big")


def as_rows(jobs: Iterable[Job]) -> list[Row]:
    """Return jobs as rows of column values."""
    rows: list[Row] = []
    last: Row = ()
    rest_of_new: Row = ()
    for job in jobs:
        if (spec := spec_of(job)) != last:
            number = group_number(job.queue, job.kind, State.SCHEDULED)
            last, rest_of_new = spec, (write_spec(spec), *_NEW, job.kind, job.queue, number, None)
        rows.append(job[:_OWN] + (rest_of_new if _after_spec(job) == UNBEGUN else _rest_of(job)))
    return rows


def _rest_of(job: Job) -> Row:
    progress = _progress_of(job)
    attempts = None if job.attempts == NO_ATTEMPTS else job.attempts
    tried = (None if progress == NO_PROGRESS else write_progress(progress), job.error, attempts)
    number = group_number(job.queue, job.kind, job.state)
    last = (job.state, job.started_at, job.finished_at, job.kind, job.queue, number, job.result)
    return (write_spec(spec_of(job)), *tried, *last)


def move(counts: Counter[Group], jobs: Iterable[Job], old: State, new: State) -> None:
    """Move jobs from one state to another in the counts."""
    for (queue, kind), number in counted(map(queue_and_kind_of, jobs)).items():
        counts[queue, kind, old] -= number
        counts[queue, kind, new] += number


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
