"""Databases of earlier schema versions: their migration, and a migration that is killed."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import orjson
import pytest
import pytest_asyncio

from erelong.errors import StoreCorrupt
from erelong.model.job import Job, State
from erelong.stores.sqlite import migrations
from erelong.stores.sqlite import statements as sql
from erelong.stores.sqlite.backup import back_up, verify
from erelong.stores.sqlite.database import open_connection
from erelong.stores.sqlite.migrations import Migration
from erelong.stores.sqlite.store import SqliteStore
from tests.support import ROOT, next_version, schema_file
from tests.support.builders import NOW, count_both, make_job, put
from tests.system.trials import sized

JOBS = sized(2_000, 1_000_000)
CLAIMED = 300
BATCH = 10_000
WITHIN = (1, 7, sized(20, 20_000))
"""Kill a migration after this many thousand steps."""

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 3_000))]


@pytest_asyncio.fixture
async def left(tmp_path: Path) -> tuple[Path, list[Job]]:
    """Return a database of this version with waiting and running jobs, and the running ones."""
    path = tmp_path / "before" / "erelong.db"
    store = SqliteStore(path=path)
    await store.open()
    jobs: list[Job] = []
    for start in range(0, JOBS, BATCH):
        jobs += await put(store, *[make_job() for _ in range(start, min(start + BATCH, JOBS))])
    claim = await store.claim([job.seq for job in jobs[:CLAIMED]], now=NOW)
    await store.close()
    return path, claim.jobs


@pytest.fixture
def next_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give this process the schema of the next version."""
    for name in ("SCHEMA_VERSION", "SCHEMA"):
        monkeypatch.setattr(sql, name, getattr(sql, name))
    monkeypatch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS)
    next_version.install()


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path=path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def copied(before: Path, folder: Path) -> Path:
    """Copy a database with the files beside it."""
    shutil.copytree(before.parent, folder)
    return folder / before.name


def migrate(path: Path, **environment: int) -> int:
    """Let the next version open a database in its own process; return the exit code."""
    named = {name: str(value) for name, value in environment.items()}
    command = [sys.executable, "-m", "tests.support.next_version", "open", str(path)]
    return subprocess.run(command, cwd=ROOT, env=os.environ | named, check=False).returncode


async def must_be_migrated(path: Path, running: list[Job]) -> None:
    """Check that no job is missing, that each is migrated once, and that claimed jobs are still claimed."""
    async with opened(path) as store:
        assert sum(store.counts().values()) == JOBS
        assert store.counts()["default", "echo", State.RUNNING] == len(running)
        assert await store.get([job.seq for job in running]) == {job.seq: job for job in running}
    connection = open_connection(path)
    notes = connection.execute("SELECT count(*) FROM jobs JOIN notes USING (seq) WHERE jobs.note = jobs.token").get
    version = connection.pragma("user_version")
    connection.close()
    assert (notes, version) == (JOBS, next_version.VERSION)


async def test_database_of_the_previous_version_is_migrated(
    left: tuple[Path, list[Job]], next_schema: None, caplog: pytest.LogCaptureFixture
) -> None:
    path, running = left

    with caplog.at_level(logging.INFO):
        await must_be_migrated(path, running)

    started, finished = (record for record in caplog.records if record.message.startswith("migration_"))
    assert (started.message, finished.message) == ("migration_started", "migration_finished")
    assert vars(started)["fields"]["version"] == vars(finished)["fields"]["version"] == next_version.VERSION
    assert vars(finished)["fields"]["seconds"] >= 0


async def test_migration_killed_at_any_statement_is_done_at_the_next_start(
    left: tuple[Path, list[Job]], tmp_path: Path, next_schema: None
) -> None:
    before, running = left
    codes: list[int] = []

    while not codes or codes[-1]:
        path = copied(before, tmp_path / "copy")
        codes.append(migrate(path, KILL_AT=len(codes)))
        await must_be_migrated(path, running)
        shutil.rmtree(path.parent)

    assert set(codes[:-1]) == {-signal.SIGKILL}
    assert len(codes) > len(next_version.STATEMENTS) + 2  # BEGIN and COMMIT


@pytest.mark.parametrize("thousands", WITHIN)
async def test_migration_killed_within_a_statement_is_done_at_the_next_start(
    left: tuple[Path, list[Job]], next_schema: None, thousands: int
) -> None:
    path, running = left

    assert migrate(path, KILL_WITHIN=thousands) == -signal.SIGKILL

    await must_be_migrated(path, running)


async def test_failed_migration_leaves_the_database_unchanged(
    left: tuple[Path, list[Job]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, running = left
    broken = Migration(next_version.VERSION, (*next_version.STATEMENTS, "INSERT INTO nowhere VALUES (1)"))
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", (broken,))
        patched.setattr(sql, "SCHEMA_VERSION", next_version.VERSION)
        with pytest.raises(StoreCorrupt):
            async with opened(path):
                pass

    async with opened(path) as store:  # as the previous version
        assert store.counts()["default", "echo", State.RUNNING] == len(running)
        assert sum(store.counts().values()) == JOBS


async def test_previous_version_refuses_a_migrated_database(left: tuple[Path, list[Job]]) -> None:
    path, _ = left
    assert migrate(path) == 0

    with pytest.raises(StoreCorrupt, match="has schema version 2; this erelong reads versions up to 1; start"):
        async with opened(path):
            pass


async def test_new_database_has_the_newest_schema_at_once(tmp_path: Path, next_schema: None) -> None:
    async with opened(tmp_path / "erelong.db"):
        pass

    connection = open_connection(tmp_path / "erelong.db")
    assert connection.pragma("user_version") == next_version.VERSION
    connection.close()


async def test_backup_of_the_previous_version_is_valid_for_the_next(
    left: tuple[Path, list[Job]], tmp_path: Path, next_schema: None
) -> None:
    path, _ = left

    back_up(path, tmp_path / "copy.db")

    assert verify(tmp_path / "copy.db").jobs == JOBS


def test_newest_migration_leads_to_the_current_version() -> None:
    versions = [migration.version for migration in migrations.MIGRATIONS]

    assert versions == [*range(2, sql.SCHEMA_VERSION + 1)]


def test_schema_declares_its_version() -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(sql.SCHEMA)

    assert connection.pragma("user_version") == sql.SCHEMA_VERSION


@pytest.mark.parametrize("version", range(1, sql.SCHEMA_VERSION + 1))
async def test_stored_database_of_each_version_is_opened(tmp_path: Path, version: int) -> None:
    with tarfile.open(schema_file.FOLDER / f"{version}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    expected = orjson.loads((tmp_path / "jobs.json").read_bytes())

    async with opened(tmp_path / "erelong.db") as store:
        jobs = await store.get([job["seq"] for job in expected])
        replay = await store.find_replay(schema_file.RECORD, now=NOW)
        document = await store.document("schedule", "report")
        overrides = await store.overrides()
        counted, stored = await count_both(store)

    records = [schema_file.described(job) for job in jobs.values()]
    assert [{name: job[name] for name in before} for job, before in zip(records, expected, strict=True)] == expected
    assert {job.state for job in jobs.values()} == {*State}
    assert replay is not None
    assert (document, overrides) == (schema_file.DOCUMENT, {"mail": schema_file.OVERRIDE})
    assert counted == stored
