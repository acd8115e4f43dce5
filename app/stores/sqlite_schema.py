"""What the embedded database looks like: tables, statements, and the way from a row to a job."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import orjson

from app.history import NO_ATTEMPTS
from app.job import NO_LEASES, NOTHING, PLACES, Job, State, read_policy
from app.outcome import Error

if TYPE_CHECKING:
    from collections.abc import Iterable

APPLICATION_ID = 0x65726C67  # "erlg"
SCHEMA_VERSION = 2
CHECKSUM_BYTES = 8  # at the end of each page
BUSY_TIMEOUT = 5_000  # milliseconds

PRAGMAS = f"""
PRAGMA busy_timeout = {BUSY_TIMEOUT};
PRAGMA journal_mode = WAL;
PRAGMA foreign_keys = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA mmap_size = 0;
PRAGMA temp_store = MEMORY;
PRAGMA wal_autocheckpoint = 0;
PRAGMA journal_size_limit = 8388608;
"""

# `due` holds waiting jobs only, `ended` final ones, so that neither pays for the other. `grouped` makes every
# listing a walk along one index. `held` guards that a live key is unique.
SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE jobs (
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    params BLOB NOT NULL,
    key TEXT,
    labels BLOB,
    priority INTEGER NOT NULL,
    timeout REAL NOT NULL,
    retry BLOB NOT NULL,
    execute_at INTEGER NOT NULL,
    expires_after REAL,
    state INTEGER NOT NULL,
    due_at INTEGER,
    expires_at INTEGER,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    late_by REAL,
    result BLOB,
    result_truncated INTEGER NOT NULL,
    error BLOB,
    attempts BLOB NOT NULL,
    lease TEXT,
    lease_until INTEGER,
    ended_leases BLOB NOT NULL,
    version INTEGER NOT NULL,
    token TEXT NOT NULL,
    seq INTEGER PRIMARY KEY
) STRICT;
CREATE INDEX due ON jobs (due_at) WHERE state = 0;
CREATE INDEX expiring ON jobs (expires_at) WHERE state = 0 AND expires_at < due_at;
CREATE INDEX grouped ON jobs (state, queue, kind);
CREATE INDEX ended ON jobs (queue, state, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX keyed ON jobs (key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX held ON jobs (queue, key) WHERE key IS NOT NULL AND state < 2;
CREATE TABLE labels (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (name, value, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE counts (
    queue TEXT NOT NULL,
    kind TEXT NOT NULL,
    state INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    PRIMARY KEY (queue, kind, state)
) STRICT, WITHOUT ROWID;
CREATE TABLE ledger (
    identity TEXT NOT NULL,
    has_checksums INTEGER NOT NULL
) STRICT;
CREATE TABLE overrides (
    queue TEXT PRIMARY KEY,
    settings BLOB,
    paused INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE memos (
    caller TEXT NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    ids BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (caller, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX memoed ON memos (created_at);
"""

_FIELDS = Job._fields
_PLACE = {field: index for index, field in enumerate(_FIELDS, 1)}
_FIXED = {"queue", "key", "created_at", "token", "seq"}

COLUMNS = ", ".join(_FIELDS)
BRIEF_COLUMNS = COLUMNS.replace("params", "x'7B7D'").replace("result,", "NULL,").replace("attempts", "x'5B5D'")

