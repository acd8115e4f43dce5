"""The real service behind a real socket, and a client beside it that holds every answer against the document."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import aiohttp
import orjson
from aiohttp import web
from multidict import CIMultiDictProxy
from yarl import URL

from app.main import Parts, listen
from tests.support.virtual import VirtualClock


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [orjson.loads(line) for line in self.body.splitlines()]

    @property
    def code(self) -> str:
        """The code of the problem that it tells."""
        assert self.headers["Content-Type"] == "application/problem+json", self.body
        code: str = self.json["code"]
        return code

    @property
    def pointers(self) -> list[str]:
        """The places that a 422 names."""
        return [fault["pointer"] for fault in self.json["errors"]]


class Served:
    """A running service; `parts` is its inside, `call` the way in that clients have."""

    def __init__(self, *, parts: Parts, clock: VirtualClock) -> None:
        self.parts = parts
        self.clock = clock
        self._runner = web.AppRunner(parts.app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        self._session = aiohttp.ClientSession()
        self.port = 0

    async def __aenter__(self) -> Self:
        await self.parts.start()
        await self._runner.setup()
        door = listen("127.0.0.1", 0)
        self.port = door.getsockname()[1]
        await web.SockSite(self._runner, door).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        await self.parts.stop()
        await self._runner.cleanup()

    async def call(
        self,
        method: str,
        path: str,
        json: Any = None,
        *,
        data: Any = None,
        type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Ask for a path as it stands; `json` is sent as JSON, `data` as it is."""
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        body = data if json is None else orjson.dumps(json)
        type = type or ("application/json" if json is not None or isinstance(data, bytes | str) else None)
        given = dict(headers or {}) | ({"Content-Type": type} if type else {})
        async with self._session.request(method, url, data=body, headers=given, allow_redirects=False) as response:
            return Answer(response.status, response.headers, await response.read())

    async def get(self, path: str, **asked: Any) -> Answer:
        return await self.call("GET", path, **asked)

    async def post(self, path: str, json: Any = None, **asked: Any) -> Answer:
        return await self.call("POST", path, json, **asked)

    async def patch(self, path: str, json: Any = None, **asked: Any) -> Answer:
        return await self.call("PATCH", path, json, **asked)

    async def put(self, path: str, json: Any = None, **asked: Any) -> Answer:
        return await self.call("PUT", path, json, **asked)

    async def delete(self, path: str, **asked: Any) -> Answer:
        return await self.call("DELETE", path, **asked)

    async def raw(self, request: bytes) -> bytes:
        """Send bytes that no proper client would; all that comes until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def submit(self, **fields: Any) -> dict[str, Any]:
        """A job of the kind echo, stored."""
        answer = await self.post("/v1/jobs", {"kind": "echo", **fields})
        assert answer.status == 201, answer.body
        job: dict[str, Any] = answer.json
        return job

    async def job(self, id: str) -> dict[str, Any]:
        answer = await self.get(f"/v1/jobs/{id}")
        assert answer.status == 200, answer.body
        job: dict[str, Any] = answer.json
        return job

    async def until(self, id: str, *states: str) -> dict[str, Any]:
        """The job as soon as it is in one of the states."""
        job = await self.job(id)
        while job["state"] not in states:
            headers = {"If-None-Match": f'"{job["version"]}"'}
            answer = await self.get(f"/v1/jobs/{id}?wait=60", headers=headers)
            assert answer.status == 200, f"{id} is still {job['state']}, not {states}"
            job = answer.json
        return job
