"""The schema of the embedded database and every SQL statement."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from erelong.model.query import PREVIEW
from erelong.stores.rows import COLUMNS, SUCCEEDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

APPLICATION_ID = 0x45524C4F  # "ERLO"
VIRTUAL_ID = 0x45524C56  # "ERLV": made under a virtual clock
OURS = frozenset({APPLICATION_ID, VIRTUAL_ID})
SCHEMA_VERSION = 1
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

# `due` holds only waiting jobs and `ended` only final ones, which keeps both small. `grouped` makes every listing a
# walk along one index. It uses the number of a group, since each step of a job changes the index and comparing names
# would take a tenth of that step. `held` keeps live keys unique. Large columns come last in a row: to reach a column
# behind them, SQLite reads all their pages.
SCHEMA = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE jobs (
    seq INTEGER PRIMARY KEY,
    token TEXT NOT NULL,
    state INTEGER NOT NULL,
    due_at INTEGER,
    expires_at INTEGER,
    kind TEXT NOT NULL,
    queue TEXT NOT NULL,
    group_number INTEGER NOT NULL,
    version INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    execute_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    late_by REAL,
    key TEXT,
    spec BLOB NOT NULL,
    labels BLOB,
    progress BLOB,
    error BLOB,
    extras BLOB,
    params BLOB NOT NULL,
    attempts BLOB,
    result BLOB
) STRICT;
CREATE INDEX due ON jobs (due_at) WHERE state = 0;
CREATE INDEX expiring ON jobs (expires_at) WHERE state = 0 AND expires_at < due_at;
CREATE INDEX grouped ON jobs (group_number);
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
    pause BLOB
) STRICT, WITHOUT ROWID;
CREATE TABLE idempotency_records (
    caller TEXT NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL,
    ids BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (caller, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX expiring_records ON idempotency_records (expires_at);
CREATE TABLE documents (
    sort TEXT NOT NULL,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    changed_at INTEGER NOT NULL,
    text BLOB NOT NULL,
    UNIQUE (sort, name)
) STRICT;
"""

# Running jobs whose rows are still `scheduled` (see `ClaimedJobs`), for the statements of a listing.
CLAIMS = "CREATE TEMP TABLE claims (seq INTEGER PRIMARY KEY) STRICT"
SET_CLAIMS = "INSERT INTO claims (seq) SELECT value FROM carray(?1)"

_FIXED = {"queue", "key", "created_at", "token", "seq"}

UNCLAIMED = "seq NOT IN (SELECT seq FROM claims)"
STATE = f"iif({UNCLAIMED}, state, 1)"


def _columns(columns: Sequence[str] = COLUMNS, **others: str) -> str:
    """Return the columns of a job; `others` gives expressions for some of them."""
    return ", ".join(others.get(name, f"jobs.{name}") for name in columns)


_BRIEF_COLUMNS = _columns(params="x'7B7D'", result="NULL", attempts="NULL")
# The changes of `Job.start` in SQL; from `state` on, `job.begun` gives the fields.
_STARTED_COLUMNS = _columns(
    COLUMNS[: COLUMNS.index("state")], attempt="attempt + 1", late_by="(?2 - due_at) / 1e6", version="version + 1"
)

