"""A service continues on a copy of its store, and a copy that is killed leaves nothing."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from erelong.stores.postgres import migrations
from erelong.stores.postgres.connection import SCHEMA_NAME
from tests.support import ROOT
from tests.support.postgres import PostgresServer
from tests.support.process import ServiceProcess
from tests.system.client import Client, looks
from tests.system.disks import small_disk
from tests.system.trials import sized

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(90, 600))]

MakeService = Callable[..., ServiceProcess]
MakeClient = Callable[[ServiceProcess], Client]
KEY = {"Idempotency-Key": "once"}
JOB = {"kind": "echo", "delay": 3_600, "params": {"n": 1}}


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    """Return the URL of a database without a store."""
    postgres_server.drop()
    return postgres_server.url


def config_of(url: str) -> str:
    return f'[store]\nkind = "postgres"\ndurability = "normal"\nurl = "{url}"\n'


def copying(target: str, service: ServiceProcess) -> list[str]:
    config = str(service.folder / "config.toml")
    return [sys.executable, "-m", "app", "copy", target, "--data", str(service.data), "--config", config]


def copy(target: str, service: ServiceProcess) -> subprocess.CompletedProcess[str]:
    return subprocess.run(copying(target, service), cwd=ROOT, capture_output=True, text=True, timeout=60)


class Story:
    """What is begun on a store, and has to continue on its copies."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.soon = self.running = self.once = ""

    async def begin(self) -> None:
        self.soon = (await self.client.submit(kind="echo", delay=2.0, key="soon", labels={"tenant": "t1"}))["id"]
        running = {"kind": "echo", "params": {"sleep": 60.0}, "retry": {"delay": 0.1, "factor": 1}}
        self.running = (await self.client.submit_and_wait_for_start(**running))["id"]
        status, _, job = await self.client.ask_closely("POST", "/v1/jobs", JOB, KEY)
        assert status == 201
        self.once = job["id"]
        for path, body in (
            ("/v1/schedules/tick", {"every": "1s", "job": {"kind": "echo", "labels": {"of": "tick"}}}),
            ("/v1/queues/mail", {"concurrency": 3}),
            ("/v1/kinds/resize", {}),
        ):
            status, answer = await self.client.ask("PUT", path, body)
            assert status in (200, 201), answer
        await self.client.submit(kind="echo", queue="mail", delay=3_600)
        await self.client.ask("POST", "/v1/queues/mail/pause", {"reason": "deploy"})

    async def assert_continues(self, client: Client, *, attempt: int) -> None:
        """Assert that a service on a copy goes on with all of it."""
        job = await client.wait_until_final(self.soon)
        assert (job["state"], job["key"], job["labels"]) == ("succeeded", "soon", {"tenant": "t1"})
        await self._assert_runs_again(client, attempt)
        status, headers, job = await client.ask_closely("POST", "/v1/jobs", JOB, KEY)
        assert (status, job["id"], headers["Idempotency-Replayed"]) == (200, self.once, "true")
        queue = (await client.ask("GET", "/v1/queues/mail"))[1]
        assert (queue["settings"]["concurrency"], queue["paused"]) == (3, True)
        assert (await client.ask("GET", "/v1/kinds/resize"))[0] == 200
        ticks = len(await client.list_all("label.of=tick"))
        async for _ in looks(20.0):
            if len(await client.list_all("label.of=tick")) > ticks + 1:
                break

    async def _assert_runs_again(self, client: Client, attempt: int) -> None:
        async for _ in looks(20.0):
            job = await client.read(self.running)
            if (job["state"], job["attempt"]) == ("running", attempt):
                break
        assert [ended["outcome"] for ended in job["attempts"]] == ["lost"] * (attempt - 1)


