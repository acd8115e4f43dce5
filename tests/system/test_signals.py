"""SIGTERM drains: running jobs finish or are released, and a second signal ends the service at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import pytest

from tests.support.process import ServiceProcess
from tests.system.book import install, read_book
from tests.system.client import Client, looks

CONFIG = '[kinds.note]\npython = "functions:note"\n'
SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]


@SIGNALS
async def test_draining_service_finishes_running_jobs_and_refuses_new_ones(
    make_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client], number: int
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    job = await client.submit_and_wait_for_start(kind="echo", params={"sleep": 1.0})
    waiting = await client.submit(kind="echo", delay=3600)

    service.signal(number)
    await _until_it_drains(service)
    status, headers, problem = await client.ask_closely("POST", "/v1/jobs", {"kind": "echo"})
    batch_status, _ = await client.ask("POST", "/v1/jobs/batch", {"jobs": [{"kind": "echo"}]})
    ready_status, _ = await client.ask("GET", "/readyz")
    read = await client.read(waiting["id"])
    cancelled_status, _ = await client.ask("POST", f"/v1/jobs/{waiting['id']}/cancel")
    ended = await asyncio.to_thread(service.wait)

    assert (status, problem["code"]) == (503, "draining")
    assert int(headers["Retry-After"]) >= 1
    assert (batch_status, ready_status, cancelled_status) == (503, 503, 200)
    assert read["state"] == "scheduled"
    assert ended.code == 0
    assert ended.seconds < 3
    service.start()
    assert (await client.read(job["id"]))["state"] == "succeeded"
    assert (await client.read(waiting["id"]))["state"] == "cancelled"


async def test_long_poll_is_answered_when_the_service_drains(
    make_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client]
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    running = await client.submit_and_wait_for_start(kind="echo", params={"sleep": 4.0})
    waiting = await client.submit(kind="echo", delay=3600)
    poll = asyncio.create_task(client.wait_until_final(waiting["id"], 25))
    await asyncio.sleep(0.2)

    service.signal(signal.SIGTERM)
    answer = await asyncio.wait_for(poll, 3.0)

    assert answer["state"] == "scheduled"
    assert (await client.read(running["id"]))["state"] == "running"
    assert (await asyncio.to_thread(service.wait)).code == 0


async def test_job_longer_than_the_drain_is_released_without_counting_and_runs_again(
    make_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client]
) -> None:
    service = make_service(config=CONFIG, settings={"server.drain_timeout": "0.5"})
    install(service)
    service.start()
    client = make_client(service)
    job = await client.submit_and_wait_for_start(kind="note", params={"sleep": 2.0})

    ended = await asyncio.to_thread(service.stop)
    service.start()
    again = await client.wait_until_final(job["id"])

    assert ended.code == 0
    assert 0.4 < ended.seconds < 2.5
    assert again["state"] == "succeeded"
    assert again["attempt"] == 1
    assert [(attempt["number"], attempt["outcome"]) for attempt in again["attempts"]] == [
        (1, "released"),
        (1, "succeeded"),
    ]
    assert len(read_book(service)) == 2


@SIGNALS
async def test_second_signal_ends_the_service_at_once(
    make_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client], number: int
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    job = await client.submit_and_wait_for_start(kind="echo", params={"sleep": 60})

    service.signal(number)
    await _until_it_drains(service)
    service.signal(number)
    ended = await asyncio.to_thread(service.wait)

    assert ended.code == 128 + number
    assert ended.seconds < 1
    service.start()
    after = await client.read(job["id"])
    assert after["attempts"][0]["outcome"] == "lost"


async def _until_it_drains(service: ServiceProcess) -> None:
    async for _ in looks():
        if service.events("draining"):
            return
