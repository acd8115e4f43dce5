"""The service is killed while jobs with `on_finish` end: each final end has exactly one callback, and it is sent."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import aiohttp
import orjson
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from erelong.clock.instants import parse_instant
from tests.support.process import ServiceProcess
from tests.system.client import Client, looks
from tests.system.trials import sized

KILLS = sized(4, 100)
JOBS = 60  # a round
SPREAD = 0.3  # seconds over which the jobs of a round end
NEAR = 20_000  # microseconds: an end so soon before a kill was in danger
YEARS = 10 * 365 * 86400
CONFIG = """
[webhooks]
allow_networks = ["127.0.0.0/8"]

[jobs.retry]
max_attempts = 1

[queues.callbacks]
concurrency = 20
retry = { max_attempts = 1000, delay = 0.05, factor = 1.0 }

[kinds.pulled]
pull = true
"""

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 900))]


class Sink:
    """A receiver of callbacks; `bodies` has those of each callback by its id."""

    def __init__(self) -> None:
        self.bodies: defaultdict[str, list[bytes]] = defaultdict(list)
        self.url = ""

    async def receive(self, request: web.Request) -> web.Response:
        self.bodies[request.headers["webhook-id"]].append(await request.read())
        return web.Response()


@pytest_asyncio.fixture
async def sink() -> AsyncIterator[Sink]:
    sink = Sink()
    app = web.Application()
    app.router.add_post("/", sink.receive)
    async with TestServer(app) as server:
        sink.url = str(server.make_url("/"))
        yield sink


class Load:
    """Jobs that end in every way; `retried` counts the acknowledged retries by job."""

    def __init__(self, client: Client, sink: Sink) -> None:
        self.submitted: list[str] = []
        self.retried: Counter[str] = Counter()
        self._client = client
        self._on_finish = {"url": sink.url}
        self._random = random.Random(7)

    async def submit(self) -> None:
        """Submit the jobs of a round, which end within `SPREAD`, beginning now."""
        now = time.time()
        self.submitted += await self._client.submit_batch([self._job(now) for _ in range(JOBS)])

    async def live(self) -> None:
        """Cancel, lease, purge and retry until the service is killed."""
        with suppress(aiohttp.ClientError, OSError):
            await asyncio.gather(self._cancel(), self._lease(), self._purge(), self._retry())

    def _job(self, now: float) -> dict[str, Any]:
        draw = self._random
        execute_at = round(now + draw.uniform(0, SPREAD), 3)
        ways: list[dict[str, Any]] = [
            {"kind": "echo"},
            {"kind": "echo", "params": {"n": 1}, "labels": {"tenant": "t1"}},
            {"kind": "echo", "params": {"sleep": 0.03}},
            {"kind": "echo", "params": {"fail": "boom"}},
            {"kind": "echo", "queue": "held", "expires_after": 0.02},
            {"kind": "pulled"},
            {"kind": "echo", "queue": "purged", "params": {"sleep": 0.1}},
            {"kind": "echo", "params": {"sleep": 600}, "labels": {"way": "cancel"}},
        ]
        return draw.choice(ways) | {"execute_at": execute_at, "on_finish": self._on_finish}

    async def _cancel(self) -> None:
        while True:
            _, page = await self._client.ask("GET", "/v1/jobs?state=running&kind=echo&label.way=cancel&limit=10")
            for job in page["jobs"]:
                await self._client.ask("POST", f"/v1/jobs/{job['id']}/cancel")
            await asyncio.sleep(0.01)

    async def _lease(self) -> None:
        while True:
            ask = {"kinds": ["pulled"], "wait": 1, "lease": 5}
            _, answer = await self._client.ask("POST", "/v1/leases", ask)
            for lease in answer["leases"]:
                verb = self._random.choice(["finish", "fail"])
                await self._client.ask("POST", f"/v1/leases/{lease['token']}/{verb}")

    async def _purge(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.02, 0.1))
            await self._client.ask("POST", "/v1/queues/purged/purge")

    async def _retry(self) -> None:
        """Retry some failed jobs, so that they end again."""
        _, page = await self._client.ask("GET", "/v1/jobs?state=failed&kind=echo&kind=pulled&limit=20")
        for job in self._random.sample(page["jobs"], min(3, len(page["jobs"]))):
            await asyncio.sleep(self._random.uniform(0, 0.1))
            status, _ = await self._client.ask("POST", f"/v1/jobs/{job['id']}/retry")
            self.retried[job["id"]] += status == 200


async def test_each_final_end_has_one_callback_despite_kills(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    sink: Sink,
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    service.start()
    client = make_client(service)
    await client.ask("POST", "/v1/queues/held/pause")
    load, kills = Load(client, sink), []

    for _ in range(KILLS):
        await load.submit()
        living = asyncio.create_task(load.live())
        await asyncio.sleep(random.uniform(0.05, SPREAD + 0.05))
        service.kill()
        kills.append(time.time_ns() // 1_000)
        await living
        await asyncio.to_thread(service.start)
    await _end_all(client, load)
    jobs = {job["id"]: job for job in await client.list_all()}
    callbacks = {id: job for id, job in jobs.items() if "callback_of" in job}
    ended = {id: job for id, job in jobs.items() if id not in callbacks}

    unacknowledged = _check_callbacks(ended, callbacks, load.retried)
    _check_deliveries(callbacks, sink)
    assert {*load.submitted} <= ended.keys()
    near = _near(kills, callbacks)
    lost = sum(attempt["outcome"] == "lost" for job in ended.values() for attempt in job["attempts"])
    figure("kills", KILLS)
    figure("jobs with on_finish, callbacks", f"{len(ended)}, {len(callbacks)}")
    figure("ends by type", dict(Counter(job["params"]["json"]["type"] for job in callbacks.values())))
    figure("acknowledged retries, others that were stored", f"{load.retried.total()}, {unacknowledged}")
    figure("ends at most 20 ms before a kill", near)
    figure("attempts lost by a kill", lost)
    figure("callbacks sent more than once", sum(len(bodies) > 1 for bodies in sink.bodies.values()))
    assert near > 0, "no job ended just before a kill: the trial shows nothing"
    assert lost > 0, "no attempt ran when the service was killed: the trial shows nothing"


async def _end_all(client: Client, load: Load) -> None:
    """End the remaining jobs, and wait until each callback has been sent."""
    living = asyncio.create_task(load.live())
    async for _ in looks(60.0, 0.2):
        states = {job["state"] for job in await client.list_all("state=scheduled&state=running")}
        if not states:
            break
    living.cancel()
    with suppress(asyncio.CancelledError):
        await living
    async for _ in looks(60.0, 0.2):  # a retry may have been under way
        if not await client.list_all("state=scheduled&state=running"):
            return


def _check_callbacks(
    ended: dict[str, dict[str, Any]], callbacks: dict[str, dict[str, Any]], retried: Counter[str]
) -> int:
    """Check the callbacks of each job; return how many ends follow retries that the client does not know of."""
    by_job: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for callback in callbacks.values():
        by_job[callback["callback_of"]].append(callback)
    assert by_job.keys() == ended.keys()
    unacknowledged = 0
    for id, job in ended.items():
        reports = {callback["id"]: callback["params"]["json"] for callback in by_job[id]}
        versions = [report["job"]["version"] for report in reports.values()]
        latest = reports[job["on_finish"]["job"]]
        assert len({*versions}) == len(versions), f"an end of {id} was reported twice"
        assert latest["job"]["version"] == max(versions) == job["version"], f"the last end of {id} was not reported"
        assert latest["type"] == f"job.{job['state']}"
        assert latest["time"] == job["finished_at"]
        surplus = len(versions) - 1 - retried[id]
        assert surplus >= 0, f"{id} was retried {retried[id]} times and reported {len(versions)} times"
        unacknowledged += surplus  # a kill can hide the answer to a retry that is stored
    return unacknowledged


def _check_deliveries(callbacks: dict[str, dict[str, Any]], sink: Sink) -> None:
    assert sink.bodies.keys() == callbacks.keys()
    for id, callback in callbacks.items():
        is_lost = callback["state"] == "failed" and callback["error"]["type"] == "lost"  # by three kills in a row
        assert is_lost or callback["state"] == "succeeded", callback
        assert {*sink.bodies[id]} == {orjson.dumps(callback["params"]["json"])}


def _near(kills: list[int], callbacks: dict[str, dict[str, Any]]) -> int:
    now = round(time.time() * 1_000_000)
    ends = [parse_instant(callback["params"]["json"]["time"], now, YEARS) for callback in callbacks.values()]
    return sum(any(0 <= kill - end <= NEAR for kill in kills) for end in ends)
