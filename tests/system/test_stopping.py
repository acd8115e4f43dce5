"""A service under mixed load is stopped, repeatedly: it ends in time and loses no job."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import aiohttp
import orjson
import pytest

from tests.support.alive import alive, descendants, is_running
from tests.support.process import ServiceProcess
from tests.system.book import install, read_book
from tests.system.client import NDJSON, Client, looks
from tests.system.soak_load import CUT_OFF, Sink
from tests.system.trials import sized

ROUNDS = sized(2, 20)
DRAIN = 1.0
SLACK = sized(1.5, 1.0)  # seconds beyond the drain; a quiet machine keeps the promise
AT_ONCE = 0.5  # seconds within which waiting requests are answered
CONFIG = """
[webhooks]
allow_networks = ["127.0.0.0/8"]

[workers]
processes = 2

[kinds]
note = { python = "functions:note" }
nap = { python = "functions:nap" }
swallow = { python = "functions:swallow" }
block = { python = "functions:block" }
quick = { python = "process_functions:quick", isolation = "process" }
ignore = { python = "process_functions:ignore", isolation = "process" }
rest = { command = ["sleep", "600"] }
work = { pull = true }

[queues.default]
concurrency = 1000
"""
LONG = ("swallow", "block", "ignore", "rest")  # functions that never end
SHORT = ("note", "nap", "quick", "echo", "work")

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(60, 400))]


class Clients:
    """The clients of one round, with the responses they got before and during the drain."""

    def __init__(self, *, session: aiohttp.ClientSession, service: ServiceProcess, sink: Sink) -> None:
        self.acknowledged: set[str] = set()
        self.answers: Counter[tuple[str, int, str]] = Counter()
        self.wrong: list[object] = []
        self.has_waiting = False
        self.let_go_after = 0.0
        self._client = Client(session=session, service=service)
        self._session = session
        self._service = service
        self._sink = sink
        self._stopped_at: float | None = None

    async def run(self) -> None:
        """Run until the service stops answering."""
        turns = [self._submit] * 3 + [self._batch] + [self._work] * 3 + [self._read]
        await asyncio.gather(
            *map(self._again_and_again, turns), self._stream(), self._dawdle(), self._wait(), self._keep_a_lease()
        )

    async def under_way(self) -> None:
        """Wait until some requests wait and one client holds a lease, and then a random time."""
        async for _ in looks():
            if self.has_waiting and self.answers["extend", 200, ""]:
                break
        await asyncio.sleep(random.uniform(0.1, sized(0.6, 2.0)))

    def note_stop(self) -> None:
        self._stopped_at = time.monotonic()

    async def _again_and_again(self, turn: Callable[[], Awaitable[None]]) -> None:
        with suppress(aiohttp.ClientError, OSError):
            while True:
                await turn()
                await asyncio.sleep(0.01)

    async def _ask(self, what: str, method: str, path: str, body: object = None) -> Any:
        status, headers, answer = await self._client.ask_closely(method, path, body)
        code = answer["code"] if status >= 400 else ""
        self.answers[what, status, code] += 1
        if status >= 400 and (status, code) != (503, "draining"):
            self.wrong.append(answer)
        if status == 503 and int(headers["Retry-After"]) < 1:
            self.wrong.append(headers)
        return answer if status < 400 else None

    async def _submit(self) -> None:
        job = await self._ask("submit", "POST", "/v1/jobs", self._job())
        if job:
            self.acknowledged.add(job["id"])

    async def _batch(self) -> None:
        answer = await self._ask("batch", "POST", "/v1/jobs/batch", {"jobs": [self._job() for _ in range(10)]})
        if answer:
            self.acknowledged |= {ticket["id"] for ticket in answer["jobs"]}

    async def _stream(self) -> None:
        """Send one stream that goes on after the service began to drain."""

        async def lines() -> AsyncIterator[bytes]:
            while True:
                yield orjson.dumps(self._job()) + b"\n"
                await asyncio.sleep(0.01)

        url = f"{self._service.url}/v1/jobs/batch"
        async with self._session.post(url, data=lines(), headers=NDJSON) as response:
            with suppress(aiohttp.ClientError):
                async for text in response.content:
                    self._read_line(orjson.loads(text))

    def _read_line(self, line: dict[str, Any]) -> None:
        if "id" in line:
            self.acknowledged.add(line["id"])
        elif line["problem"]["code"] != "draining":
            self.wrong.append(line)
        self.answers["line", line.get("problem", {}).get("status", 200), ""] += 1

    async def _dawdle(self) -> None:
        """Send a request whose body never ends."""
        host, port = self._service.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(CUT_OFF)
        with suppress(OSError):
            await reader.read()
        writer.close()

    async def _wait(self) -> None:
        """Send requests that would wait much longer than the service runs."""
        far = await self._ask("submit", "POST", "/v1/jobs", {"kind": "note", "delay": 3600})
        self.acknowledged.add(far["id"])
        self.has_waiting = True
        await asyncio.gather(
            *(self._ask("wait", "GET", f"/v1/jobs/{far['id']}?wait=60") for _ in range(10)),
            *(
                self._ask("ask", "POST", "/v1/leases", {"kinds": ["work"], "queues": ["none"], "wait": 60})
                for _ in range(10)
            ),
        )
        self.let_go_after = time.monotonic() - (self._stopped_at or 0.0)

    async def _work(self) -> None:
        body = {"kinds": ["work"], "queues": ["default"], "max": 3, "wait": 0.2, "lease": 60}
        answer = await self._ask("lease", "POST", "/v1/leases", body)
        for lease in answer["leases"] if answer else ():
            await asyncio.sleep(0.01)
            await self._ask("finish", "POST", f"/v1/leases/{lease['token']}/finish", {"result": 1})

    async def _keep_a_lease(self) -> None:
        """Extend and finish leases until the service ends."""
        job = await self._ask("submit", "POST", "/v1/jobs", {"kind": "work", "queue": "kept"})
        self.acknowledged.add(job["id"])
        body = {"kinds": ["work"], "queues": ["kept"], "wait": 5, "lease": 60}
        (lease,) = (await self._ask("lease", "POST", "/v1/leases", body))["leases"]
        while self._stopped_at is None or time.monotonic() < self._stopped_at + DRAIN * 0.8:
            await self._ask("extend", "POST", f"/v1/leases/{lease['token']}/extend", {"lease": 60})
            await asyncio.sleep(0.02)
        if not await self._ask("finish", "POST", f"/v1/leases/{lease['token']}/finish"):
            self.wrong.append("an answer to a lease was not taken")

    async def _read(self) -> None:
        await self._ask("list", "GET", "/v1/jobs?limit=10")

    def _job(self) -> dict[str, Any]:
        kind = random.choice([*SHORT, "http"])
        params: dict[str, Any] = {}
        if kind in ("note", "echo"):
            params["sleep"] = random.choice([0, 0.05, 0.5, 1.5])
        elif kind == "http":
            params["url"] = f"{self._sink.url}/{random.choice(['well', 'slow'])}"
        return {"kind": kind, "params": params, "delay": random.choice([0, 0.3])}


async def test_service_under_load_ends_in_time_and_neither_loses_nor_counts_stopped_attempts(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    session: aiohttp.ClientSession,
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG, settings={"server.drain_timeout": str(DRAIN)})
    install(service)
    client = make_client(service)
    acknowledged: set[str] = set()
    answers: Counter[tuple[str, int, str]] = Counter()

    async with Sink() as sink:
        seconds, let_go_after = [], []
        for turn in range(ROUNDS):
            service.start()
            if turn == 0:  # the counts begin at zero in each round
                acknowledged |= set(await client.submit_batch([{"kind": kind, "timeout": 6_000} for kind in LONG]))
            clients = Clients(session=session, service=service, sink=sink)
            loading = asyncio.create_task(clients.run())
            await clients.under_way()
            service.signal(signal.SIGTERM)
            clients.note_stop()
            ended = await asyncio.to_thread(service.wait)
            await loading
            assert ended.code == 0
            assert clients.wrong == []
            assert (service.errors(), service.events("stopped")[0]["unsaved"]) == ([], 0)
            seconds.append(ended.seconds)
            let_go_after.append(clients.let_go_after)
            acknowledged |= clients.acknowledged
            answers += clients.answers
        service.start()
        await _until_only_these_run(client, LONG)
        jobs = {job["id"]: job for job in await client.list_all()}

    figure(f"{ROUNDS} stops under load, seconds beyond the drain of {DRAIN:g}: most", f"{max(seconds) - DRAIN:.3f}")
    figure("seconds until those that wait were answered: most", f"{max(let_go_after):.3f}")
    figure("acknowledged jobs", len(acknowledged))
    figure("answers", {" ".join(map(str, key)).strip(): number for key, number in sorted(answers.items())})
    figure("attempts by outcome", dict(_outcomes(jobs)))
    assert max(seconds) < DRAIN + SLACK
    assert max(let_go_after) < AT_ONCE
    assert acknowledged <= jobs.keys()
    assert answers["submit", 503, "draining"] > 0
    assert answers["wait", 200, ""] == 10 * ROUNDS
    assert [job for job in jobs.values() if not _has_right_count(job)] == []
    assert set(_outcomes(jobs)) == {"succeeded", "released"}
    begun = Counter(run.id for run in read_book(service))
    assert [id for id, runs in begun.items() if runs > len(jobs[id]["attempts"])] == []


async def test_second_signal_under_load_ends_the_service_at_once_without_leftover_processes(
    make_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client]
) -> None:
    service = make_service(config=CONFIG)
    install(service)
    service.start()
    client = make_client(service)
    await client.submit_batch([{"kind": kind, "timeout": 600} for kind in LONG] + [{"kind": "echo"}] * 500)
    pids = service.folder / "pids.txt"
    async for _ in looks():
        if alive(pids) and (await client.counts())["running"] == len(LONG):
            break
    family = descendants(service.pid)

    service.signal(signal.SIGTERM)
    async for _ in looks():
        if service.events("draining"):
            break
    service.signal(signal.SIGTERM)
    ended = await asyncio.to_thread(service.wait)

    assert (ended.code, ended.seconds < AT_ONCE) == (128 + signal.SIGTERM, True)
    async for _ in looks(5.0):
        if not [pid for pid in family if is_running(pid)]:
            break
    service.start()
    (counts,) = [await client.counts()]
    assert counts["succeeded"] == 500


async def test_idle_service_with_clients_connected_stops_at_once(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(config=CONFIG)
    install(service)
    service.start()
    client = make_client(service)
    ids = await client.submit_batch([{"kind": kind} for kind in ("note", "nap", "quick", "echo")])
    await asyncio.gather(*(client.wait_until_final(id) for id in ids))

    ended = await asyncio.to_thread(service.stop)

    figure("seconds", f"{ended.seconds:.3f}")
    assert ended.code == 0
    assert ended.seconds < 1.0


async def _until_only_these_run(client: Client, kinds: Iterable[str]) -> None:
    """Wait until only these kinds run: pull workers are gone, and their jobs wait for others."""
    async for _ in looks(60.0, 0.05):
        live = await client.list_all("state=scheduled&state=running&queue=default")
        if {job["kind"] for job in live if job["waiting_for"] != "time"} <= {*kinds, "work"}:
            return


def _has_right_count(job: dict[str, Any]) -> bool:
    """Whether released attempts are not counted. A running attempt is counted but not yet in `attempts`."""
    counted = [attempt["number"] for attempt in job["attempts"] if attempt["outcome"] != "released"]
    if job["state"] == "running":
        counted.append(job["attempt"])
    return bool(job["attempt"] == len(counted) and counted == [*range(1, len(counted) + 1)])


def _outcomes(jobs: dict[str, dict[str, Any]]) -> Counter[str]:
    return Counter(attempt["outcome"] for job in jobs.values() for attempt in job["attempts"])
