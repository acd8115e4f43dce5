"""Kinds declared to a real process: kept over kills, and overruled by the settings of a later start."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client
from tests.system.trials import sized

KILLS = sized(2, 50)
KINDS = 5
SCHEMA = {"type": "object", "required": ["image"]}

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]

MakeService = Callable[..., ServiceProcess]
MakeClient = Callable[[ServiceProcess], Client]


async def kinds_of(client: Client) -> dict[str, dict[str, Any]]:
    _, answer = await client.ask("GET", "/v1/kinds")
    return {kind["name"]: kind for kind in answer["kinds"]}


async def declare_on(client: Client, name: str, first: int, asked: dict[str, list[int]], known: dict[str, int]) -> None:
    """Declare a kind again and again, each time with a longer timeout, until the service is killed."""
    timeout = first
    while True:
        asked.setdefault(name, []).append(timeout)
        try:
            status, _ = await client.ask("PUT", f"/v1/kinds/{name}", {"timeout": timeout, "params_schema": SCHEMA})
        except aiohttp.ClientError:
            return
        assert status in (200, 201)
        known[name] = timeout
        timeout += 1


async def test_acknowledged_declarations_survive_kills(
    make_service: MakeService, make_client: MakeClient, figure: Callable[[str, object], None]
) -> None:
    service = make_service()
    chance = random.Random(7)
    asked: dict[str, list[int]] = {}
    known: dict[str, int] = {}

    for turn in range(KILLS):
        service.start()
        client = make_client(service)
        names = [f"k{number}" for number in range(KINDS)]
        declaring = [asyncio.create_task(declare_on(client, name, 1 + 1_000 * turn, asked, known)) for name in names]
        await asyncio.sleep(0.1 + 0.2 * chance.random())
        service.kill()
        await asyncio.gather(*declaring)
        service.start()
        stored = {name: kind["timeout"] for name, kind in (await kinds_of(make_client(service))).items()}
        for name, timeout in known.items():
            assert timeout <= stored[name] <= asked[name][-1]
        service.stop()

    figure("declarations acknowledged", sum(map(len, asked.values())) - KINDS * KILLS)
    assert len(known) == KINDS


async def test_worker_keeps_its_declared_kind_and_its_name_over_a_kill(
    make_service: MakeService, make_client: MakeClient
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    assert (await client.ask("PUT", "/v1/kinds/resize", {"params_schema": SCHEMA}))[0] == 201
    job = await client.submit(kind="resize", params={"image": "cat"})
    _, answer = await client.ask("POST", "/v1/leases", {"kinds": ["resize"], "worker": "host-1/4711", "wait": 5})
    token = answer["leases"][0]["token"]

    service.kill()
    service.start()
    client = make_client(service)
    held = await client.read(job["id"])
    status, done = await client.ask("POST", f"/v1/leases/{token}/finish", {})
    refused, _ = await client.ask("POST", "/v1/jobs", {"kind": "resize", "params": {}})

    assert (held["state"], held["worker"]) == ("running", "host-1/4711")
    assert (status, done["attempts"][0]["worker"], refused) == (200, "host-1/4711", 422)


async def test_settings_of_a_later_start_win_over_a_declared_kind(
    make_service: MakeService, make_client: MakeClient
) -> None:
    service = make_service()
    service.start()
    await make_client(service).ask("PUT", "/v1/kinds/resize", {"timeout": 5})
    service.stop()
    service.configure("[kinds.resize]\npull = true\ntimeout = 9\n")

    service.start()
    kind = (await kinds_of(make_client(service)))["resize"]
    status, problem = await make_client(service).ask("PUT", "/v1/kinds/resize", {"timeout": 7})

    assert (kind["declared"], kind["timeout"]) == ("config", 9.0)
    assert [event["kind"] for event in service.events("kind_overruled")] == ["resize"]
    assert (status, problem["code"]) == (409, "kind_fixed")