async def test_service_continues_on_a_copy_and_on_the_copy_of_that(
    make_service: MakeService, make_client: MakeClient, url: str
) -> None:
    first, second, third = make_service(), make_service(config=config_of(url)), make_service()
    await asyncio.to_thread(first.start)
    story = Story(make_client(first))
    await story.begin()
    await asyncio.to_thread(first.kill)
    first.configure('[store]\ndurability = "normal"\n')  # as the server of the tests

    done = copy(url, first)
    assert done.returncode == 0, done.stderr
    await asyncio.to_thread(second.start)
    await story.assert_continues(make_client(second), attempt=2)
    await asyncio.to_thread(second.kill)
    third.data.mkdir()

    async for _ in looks(10.0):  # until the term of the killed node is over
        done = copy(str(third.data / "erelong.db"), second)
        if done.returncode != 75:
            break
    assert done.returncode == 0, done.stderr
    await asyncio.to_thread(third.start)
    await story.assert_continues(make_client(third), attempt=3)
    await asyncio.to_thread(third.kill)
    assert [service.errors() for service in (first, second, third)] == [[], [], []]


async def test_killed_copy_leaves_nothing_and_can_be_repeated(
    make_service: MakeService, make_client: MakeClient, url: str, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    jobs, rounds = sized(6_000, 60_000), sized(4, 40)
    service, file = make_service(), tmp_path / "copy.db"
    await fill(service, make_client, jobs)

    for number in range(rounds):
        kill_during(copying(url, service), 0.1 * number)
        assert jobs_at(url) in (0, jobs)
        postgres_server.drop()
        kill_during(copying(str(file), service), 0.1 * number)
        assert jobs_in(file) in (0, jobs)
        for path in (file, file.with_name("copy.db.mark")):
            path.unlink(missing_ok=True)

    for target in (url, str(file)):
        done = copy(target, service)
        assert done.returncode == 0, done.stderr
    assert (jobs_at(url), jobs_in(file)) == (jobs, jobs)
    assert not file.with_name("copy.db.copying").exists()


async def test_full_disk_ends_a_copy_and_leaves_nothing(
    make_service: MakeService, make_client: MakeClient, postgres_server: PostgresServer, tmp_path: Path
) -> None:
    service = make_service()
    await fill(service, make_client, 8_000)
    with small_disk(tmp_path, megabytes=1) as disk:
        done = copy(str(disk / "copy.db"), service)
        assert (done.returncode, jobs_in(disk / "copy.db")) == (74, 0)
        assert "the disk is full" in done.stderr
        assert not (disk / "copy.db.copying").exists()

    folder = postgres_server.home / "copies"
    folder.mkdir()
    postgres_server.give(folder)
    with small_disk(folder, megabytes=9) as disk:
        postgres_server.give(disk)
        tablespace = f"CREATE TABLESPACE small LOCATION '{disk}'"
        _execute(postgres_server, tablespace, "CREATE DATABASE small TABLESPACE small")
        try:
            target = postgres_server.url.replace("/postgres?", "/small?")
            done = copy(target, service)
            assert (done.returncode, jobs_at(target)) == (74, 0)
            assert "the disk of PostgreSQL is full" in done.stderr
        finally:
            _execute(postgres_server, "DROP DATABASE small WITH (FORCE)", "DROP TABLESPACE small")


async def fill(service: ServiceProcess, make_client: MakeClient, jobs: int) -> None:
    """Store so many jobs, and stop the service."""
    await asyncio.to_thread(service.start)
    client = make_client(service)
    for _ in range(jobs // 1_000):
        await client.submit_batch([{"kind": "echo", "delay": 3_600, "params": {"filling": "x" * 500}}] * 1_000)
    await asyncio.to_thread(service.stop)
    service.configure('[store]\ndurability = "normal"\n')  # as the server of the tests


def kill_during(command: list[str], seconds: float) -> None:
    """Kill a copy so many seconds after its first report."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"copying")
    time.sleep(seconds)
    process.kill()
    process.communicate()


def jobs_at(url: str) -> int:
    """Return the number of jobs in a database, when the server has ended the sessions of killed copies."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [migrations.LOCK])
        if not connection.execute("SELECT FROM pg_namespace WHERE nspname = %s", [SCHEMA_NAME]).fetchall():
            return 0
        row = connection.execute(f"SELECT count(*) FROM {SCHEMA_NAME}.jobs".encode()).fetchone()
        assert row is not None
        return int(row[0])


def jobs_in(file: Path) -> int:
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("SELECT count(*) FROM jobs").fetchone()[0])


def _execute(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())
