"""Damaged rows of the embedded store: their jobs are failed and logged, and all other jobs run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import apsw
import orjson
import pytest

from erelong.model.conflict import OnConflict
from erelong.model.job import SECOND, Job, State
from erelong.model.outcome import End, Outcome
from erelong.model.query import Query
from erelong.stores.base import Ending, peek_at
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import (
    ALL,
    NOW,
    count_both,
    make_ended,
    make_job,
    make_new_job,
    make_running,
    purge,
    put,
    put_one,
)

pytestmark = pytest.mark.real_loop

DAMAGES: dict[str, Any] = {
    "params": b'{"a":',
    "labels": b'{"a":"b"',
    "spec": b'{"kind":"echo","queue":"default","timeout":60.0,"retry":{"max_attempts":"all"}}',
    "extras": b"[1]",
    "result": b"\xff",
    "error": b"[]",
    "attempts": b"{}",
    "progress": b"[0]",
}
TEXTS = ["kind", "queue", "key", "token"]
WHAT_RUNS = ["params", "labels", "extras", "spec"]
FIELDS = {"spec": {"priority", "timeout", "retry", "expires_after"}, "progress": {"ended_leases"}}
"""The fields lost with a damaged column, where they do not have its name."""


@pytest.fixture(params=[*DAMAGES, *TEXTS])
def field(request: pytest.FixtureRequest) -> str:
    """Return each stored part that can be damaged."""
    return str(request.param)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("attempts", b"[1]"),
        ("error", b'{"a":1}'),
        ("progress", b'{"ended_leases":["a"]}'),
        ("progress", b'{"ended_leases":[[1]]}'),
        ("progress", b"0"),
        ("progress", b'{"failures":"0"}'),
        ("progress", b'{"lease":"token"}'),
        ("spec", b"[]"),
        ("spec", b"{}"),
        ("spec", b'{"kind":"echo","queue":"default","timeout":"60","retry":{}}'),
        ("spec", b'{"kind":"echo","queue":"default","priority":0.5,"timeout":60.0,"retry":{}}'),
        ("spec", b'{"kind":"echo","queue":7,"timeout":60.0,"retry":{}}'),
        ("spec", b'{"kind":"echo","queue":"default","timeout":60.0,"retry":null}'),
        ("spec", b'{"kind":"echo","queue":"default","timeout":60.0}'),
    ],
)
async def test_job_with_json_of_another_shape_is_failed_when_due(
    sqlite: SqliteStore, tmp_path: Path, field: str, text: bytes
) -> None:
    job = await put_one(sqlite)
    execute(tmp_path, f"UPDATE jobs SET {field} = ? WHERE seq = ?", text, job.seq)

    claim = await sqlite.claim([job.seq], now=NOW)

    assert [(unreadable.seq, unreadable.state) for unreadable in claim.unreadable] == [(job.seq, State.FAILED)]


@pytest.mark.parametrize("field", sorted({*DAMAGES, *TEXTS} - {"result", "kind", "queue"}))
async def test_damaged_job_is_failed_when_due_and_the_others_run(
    sqlite: SqliteStore, tmp_path: Path, field: str
) -> None:
    before, damaged, after = await put(sqlite, *(make_job(key=key, labels={"a": "b"}) for key in ("1", "2", "3")))
    damage(tmp_path, damaged, field)

    claim = await sqlite.claim([before.seq, damaged.seq, after.seq], now=NOW)

    assert claim.jobs == [before.start(NOW), after.start(NOW)]
    (unreadable,) = claim.unreadable
    assert (unreadable.seq, unreadable.state, unreadable.due_at, unreadable.finished_at) == (
        damaged.seq,
        State.FAILED,
        None,
        NOW,
    )
    assert error_of(unreadable) == {
        "type": "unreadable",
        "message": f"its stored {field} cannot be read",
        "retryable": False,
    }
    stored = (await sqlite.get([damaged.seq]))[damaged.seq]
    assert (stored.state, stored.error, stored.version) == (State.FAILED, unreadable.error, unreadable.version)


@pytest.mark.parametrize("end", [End.SUCCEEDED, End.ERROR])
async def test_result_of_a_waiting_job_is_overwritten_by_its_attempt(
    sqlite: SqliteStore, tmp_path: Path, end: End
) -> None:
    job = await put_one(sqlite)
    damage(tmp_path, job, "result")

    ((running,), _, _) = await sqlite.claim([job.seq], now=NOW)
    await sqlite.finish([Ending(running, Outcome(end), NOW)])

    assert running == job.start(NOW)
    assert select(tmp_path, "SELECT result FROM jobs") == [(None,)]


async def test_peek_at_unreadable_labels_returns_none(sqlite: SqliteStore, tmp_path: Path) -> None:
    job = await put_one(sqlite, labels={"a": "b"})
    damage(tmp_path, job, "labels")
    sqlite._cache.drop_all()

    (peek,) = await sqlite.peek([job.seq])

    assert (peek.seq, peek.labels) == (job.seq, None)


@pytest.mark.parametrize("field", ["kind", "queue"])
async def test_damaged_index_column_does_not_stop_a_job(sqlite: SqliteStore, tmp_path: Path, field: str) -> None:
    job = await put_one(sqlite)
    damage(tmp_path, job, field)

    claim = await sqlite.claim([job.seq], now=NOW)

    assert claim.jobs == [job.start(NOW)]


async def test_peek_at_a_job_with_an_unreadable_spec_returns_its_queue(sqlite: SqliteStore, tmp_path: Path) -> None:
    job, other = await put(sqlite, make_job(queue="q"), make_job())
    damage(tmp_path, job, "spec")
    sqlite._cache.drop_all()

    shown, sound = await sqlite.peek([job.seq, other.seq])

    assert (shown.spec.kind, shown.spec.queue, sound) == ("echo", "q", peek_at(other))


async def test_damaged_job_is_logged(sqlite: SqliteStore, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = await put_one(sqlite)
    damage(tmp_path, job, "params")

    with caplog.at_level(logging.ERROR):
        await sqlite.claim([job.seq], now=NOW)

    (record,) = caplog.records
    assert record.message == "job_unreadable"
    assert record.__dict__["fields"] == {"job": job.id, "field": "params"}


async def test_damaged_waiting_job_is_read_with_its_readable_parts(
    sqlite: SqliteStore, tmp_path: Path, field: str
) -> None:
    job, other = await put(sqlite, make_job(key="k", labels={"a": "b"}), make_job())
    await damage_unread(sqlite, tmp_path, job, field)

    (shown,) = (await sqlite.get([job.seq])).values()
    listed = await sqlite.list(ALL)

    assert listed == [other, shown]
    assert [found.seq for found in await sqlite.list(Query())] == [other.seq, job.seq]
    lost = {name: getattr(shown, name) for name in FIELDS.get(field, {field})}
    assert shown._replace(**lost) == job._replace(**lost)
    texts = [value for name, value in lost.items() if name not in TEXTS and isinstance(value, bytes)]
    assert all(orjson.loads(text) in ({}, []) for text in texts)


async def test_counts_stay_right_when_a_damaged_job_is_failed(sqlite: SqliteStore, tmp_path: Path) -> None:
    job, _ = await put(sqlite, make_job(), make_job())
    damage(tmp_path, job, "params")

    await sqlite.claim([job.seq], now=NOW)

    counted, stored = await count_both(sqlite)
    assert counted == stored == {("default", "echo", State.SCHEDULED): 1, ("default", "echo", State.FAILED): 1}


async def test_unknown_state_shows_as_failed(sqlite: SqliteStore, tmp_path: Path) -> None:
    job = await put_one(sqlite)
    execute(tmp_path, "UPDATE jobs SET state = 200")

    (shown,) = await sqlite.list(ALL)

    assert (shown.id, shown.state, shown.due_at) == (job.id, State.FAILED, None)
    assert error_of(shown)["type"] == "unreadable"


async def test_job_of_unknown_state_is_failed_when_due(sqlite: SqliteStore, tmp_path: Path) -> None:
    job, other = await put(sqlite, make_job(), make_job())
    execute(tmp_path, f"UPDATE jobs SET state = 6 WHERE seq = {job.seq}")

    claim = await sqlite.claim([job.seq, other.seq], now=NOW)

    assert claim.jobs == [other.start(NOW)]
    assert [(unreadable.seq, unreadable.state, error_of(unreadable)["type"]) for unreadable in claim.unreadable] == [
        (job.seq, State.FAILED, "unreadable")
    ]
    counted, stored = await count_both(sqlite)
    assert counted == stored


@pytest.mark.parametrize("field", WHAT_RUNS)
async def test_damaged_content_is_not_healed_by_moving_the_job(sqlite: SqliteStore, tmp_path: Path, field: str) -> None:
    job = await put_one(sqlite, params={"a": 1}, labels={"a": "b"})
    await damage_unread(sqlite, tmp_path, job, field)
    shown = (await sqlite.get([job.seq]))[job.seq]

    await sqlite.save([shown.move(NOW + SECOND, NOW)])

    claim = await sqlite.claim([job.seq], now=NOW + SECOND)
    assert [error_of(unreadable)["message"] for unreadable in claim.unreadable] == [
        f"its stored {field} cannot be read"
    ]


@pytest.mark.parametrize("field", WHAT_RUNS)
async def test_damaged_content_is_not_healed_by_a_reschedule(sqlite: SqliteStore, tmp_path: Path, field: str) -> None:
    job = await put_one(sqlite, key="k", params={"a": 1}, labels={"a": "b"})
    damage(tmp_path, job, field)

    await sqlite.add([make_new_job(key="k", on_conflict=OnConflict.RESCHEDULE)], now=NOW)

    assert len((await sqlite.claim([job.seq], now=NOW)).unreadable) == 1


@pytest.mark.parametrize("field", WHAT_RUNS)
async def test_damaged_content_is_not_healed_by_a_restart_while_running(
    sqlite: SqliteStore, tmp_path: Path, field: str
) -> None:
    (job,) = await put(sqlite, make_running(params={"a": 1}, labels={"a": "b"}))
    damage(tmp_path, job, field)
    (shown,) = await sqlite.list(ALL)

    await sqlite.save([shown.finish(Outcome(End.LOST), NOW)])

    assert len((await sqlite.claim([job.seq], now=NOW)).unreadable) == 1


async def test_damage_is_healed_by_new_content(sqlite: SqliteStore, tmp_path: Path) -> None:
    job = await put_one(sqlite, key="k", params={"a": 1})
    damage(tmp_path, job, "params")

    await sqlite.add([make_new_job(key="k", params={"b": 2}, on_conflict=OnConflict.REPLACE)], now=NOW)

    assert [claimed.params for claimed in (await sqlite.claim([job.seq], now=NOW)).jobs] == [b'{"b":2}']


async def test_job_damaged_while_running_does_not_block_other_outcomes(
    sqlite: SqliteStore, tmp_path: Path, field: str
) -> None:
    jobs = await put(sqlite, *(make_job(key=key, labels={"a": "b"}) for key in ("1", "2", "3")))
    running = (await sqlite.claim([job.seq for job in jobs], now=NOW)).jobs
    damage(tmp_path, jobs[1], field)

    verdicts = await sqlite.save([job.finish(Outcome(End.SUCCEEDED), NOW) for job in running])

    assert (verdicts[0].is_saved, verdicts[2].is_saved) == (True, True)


@pytest.mark.parametrize("field", DAMAGES)
async def test_damaged_job_can_be_deleted(sqlite: SqliteStore, tmp_path: Path, field: str) -> None:
    job = await put_one(sqlite, labels={"a": "b"})
    damage(tmp_path, job, field)

    assert await sqlite.delete((await sqlite.get([job.seq]))[job.seq])
    assert await sqlite.list(ALL) == []


@pytest.mark.parametrize("field", DAMAGES)
async def test_damaged_job_is_purged(sqlite: SqliteStore, tmp_path: Path, field: str) -> None:
    (job,) = await put(sqlite, make_ended(State.FAILED, labels={"a": "b"}))
    damage(tmp_path, job, field)

    assert await purge(sqlite, "default", State.FAILED, before=NOW + 1, limit=10) == 1


async def damage_unread(store: SqliteStore, folder: Path, job: Job, field: str) -> None:
    """Damage a row on disk and drop the cache."""
    await store.close()
    damage(folder, job, field)
    await store.open()


def damage(folder: Path, job: Job, field: str) -> None:
    if field in TEXTS:
        execute(folder, f"UPDATE jobs SET {field} = CAST(x'fe2d' AS TEXT) WHERE seq = ?", job.seq)
    else:
        execute(folder, f"UPDATE jobs SET {field} = ? WHERE seq = ?", DAMAGES[field], job.seq)


def execute(folder: Path, statement: str, *values: Any) -> None:
    connection = apsw.Connection(str(folder / "erelong.db"))
    connection.execute(statement, values)
    connection.close()


def select(folder: Path, statement: str) -> list[Any]:
    connection = apsw.Connection(str(folder / "erelong.db"))
    rows = connection.execute(statement).fetchall()
    connection.close()
    return rows


def error_of(job: Job) -> dict[str, Any]:
    assert job.error is not None
    error: dict[str, Any] = orjson.loads(job.error)
    return error
