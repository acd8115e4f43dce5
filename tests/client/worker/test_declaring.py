"""Workers declare their kinds, and log what they do."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from erelong import AsyncClient, Conflict, Invalid, NotFound, Worker
from erelong.client.worker import log
from tests.client.worker.conftest import Run


@pytest.fixture
def worker() -> Worker:
    worker = Worker()

    @worker.kind("resize", timeout="2m", retry={"max_attempts": 3})
    async def resize(path: str, width: int = 800) -> int:
        return width

    @worker.kind("a")
    async def fixed() -> None: ...

    return worker


async def test_worker_declares_its_kinds_but_those_of_the_settings(
    client: AsyncClient, run: Run, worker: Worker
) -> None:
    await worker.register(client)
    await run(worker)

    found = await client.kind("resize").get()
    with pytest.raises(Invalid, match="/params/width"):
        await client.submit("resize", {"path": "a", "width": "wide"})
    result = await (await client.submit("resize", {"path": "a"})).result()

    assert (found.declared, found.timeout, found.retry, result) == ("api", 120.0, {"max_attempts": 3}, 800)
    assert found.params_schema["required"] == ["path"]
    assert (await client.kind("a").get()).declared == "config"


async def test_kind_is_declared_replaced_read_and_forgotten(client: AsyncClient) -> None:
    mine = client.kind("mine")

    first = await mine.put(params_schema={"type": "object", "required": ["n"]}, retry={"delay": "5s"})
    second = await mine.put(timeout=3)
    names = [kind.name for kind in await client.kinds()]
    await mine.delete()

    assert (first.params_schema["required"], first.retry, second.timeout) == (["n"], {"delay": 5.0}, 3.0)
    assert "mine" in names
    with pytest.raises(NotFound):
        await mine.get()
    with pytest.raises(Conflict):
        await client.kind("echo").put()


async def test_each_event_of_a_worker_is_a_line_of_text_or_json(
    client: AsyncClient, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "erelong.worker")
    worker.once = True
    await worker.register(client)
    job = await client.submit("resize", {"path": "a"})
    await worker.serve(client)

    lines: list[dict[str, Any]] = [json.loads(log.JsonFormatter().format(record)) for record in caplog.records]

    started, ended = (line for line in lines if line["event"] in ("attempt_started", "attempt_ended"))
    assert (started["kind"], started["job"], started["attempt"], started["level"]) == ("resize", job.id, 1, "info")
    assert (ended["outcome"], ended["took"]) == ("succeeded", 0.0)
    assert f"attempt_ended kind=resize job={job.id} outcome=succeeded took=0.000" in caplog.messages


def test_other_messages_and_errors_are_json_too() -> None:
    try:
        raise KeyError("x")
    except KeyError as error:
        record = logging.LogRecord("other", logging.ERROR, "f", 1, "no %s", ("luck",), (KeyError, error, None))

    line = json.loads(log.JsonFormatter().format(record))

    assert (line["logger"], line["message"], line["traceback"]) == ("other", "no luck", "KeyError: 'x'")
