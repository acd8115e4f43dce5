"""The acknowledged state of every job, and the check that the service keeps it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import aiohttp

from tests.system.client import Client

FAR = 3_600
BATCH = 10
PAUSE_AFTER_REFUSAL = 0.02
ALLOWED = frozenset({503, 507})


class Promise(NamedTuple):
    """The last acknowledged state of a job. A job that is not `is_far` is due at once."""

    is_far: bool
    priority: int = 0
    is_cancelled: bool = False


class Promises:
    """Clients that submit, change and cancel jobs, and the book of acknowledged states."""

    def __init__(
        self, client: Client, *, seed: int = 7, kind: str = "echo", params: Mapping[str, Any] | None = None
    ) -> None:
        self.book: dict[str, Promise] = {}
        self.unsure: set[str] = set()
        self.statuses: Counter[int] = Counter()
        self.is_over = False
        self.is_power_cut = False
        self._client = client
        self._job = {"kind": kind, "params": dict(params or {})}
        self._chance = random.Random(seed)

    async def load(self, clients: int = 8, *, asks: int | None = None) -> None:
        """Send requests until `is_over`, or `asks` times per client."""
        await asyncio.gather(*(self._ask_on(asks) for _ in range(clients)))

    async def _ask_on(self, asks: int | None) -> None:
        ways = (self._submit, self._submit, self._submit_now, self._submit_batch, self._change, self._cancel)
        done = 0
        while not self.is_over and done != asks:
            done += 1
            try:
                await self._chance.choice(ways)()
            except (aiohttp.ClientError, OSError):  # the service is gone, and the result of the request unknown
                await asyncio.sleep(PAUSE_AFTER_REFUSAL)

    async def _submit(self) -> None:
        status, answer = await self._ask("POST", "/v1/jobs", {**self._job, "delay": FAR})
        if status == 201:
            self.book[answer["id"]] = Promise(is_far=True)

    async def _submit_now(self) -> None:
        status, answer = await self._ask("POST", "/v1/jobs", self._job)
        if status == 201:
            self.book[answer["id"]] = Promise(is_far=False)

    async def _submit_batch(self) -> None:
        jobs = [{**self._job, "delay": FAR}] * BATCH
        status, answer = await self._ask("POST", "/v1/jobs/batch", {"jobs": jobs})
        if status == 201:
            self.book |= {job["id"]: Promise(is_far=True) for job in answer["jobs"]}

    async def _change(self) -> None:
        priority = self._chance.randrange(1, 100)
        await self._step(lambda id: self._ask("PATCH", f"/v1/jobs/{id}", {"priority": priority}), priority=priority)

    async def _cancel(self) -> None:
        await self._step(lambda id: self._ask("POST", f"/v1/jobs/{id}/cancel"), is_cancelled=True)

    async def _step(self, ask: Callable[[str], Any], **changes: Any) -> None:
        """Change a waiting job that no other client is changing; without a success its state is unknown."""
        waiting = [id for id in self._some_ids() if id not in self.unsure and not self.book[id].is_cancelled]
        if not waiting:
            await self._submit()
            return
        id = waiting[0]
        self.unsure.add(id)
        status, _ = await ask(id)
        if status == 200:
            self.book[id] = self.book[id]._replace(**changes)
            self.unsure.remove(id)

    def _some_ids(self) -> list[str]:
        ids = list(self.book)
        return [id for id in self._chance.sample(ids, min(8, len(ids))) if self.book[id].is_far]

    async def _ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        status, answer = await self._client.ask(method, path, body)
        if self.is_power_cut:
            raise ConnectionError("without power, no answer is sent")
        self.statuses[status] += 1
        if status >= 300:
            assert status in ALLOWED, (method, path, status, answer)
            await asyncio.sleep(PAUSE_AFTER_REFUSAL)
        return status, answer

    def broken(self, jobs: Collection[Mapping[str, Any]]) -> dict[str, str]:
        """Return the broken promises, with the fault of each."""
        by_id = {job["id"]: job for job in jobs}
        wrong = {id: self.fault(id, by_id.get(id)) for id in self.book}
        return {id: fault for id, fault in wrong.items() if fault}

    def fault(self, id: str, job: Mapping[str, Any] | None) -> str:
        """Return how a job breaks its promise; empty if it does not."""
        promise = self.book[id]
        if job is None:
            return "it is missing"
        if job["state"] == "failed" and job["error"]["type"] == "unreadable":
            return "it cannot be read, and says so"
        if not promise.is_far:
            return "" if job["state"] in ("scheduled", "running", "succeeded") else f"it is {job['state']}"
        if id in self.unsure:
            return "" if job["state"] in ("scheduled", "cancelled") else f"it is {job['state']}"
        state = "cancelled" if promise.is_cancelled else "scheduled"
        is_kept = (job["state"], job["priority"]) == (state, promise.priority)
        return "" if is_kept else f"{promise} was acknowledged, it is {job['state']}, priority {job['priority']}"


async def keep(promises: Promises, client: Client, *, timeout: float = 20.0) -> None:
    """Assert that every promise holds and every due job ends."""
    broken = promises.broken(await client.list_all("view=full"))
    assert not broken, f"{len(broken)} of {len(promises.book)} promises are broken: {dict([*broken.items()][:3])}"
    deadline = time.monotonic() + timeout
    while promises.book and await _is_busy(client):
        assert time.monotonic() < deadline, "a due job does not run"
        await asyncio.sleep(0.05)


async def _is_busy(client: Client) -> bool:
    counts = await client.counts()
    return bool(counts["due"] or counts["running"])


async def stop_loading(promises: Promises, loading: asyncio.Task[None]) -> None:
    promises.is_over = True
    with suppress(aiohttp.ClientError, OSError):
        await loading
