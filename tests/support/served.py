"""The service on a real socket and virtual time, and a client that checks each response against the document."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Self

import aiohttp
import orjson
from multidict import CIMultiDictProxy
from yarl import URL

from erelong.clock import virtual
from erelong.clock.zones import ZoneSource
from erelong.handlers.kinds import Kinds
from erelong.handlers.registry import make_kinds
from erelong.model.job import Job
from erelong.model.submission import NewJob, Receipt
from erelong.monitoring.tracing import Tracing
from erelong.node import Node
from erelong.settings.kinds import KindSettings
from erelong.settings.sections import Config
from erelong.stores.base import Override, Saved
from erelong.web.listener import listen
from erelong.web.server import Server
from tests.support.contract import NDJSON, Contract
from tests.support.faults import FaultyStore
from tests.support.kinds import FakeRunner, for_ever
from tests.support.virtual import VirtualClock

Serve = Callable[..., Awaitable["Served"]]


_contracts: dict[bytes, Contract] = {}


class Answer(NamedTuple):
    """One response."""

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
        """Return the code of its problem."""
        code: str = self.json["code"]
        return code

    @property
    def pointers(self) -> list[str]:
        """Return the pointers of a 422."""
        return [fault["pointer"] for fault in self.json["errors"]]


class ServedStore(FaultyStore):
    """A store that can fail and be slow in every method the API calls."""

    async def add(self, new_jobs: Sequence[NewJob], **others: Any) -> Receipt:
        await self._before("add")
        return await super().add(new_jobs, **others)

    async def delete(self, job: Job, **others: Any) -> Saved:
        await self._before("delete")
        return await super().delete(job, **others)

    async def override(self, queue: str, override: Override | None) -> None:
        await self._before("override")
        await super().override(queue, override)


class Served:
    """A running service; `node` has its parts, and `call` sends requests, with `key` if that is set.

    `virtual_from` puts it on a virtual clock, frozen at that instant. Kinds: echo, http, endless (runs until stopped),
    those given as handlers, and those `declared` as in settings.
    """

    def __init__(
        self,
        *,
        clock: VirtualClock,
        store: ServedStore | None = None,
        kinds: Mapping[str, FakeRunner] | None = None,
        declared: dict[str, KindSettings] | None = None,
        tracing: Tracing | None = None,
        virtual_from: int | None = None,
        zone_source: ZoneSource | None = None,
        **sections: Any,
    ) -> None:
        config = Config(kinds=declared or {}, **sections)
        fakes = {"endless": FakeRunner(for_ever), **(kinds or {})}
        known = make_kinds(config, now=clock.now, is_virtual=virtual_from is not None) | {
            name: fake.kind(name) for name, fake in fakes.items()
        }
        self._tick = asyncio.get_running_loop().time
        self._is_virtual = virtual_from is not None
        self.clock = clock
        self.store = store or ServedStore()
        every = Kinds(*known.values())
        self.node = Node(
            config=config,
            store=self.store,
            kinds=every if tracing is None else tracing.wrap(every),
            now=clock.now,
            tracing=tracing,
            virtual=None if virtual_from is None else virtual.VirtualClock(at=virtual_from, tick=self._tick),
            zone_source=zone_source,
        )
        self.port = 0
        self.key: str | None = None
        self._connections = Server(timeouts=config.server, limits=config.limits, metrics=self.node.metrics)
        self._session = aiohttp.ClientSession()
        self._contract: Contract

    async def __aenter__(self) -> Self:
        await self.node.start()
        listener = listen("127.0.0.1", 0)
        self.port = listener.getsockname()[1]
        await self._connections.open(self.node.router, listener)
        self._contract = await self._get_contract()
        return self

    async def _get_contract(self) -> Contract:
        """Return the contract; tests with the same kinds share one, since making it is slower than most tests."""
        kinds = orjson.dumps({name: handler.params_schema for name, handler in self.node.kinds.items()})
        kinds += b" %d %d" % (self.node.config.auth.open_metrics, self._is_virtual)
        if kinds not in _contracts:
            async with self._session.get(f"http://127.0.0.1:{self.port}/openapi.json") as response:
                _contracts[kinds] = Contract(orjson.loads(await response.read()))
        return _contracts[kinds]

    async def __aexit__(self, *_: object) -> None:
        self.store.broken.clear()
        for event in self.store.held.values():
            event.set()
        await self._session.close()
        await self.node.stop()
        await self._connections.close()

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
        """Send a request for an encoded path; `json` is sent as JSON, `data` unchanged."""
        url = URL(f"http://127.0.0.1:{self.port}{path}", encoded=True)
        body = data if json is None else orjson.dumps(json)
        media = type or ("application/json" if isinstance(body, bytes) else None)
        given = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        given |= {**(headers or {}), **({"Content-Type": media} if media else {})}
        async with self._session.request(method, url, data=body, headers=given, allow_redirects=False) as response:
            is_endless = response.content_type == "text/event-stream"  # see tests.support.streams
            answer = Answer(response.status, response.headers, b"" if is_endless else await response.read())
        self._contract.check_answer(method, path, *answer)
        if path.startswith("/v1/kinds/") and method in ("PUT", "DELETE"):
            self._contract = await self._get_contract()
        if answer.status < 300 and media and json is not None:
            self._contract.check_request(method, path, media, orjson.dumps(json))
        return answer

    async def get(self, path: str, **options: Any) -> Answer:
        return await self.call("GET", path, **options)

    async def post(self, path: str, json: Any = None, **options: Any) -> Answer:
        return await self.call("POST", path, json, **options)

    async def patch(self, path: str, json: Any = None, **options: Any) -> Answer:
        return await self.call("PATCH", path, json, **options)

    async def put(self, path: str, json: Any = None, **options: Any) -> Answer:
        return await self.call("PUT", path, json, **options)

    async def delete(self, path: str, **options: Any) -> Answer:
        return await self.call("DELETE", path, **options)

    async def stream(self, *lines: Any, **options: Any) -> Answer:
        """Send lines as NDJSON: bytes unchanged, other values as JSON."""
        texts = [line if isinstance(line, bytes) else orjson.dumps(line) for line in lines]
        return await self.post("/v1/jobs/batch", data=b"\n".join(texts), type=NDJSON, **options)

    async def raw(self, request: bytes) -> bytes:
        """Send raw bytes; return all bytes received until the connection is closed."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = b""
        with suppress(ConnectionError):  # a connection closed while we send is reset
            writer.write(request)
            while part := await reader.read(65_536):
                answer += part
        writer.transport.abort()
        await asyncio.sleep(0)
        return answer

    async def submit(self, **fields: Any) -> dict[str, Any]:
        """Store a job, by default of the kind echo."""
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
        """Return the job as soon as it is in one of the states."""
        job = await self.job(id)
        while job["state"] not in states:
            answer = await self.get(f"/v1/jobs/{id}?wait=60", headers={"If-None-Match": f'"{job["version"]}"'})
            assert answer.status == 200, f"{id} is still {job['state']}, not {states}"
            job = answer.json
        return job

    async def submit_into(self, state: str, **fields: Any) -> dict[str, Any]:
        """Store a job and bring it into a state."""
        ways: dict[str, dict[str, Any]] = {
            "scheduled": {"delay": 1_000},
            "running": {"kind": "endless", "timeout": 3_600},
            "succeeded": {},
            "failed": {"params": {"fail": "boom"}, "retry": {"max_attempts": 1}},
            "cancelled": {"delay": 1_000},
            "expired": {"expires_after": 0},
        }
        job = await self.submit(**(ways[state] | fields))
        if state == "cancelled":
            await self.post(f"/v1/jobs/{job['id']}/cancel")
        return await self.until(job["id"], state)