# One statement reads all rows of a list, in its order, at half the cost of a statement per row.
LISTED = "FROM carray(?1) AS listed CROSS JOIN jobs ON jobs.seq = listed.value"
SELECT = f"SELECT {_columns()} {LISTED}"
SELECT_BRIEF = f"SELECT {_BRIEF_COLUMNS} {LISTED}"
SELECT_LINE = f"SELECT {_BRIEF_COLUMNS}, substr(jobs.params, 1, {PREVIEW}) {LISTED}"
SELECT_HELD_KEYS = """
SELECT key FROM jobs INDEXED BY held
WHERE queue = ?1 AND key IN (SELECT value FROM carray(?2)) AND key IS NOT NULL AND state < 2
"""
SELECT_HOLDER = "SELECT seq FROM jobs WHERE queue = ? AND key = ? AND state < 2"
SELECT_STORED = f"SELECT seq, queue, kind, state, labels, token, version {LISTED}"
SELECT_PEEK = f"SELECT seq, due_at, expires_at, labels, spec {LISTED} WHERE state = 0"
SELECT_WAITING = f"SELECT json_group_array(json_array(seq, version)) {LISTED} WHERE state = 0"
SELECT_CLAIMABLE = f"""
SELECT {_STARTED_COLUMNS} {LISTED}
WHERE state = 0 AND due_at <= ?2 AND (expires_at IS NULL OR expires_at > ?2)
"""
SELECT_UNCLAIMED = """
SELECT state, due_at FROM jobs WHERE seq = ?1 AND (state = 0 AND due_at > ?2 OR state NOT BETWEEN 0 AND 5)
"""
# The parts for expiries need not leave out claimed jobs, which are due before they expire.
# Jobs at the last instant of the previous page are a part of their own: with `(due_at, seq) > (?1, ?2)` SQLite would
# walk over all of them again, even a million.
SELECT_DUE = f"""
SELECT due_at AS at, seq FROM jobs INDEXED BY due
WHERE state = 0 AND due_at = ?1 AND seq > ?2 AND due_at < ?3 AND {UNCLAIMED}
UNION ALL
SELECT due_at AS at, seq FROM jobs INDEXED BY due
WHERE state = 0 AND due_at > ?1 AND due_at < ?3 AND {UNCLAIMED}
UNION ALL
SELECT expires_at AS at, seq FROM jobs INDEXED BY expiring
WHERE state = 0 AND expires_at < due_at AND expires_at = ?1 AND seq > ?2 AND expires_at < ?3
UNION ALL
SELECT expires_at AS at, seq FROM jobs INDEXED BY expiring
WHERE state = 0 AND expires_at < due_at AND expires_at > ?1 AND expires_at < ?3
ORDER BY 1, 2 LIMIT ?4
"""
FREE_KEY = "UPDATE jobs SET key = NULL WHERE seq = ?"
DELETE = "DELETE FROM jobs WHERE seq = ?"
SELECT_ENDED = """
SELECT finished_at, seq FROM jobs INDEXED BY ended
WHERE queue = ? AND state = ? AND (finished_at, seq) > (?, ?) AND finished_at < ? AND finished_at IS NOT NULL
ORDER BY finished_at, seq LIMIT ?
"""
SELECT_PURGEABLE = f"SELECT seq, queue, kind, state, labels {LISTED} WHERE finished_at < ?2"
LAST_SEQ = "SELECT ifnull(max(seq), 0) FROM jobs"

# A step of the recursion skips all jobs with the same value.
SELECT_LABEL_VALUES = """
WITH RECURSIVE found (value) AS (
    SELECT min(value) FROM labels WHERE name = ?1
    UNION ALL
    SELECT (SELECT min(value) FROM labels WHERE name = ?1 AND labels.value > found.value)
    FROM found WHERE value IS NOT NULL
)
SELECT value FROM found WHERE value IS NOT NULL
"""
DELETE_LABEL = "DELETE FROM labels WHERE name = ? AND value = ? AND seq = ?"

ADD_COUNT = """
INSERT INTO counts (queue, kind, state, jobs) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET jobs = jobs + excluded.jobs
"""
DROP_COUNTS = "DELETE FROM counts WHERE queue = ? AND kind = ?"
SELECT_COUNTS = "SELECT queue, kind, state, jobs FROM counts WHERE queue <> ''"
# Commits and assigned job numbers are counted under an empty queue name, which no queue has. Nearly every commit writes
# that page anyway; a page of their own would make a single commit slower.
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

SELECT_OVERRIDES = "SELECT queue, settings, pause FROM overrides"
SET_OVERRIDE = "INSERT OR REPLACE INTO overrides (queue, settings, pause) VALUES (?, ?, ?)"
DROP_OVERRIDE = "DELETE FROM overrides WHERE queue = ?"

