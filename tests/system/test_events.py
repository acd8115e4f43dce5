"""Streams of events under load, kills and slow readers: no gap without a reset. Sleeping readers slow no submit."""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median

import aiohttp
import pytest

from tests.support.process import ServiceProcess
from tests.support.streams import Message, follow
from tests.system.client import NDJSON, Client
from tests.system.trials import IS_FULL, percentile, sized

EVENTS = sized(20_000, 1_000_000)
PER_JOB = 3  # submitted, started, succeeded
KILLS = sized(2, 6)
LINES = 500
SLEEPERS = sized(20, 100)
POSTS = sized(200, 3_000)
AT_ONCE = 8

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(sized(120, 3_000))]


class Follower:
    """A reader that comes back after each cut. Between two resets, the versions of each job must rise without a gap."""

    def __init__(self, service: ServiceProcess, *, slowness: float, seed: int) -> None:
        self._service = service
        self._slowness = slowness
        self._dice = random.Random(seed)
        self._last_id: str | None = None
        self.versions: dict[str, list[int]] = {}  # since the last reset
        self.events = self.resets = 0

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except (aiohttp.ClientError, ConnectionError, EOFError, TimeoutError, AssertionError):
                await asyncio.sleep(0.1)

    async def _follow(self) -> None:
        port = int(self._service.url.rpartition(":")[2])
        async with follow(port, last_id=self._last_id) as stream:
            left = self._dice.randint(1_000, 20_000)
            while left:
                block = await stream.read_block()
                if block is None:
                    return
                self._last_id = block.id
                if block.event:
                    self._take(block)
                    left -= 1
                if self._slowness and self._dice.random() < 0.001:
                    await asyncio.sleep(self._slowness)

    def _take(self, message: Message) -> None:
        if message.event == "reset":
            self.resets += 1
            self.versions.clear()
            return
        self.events += 1
        job = message.job
        self.versions.setdefault(job["id"], []).append(job["version"])

    def check(self, last: int) -> None:
        """Check the events since the last reset; without another one after the last kill, they are of `last` jobs."""
        for id, versions in self.versions.items():
            assert all(after == before + 1 for before, after in pairwise(versions)), f"{id}: {versions}"
        followed = [versions for versions in self.versions.values() if versions[0] == 1]
        assert followed == [[1, 2, 3]] * len(followed)
        if self.resets == KILLS:
            assert len(followed) == last


async def submit(session: aiohttp.ClientSession, service: ServiceProcess, jobs: int) -> None:
    """Submit jobs that are due at once."""
    for start in range(0, jobs, LINES):
        lines = b'{"kind":"echo"}\n' * min(LINES, jobs - start)
        async with session.post(f"{service.url}/v1/jobs/batch", data=lines, headers=NDJSON) as response:
            await response.read()


async def settle(client: Client) -> int:
    """Wait until nothing waits or runs; return how many jobs have succeeded."""
    while True:
        counts: dict[str, int] = await client.counts("default")
        if not counts["scheduled"] + counts["running"]:
            return counts["succeeded"]
        await asyncio.sleep(0.1)


async def caught_up(followers: Sequence[Follower]) -> None:
    """Wait until no reader has got an event for some time."""
    before = -1
    while before < (before := sum(follower.events + follower.resets for follower in followers)):  # noqa: ASYNC110 - another process
        await asyncio.sleep(4.0)


async def test_readers_have_no_gap_without_a_reset_over_kills(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    session: aiohttp.ClientSession,
    figure: Callable[[str, object], None],
) -> None:
    service = make_service(settings={"limits.max_events": "20000"})
    service.start()
    service.keep_port()
    client = make_client(service)
    followers = [Follower(service, slowness=slowness, seed=seed) for seed, slowness in enumerate((0.0, 0.05, 1.0))]
    tasks = [asyncio.create_task(follower.run()) for follower in followers]
    await asyncio.sleep(0.5)

    began = time.perf_counter()
    for kill in range(KILLS):
        await submit(session, service, EVENTS // PER_JOB // (KILLS + 1))
        await asyncio.to_thread(service.kill)
        await asyncio.to_thread(service.start)
        async with asyncio.timeout(20):
            while followers[0].resets <= kill:  # noqa: ASYNC110 - the fast reader comes back before the next kill
                await asyncio.sleep(0.02)
    last = EVENTS // PER_JOB // (KILLS + 1)
    await asyncio.sleep(2.0)  # the readers come back
    await submit(session, service, last)
    succeeded = await settle(client)
    took = time.perf_counter() - began
    await caught_up(followers)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

    figure(f"{succeeded} jobs, {KILLS} kills", f"{took:.0f} s")
    for follower, kind in zip(followers, ("fast", "slow", "very slow"), strict=True):
        figure(f"{kind} reader", f"{follower.events} events, {follower.resets} resets")
        follower.check(last)
    assert followers[0].resets >= KILLS


async def sleeper(port: int) -> socket.socket:
    """Open a stream and never read it."""
    connected = socket.socket()
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connected.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connected, ("127.0.0.1", port))
    await loop.sock_sendall(connected, b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connected


async def durations(client: Client, number: int) -> list[float]:
    """Submit waiting jobs, some at once; return how long each took."""
    took: list[float] = []
    left = iter(range(number))

    async def one() -> None:
        for _ in left:
            began = time.perf_counter()
            await client.submit(kind="echo", delay=100_000)
            took.append(time.perf_counter() - began)

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))
    return took


async def test_sleeping_readers_slow_no_submit(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    figure: Callable[[str, object], None],
) -> None:
    service = make_service()
    service.start()
    client = make_client(service)
    port = int(service.url.rpartition(":")[2])
    await durations(client, POSTS // 4)
    resident = service.resident_bytes()

    pairs: list[tuple[float, float]] = []
    for _ in range(sized(1, 5)):
        alone = await durations(client, POSTS)
        sleepers = [await sleeper(port) for _ in range(SLEEPERS)]
        await asyncio.sleep(0.5)
        beside = await durations(client, POSTS)
        for connected in sleepers:
            connected.close()
        await asyncio.sleep(1.0)
        pairs.append((percentile(alone, 0.99), percentile(beside, 0.99)))

    figure("p99 of a submit in ms: alone, beside sleepers", [(f"{a * 1e3:.1f}", f"{b * 1e3:.1f}") for a, b in pairs])
    figure("memory grown", f"{(service.resident_bytes() - resident) / 2**20:.1f} MiB")
    assert service.resident_bytes() > 0
    if IS_FULL:
        assert median(beside / alone for alone, beside in pairs) < 2
