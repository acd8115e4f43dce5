"""One POST, one run and one GET stay within their bounds of Python calls and SQL statements."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest

from erelong.handlers.registry import make_kinds
from erelong.model.events.event import EventType
from erelong.node import Node
from erelong.settings.sections import Config, LogSection, StoreSection
from erelong.stores.sqlite.store import SqliteStore
from erelong.web.listener import listen
from erelong.web.server import Server
from tests.support.costs import Costs

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]

# Calls of our Python functions on all threads, and SQL statements. Python 3.12 and later need fewer calls, since they
# inline comprehensions.
POST = (122, 6)
RUN = (240, 9)
RUN_OLDER = (259, 10)
RUN_BESIDE_A_READER = (RUN[0] + 1, RUN[1])  # a reader of failures, such as an open dashboard
GET = (46, 0)
GET_OLDER = (71, 1)
MEASURED = 20


class Measured:
    """A service on the embedded store, and a client on one connection."""

    def __init__(self, folder: Path, costs: Costs) -> None:
        self.costs = costs
        config = Config(store=StoreSection(path=folder / "erelong.db"), log=LogSection(watchdog=0.0))
        self.store = SqliteStore(path=config.store.path)
        self.node = Node(config=config, store=self.store, kinds=make_kinds(config))
        self._connections = Server(timeouts=config.server, limits=config.limits, metrics=self.node.metrics)

    async def start(self) -> None:
        await self.node.start()
        file = self.store._file
        self.costs.watch_statements(file.write, file.quick, file.slow)
        listener = listen("127.0.0.1", 0)
        self._port = listener.getsockname()[1]
        await self._connections.open(self.node.router, listener)
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def stop(self) -> None:
        self._writer.close()
        await self._connections.close()
        await self.node.stop()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        text = b"" if body is None else orjson.dumps(body)
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return orjson.loads(await self._reader.readexactly(length))

    async def submit(self, **job: Any) -> Any:
        return await self.ask("POST", "/v1/jobs", {"kind": "echo", "delay": 3_600, **job})

    async def run(self, *, is_older: bool = False) -> None:
        """Count from just before the due time of a job, which may not be cached, until its outcome is stored."""
        await self.submit(delay=0.15)
        if is_older:
            self.forget()
        await asyncio.sleep(0.1)
        self.costs.begin_again()
        await asyncio.sleep(0.15)

    def forget(self) -> None:
        """Let the store read from the disk again."""
        self.store._cache.drop_all()

    async def assert_at_most(self, most: tuple[int, int], *attempts: Coroutine[Any, Any, Any]) -> None:
        """Assert the bound for the cheapest attempt. Other tasks may run during the rest."""
        found = []
        for attempt in attempts:
            await asyncio.sleep(0.02)
            with self.costs.counted():
                await attempt
                await asyncio.sleep(0.03)
            found.append((self.costs.total, len(self.costs.statements), self.costs.table()))
        calls, statements, table = min(found)
        assert calls <= most[0], f"{calls} calls\n{table}"
        assert statements <= most[1], self.costs.statements


@pytest.fixture
async def measured(tmp_path: Path) -> AsyncIterator[Measured]:
    costs = Costs()
    with costs.watching():
        measured = Measured(tmp_path, costs)
        await measured.start()
        yield measured
        await measured.stop()


async def test_post_costs_at_most_its_bound(measured: Measured) -> None:
    await measured.submit()

    await measured.assert_at_most(POST, *(measured.submit() for _ in range(MEASURED)))


async def test_statements_of_a_post_are_counted(measured: Measured) -> None:
    await measured.submit()

    with measured.costs.counted():
        await measured.submit()

    words = [statement.split(" ", 3)[:3] for statement in measured.costs.statements]
    assert ["BEGIN", "IMMEDIATE"] in words
    assert ["INSERT", "INTO", "jobs"] in words
    assert ["COMMIT"] in words


async def test_run_costs_at_most_its_bound(measured: Measured) -> None:
    await measured.assert_at_most(RUN, *(measured.run() for _ in range(MEASURED)))


async def test_run_of_an_older_job_costs_at_most_its_bound(measured: Measured) -> None:
    await measured.assert_at_most(RUN_OLDER, *(measured.run(is_older=True) for _ in range(MEASURED)))


async def test_reader_of_failures_costs_a_run_one_call(measured: Measured) -> None:
    measured.node.engine.changes.events.open([EventType.FAILED, EventType.EXPIRED])

    await measured.assert_at_most(RUN_BESIDE_A_READER, *(measured.run() for _ in range(MEASURED)))


async def test_get_costs_at_most_its_bound(measured: Measured) -> None:
    path = f"/v1/jobs/{(await measured.submit())['id']}"

    await measured.assert_at_most(GET, *(measured.ask("GET", path) for _ in range(MEASURED)))


async def test_get_of_an_older_job_costs_at_most_its_bound(measured: Measured) -> None:
    path = f"/v1/jobs/{(await measured.submit())['id']}"

    async def get() -> None:
        measured.forget()
        measured.costs.begin_again()
        await measured.ask("GET", path)

    await measured.assert_at_most(GET_OLDER, *(get() for _ in range(MEASURED)))
