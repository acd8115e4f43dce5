"""Answers of busy services, gateways and strangers."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from erelong import AsyncClient, Busy, Draft, Invalid, NoAnswer, NotFound, Refused

JOB = {"id": "x", "state": "scheduled", "kind": "echo", "queue": "default", "version": 1}


class Script:
    """A service that gives prepared answers, and records each request with its time."""

    def __init__(self) -> None:
        self.answers: deque[tuple[int, dict[str, str], bytes]] = deque()
        self.requests: list[tuple[float, str, dict[str, str], bytes]] = []
        self.url = ""

    def add(self, status: int, body: Any = None, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, named, body if isinstance(body, bytes) else json.dumps(body).encode()))

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
                headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.requests.append((asyncio.get_running_loop().time(), head[0], headers, body))
                status, more, text = self.answers.popleft()
                lines = [
                    f"HTTP/1.1 {status} X",
                    f"Content-Length: {len(text)}",
                    *(f"{n}: {v}" for n, v in more.items()),
                ]
                writer.write("\r\n".join([*lines, "", ""]).encode() + text)
        except asyncio.IncompleteReadError:
            writer.close()


@pytest_asyncio.fixture
async def script() -> AsyncIterator[Script]:
    script = Script()
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    script.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield script
    server.close()


@pytest_asyncio.fixture
async def client(script: Script) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(script.url) as client:
        yield client


@pytest.mark.parametrize("status", [429, 503, 507])
async def test_busy_service_is_asked_again_after_exactly_its_retry_after(
    client: AsyncClient, script: Script, status: int
) -> None:
    script.add(status, {"code": "backlog_full"}, Retry_After="12")
    script.add(201, JOB)

    await client.submit("echo")

    (first, *_), (second, *_) = script.requests
    assert 12 <= second - first <= 12.2


async def test_tries_of_a_submit_have_one_idempotency_key(client: AsyncClient, script: Script) -> None:
    for status in (502, 504, 408):
        script.add(status)
    script.add(201, JOB)
    script.add(201, JOB)

    await client.submit("echo")
    await client.submit("echo")

    keys = [headers["idempotency-key"] for _, _, headers, _ in script.requests]
    assert keys[0] == keys[1] == keys[2] == keys[3] != keys[4]


async def test_pause_beyond_the_deadline_is_not_waited_for(client: AsyncClient, script: Script) -> None:
    script.add(429, {"code": "backlog_full", "detail": "queue mail is full"}, Retry_After="60")

    with pytest.raises(Busy, match="queue mail is full") as caught:
        await client.submit("echo")

    assert caught.value.retry_after == 60
    assert len(script.requests) == 1


@pytest.mark.parametrize(("code", "tries"), [("draining", 2), ("overloaded", 2), ("store_unavailable", 1), ("", 1)])
async def test_step_is_repeated_only_if_it_was_certainly_not_begun(
    client: AsyncClient, script: Script, code: str, tries: int
) -> None:
    script.add(503, {"code": code} if code else b"<html>", Retry_After="1")
    script.add(200, JOB)

    if tries == 1:
        with pytest.raises(Busy):
            await client.run("x")
    else:
        await client.run("x")

    assert len(script.requests) == tries


@pytest.mark.parametrize(("status", "code"), [(502, ""), (504, ""), (503, "store_unavailable")])
async def test_change_may_have_been_made_after_a_gateway_or_the_store_has_failed(
    client: AsyncClient, script: Script, status: int, code: str
) -> None:
    script.add(status, {"code": code}, Retry_After="0")
    script.add(404, {"code": "job_not_found"})
    script.add(status, {"code": code})

    await client.delete("x")
    with pytest.raises(Busy) as caught:
        await client.run("x")

    assert caught.value.maybe_done


@pytest.mark.parametrize("code", ["not_leading", "draining"])
async def test_change_was_not_made_by_a_service_that_refused_it(client: AsyncClient, script: Script, code: str) -> None:
    script.add(503, {"code": code}, Retry_After="0")
    script.add(404, {"code": "job_not_found"})

    with pytest.raises(NotFound) as caught:
        await client.delete("x")

    assert not caught.value.maybe_done


async def test_internal_error_is_repeated_for_reads_alone(client: AsyncClient, script: Script) -> None:
    script.add(500, {"code": "internal", "detail": "unexpected", "request_id": "r1"})
    script.add(200, JOB)
    script.add(500, {"code": "internal", "detail": "unexpected", "request_id": "r2"})

    await client.get("x")
    with pytest.raises(Refused, match="unexpected") as caught:
        await client.submit("echo")

    assert (caught.value.status, caught.value.request_id) == (500, "r2")


async def test_full_backlog_in_the_middle_of_many_is_waited_for(client: AsyncClient, script: Script) -> None:
    script.add(201, {"jobs": [{"id": "a", "state": "scheduled", "created": True}] * 2})
    script.add(
        429, {"code": "backlog_full", "errors": [{"pointer": "/jobs/0/queue", "detail": "full"}]}, Retry_After="5"
    )
    script.add(201, {"jobs": [{"id": "b", "state": "scheduled", "created": True}] * 2})

    tickets = [ticket async for ticket in client.submit_many([Draft("echo")] * 4, batch=2)]

    assert [ticket.id for ticket in tickets] == ["a", "a", "b", "b"]
    assert script.requests[1][2]["idempotency-key"] == script.requests[2][2]["idempotency-key"]


async def test_unknown_fields_states_and_codes_of_a_newer_service_are_kept(client: AsyncClient, script: Script) -> None:
    newer = JOB | {"state": "parked", "shelf": {"row": 7}, "waiting_for": "moon", "finished_at": None}
    script.add(200, newer)
    script.add(418, {"code": "teapot", "detail": "short and stout", "steam": True})

    job = await client.get("x")
    with pytest.raises(Refused, match="short and stout") as caught:
        await client.get("x")

    assert (job.state, job.waiting_for, job.raw["shelf"], job.is_final) == ("parked", "moon", {"row": 7}, False)
    assert (caught.value.code, caught.value.problem["steam"]) == ("teapot", True)


async def test_older_service_that_omits_fields_is_read(client: AsyncClient, script: Script) -> None:
    script.add(200, {"id": "x", "state": "succeeded", "kind": "echo", "result": 7})

    job = await client.get("x")

    assert (job.labels, job.due_at, job.waiting_for, await job.result()) == ({}, None, None, 7)


async def test_stranger_at_the_address_is_named(client: AsyncClient, script: Script) -> None:
    script.add(200, b"<html>Welcome to nginx")

    with pytest.raises(NoAnswer, match="is not erelong: '<html>Welcome to nginx'; check the URL"):
        await client.me()


async def test_refusal_without_a_problem_document_is_still_an_error_of_its_kind(
    client: AsyncClient, script: Script
) -> None:
    script.add(413, b"<html>too large")

    with pytest.raises(Invalid, match="answered 413"):
        await client.submit("echo")
