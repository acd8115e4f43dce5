"""The schema of the PostgreSQL store and every SQL statement but those of listings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from erelong.model.job import State
from erelong.model.query import PREVIEW
from erelong.stores.rows import COLUMNS, SUCCEEDS

if TYPE_CHECKING:
    from collections.abc import Sequence

SCHEMA_VERSION = 1
PROTOCOL = 1
SLICE = 0
"""The part of the jobs that one leader writes. There is one; the tables are ready for more."""

TYPES = {
    "seq": "bigint",
    "token": "text",
    "created_at": "bigint",
    "execute_at": "bigint",
    "key": "text",
    "labels": "bytea",
    "extras": "bytea",
    "params": "bytea",
    "due_at": "bigint",
    "expires_at": "bigint",
    "attempt": "int",
    "version": "int",
    "late_by": "float8",
    "spec": "bytea",
    "progress": "bytea",
    "error": "bytea",
    "attempts": "bytea",
    "state": "int",
    "started_at": "bigint",
    "finished_at": "bigint",
    "kind": "text",
    "queue": "text",
    "group_number": "bigint",
    "result": "bytea",
}

# JSON is stored as bytes, which PostgreSQL returns unchanged, and which may contain \\u0000. Text is compared byte by
# byte, as Python does. `fences` is locked by every write and changed only by a new epoch; `terms` is renewed twice a
# second, so it is a table of its own. Claims and tallies are logs in two halves: rows are only added, and a half is
# emptied at once, so no dead rows collect while an old snapshot holds VACUUM back.
# Conditions that always hold, such as `state >= 0`, hide an index from statements that do not repeat them. While a
# table is empty, the planner would use any index that has the column, and keep that plan when the table has grown.
SCHEMA = """
CREATE TABLE meta (
    one bool PRIMARY KEY DEFAULT true CHECK (one),
    identity text NOT NULL,
    schema_version int NOT NULL,
    is_virtual bool NOT NULL,
    claims_half int NOT NULL DEFAULT 0,
    tallies_half int NOT NULL DEFAULT 0,
    folded bigint NOT NULL DEFAULT 0
);
CREATE TABLE fences (slice int PRIMARY KEY, epoch bigint NOT NULL);
CREATE TABLE terms (
    slice int PRIMARY KEY,
    node text COLLATE "C",
    address text,
    token bytea,
    until timestamptz NOT NULL,
    locked bool NOT NULL,
    floor bigint NOT NULL,
    next_seq bigint NOT NULL,
    protocol int NOT NULL
);
CREATE TABLE jobs (
    seq bigint PRIMARY KEY,
    created_at bigint NOT NULL,
    execute_at bigint NOT NULL,
    due_at bigint,
    expires_at bigint,
    started_at bigint,
    finished_at bigint,
    late_by float8,
    group_number bigint NOT NULL,
    version int NOT NULL,
    attempt int NOT NULL,
    state int NOT NULL CHECK (state BETWEEN 0 AND 5),
    token text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    key text COLLATE "C",
    spec bytea NOT NULL,
    labels bytea,
    progress bytea,
    error bytea,
    extras bytea,
    params bytea NOT NULL,
    attempts bytea,
    result bytea
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX due ON jobs (due_at, seq) WHERE state = 0;
CREATE INDEX expiring ON jobs (expires_at, seq) WHERE state = 0 AND expires_at < due_at;
CREATE INDEX grouped ON jobs (group_number, seq) WHERE state >= 0;
CREATE INDEX ended ON jobs (queue, state, finished_at, seq) WHERE finished_at IS NOT NULL;
CREATE INDEX keyed ON jobs (key, seq) WHERE key IS NOT NULL AND state >= 0;
CREATE UNIQUE INDEX held ON jobs (queue, key) WHERE key IS NOT NULL AND state < 2;
CREATE TABLE labels (
    name text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    PRIMARY KEY (name, value, seq)
);
CREATE TABLE claims_0 (seq bigint NOT NULL, version int NOT NULL, started_at bigint NOT NULL, node text NOT NULL);
CREATE TABLE claims_1 (LIKE claims_0 INCLUDING ALL);
CREATE INDEX claims_0_seq ON claims_0 (seq);
CREATE INDEX claims_1_seq ON claims_1 (seq);
CREATE TABLE tallies_0 (
    receipt bigint NOT NULL,
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    state int NOT NULL,
    jobs bigint NOT NULL
);
CREATE TABLE tallies_1 (LIKE tallies_0 INCLUDING ALL);
CREATE TABLE counts (
    queue text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    state int NOT NULL,
    jobs bigint NOT NULL,
    PRIMARY KEY (queue, kind, state)
);
CREATE TABLE overrides (queue text COLLATE "C" PRIMARY KEY, settings bytea, pause bytea);
CREATE TABLE idempotency_records (
    caller text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    ids bytea NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (caller, key)
);
CREATE INDEX expiring_records ON idempotency_records (expires_at, caller, key) WHERE expires_at > 0;
CREATE TABLE documents (
    sort text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    version int NOT NULL,
    changed_at bigint NOT NULL,
    text bytea NOT NULL,
    PRIMARY KEY (sort, name)
);
"""

SET_META = "INSERT INTO meta (identity, schema_version, is_virtual) VALUES (%s, %s, %s)"
SET_FENCE = "INSERT INTO fences (slice, epoch) VALUES (0, 0)"
SET_TERM = """
INSERT INTO terms (slice, until, locked, floor, next_seq, protocol) VALUES (0, clock_timestamp(), false, 0, 1, %s)
"""
SELECT_META = "SELECT identity, schema_version, is_virtual, claims_half, tallies_half, folded FROM meta"

# The fence of a statement and of a transaction. The lock waits for a new epoch that is being written, and then reads
# it. The second form fails if the epoch is over, and the rest of its transaction with it.
FENCED = "fence AS MATERIALIZED (SELECT 1 FROM fences WHERE slice = 0 AND epoch = %s FOR SHARE)"
FENCE = "SELECT 1 / count(*) FROM (SELECT 1 FROM fences WHERE slice = 0 AND epoch = %s FOR SHARE) AS fence"
FENCE_REFUSED = "22012"  # division by zero
# Locks the fence first, in a statement of its own: a statement that waits for a lock would still see whose the term was
# before the wait.
LOCK_FENCE = "SELECT FROM fences WHERE slice = 0 FOR UPDATE"
NEW_EPOCH = """
UPDATE fences SET epoch = epoch + 1
WHERE slice = 0 AND EXISTS (SELECT FROM terms WHERE terms.slice = 0 AND terms.node = %s)
RETURNING epoch
"""
TAKE_NUMBERS = """
UPDATE terms SET next_seq = next_seq + %s WHERE slice = 0 AND node = %s RETURNING next_seq
"""
RETURN_NUMBERS = "UPDATE terms SET next_seq = %s WHERE slice = 0 AND node = %s AND next_seq = %s"
IS_DONE = """
SELECT folded >= %s OR EXISTS (SELECT FROM tallies_0 WHERE receipt = %s)
    OR EXISTS (SELECT FROM tallies_1 WHERE receipt = %s)
FROM meta
"""


def columns(names: Sequence[str] = COLUMNS, **others: str) -> str:
    """Return columns of a job; `others` gives expressions for some of them."""
    return ", ".join(others.get(name, f"jobs.{name}") for name in names)


def unnest(types: dict[str, str], alias: str = "fresh") -> str:
    """Return the rows of arrays, one for each of these columns."""
    arrays = ", ".join([f"%s::{type}[]" for type in types.values()])
    return f"unnest({arrays}) AS {alias} ({', '.join(types)})"


# A statement that finds rows by number must offer the planner no other index: a bare `state` or `due_at` beside
# `seq` makes it walk a partial index for each row, a hundred times slower. Hence `state + 0`.
_CLAIMS = """(
    SELECT claims_0.started_at FROM claims_0 WHERE claims_0.seq = jobs.seq AND claims_0.version = jobs.version + 1
    UNION ALL
    SELECT claims_1.started_at FROM claims_1 WHERE claims_1.seq = jobs.seq AND claims_1.version = jobs.version + 1
    LIMIT 1
)"""
STARTED_AT = f"CASE WHEN jobs.state + 0 = 0 THEN {_CLAIMS} END"
"""When a job that is claimed started. It runs, though its row still says that it waits."""
IS_CLAIMED = f"EXISTS {_CLAIMS}"

# A plan made while the table is small must not walk over it later. `LIMIT` leaves the planner no other order of the
# join: for each number or claim, one row. All valid claims are in the current half.
OF_CLAIMS = """(
    SELECT * FROM claims_0 WHERE (SELECT claims_half FROM meta) = 0
    UNION ALL
    SELECT * FROM claims_1 WHERE (SELECT claims_half FROM meta) = 1
) AS claims CROSS JOIN LATERAL (
    SELECT * FROM jobs WHERE seq = claims.seq AND version + 1 = claims.version AND state + 0 = 0 LIMIT 1
) AS jobs"""
LISTED = f"""
FROM {unnest({"seq": "bigint"}, "listed")} CROSS JOIN LATERAL (
    SELECT * FROM jobs WHERE seq = listed.seq LIMIT 1
) AS jobs"""
SELECT = f"SELECT {columns()}, {STARTED_AT} {LISTED}"
SELECT_BRIEF = f"SELECT {columns(params=repr('{}') + '::bytea', result='NULL', attempts='NULL')}, {STARTED_AT} {LISTED}"
SELECT_LINE = (
    f"SELECT {columns(params=repr('{}') + '::bytea', result='NULL', attempts='NULL')}, {STARTED_AT}, "
    f"substring(jobs.params FROM 1 FOR {PREVIEW}) {LISTED}"
)
SELECT_STORED = f"SELECT {columns()} {LISTED}"
# The changes of `Job.start` in SQL; from `state` on, `job.begun` gives the fields.
_STARTED = {"attempt": "attempt + 1", "version": "version + 1", "late_by": "(%s - due_at)::float8 / 1e6::float8"}
SELECT_CLAIMABLE = f"""
SELECT {columns(COLUMNS[: COLUMNS.index("state")], **_STARTED)} {LISTED}
WHERE jobs.state + 0 = 0 AND jobs.due_at + 0 <= %s AND (jobs.expires_at IS NULL OR jobs.expires_at + 0 > %s)
"""
SELECT_PEEK = f"""
SELECT jobs.seq, jobs.due_at, jobs.expires_at, jobs.labels, jobs.spec {LISTED}
WHERE jobs.state + 0 = 0 AND NOT {IS_CLAIMED}
"""
_NAMED = f"FROM {unnest({'queue': 'text', 'key': 'text'}, 'named')}"
_OF_HOLDER = """
CROSS JOIN LATERAL (SELECT * FROM jobs WHERE queue = named.queue AND key = named.key AND state < 2 LIMIT 1) AS jobs"""
SELECT_HOLDERS = f"SELECT {columns()} {_NAMED} {_OF_HOLDER}"
SELECT_HOLDER = f"SELECT {columns()}, {STARTED_AT} {_NAMED} {_OF_HOLDER}"
SELECT_RUNNING = f"SELECT {columns()}, claims.started_at FROM {OF_CLAIMS}"

INSERT_JOBS = f"INSERT INTO jobs ({', '.join(COLUMNS)}) SELECT fresh.* FROM {{fence}}{unnest(TYPES)}"
_FIXED = {"queue", "created_at", "token", "seq"}
_SETS = ", ".join([f"{name} = fresh.{name}" for name in COLUMNS if name not in _FIXED])
UPDATE_JOBS = f"""
UPDATE jobs SET {_SETS} FROM {unnest({**TYPES, "was": "int"})} WHERE jobs.seq = fresh.seq AND jobs.version = fresh.was
"""
SUCCEED_JOBS = f"""
UPDATE jobs SET
    state = {State.SUCCEEDED.value}, group_number = group_number + {SUCCEEDS}, due_at = NULL, attempt = attempt + 1,
    started_at = fresh.started_at, finished_at = fresh.finished_at, result = fresh.result, version = version + 2,
    late_by = (fresh.started_at - jobs.due_at)::float8 / 1e6::float8
FROM {{fence}}{
    unnest({"seq": "bigint", "was": "int", "started_at": "bigint", "finished_at": "bigint", "result": "bytea"})
}
WHERE jobs.seq = fresh.seq AND jobs.version = fresh.was AND jobs.state + 0 = 0
"""
DELETE_JOBS = "DELETE FROM jobs WHERE seq = ANY(%s::bigint[])"
_LABELS = unnest({"name": "text", "value": "text", "seq": "bigint"})
INSERT_LABELS = f"INSERT INTO labels SELECT fresh.* FROM {{fence}}{_LABELS} ON CONFLICT DO NOTHING"
DELETE_LABELS = f"""
DELETE FROM labels USING {_LABELS}
WHERE labels.name = fresh.name AND labels.value = fresh.value AND labels.seq = fresh.seq
"""
INSERT_CLAIMS = f"""
INSERT INTO {{half}} SELECT fresh.*, %s FROM {{fence}}{unnest({"seq": "bigint", "version": "int", "at": "bigint"})}
"""
INSERT_TALLIES = f"""
INSERT INTO {{half}} (receipt, queue, kind, state, jobs)
SELECT %s, fresh.* FROM {{fence}}{unnest({"queue": "text", "kind": "text", "state": "int", "jobs": "bigint"})}
"""
FOLD_TALLIES = """
INSERT INTO counts (queue, kind, state, jobs)
SELECT queue, kind, state, sum(jobs) FROM {half} WHERE queue <> '' GROUP BY queue, kind, state HAVING sum(jobs) <> 0
ON CONFLICT (queue, kind, state) DO UPDATE SET jobs = counts.jobs + excluded.jobs
"""
DROP_EMPTY_COUNTS = "DELETE FROM counts WHERE jobs = 0"
NOTE_FOLD = "UPDATE meta SET tallies_half = %s, folded = %s"
NOTE_CLAIMS_HALF = "UPDATE meta SET claims_half = %s"
SELECT_COUNTS = """
SELECT queue, kind, state, sum(jobs)::bigint FROM (
    SELECT queue, kind, state, jobs FROM counts
    UNION ALL
    SELECT queue, kind, state, jobs FROM tallies_0 WHERE (SELECT tallies_half FROM meta) = 0
    UNION ALL
    SELECT queue, kind, state, jobs FROM tallies_1 WHERE (SELECT tallies_half FROM meta) = 1
) AS entries WHERE queue <> '' GROUP BY queue, kind, state
"""
COUNT_CLAIMS = "SELECT count(*) FROM {half}"

SELECT_OVERRIDES = "SELECT queue, settings, pause FROM overrides"
SET_OVERRIDES = f"""
INSERT INTO overrides SELECT * FROM {unnest({"queue": "text", "settings": "bytea", "pause": "bytea"})}
ON CONFLICT (queue) DO UPDATE SET settings = excluded.settings, pause = excluded.pause
"""
DROP_OVERRIDES = "DELETE FROM overrides WHERE queue = ANY(%s::text[])"

_RECORD = {"caller": "text", "key": "text", "digest": "bytea", "ids": "bytea", "expires_at": "bigint"}
_RECORD_NAMES = {"caller": "text", "key": "text"}
SELECT_RECORDS = f"""
SELECT records.caller, records.key, digest, ids, expires_at FROM {unnest(_RECORD_NAMES, "named")}
JOIN idempotency_records AS records ON records.caller = named.caller AND records.key = named.key
"""
SET_RECORDS = f"""
INSERT INTO idempotency_records (caller, key, digest, ids, expires_at) SELECT * FROM {unnest(_RECORD)}
ON CONFLICT (caller, key) DO UPDATE SET digest = excluded.digest, ids = excluded.ids, expires_at = excluded.expires_at
"""
SELECT_EXPIRED_RECORDS = """
SELECT caller, key FROM idempotency_records WHERE expires_at > 0 AND expires_at <= %s
ORDER BY expires_at, caller, key LIMIT %s
"""
DROP_RECORDS = f"""
DELETE FROM idempotency_records AS records USING {unnest(_RECORD_NAMES, "named")}
WHERE records.caller = named.caller AND records.key = named.key
"""

_DOCUMENT = {"sort": "text", "name": "text", "version": "int", "changed_at": "bigint", "text": "bytea"}
_DOCUMENT_NAMES = {"sort": "text", "name": "text"}
SELECT_NAMED_DOCUMENTS = f"""
SELECT documents.sort, documents.name, version, changed_at, text FROM {unnest(_DOCUMENT_NAMES, "named")}
JOIN documents ON documents.sort = named.sort AND documents.name = named.name
"""
SELECT_DOCUMENTS = """
SELECT sort, name, version, changed_at, text FROM documents WHERE sort = %s AND name > %s ORDER BY name LIMIT %s
"""
SET_DOCUMENTS = f"""
INSERT INTO documents (sort, name, version, changed_at, text) SELECT * FROM {unnest(_DOCUMENT)}
ON CONFLICT (sort, name) DO UPDATE SET
    version = excluded.version, changed_at = excluded.changed_at, text = excluded.text
"""
DROP_DOCUMENTS = f"""
DELETE FROM documents USING {unnest(_DOCUMENT_NAMES, "named")}
WHERE documents.sort = named.sort AND documents.name = named.name
"""