# A job is a tuple in the order of the columns, so it is bound as it is; ?n is its n-th field.
INSERT = f"INSERT INTO jobs ({COLUMNS}) VALUES ({', '.join('?' * len(_FIELDS))})"
UPDATE = f"""
UPDATE jobs SET {", ".join(f"{field} = ?{_PLACE[field]}" for field in _FIELDS if field not in _FIXED)}
WHERE seq = ?{_PLACE["seq"]} AND version = ?{_PLACE["version"]} - 1
"""
# All rows of a list of numbers by one statement, in its order: half the cost of one statement for each.
_LISTED = "FROM carray(?1) AS listed CROSS JOIN jobs ON seq = listed.value"
SELECT = f"SELECT {COLUMNS} {_LISTED}"
SELECT_BRIEF = f"SELECT {BRIEF_COLUMNS} {_LISTED}"
SELECT_HOLDER = "SELECT seq FROM jobs WHERE queue = ? AND key = ? AND state < 2"
SELECT_STANDING = f"SELECT seq, queue, kind, state, labels, token, version {_LISTED}"
SELECT_GLANCE = f"SELECT seq, queue, kind, priority, due_at, expires_at, labels {_LISTED} WHERE state = 0"
SELECT_CLAIMABLE = f"""
SELECT {COLUMNS} {_LISTED} WHERE state = 0 AND due_at <= ?2 AND (expires_at IS NULL OR expires_at > ?2)
"""
# What `Job.start` makes of those that are claimable. Reading first and then writing these few columns by one statement
# costs half of an UPDATE for each row, and less than one that returns the whole rows.
START = """
UPDATE jobs SET state = 1, attempt = attempt + 1, started_at = ?2, late_by = (?2 - due_at) / 1e6, version = version + 1
WHERE seq IN carray(?1)
"""
SELECT_UNCLAIMED = """
SELECT state, due_at FROM jobs WHERE seq = ?1 AND (state = 0 AND due_at > ?2 OR state NOT BETWEEN 0 AND 5)
"""
SELECT_DUE = """
SELECT due_at AS at, seq FROM jobs INDEXED BY due
WHERE state = 0 AND (due_at, seq) > (?1, ?2) AND due_at < ?3
UNION ALL
SELECT expires_at AS at, seq FROM jobs INDEXED BY expiring
WHERE state = 0 AND expires_at < due_at AND (expires_at, seq) > (?1, ?2) AND expires_at < ?3
ORDER BY 1, 2 LIMIT ?4
"""
DELETE = "DELETE FROM jobs WHERE seq = ?"
SELECT_ENDED = """
SELECT seq, kind, labels FROM jobs INDEXED BY ended
WHERE queue = ? AND state = ? AND finished_at < ? AND finished_at IS NOT NULL ORDER BY finished_at, seq LIMIT ?
"""
LAST_SEQ = "SELECT ifnull(max(seq), 0) FROM jobs"

INSERT_LABEL = "INSERT OR IGNORE INTO labels (name, value, seq) VALUES (?, ?, ?)"
DELETE_LABEL = "DELETE FROM labels WHERE name = ? AND value = ? AND seq = ?"

ADD_COUNT = """
INSERT INTO counts (queue, kind, state, jobs) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs
"""
DROP_COUNTS = "DELETE FROM counts WHERE queue = ? AND kind = ?"
SELECT_COUNTS = "SELECT queue, kind, state, jobs FROM counts WHERE queue <> ''"
# Beside the jobs, as no queue has this name: commits, and numbers of jobs that were given. That page is written by
# nearly each commit anyway; one of their own would cost a lone commit 6 µs and a sixth more of log.
COMMITS = ("", "commits", 0)
NUMBERS = ("", "numbers", 0)

INSERT_LEDGER = "INSERT INTO ledger (identity, has_checksums) VALUES (?, ?)"
SELECT_LEDGER = """
SELECT
    identity,
    ifnull((SELECT jobs FROM counts WHERE (queue, kind, state) = ('', 'commits', 0)), 0),
    ifnull((SELECT jobs FROM counts WHERE (queue, kind, state) = ('', 'numbers', 0)), 0),
    has_checksums
FROM ledger
"""
PROVE = "UPDATE counts SET jobs = jobs WHERE queue = ''"

SELECT_OVERRIDES = "SELECT queue, settings, paused FROM overrides"
SET_OVERRIDE = "INSERT OR REPLACE INTO overrides (queue, settings, paused) VALUES (?, ?, ?)"
DROP_OVERRIDE = "DELETE FROM overrides WHERE queue = ?"

SELECT_MEMO = "SELECT digest, ids FROM memos WHERE caller = ? AND key = ? AND created_at > ?"
SET_MEMO = "INSERT OR REPLACE INTO memos (caller, key, digest, ids, created_at) VALUES (?, ?, ?, ?, ?)"
FORGET_MEMOS = """
DELETE FROM memos WHERE (caller, key) IN (
    SELECT caller, key FROM memos WHERE created_at < ? ORDER BY created_at, caller, key LIMIT ?
)
"""

Row = tuple[Any, ...]


class Entry(NamedTuple):
    """What tells one database, and one moment of it, from others."""

    identity: str
    commits: int
    last_seq: int
    has_checksums: int


