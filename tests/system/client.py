"""A client of the service, as a user would write it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Protocol

import aiohttp
import orjson

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}


class Addressed(Protocol):
    """A service, or what leads to one."""

    @property
    def url(self) -> str: ...


class Client:
    """A client of one service, on the port of its last start."""

    def __init__(self, *, session: aiohttp.ClientSession, service: Addressed) -> None:
        self._session = session
        self._service = service

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Send one request; return the status and the JSON of the response."""
        status, _, answer = await self.ask_closely(method, path, body)
        return status, answer

    async def ask_closely(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        data = None if body is None else orjson.dumps(body)
        sent = {**JSON, **(headers or {})}
        async with self._session.request(method, self._service.url + path, data=data, headers=sent) as response:
            text = await response.read()
            return response.status, dict(response.headers), orjson.loads(text) if text else None

    async def page(self, path: str) -> str:
        """Return the text of a response that is not JSON."""
        async with self._session.get(self._service.url + path) as response:
            assert response.status == 200
            return await response.text()

    async def submit(self, **job: Any) -> dict[str, Any]:
        status, answer = await self.ask("POST", "/v1/jobs", job)
        assert status == 201, answer
        return dict(answer)

    async def submit_batch(self, jobs: list[dict[str, Any]]) -> list[str]:
        status, answer = await self.ask("POST", "/v1/jobs/batch", {"jobs": jobs})
        assert status == 201, answer
        return [ticket["id"] for ticket in answer["jobs"]]

    async def stream(self, jobs: Iterable[dict[str, Any]], *, size: int = 500) -> AsyncIterator[dict[str, Any]]:
        """Submit lines, `size` at a time; yield the response to each as it arrives."""

        async def chunks() -> AsyncIterator[bytes]:
            lines: list[bytes] = []
            for job in jobs:
                lines.append(orjson.dumps(job) + b"\n")
                if len(lines) == size:
                    yield b"".join(lines)
                    lines.clear()
            yield b"".join(lines)

        url = f"{self._service.url}/v1/jobs/batch"
        async with self._session.post(url, data=chunks(), headers=NDJSON) as response:
            assert response.status == 200
            async for line in response.content:
                yield orjson.loads(line)

    async def read(self, id: str) -> dict[str, Any]:
        status, job = await self.ask("GET", f"/v1/jobs/{id}")
        assert status == 200, job
        return dict(job)

    async def wait_until_final(self, id: str, seconds: float = 30.0) -> dict[str, Any]:
        status, job = await self.ask("GET", f"/v1/jobs/{id}?wait={seconds:g}")
        assert status == 200, job
        return dict(job)

    async def list_all(self, query: str = "view=full") -> list[dict[str, Any]]:
        """Return all jobs, page by page."""
        jobs: list[dict[str, Any]] = []
        path = f"/v1/jobs?limit=1000&{query}"
        while path:
            status, page = await self.ask("GET", path)
            assert status == 200, page
            jobs += page["jobs"]
            path = f"/v1/jobs?limit=1000&{query}&cursor={page['next']}" if page["next"] else ""
        return jobs

    async def counts(self, queue: str = "default") -> dict[str, int]:
        status, body = await self.ask("GET", f"/v1/queues/{queue}")
        assert status == 200, body
        return dict(body["counts"])

    async def wait_until_done(self, *, waiting: int = 0, queue: str = "default", timeout: float = 60.0) -> None:
        """Wait until no job runs and only `waiting` jobs wait."""
        async for _ in looks(timeout, 0.05):
            counts = await self.counts(queue)
            if counts["scheduled"] <= waiting and not counts["running"]:
                return

    async def submit_and_wait_for_start(self, **job: Any) -> dict[str, Any]:
        """Submit a job and wait until its handler starts."""
        submitted = await self.submit(**job)
        async for _ in looks():
            submitted = await self.read(submitted["id"])
            if submitted["state"] == "running":
                break
        return submitted


async def looks(timeout: float = 10.0, pause: float = 0.01) -> AsyncIterator[None]:
    """Yield until the caller leaves the loop; raise TimeoutError at the timeout."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        yield
        await asyncio.sleep(pause)
    raise TimeoutError(f"the condition was not met within {timeout:g} s")
