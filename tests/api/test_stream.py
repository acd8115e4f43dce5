"""POST /v1/jobs/batch as NDJSON: independent lines, answered in order as they reach the disk."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import orjson
import pytest

from erelong.errors import StorageFull
from erelong.settings.queues import QueueSettings
from erelong.settings.sections import LimitsSection
from tests.support.contract import NDJSON
from tests.support.served import Serve, Served

JOB = {"kind": "echo", "delay": 1_000}
LINE = orjson.dumps(JOB)
HEAD = (
    b"POST /v1/jobs/batch HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)


async def connect_deaf(service: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect with a small receive buffer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", service.port))
    return await asyncio.open_connection(sock=client, limit=1_000)


def chunk(text: bytes) -> bytes:
    return f"{len(text):x}\r\n".encode() + text + b"\r\n"


def outcomes(lines: list[dict[str, Any]]) -> list[Any]:
    """Return `created` of each line, or the code of its problem."""
    return [line["problem"]["code"] if "problem" in line else line["created"] for line in lines]


async def stored(service: Served) -> int:
    return len((await service.get("/v1/jobs?limit=1000")).json["jobs"])


async def test_each_line_is_answered_in_order(service: Served) -> None:
    answer = await service.stream(*[{**JOB, "priority": priority} for priority in (3, 1, 2)])

    jobs = [await service.job(line["id"]) for line in answer.lines]
    assert (answer.status, answer.headers["Content-Type"]) == (200, NDJSON)
    assert outcomes(answer.lines) == [True] * 3
    assert [job["priority"] for job in jobs] == [3, 1, 2]


async def test_bad_line_is_a_problem_of_that_line_only(service: Served) -> None:
    answer = await service.stream(JOB, b"{", {"kind": "nope"}, b"[]", {**JOB, "priority": 999}, JOB, b"\xff")

    assert outcomes(answer.lines) == [True, "malformed_json", "invalid", "invalid", "invalid", True, "malformed_json"]
    assert answer.lines[4]["problem"]["errors"][0]["pointer"] == "/priority"
    assert answer.lines[4]["problem"]["request_id"] == answer.headers["X-Request-Id"]
    assert await stored(service) == 2


async def test_json_error_in_a_line_has_a_column_and_no_line_number(service: Served) -> None:
    deep = b'{"kind":"echo","params":' + b'{"a":' * 40 + b"1" + b"}" * 41
    answer = await service.stream(JOB, b'{"kind": echo}', deep)

    details = [line["problem"]["detail"] for line in answer.lines[1:]]
    assert details[0].startswith("the line is not JSON: ")
    assert details[0].endswith(" at column 10")
    assert details[1] == "the line is nested more than 32 levels deep"


async def test_blank_lines_are_ignored_and_the_last_line_needs_no_newline(service: Served) -> None:
    with_end = await service.stream(b"", JOB, b"  ", b"\r", JOB, b"\t", b"", b"")
    without_end = await service.stream(JOB, JOB)

    assert (outcomes(with_end.lines), outcomes(without_end.lines)) == ([True, True], [True, True])


async def test_lines_may_end_with_crlf(service: Served) -> None:
    answer = await service.post("/v1/jobs/batch", data=LINE + b"\r\n" + LINE + b"\r\n", type=NDJSON)

    assert outcomes(answer.lines) == [True, True]


@pytest.mark.parametrize("body", [b"", b"\n", b"\n\n  \n"])
async def test_stream_without_jobs_gets_an_empty_response(service: Served, body: bytes) -> None:
    answer = await service.post("/v1/jobs/batch", data=body, type=NDJSON)

    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("length", [101, 5_000, 300_000])
async def test_overlong_line_is_a_problem_of_that_line_only(serve: Serve, length: int) -> None:
    service = await serve(limits=LimitsSection(max_body=100))

    answers = [
        await service.stream(JOB, b"x" * length, JOB),
        await service.stream(b"x" * length, JOB),
        await service.stream(JOB, b"x" * length),
    ]

    assert [outcomes(answer.lines) for answer in answers] == [
        [True, "too_large", True],
        ["too_large", True],
        [True, "too_large"],
    ]


async def test_line_at_the_bound_is_accepted(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_body=100))

    answer = await service.stream(LINE + b" " * (100 - len(LINE)), LINE + b" " * (101 - len(LINE)))

    assert outcomes(answer.lines) == [True, "too_large"]


async def test_held_key_is_a_problem_of_that_line_only(service: Served) -> None:
    holder = await service.submit(**{**JOB, "key": "k"})
    ways = ("keep", "reject", "replace", "reschedule")

    answer = await service.stream(*[{**JOB, "key": "k", "on_conflict": way} for way in ways], {**JOB, "key": "l"})

    assert outcomes(answer.lines) == [False, "key_taken", False, False, True]
    assert answer.lines[1]["problem"]["job"]["id"] == holder["id"]


async def test_stream_accepts_more_lines_than_a_batch(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_batch_jobs=10, max_batch_body=100))

    answer = await service.stream(*[JOB] * 2_500)

    assert outcomes(answer.lines) == [True] * 2_500
    assert len({line["id"] for line in answer.lines}) == 2_500


async def test_problems_of_a_long_stream_are_in_order(service: Served) -> None:
    bad = {0, 1, 498, 499, 500, 501, 998, 999, 1_000, 1_001, 1_500, 2_498, 2_499}
    lines = [b"{}" if number in bad else b"" if number == 700 else LINE for number in range(2_500)]

    answer = await service.stream(*lines)

    expected = ["invalid" if number in bad else True for number in range(2_500) if number != 700]
    ids = [line["id"] for line in answer.lines if "id" in line]
    assert outcomes(answer.lines) == expected
    assert ids == sorted(set(ids))


async def test_other_requests_are_answered_while_many_lines_are_read(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr("erelong.api.batches.MAX_LINES", 10)
    counting = asyncio.create_task(count())
    await service.stream(*[JOB] * 1_000)
    counting.cancel()

    assert turns > 100


async def test_threads_run_between_groups_of_invalid_lines(service: Served) -> None:
    before = service.clock.now()
    await service.stream(*[{}] * 5_000)
    refused = service.clock.now() - before
    await service.stream(*[JOB] * 5_000)

    assert refused >= 5_000
    assert service.clock.now() - before == refused


async def test_line_is_answered_while_the_stream_goes_on(service: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(HEAD)
    await reader.readuntil(b"\r\n\r\n")

    for _ in range(5):
        writer.write(chunk(LINE + b"\n"))
        await reader.readline()  # the length of the chunk
        line = orjson.loads(await reader.readline())
        assert (await service.job(line["id"]))["state"] == "scheduled"
        assert await reader.readline() == b"\r\n"
        await asyncio.sleep(9)

    writer.write(chunk(b""))
    assert await reader.readuntil(b"\r\n\r\n") == b"0\r\n\r\n"
    writer.close()


async def test_stalled_stream_ends_with_a_problem(service: Served) -> None:
    answer = await service.raw(HEAD + chunk(LINE + b"\n" + LINE))

    first, last = [orjson.loads(line) for line in answer.split(b"\r\n") if line.startswith(b"{")]
    assert first["created"]
    assert last["problem"]["code"] == "body_timeout"
    assert await stored(service) == 1


async def test_disk_that_fills_in_mid_stream_gives_problems_for_the_rest(service: Served) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield LINE + b"\n" + LINE + b"\n"
        await asyncio.sleep(1)
        service.store.broken["add"] = StorageFull("the disk is full")
        yield LINE + b"\n{}\n" + LINE + b"\n"
        await asyncio.sleep(1)
        service.store.broken.clear()
        yield LINE

    answer = await service.post("/v1/jobs/batch", data=lines(), type=NDJSON)

    assert outcomes(answer.lines) == [True, True, "storage_full", "invalid", "storage_full", True]
    assert await stored(service) == 3


async def test_drain_in_mid_stream_gives_problems_for_the_rest(service: Served) -> None:
    async def lines() -> AsyncIterator[bytes]:
        yield LINE + b"\n"
        await asyncio.sleep(1)
        service.node.engine.drain()
        yield LINE + b"\n" + LINE + b"\n"

    answer = await service.post("/v1/jobs/batch", data=lines(), type=NDJSON)

    assert outcomes(answer.lines) == [True, "draining", "draining"]


async def test_unexpected_error_ends_the_stream_with_a_problem_and_is_logged(
    service: Served, caplog: pytest.LogCaptureFixture
) -> None:
    service.store.broken["add"] = RuntimeError("a bug")

    answer = await service.stream(JOB, JOB)

    (line,) = answer.lines
    assert line["problem"]["code"] == "internal"
    (record,) = [record for record in caplog.records if record.getMessage() == "request_failed"]
    assert record.__dict__["fields"]["request"] == line["problem"]["request_id"]


async def test_client_that_disconnects_in_mid_stream_is_not_an_error(
    service: Served, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(HEAD + chunk(LINE + b"\n"))
    await reader.readuntil(b"created")

    writer.transport.abort()
    await asyncio.sleep(1)

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert await stored(service) == 1


async def test_client_that_reads_nothing_before_it_has_sent_all_is_served(
    service: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.web.connection.LEAST_RATE", 0)  # virtual time runs on while the kernel moves bytes
    reader, writer = await connect_deaf(service)

    writer.write(HEAD)
    for _ in range(20):
        writer.write(chunk(b"{}\n" * 1_000))
        await writer.drain()
    writer.write(chunk(b""))

    answer = b""
    while not answer.endswith(b"0\r\n\r\n"):
        answer += await reader.read(65_536)
    assert answer.count(b'"problem"') == 20_000
    writer.close()


async def test_client_that_never_reads_is_disconnected(
    service: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("erelong.api.batches.MAX_UNREAD", 1_000)
    reader, writer = await connect_deaf(service)
    writer.write(HEAD)

    writer.write(chunk(b"{}\n" * 1_000) * 20)
    await asyncio.sleep(60)
    answer = b""
    with suppress(ConnectionResetError):
        while more := await reader.read(65_536):
            answer += more

    assert not answer.endswith(b"0\r\n\r\n")
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    writer.close()


async def test_full_queue_accepts_as_many_jobs_as_fit(serve: Serve) -> None:
    service = await serve(queues={"small": QueueSettings(max_backlog=2)})
    small = {**JOB, "queue": "small"}

    answer = await service.stream(small, JOB, {**small, "key": "k"}, small, JOB, {**small, "key": "k"}, small)

    assert outcomes(answer.lines) == [True, True, True, "backlog_full", True, "key_taken", "backlog_full"]


async def test_stream_refuses_an_idempotency_key(service: Served) -> None:
    answer = await service.stream(JOB, headers={"Idempotency-Key": "once"})

    assert (answer.status, answer.code) == (400, "bad_header")
    assert await stored(service) == 0
