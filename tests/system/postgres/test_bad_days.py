"""Bad days of PostgreSQL under load: nothing acknowledged is lost, and the service recovers by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres import PostgresServer
from tests.support.process import ServiceProcess
from tests.system.client import Client, looks
from tests.system.disks import small_disk
from tests.system.postgres.balancer import Trial, loaded
from tests.system.postgres.conftest import MakeNode
from tests.system.trials import sized

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 300))]

OUTAGE = sized(2.5, 30.0)
WARM_UP = 0.5
FIRST_WRITE = 2.0  # seconds after the return of the server


@asynccontextmanager
async def under_load(node: ServiceProcess) -> AsyncIterator[Trial]:
    await asyncio.to_thread(node.start)
    async with loaded([node], patience=5.0) as trial:
        await asyncio.sleep(WARM_UP)
        yield trial
        await trial.keep()


async def first_write(trial: Trial) -> float:
    """Return how many seconds it takes until a write is acknowledged that is sent from now on."""
    began = time.monotonic()
    async for _ in looks(30.0):
        if any(sent >= began for sent, _ in trial.promises.acks):
            break
    return time.monotonic() - began


def processes(server: PostgresServer) -> list[int]:
    """Return the process ids of the server, its postmaster first."""
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    return [server.pid, *map(int, children)]


async def test_frozen_server_delays_writes_and_loses_nothing(
    make_node: MakeNode, server: PostgresServer, figure: Callable[[str, object], None]
) -> None:
    async with under_load(make_node()) as trial:
        stopped = processes(server)
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(OUTAGE)
        finally:
            for pid in reversed(stopped):
                os.kill(pid, signal.SIGCONT)
        seconds = await first_write(trial)
        answered = max(trial.promises.seconds)

    figure("first write after the return, slowest answer", f"{seconds:.3f} {answered:.3f} s")
    assert seconds <= FIRST_WRITE
    assert answered < 4.5  # [store] patience, twice


async def test_stopped_server_is_waited_for(
    make_node: MakeNode, server: PostgresServer, figure: Callable[[str, object], None]
) -> None:
    async with under_load(make_node()) as trial:
        server.stop(signal.SIGQUIT)
        await asyncio.sleep(OUTAGE)
        server.start()
        seconds = await first_write(trial)
        answered = max(trial.promises.seconds)

    figure("first write after the return, slowest answer", f"{seconds:.3f} {answered:.3f} s")
    assert seconds <= FIRST_WRITE
    assert answered < 4.5


async def test_read_only_server_refuses_writes_until_it_is_writable(
    make_node: MakeNode, make_client: Callable[[ServiceProcess], Client], server: PostgresServer
) -> None:
    node = make_node()
    client = make_client(node)
    async with under_load(node):
        _execute(server, "ALTER SYSTEM SET default_transaction_read_only = on")
        try:
            status, answer = await client.ask("POST", "/v1/jobs", {"kind": "echo", "delay": 3600})
            while status == 201:  # the setting has not reached the session yet
                status, answer = await client.ask("POST", "/v1/jobs", {"kind": "echo", "delay": 3600})
            ready = (await client.ask("GET", "/readyz"))[1]["checks"]["store"]
        finally:
            _execute(server, "SET default_transaction_read_only = off", "ALTER SYSTEM RESET ALL")
    assert (status, answer["code"]) == (503, "store_unavailable")
    assert "PostgreSQL cannot be reached" in ready


async def test_ended_sessions_are_restored(make_node: MakeNode, server: PostgresServer) -> None:
    async with under_load(make_node()) as trial:
        for _ in range(sized(5, 50)):
            _execute(
                server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'erelong%'"
            )
            await asyncio.sleep(0.2)
        statuses = trial.promises.statuses

    assert statuses[503] == 0


async def test_full_disk_refuses_submits_and_loses_nothing(
    make_node: MakeNode, make_client: Callable[[ServiceProcess], Client], server: PostgresServer
) -> None:
    with small_disk(server.home, megabytes=16) as disk:
        server.give(disk)
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(3 << 20))
        _execute(server, f"CREATE TABLESPACE small LOCATION '{disk}'", "CREATE DATABASE filling TABLESPACE small")
        try:
            node = make_node(server.url.replace("/postgres?", "/filling?"))
            client = make_client(node)
            await asyncio.to_thread(node.start)
            # Stored as it is, since PostgreSQL compresses text.
            job = {"kind": "echo", "delay": 3600, "params": {"filling": os.urandom(25_000).hex()}}
            ids = []
            status, answer = await client.ask("POST", "/v1/jobs", job)
            while status == 201:
                ids.append(answer["id"])
                status, answer = await client.ask("POST", "/v1/jobs", job)

            assert (status, answer["code"]) == (507, "storage_full")
            assert "disk of PostgreSQL is full" in (await client.ask("GET", "/readyz"))[1]["checks"]["store"]
            assert (await client.read(ids[0]))["state"] == "scheduled"

            ballast.unlink()
            assert (await client.ask("POST", "/v1/jobs", job))[0] == 201
            assert {job["id"] for job in await client.list_all("")} > {*ids}
            assert (await asyncio.to_thread(node.stop)).code == 0
        finally:
            _execute(server, "DROP DATABASE filling WITH (FORCE)", "DROP TABLESPACE small")


def _execute(server: PostgresServer, *statements: str) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        for statement in (*statements, "SELECT pg_reload_conf()"):
            connection.execute(statement.encode())
