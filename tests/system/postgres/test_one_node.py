"""One service on PostgreSQL: it keeps what it acknowledged through every end of the service and of the server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.support import ROOT
from tests.support.postgres import GUARDED, PASSWORD, PostgresServer
from tests.support.process import ServiceProcess
from tests.system.client import Client
from tests.system.postgres.conftest import MakeNode
from tests.system.promises import Promises, keep, stop_loading

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(120)]

MakeClient = Callable[[ServiceProcess], Client]


async def test_jobs_survive_the_service(make_node: MakeNode, make_client: MakeClient) -> None:
    node = make_node()
    client = make_client(node)
    await asyncio.to_thread(node.start)
    now, later = await client.submit(kind="echo", params={"n": 1}), await client.submit(kind="echo", delay=3600)
    assert (await client.wait_until_final(now["id"]))["state"] == "succeeded"

    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
    await client.ask("POST", f"/v1/jobs/{later['id']}/run")
    assert (await client.wait_until_final(later["id"]))["state"] == "succeeded"

    ended = await asyncio.to_thread(node.stop)
    assert ended.code == 0
    assert node.errors() == []
    await asyncio.to_thread(node.start)
    assert (await client.counts())["succeeded"] == 2


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_nothing_is_lost_while_the_server_restarts_under_load(
    how: signal.Signals, make_node: MakeNode, make_client: MakeClient, server: PostgresServer
) -> None:
    node = make_node()
    client = make_client(node)
    await asyncio.to_thread(node.start)
    promises = Promises(client)
    load = asyncio.create_task(promises.load())
    try:
        for _ in range(2):
            await asyncio.sleep(0.7)
            await asyncio.to_thread(server.stop, how)
            await asyncio.sleep(0.3)
            server.start()  # by the main thread, with which it is to end
        await asyncio.sleep(0.7)
    finally:
        await stop_loading(promises, load)

    await keep(promises, client)
    assert len(promises.book) > 50
    assert len(node.events("store_reconnected")) == 2


def test_commands_for_the_file_of_the_store_are_refused(tmp_path: Path, server: PostgresServer) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[store]\nkind = "postgres"\ndurability = "normal"\nurl = "{server.url}"\n')

    for command in ("backup", "restore"):
        done = _run(command, str(tmp_path / "copy"), "--config", str(config))
        assert done.returncode == 78
        assert "pg_dump" in done.stderr


async def test_password_is_never_shown(
    make_node: MakeNode, make_client: MakeClient, server: PostgresServer, session: aiohttp.ClientSession
) -> None:
    url = f"postgresql://{GUARDED}:{PASSWORD}@/postgres?host={server.home}"
    node = make_node(url)
    node.environment["ERELONG_LOG__LEVEL"] = "debug"
    client = make_client(node)
    said = [_run("check-config", "--config", str(node.folder / "config.toml")).stdout]

    await asyncio.to_thread(node.start)
    await client.submit(kind="echo")
    await asyncio.to_thread(server.stop)
    said += [str(await client.ask("POST", "/v1/jobs", {"kind": "echo"})), str(await client.ask("GET", "/readyz"))]
    for path in ("/metrics", "/v1/kinds"):
        async with session.get(node.url + path) as response:
            said.append(await response.text())
    await asyncio.to_thread(node.stop)
    said.append(node.log_text())
    node.launch()  # the server is stopped
    assert (await asyncio.to_thread(node.wait)).code == 74
    said.append(node.log_text())
    server.start()  # by the main thread, with which it is to end

    assert "PostgreSQL cannot be reached" in said[2]
    assert "PostgreSQL cannot be used" in said[-1]
    assert [text for text in said if not text or "canary" in text] == []


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