_STATES = tuple(State)
_STATE, _DUE_AT, _CANCEL_REQUESTED, _RESULT_TRUNCATED, _ERROR = (
    _FIELDS.index(name) for name in ("state", "due_at", "cancel_requested", "result_truncated", "error")
)
_STATE_LOST = Error("unreadable", "its stored state cannot be read", retryable=False).to_json()
_TEXTS = tuple(_FIELDS.index(name) for name in ("kind", "queue", "key", "token"))
_REPLACED = "\N{REPLACEMENT CHARACTER}"

# Stands in for what cannot be read and would change what is run. Clients see an empty object; nothing else writes it
# so, and a claim knows it again: a change saved on top cannot make the job look sound.
_LOST = b" {}"
_JSON_FIELDS: dict[str, tuple[type, bytes | None]] = {
    "params": (object, _LOST),
    "labels": (dict, _LOST),
    "retry": (dict, _LOST),
    "result": (object, None),
    "error": (dict, None),
    "attempts": (list, NO_ATTEMPTS),
    "ended_leases": (list, NO_LEASES),
}
_JSON_PLACES = {
    PLACES[name]: (name, NO_ATTEMPTS if type_ is list else NOTHING) for name, (type_, _) in _JSON_FIELDS.items()
}


def read_ledger(connection: apsw.Connection) -> Entry:
    (row,) = connection.execute(SELECT_LEDGER).fetchall()
    return Entry._make(row)


def listed(seqs: Iterable[int]) -> apsw.CArrayBinding:
    """Numbers as a statement takes them; it does not take none, so none are one that no job has."""
    return apsw.carray(array("q", seqs) or array("q", [0]))


def select_rows(connection: apsw.Connection, statement: str, seqs: Iterable[int], *arguments: int) -> list[Row]:
    """Run a statement that answers with whole rows for a list of numbers.

    A text that is no longer UTF-8 must not keep the rows beside it from being read: it comes with a mark in it.
    """
    bound = (listed(seqs), *arguments)
    try:
        return connection.execute(statement, bound).fetchall()
    except UnicodeDecodeError:
        return [_decoded(row) for row in connection.execute(_with_bytes(statement), bound)]


def read_job(row: Row) -> Job:
    """Make a job of a row; parts that cannot be read come out empty."""
    job = take_job(row)
    return job if flaw(job) is None else mend(job)


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


def flaw(job: Job) -> str | None:
    """Name the first stored part of a job that is not what was written there."""
    if _REPLACED in f"{job.kind}{job.queue}{job.key}{job.token}":
        return next(_FIELDS[index] for index in _TEXTS if _REPLACED in str(job[index]))
    for place, (name, empty) in _JSON_PLACES.items():
        text: Any = job[place]
        if text is not None and text != empty and not _is_readable(name, text):
            return name
    return None


def mend(job: Job) -> Job:
    """Put something empty in the place of what cannot be read."""
    broken = {
        name: stand_in for name, (_, stand_in) in _JSON_FIELDS.items() if not _is_readable(name, getattr(job, name))
    }
    return job._replace(**broken)  # type: ignore[arg-type]  # the table above has a fitting value for each name


def sound_labels(labels: bytes | None) -> bytes | None:
    return labels if labels is None or _is_readable("labels", labels) else None


def read_labels(labels: bytes | None) -> dict[str, str]:
    return orjson.loads(labels) if labels and _is_readable("labels", labels) else {}


def _is_readable(name: str, text: bytes | None) -> bool:
    type_, _ = _JSON_FIELDS[name]
    if text is None:
        return True
    if text == _LOST:
        return False
    try:
        if name == "retry":
            read_policy(text)
            return True
        return isinstance(orjson.loads(text), type_)
    except ValueError:
        return False


def _with_bytes(statement: str) -> str:
    """Let a statement that answers with all columns answer with bytes for its texts."""
    names = {_FIELDS[index] for index in _TEXTS}
    for columns in (COLUMNS, BRIEF_COLUMNS):
        raw = ", ".join(f"CAST({name} AS BLOB)" if name in names else name for name in columns.split(", "))
        statement = statement.replace(columns, raw)
    return statement


def _decoded(row: Row) -> Row:
    return tuple(
        value.decode(errors="replace") if index in _TEXTS and value is not None else value
        for index, value in enumerate(row)
    )
