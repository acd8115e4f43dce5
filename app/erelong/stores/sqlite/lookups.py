"""Finds the holders of keys and the results of earlier submits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import orjson

from erelong.errors import IdempotencyMismatch
from erelong.model.ids import parse_id
from erelong.model.submission import AddResult, AddStatus, Receipt
from erelong.stores.sqlite import statements as sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.model.job import Job
    from erelong.model.submission import IdempotencyRecord
    from erelong.stores.sqlite.claims import ClaimedJobs

MAX_READS = 3


def find_holder(connection: apsw.Connection, running: ClaimedJobs, queue: str, key: str) -> Job | None:
    """Return the live job that holds a key; read again if it ended in between."""
    job: Job | None = None
    for _ in range(MAX_READS):  # bounded, since a job whose state is unreadable never matches
        row = connection.execute(sql.SELECT_HOLDER, (queue, key)).fetchone()
        if row is None:
            return None
        job = running.read(connection, row).get(row[0])
        if job is not None and job.key == key and not job.is_final:
            break
    return job


def find_held_keys(connection: apsw.Connection, jobs: Sequence[Job]) -> set[tuple[str, str]]:
    """Return the keys of these jobs that live ones hold, each with its queue."""
    keys: dict[str, list[str]] = {}
    for job in jobs:
        if job.key is not None:
            keys.setdefault(job.queue, []).append(job.key)
    return {
        (queue, key)
        for queue, named in keys.items()
        for (key,) in connection.execute(sql.SELECT_HELD_KEYS, (queue, apsw.carray(tuple(named))))
    }


def find_replay(
    connection: apsw.Connection, running: ClaimedJobs, record: IdempotencyRecord, now: Instant
) -> Receipt | None:
    """Return the receipt of the add that stored this record; None if there was none."""
    row = connection.execute(sql.SELECT_RECORD, (record.caller, record.key, now)).fetchone()
    if row is None:
        return None
    digest, ids = row
    if digest != record.digest:
        raise IdempotencyMismatch(f"Idempotency-Key {record.key!r} was used for another request; use a new key")
    parsed = [parse_id(id_) or (0, "") for id_ in orjson.loads(ids)]
    jobs = running.read(connection, [seq for seq, _ in parsed])
    current = [job if (job := jobs.get(seq)) and job.token == token else None for seq, token in parsed]
    return Receipt([AddResult(AddStatus.EXISTS, job) if job else None for job in current], replayed=True)
