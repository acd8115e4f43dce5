"""Bad days of PostgreSQL under load: nothing acknowledged is lost, no job is early, and all ends by itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import psycopg
import pytest

from erelong.stores.postgres.connection import SCHEMA_NAME
from tests.support.postgres import PostgresServer
from tests.support.postgres_proxy import Proxy
from tests.support.process import ServiceProcess
from tests.system.book import install, read_book
from tests.system.client import Client, looks
from tests.system.disks import small_disk
from tests.system.postgres.balancer import Trial, loaded
from tests.system.postgres.conftest import KINDS, MakeNode
from tests.system.trials import sized

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 300))]

OUTAGE = sized(2.5, 30.0)
WARM_UP = 0.5
FIRST_WRITE = 2.0  # seconds after the return of the server
LONGEST_ANSWER = 10.0  # [cluster] hold and 2 seconds
SECOND = 1_000_000

Figure = Callable[[str, object], None]


class Soon:
    """Jobs that are due soon after they are submitted. `due` has the instant of each that was acknowledged."""

    def __init__(self, client: Client) -> None:
        self.due: dict[str, float] = {}
        self._client = client

    async def submit(self) -> None:
        while True:
            due = round(time.time() + random.uniform(0.1, 2.0), 3)
            with suppress(aiohttp.ClientError, OSError):
                status, answer = await self._client.ask("POST", "/v1/jobs", {"kind": "note", "execute_at": due})
                if status == 201:
                    self.due[answer["id"]] = due
            await asyncio.sleep(0.02)

    def check(self, node: ServiceProcess) -> None:
        """Assert that each job has run, and not before its time."""
        runs = read_book(node)
        assert [run for run in runs if run.id in self.due and run.began_at < self.due[run.id] * SECOND] == []
        assert self.due.keys() - {run.id for run in runs} == set()


@asynccontextmanager
async def under_load(node: ServiceProcess, client: Client) -> AsyncIterator[Trial]:
    install(node)
    await asyncio.to_thread(node.start)
    soon = Soon(client)
    async with loaded([node], patience=LONGEST_ANSWER + 5) as trial:
        submitting = asyncio.create_task(soon.submit())
        await asyncio.sleep(WARM_UP)
        try:
            yield trial
        finally:
            submitting.cancel()
            await asyncio.gather(submitting, return_exceptions=True)
        await asyncio.sleep(2.0)  # until the last job is due
        await trial.keep()
    soon.check(node)


async def first_write(client: Client) -> float:
    """Return how many seconds it takes until a write is acknowledged that is sent from now on."""
    began = time.monotonic()
    async for _ in looks(30.0):
        if (await client.ask("POST", "/v1/jobs", {"kind": "echo", "delay": 3600}))[0] == 201:
            break
    return time.monotonic() - began


def report(trial: Trial, figure: Figure, seconds: float) -> None:
    """Note how long the first write took, and assert that no request waited for too long."""
    answered = max(trial.promises.seconds)
    figure("first write after the return, slowest answer", f"{seconds:.3f} {answered:.3f} s")
    assert seconds <= FIRST_WRITE
    assert answered <= LONGEST_ANSWER


def processes(server: PostgresServer) -> list[int]:
    """Return the process ids of the server, its postmaster first."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [server.pid, *map(int, children)]


async def test_frozen_server_delays_writes(
    make_node: MakeNode, make_client: Callable[[ServiceProcess], Client], server: PostgresServer, figure: Figure
) -> None:
    node = make_node(kinds=KINDS)
    client = make_client(node)
    async with under_load(node, client) as trial:
        stopped = processes(server)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(OUTAGE)
        finally:
            for pid in reversed(stopped):
                os.kill(pid, signal.SIGCONT)
        report(trial, figure, await first_write(client))


@pytest.mark.parametrize("how", sized([signal.SIGQUIT], [signal.SIGINT, signal.SIGQUIT]))
async def test_stopped_server_is_waited_for(
    how: signal.Signals,
    make_node: MakeNode,
    make_client: Callable[[ServiceProcess], Client],
    server: PostgresServer,
    figure: Figure,
) -> None:
    node = make_node(kinds=KINDS)
    client = make_client(node)
    async with under_load(node, client) as trial:
        server.stop(how)
        await asyncio.sleep(OUTAGE)
        server.start()
        report(trial, figure, await first_write(client))


