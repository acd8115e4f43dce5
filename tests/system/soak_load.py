"""An endless mixed load: every call of the API, invalid ones too, at a moderate pace."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any

import aiohttp
from aiohttp import web

from tests.support.process import ServiceProcess
from tests.system.client import Client

FAR = 3_600.0
KEPT = "3s"
QUEUES = ("plain", "rated", "labelled", "narrow")
CONFIG = f"""
[webhooks]
allow_networks = ["127.0.0.0/8"]

[store]
retention_interval = 1.0

[workers]
processes = 2
grace = 0.3

[kinds]
begin = {{ python = "functions:begin" }}
nap = {{ python = "functions:nap" }}
quick = {{ python = "process_functions:quick", isolation = "process" }}
spin = {{ python = "process_functions:spin", isolation = "process", timeout = 0.2, retry = {{ max_attempts = 1 }} }}
cat = {{ command = ["cat"] }}
work = {{ pull = true }}

[queues]
plain = {{ retention = {{ succeeded = "{KEPT}", other = "{KEPT}" }} }}
rated = {{ rate = {{ per_second = 30, burst = 5 }}, retention = {{ succeeded = "{KEPT}", other = "{KEPT}" }} }}
narrow = {{ concurrency = 20, retention = {{ succeeded = "{KEPT}", other = "{KEPT}" }} }}

