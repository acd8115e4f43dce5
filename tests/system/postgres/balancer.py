"""Two nodes behind a balancer that follows `/readyz`, and clients that note when they were acknowledged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import aiohttp

from tests.support.process import ServiceProcess
from tests.system.client import Client, looks
from tests.system.promises import Promises, keep

PROBE_PAUSE = 0.02
PROBE_TIMEOUT = aiohttp.ClientTimeout(total=0.3)


class Balancer:
    """Sends requests to the node that is ready; until one is, to the last one."""

    def __init__(self, nodes: Sequence[ServiceProcess]) -> None:
        self.nodes = nodes
        self.leader = nodes[0]

    @property
    def url(self) -> str:
        return self.leader.url

    async def probe(self) -> None:
        async with aiohttp.ClientSession(timeout=PROBE_TIMEOUT) as session:
            await asyncio.gather(*(self._probe(session, node) for node in self.nodes))

    async def _probe(self, session: aiohttp.ClientSession, node: ServiceProcess) -> None:
        while True:
            with suppress(aiohttp.ClientError, OSError):
                async with session.get(f"{node.url}/readyz") as response:
                    if response.status == 200:
                        self.leader = node
            await asyncio.sleep(PROBE_PAUSE)


class Noted(Promises):
    """Promises with the time of each write and of its acknowledgement."""

    def __init__(self, client: Client, **given: Any) -> None:
        super().__init__(client, **given)
        self.acks: list[tuple[float, float]] = []
        self.seconds: list[float] = []
        """How long each answer took."""

    async def _ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        sent = time.monotonic()
        status, answer = await super()._ask(method, path, body)
        self.seconds.append(time.monotonic() - sent)
        if status < 300:
            self.acks.append((sent, time.monotonic()))
        return status, answer

    def longest_pause(self, since: float) -> float:
        """Return the longest time without an acknowledgement of a write that was sent after `since`."""
        times = [since, *(answered for sent, answered in self.acks if sent >= since)]
        return max(later - earlier for earlier, later in pairwise(times))


class Trial:
    """Nodes behind a balancer, under load."""

    def __init__(self, balancer: Balancer, client: Client, clients: int, kind: str) -> None:
        self.balancer = balancer
        self.promises = Noted(client, kind=kind)
        self.tasks = [asyncio.create_task(balancer.probe()), asyncio.create_task(self.promises.load(clients))]

    @property
    def leader(self) -> ServiceProcess:
        return self.balancer.leader

    async def pause_until_taken_over(self, since: float) -> float:
        """Wait until another node leads and acknowledges; return the longest pause of acknowledgements since then."""
        before = self.leader
        async for _ in looks(30.0):
            if self.leader is not before:
                break
        led_at = time.monotonic()
        async for _ in looks(30.0):
            if any(sent >= led_at for sent, _ in self.promises.acks):
                break
        return self.promises.longest_pause(since)

    async def keep(self) -> int:
        """End the load, assert that every promise holds, and return the number of acknowledged jobs."""
        self.promises.is_over = True
        await self.tasks[1]
        async with aiohttp.ClientSession() as session:  # its pages take longer than a write
            await keep(self.promises, Client(session=session, service=self.balancer))
        return len(self.promises.book)


@asynccontextmanager
async def loaded(
    nodes: Sequence[ServiceProcess], *, clients: int = 2, patience: float = 0.4, kind: str = "echo"
) -> AsyncIterator[Trial]:
    """Write through a balancer before the nodes until the block ends."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=patience)) as session:
        balancer = Balancer(nodes)
        trial = Trial(balancer, Client(session=session, service=balancer), clients, kind)
        try:
            yield trial
        finally:
            for task in trial.tasks:
                task.cancel()
            await asyncio.gather(*trial.tasks, return_exceptions=True)