@pytest.mark.parametrize("table", sized(["jobs"], ["jobs", "fences", "terms"]))
async def test_locked_table_is_waited_for(
    table: str,
    make_node: MakeNode,
    make_client: Callable[[ServiceProcess], Client],
    server: PostgresServer,
    figure: Figure,
) -> None:
    node = make_node(kinds=KINDS)
    client = make_client(node)
    async with under_load(node, client) as trial:
        with psycopg.connect(server.url) as locking:  # as ALTER TABLE does
            await asyncio.to_thread(locking.execute, f"LOCK TABLE {SCHEMA_NAME}.{table} IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(OUTAGE)
        report(trial, figure, await first_write(client))


async def test_lost_answers_are_found_out(
    make_node: MakeNode, make_client: Callable[[ServiceProcess], Client], proxy: Proxy, figure: Figure
) -> None:
    node = make_node(proxy.url, kinds=KINDS)
    client = make_client(node)
    async with under_load(node, client) as trial:
        for _ in range(sized(1, 10)):
            for role in ("writer", "reader", "term"):  # a listing may take as long as [store] timeout
                proxy.lose_responses(role)
            await asyncio.sleep(2.5)
        report(trial, figure, await first_write(client))


async def test_ended_sessions_are_restored(
    make_node: MakeNode, make_client: Callable[[ServiceProcess], Client], server: PostgresServer
) -> None:
    node = make_node(kinds=KINDS)
    client = make_client(node)
    async with under_load(node, client) as trial:
        for _ in range(sized(5, 50)):
            _execute(
                server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'erelong%'"
            )
            await asyncio.sleep(0.2)
        statuses = trial.promises.statuses

    assert statuses[503] == 0


async def test_read_only_server_refuses_writes_until_it_is_writable(
    make_node: MakeNode, make_client: Callable[[ServiceProcess], Client], server: PostgresServer, figure: Figure
) -> None:
    node = make_node(kinds=KINDS)
    client = make_client(node)
    async with under_load(node, client) as trial:
        _execute(server, "ALTER SYSTEM SET default_transaction_read_only = on")
        try:
            status, answer = await client.ask("POST", "/v1/jobs", {"kind": "echo", "delay": 3600})
            while status == 201:  # the setting has not reached the session yet
                status, answer = await client.ask("POST", "/v1/jobs", {"kind": "echo", "delay": 3600})
            ready = (await client.ask("GET", "/readyz"))[1]["checks"]["store"]
        finally:
            _execute(server, "SET default_transaction_read_only = off", "ALTER SYSTEM RESET ALL")
        report(trial, figure, await first_write(client))
    assert (status, answer["code"]) == (503, "store_unavailable")
    assert "PostgreSQL cannot be reached" in ready


async def test_full_disk_refuses_submits(
    make_node: MakeNode, make_client: Callable[[ServiceProcess], Client], server: PostgresServer, figure: Figure
) -> None:
    with small_disk(server.home, megabytes=32) as disk:
        server.give(disk)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(8 << 20))
        _execute(server, f"CREATE TABLESPACE small LOCATION '{disk}'", "CREATE DATABASE filling TABLESPACE small")
        try:
            node = make_node(server.url.replace("/postgres?", "/filling?"), kinds=KINDS)
            client = make_client(node)
            # Stored as it is, since PostgreSQL compresses text.
            job = {"kind": "echo", "delay": 3600, "params": {"filling": os.urandom(25_000).hex()}}
            ids = []
            async with under_load(node, client) as trial:
                status, answer = await client.ask("POST", "/v1/jobs", job)
                while status == 201:
                    ids.append(answer["id"])
                    status, answer = await client.ask("POST", "/v1/jobs", job)
                assert (status, answer["code"]) == (507, "storage_full")
                async for _ in looks():  # until another write has found room
                    await client.ask("POST", "/v1/jobs", job)
                    if "disk of PostgreSQL is full" in (await client.ask("GET", "/readyz"))[1]["checks"]["store"]:
                        break
                assert (await client.read(ids[0]))["state"] == "scheduled"
                await asyncio.sleep(sized(0.5, 10.0))

                ballast.unlink()
                report(trial, figure, await first_write(client))
            assert {job["id"] for job in await client.list_all("")} > {*ids}
            assert (await asyncio.to_thread(node.stop)).code == 0
        finally:
            _execute(server, "DROP DATABASE filling WITH (FORCE)", "DROP TABLESPACE small")


def _execute(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in (*statements, "SELECT pg_reload_conf()"):
            connection.execute(statement.encode())