[queues.labelled]
label_concurrency = {{ label = "tenant", limit = 2 }}
retention = {{ succeeded = "{KEPT}", other = "{KEPT}" }}
"""
ONCE_MORE = {"max_attempts": 2, "delay": 0.3, "jitter": 0.5}
CUT_OFF = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"
WRONG: tuple[tuple[str, str, Any], ...] = (
    ("POST", "/v1/jobs", {"kind": "no-such-kind"}),
    ("POST", "/v1/jobs", {"kind": "echo", "params": {"sleep": "long"}}),
    ("POST", "/v1/jobs/batch", {"jobs": [{"kind": "echo"}, {"kind": 7}]}),
    ("POST", "/v1/jobs", {"kind": "echo", "params": {"much": "x" * 300_000}}),
    ("GET", "/v1/jobs?quue=x", None),
    ("GET", "/v1/jobs/none", None),
    ("DELETE", "/v1/jobs", None),
    ("POST", "/v1/leases/none/finish", {}),
)


class Sink:
    """The receiver of http jobs: it answers, fails, or is too slow."""

    async def __aenter__(self) -> Sink:
        app = web.Application()
        app.router.add_post("/{manner}", self._answer)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        manner = request.match_info["manner"]
        await request.read()
        await asyncio.sleep(2.0 if manner == "slow" else 0.01)
        return web.Response(status=500 if manner == "bad" else 200, text="x" * random.randint(0, 10_000))


class Load:
    """Clients of one service, each of which repeats one action; `answers` counts responses by status."""

    def __init__(self, *, session: aiohttp.ClientSession, service: ServiceProcess, sink: Sink) -> None:
        self.answers: Counter[int] = Counter()
        self._client = Client(session=session, service=service)
        self._service = service
        self._sink = sink
        self._numbers = count()

    async def run(self) -> None:
        """Run until cancelled. Each number is the mean pause between two actions, in seconds."""
        clients: list[tuple[Callable[[], Awaitable[object]], float]] = [
            *[(self._submit, 0.1)] * 3,
            (self._batch, 1.0),
            (self._stream, 1.0),
            (self._change, 0.04),
            (self._put_off, 0.05),
            (self._repeat, 0.2),
            (self._look_around, 0.1),
            *[(self._wait, 0.1)] * 3,
            (self._hang_up, 0.2),
            *[(self._work, 0.02)] * 2,
            (self._use_a_queue_once, 3.0),
            (self._err, 0.1),
            (self._reconnect, 0.5),
        ]
        async with asyncio.TaskGroup() as group:
            for turn, pause in clients:
                group.create_task(self._again_and_again(turn, pause))

    async def _again_and_again(self, turn: Callable[[], Awaitable[object]], pause: float) -> None:
        while True:
            await turn()
            await asyncio.sleep(random.expovariate(1 / pause))

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        status, answer = await self._client.ask(method, path, body)
        self.answers[status] += 1
        return answer

    # submits

    async def _submit(self) -> None:
        await self._ask("POST", "/v1/jobs", self._job())

    async def _batch(self) -> None:
        await self._ask("POST", "/v1/jobs/batch", {"jobs": [self._job() for _ in range(20)]})

    async def _stream(self) -> None:
        async for answer in self._client.stream([self._job() for _ in range(30)], size=10):
            self.answers[200 if "id" in answer else 400] += 1

    def _job(self) -> dict[str, Any]:
        job: dict[str, Any] = {"queue": random.choice(QUEUES), "retry": ONCE_MORE, **self._work_to_do()}
        job["labels"] = {"tenant": f"t{random.randrange(10**6)}"}
        if random.random() < 0.5:
            job["delay"] = round(random.uniform(0, 3), 3)
        if random.random() < 0.1:
            job["expires_after"] = 0.5
        if random.random() < 0.3:
            job |= {"key": f"key-{next(self._numbers)}", "on_conflict": "keep"}
        return job | {"priority": random.randint(-5, 5)}

    def _work_to_do(self) -> dict[str, Any]:
        draw = random.random()
        if draw < 0.5:
            return {"kind": "begin"}
        if draw < 0.6:
            return {"kind": "echo", "params": {"fail": "on request", "text": "x" * random.randint(0, 5_000)}}
        if draw < 0.63:
            return {"kind": "echo", "params": {"sleep": 1.0}, "timeout": 0.2}
        if draw < 0.75:
            manner = random.choice(["well", "well", "well", "bad", "slow"])
            url = f"{self._sink.url}/{manner}"
            return {"kind": "http", "params": {"url": url, "json": {"text": "x" * 500}}, "timeout": 0.5}
        if draw < 0.9:
            return {"kind": "work", "params": {"text": "x" * 200}}
        return {"kind": random.choice(["nap"] * 10 + ["quick"] * 10 + ["cat"] * 4 + ["spin"])}

    # calls on jobs

    async def _change(self) -> None:
        job = await self._ask("POST", "/v1/jobs", {"kind": "echo", "queue": "plain", "delay": FAR})
        path = f"/v1/jobs/{job['id']}"
        await self._ask("PATCH", path, {"delay": FAR * 2, "priority": 3, "labels": {"moved": "yes"}})
        match random.randrange(4):
            case 0:
                await self._ask("POST", f"{path}/cancel", {"reason": "not wanted any more"})
                await self._ask("POST", f"{path}/retry")
            case 1:
                await self._ask("POST", f"{path}/cancel")
            case 2:
                await self._ask("POST", f"{path}/run")
            case _:
                await self._ask("DELETE", path)

    async def _put_off(self) -> None:
        """Reschedule a few jobs again and again, which leaves a stale entry in the agenda each time."""
        key = f"put-off-{random.randrange(50)}"
        job = {"kind": "echo", "queue": "plain", "delay": FAR, "key": key, "on_conflict": "reschedule"}
        await self._ask("POST", "/v1/jobs", job)

    async def _repeat(self) -> None:
        """Send requests with one of a few Idempotency-Keys, which are kept for a day."""
        key = {"Idempotency-Key": f"once-{random.randrange(50)}"}
        job = {"kind": "echo", "queue": "plain"}
        status, _, _ = await self._client.ask_closely("POST", "/v1/jobs", job, key)
        self.answers[status] += 1

    async def _wait(self) -> None:
        job = await self._ask("POST", "/v1/jobs", {"kind": "begin", "queue": "plain", "delay": 0.3})
        await self._ask("GET", f"/v1/jobs/{job['id']}?wait=5")

    async def _hang_up(self) -> None:
        job = await self._ask("POST", "/v1/jobs", {"kind": "begin", "queue": "plain", "delay": 1.0})
        for path, body in ((f"/v1/jobs/{job['id']}?wait=5", None), ("/v1/leases", {"kinds": ["work"], "wait": 5})):
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self._client.ask("GET" if body is None else "POST", path, body)

    async def _work(self) -> None:
        body = {"kinds": ["work"], "max": 5, "wait": 1, "lease": 1}
        answer = await self._ask("POST", "/v1/leases", body)
        for lease in answer.get("leases", ()):
            path = f"/v1/leases/{lease['token']}"
            await self._ask("POST", f"{path}/extend", {"lease": 2})
            draw = random.random()
            if draw < 0.05:
                continue  # let it run out
            verb = "release" if draw < 0.1 else "fail" if draw < 0.2 else "finish"
            await self._ask("POST", f"{path}/{verb}", {"result": "done"} if verb == "finish" else {})

    # other requests

    async def _use_a_queue_once(self) -> None:
        """Use a new queue once, with a job that is then deleted."""
        queue = f"passing-{next(self._numbers)}"
        await self._ask("PUT", f"/v1/queues/{queue}", {"concurrency": 3})
        job = await self._ask("POST", "/v1/jobs", {"kind": "begin", "queue": queue})
        await self._ask("GET", f"/v1/jobs/{job['id']}?wait=5")
        await self._ask("POST", f"/v1/queues/{queue}/pause")
        await self._ask("DELETE", f"/v1/jobs/{job['id']}")
        await self._ask("DELETE", f"/v1/queues/{queue}")

    async def _look_around(self) -> None:
        path = f"/v1/jobs?limit=20&queue={random.choice(QUEUES)}&view=full"
        page = await self._ask("GET", path)
        if page["next"]:
            await self._ask("GET", f"{path}&cursor={page['next']}")
        for path in ("/v1/jobs?order=due_at&limit=10", "/v1/queues", "/v1/kinds", "/readyz", "/openapi.json"):
            await self._ask("GET", path)

    async def _err(self) -> None:
        await self._ask(*random.choice(WRONG))

    async def _reconnect(self) -> None:
        """Open a new connection, and another that breaks in the middle of a body."""
        async with aiohttp.ClientSession() as session, session.get(f"{self._service.url}/livez") as answer:
            self.answers[answer.status] += 1
        host, port = self._service.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(CUT_OFF)
        with suppress(OSError):
            await writer.drain()
            writer.close()
            await writer.wait_closed()