SELECT_RECORD = "SELECT digest, ids FROM idempotency_records WHERE caller = ? AND key = ? AND expires_at > ?"
SET_RECORD = "INSERT OR REPLACE INTO idempotency_records (caller, key, digest, ids, expires_at) VALUES (?, ?, ?, ?, ?)"
FORGET_RECORDS = """
DELETE FROM idempotency_records WHERE (caller, key) IN (
    SELECT caller, key FROM idempotency_records WHERE expires_at <= ? ORDER BY expires_at, caller, key LIMIT ?
)
"""

SELECT_DOCUMENT = "SELECT sort, name, version, changed_at, text FROM documents WHERE sort = ? AND name = ?"
SELECT_DOCUMENTS = """
SELECT sort, name, version, changed_at, text FROM documents WHERE sort = ? AND name > ? ORDER BY name LIMIT ?
"""
SELECT_NAMED_DOCUMENTS = """
SELECT sort, name, version, changed_at, text FROM json_each(?) AS wanted CROSS JOIN documents
ON documents.sort = ? AND documents.name = wanted.value
"""
SELECT_DOCUMENT_VERSIONS = """
SELECT name, version FROM json_each(?) AS wanted CROSS JOIN documents
ON documents.sort = ? AND documents.name = wanted.value
"""
SET_DOCUMENT = """
INSERT INTO documents (sort, name, version, changed_at, text) VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET version = excluded.version, changed_at = excluded.changed_at, text = excluded.text
"""
DROP_DOCUMENT = "DELETE FROM documents WHERE sort = ? AND name = ?"


class Entry(NamedTuple):
    """The ledger: the identity of a database and its counts of commits and job numbers."""

    identity: str
    commits: int
    last_seq: int
    has_checksums: int


def read_ledger(connection: apsw.Connection) -> Entry:
    (row,) = connection.execute(SELECT_LEDGER).fetchall()
    return Entry._make(row)


@cache
def insert(rows: int) -> str:
    """Return the statement that adds this many jobs; their columns are bound one after another."""
    return f"INSERT INTO jobs ({', '.join(COLUMNS)}) VALUES {_values(rows)}"


@cache
def insert_labels(rows: int) -> str:
    """Return the statement that adds this many labels. Bound for each: its name, value and the number of its job."""
    return f"INSERT OR IGNORE INTO labels (name, value, seq) VALUES {_values(rows, 3)}"


@cache
def update(rows: int) -> str:
    """Return the statement that overwrites the rows of this many jobs; bound as for `insert`."""
    changed = [(name, number) for number, name in enumerate(COLUMNS, 1) if name not in _FIXED]
    if rows == 1:
        sets = ", ".join(f"{name} = ?{number}" for name, number in changed)
        return f"UPDATE jobs SET {sets} WHERE seq = ?1"
    sets = ", ".join(f"{name} = fresh.column{number}" for name, number in changed)
    return f"UPDATE jobs SET {sets} FROM (VALUES {_values(rows)}) AS fresh WHERE seq = fresh.column1"


@cache
def succeed(rows: int) -> str:
    """Return the statement that ends this many unchanged claimed jobs as succeeded.

    Bound for each: its number, start time, end time and result.
    """
    return f"""
    UPDATE jobs SET
        state = 2, group_number = group_number + {SUCCEEDS}, due_at = NULL, attempt = attempt + 1,
        started_at = fresh.column2, finished_at = fresh.column3, late_by = (fresh.column2 - due_at) / 1e6,
        result = fresh.column4, version = version + 2
    FROM (VALUES {_values(rows, 4)}) AS fresh WHERE jobs.seq = fresh.column1
    """


def _values(rows: int, columns: int = len(COLUMNS)) -> str:
    return ", ".join([f"({', '.join('?' * columns)})"] * rows)
