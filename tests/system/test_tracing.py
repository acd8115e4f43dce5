"""The real service sends traces to the endpoint in OpenTelemetry's variables, the last ones when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.process import ServiceProcess
from tests.system.client import Client

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]


@pytest_asyncio.fixture
async def collected(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[tuple[str, bytes]]]:
    """Run a collector; yield its received paths and bodies."""
    seen: list[tuple[str, bytes]] = []

    async def receive(request: web.Request) -> web.Response:
        seen.append((request.path, await request.read()))
        return web.Response(content_type="application/x-protobuf")

    runner = web.ServerRunner(web.Server(receive))  # type: ignore[arg-type]  # aiohttp's annotation is too narrow
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{runner.addresses[0][1]}")
    monkeypatch.setenv("NO_PROXY", "*")
    yield seen
    await runner.cleanup()


async def test_traces_are_sent_to_the_collector_at_the_stop_at_the_latest(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    collected: list[tuple[str, bytes]],
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    job = await client.submit(kind="echo")
    await client.wait_until_final(job["id"])

    ended = await asyncio.to_thread(service.stop)

    assert ended.code == 0
    assert {path for path, _ in collected} == {"/v1/traces"}
    body = b"".join(body for _, body in collected)
    assert body.count(job["id"].encode()) >= 3  # the submit, the attempt, the read
    assert b"run echo" in body


async def test_unresponsive_collector_does_not_disturb_the_service(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    service = make_service()
    service.start()
    client = make_client(service)
    job = await client.submit(kind="echo")

    done = await client.wait_until_final(job["id"])
    ended = await asyncio.to_thread(service.stop)

    assert done["state"] == "succeeded"
    assert (ended.code, ended.seconds < 2) == (0, True)
