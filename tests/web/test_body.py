"""Request bodies: encodings, types, sizes, slow clients. Each failure has its own response."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from erelong.settings.sections import LimitsSection
from tests.support.served import Serve, Served

JOB = b'{"kind":"echo"}'
LARGE = b'{"kind":"echo","key":"' + b"x" * 1_000 + b'"}'


async def in_parts(*parts: bytes, pause: float = 0.0) -> AsyncIterator[bytes]:
    """Yield a body without a Content-Length."""
    for part in parts:
        yield part
        await asyncio.sleep(pause)


@pytest.mark.parametrize(
    "body", [b"{", b"kind=echo", b'{"kind":"echo"}}', b'{"kind":"\xff"}', b'{"kind":"\\ud800"}', b"{'kind':1}", b" "]
)
async def test_body_that_is_not_json_is_malformed(service: Served, body: bytes) -> None:
    answer = await service.post("/v1/jobs", data=body)

    assert (answer.status, answer.code) == (400, "malformed_json")


@pytest.mark.parametrize(
    ("body", "place"), [(b'{"kind": echo}', "at column 10"), (b'{"kind":\n"echo",}', "at line 2, column 7")]
)
async def test_malformed_json_is_reported_with_its_position(service: Served, body: bytes, place: str) -> None:
    detail = (await service.post("/v1/jobs", data=body)).json["detail"]

    assert detail.startswith("the body is not JSON: ")
    assert detail.endswith(place)


@pytest.mark.parametrize(
    ("body", "say"),
    [
        (b"\xef\xbb\xbf{}", "the body begins with a byte order mark; send UTF-8 without one"),
        (b"\xff\xfe{\0", "the body begins with a byte order mark; send UTF-8 without one"),
        (b'{"kind":"\xff"}', "the body is not UTF-8; send JSON in UTF-8"),
        (b" ", "the body is empty; send JSON"),
    ],
)
async def test_body_in_another_encoding_is_named(service: Served, body: bytes, say: str) -> None:
    assert (await service.post("/v1/jobs", data=body)).json["detail"] == say


@pytest.mark.parametrize("method_and_path", ["POST /v1/jobs", "POST /v1/jobs/batch", "PUT /v1/queues/mail"])
async def test_missing_body_is_not_an_empty_object(service: Served, method_and_path: str) -> None:
    answer = await service.call(*method_and_path.split())

    assert (answer.status, answer.code) == (400, "malformed_json")
    assert "no body" in answer.json["detail"]


@pytest.mark.parametrize(
    "type", ["application/x-www-form-urlencoded", "text/plain", "application/x-ndjson", "nonsense"]
)
async def test_other_content_type_is_refused_with_the_right_one(service: Served, type: str) -> None:
    answer = await service.post("/v1/jobs", data=JOB, type=type)

    assert (answer.status, answer.code) == (415, "unsupported_media_type")
    assert "send application/json" in answer.json["detail"]


@pytest.mark.parametrize("type", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
async def test_all_json_content_types_are_accepted(service: Served, type: str) -> None:
    assert (await service.post("/v1/jobs", data=JOB, type=type)).status == 201


async def test_body_without_a_content_type_is_json(service: Served) -> None:
    request = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 15\r\n\r\n" + JOB

    assert (await service.raw(request)).startswith(b"HTTP/1.1 201 ")


async def test_default_content_type_of_curl_is_refused(service: Served) -> None:
    answer = await service.post("/v1/queues/mail/pause", data={"a": "b"})

    assert (answer.status, answer.code) == (415, "unsupported_media_type")


@pytest.mark.parametrize("path", ["/v1/queues/mail/resume", "/v1/queues/mail/purge"])
async def test_unknown_name_in_an_empty_body_is_refused(service: Served, path: str) -> None:
    await service.post("/v1/queues/mail/pause")

    answer = await service.post(path, {"reason": "because"})

    assert (answer.status, answer.pointers) == (422, ["/reason"])


async def test_gzipped_body_is_decompressed(service: Served) -> None:
    answer = await service.post("/v1/jobs", data=gzip.compress(JOB), headers={"Content-Encoding": "gzip"})

    assert answer.status == 201


@pytest.mark.parametrize("body", [JOB, b"\x1f\x8b\x08 garbage", gzip.compress(JOB, mtime=0)[:-12]])
async def test_invalid_gzip_body_is_malformed_and_not_an_internal_error(
    service: Served, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await service.post("/v1/jobs", data=body, headers={"Content-Encoding": "gzip"})

    assert (answer.status, answer.code) == (400, "malformed_json")
    assert (await service.get("/livez")).status == 200
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_body_that_decompresses_faster_than_it_is_read_is_read_in_full(service: Served) -> None:
    text = b'{"jobs": [' + JOB + b"]" + b" " * 3_000_000 + b"}"  # large enough to pause reading

    answer = await service.post(
        "/v1/jobs/batch",
        data=gzip.compress(text),
        headers={"Content-Encoding": "gzip", "Content-Type": "application/json"},
    )

    assert answer.status == 201


async def test_decompression_bomb_is_too_large(service: Served) -> None:
    bomb = gzip.compress(b" " * 10_000_000)

    answer = await service.post("/v1/jobs", data=bomb, headers={"Content-Encoding": "gzip"})

    assert (answer.status, answer.code) == (413, "too_large")


async def test_too_large_body_is_refused_by_its_announced_length(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_body=len(LARGE) - 1))

    answer = await service.post("/v1/jobs", data=LARGE)

    assert (answer.status, answer.code) == (413, "too_large")
    assert str(len(LARGE) - 1) in answer.json["detail"]


async def test_too_large_body_is_refused_without_a_length(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_body=len(LARGE) - 1))

    answer = await service.post("/v1/jobs", data=in_parts(LARGE[:500], LARGE[500:]), type="application/json")

    assert (answer.status, answer.code) == (413, "too_large")


async def test_body_at_the_bound_is_accepted(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_body=len(LARGE)))

    sized = await service.post("/v1/jobs", data=LARGE)
    chunked = await service.post("/v1/jobs", data=in_parts(LARGE[:500], LARGE[500:]), type="application/json")

    assert (sized.pointers, chunked.pointers) == (["/key"], ["/key"])  # the body was read, and its key is too long


async def test_too_large_body_is_refused_before_it_is_sent(service: Served) -> None:
    head = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 300000\r\n\r\n"
    )

    answer = await service.raw(head)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close" in answer


async def test_connection_of_an_unread_body_is_closed(service: Served) -> None:
    head = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 300000\r\n\r\n"
    )
    began_at = service.clock.now()

    answer = await service.raw(head + b" " * 300_000)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert service.clock.now() - began_at < 1_000_000


async def test_batch_may_be_larger_than_a_job(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_body=100, max_batch_body=1_000))

    assert (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo"}] * 10})).status == 201
    assert (await service.post("/v1/jobs/batch", {"jobs": [{"kind": "echo"}] * 100})).status == 413


@pytest.mark.parametrize("depth", [40, 500, 5_000, 100_000])
async def test_too_deep_json_is_malformed(service: Served, depth: int) -> None:
    answer = await service.post("/v1/jobs", data=b'{"kind":"echo","params":{"a":' + b"[" * depth + b"]" * depth + b"}}")

    assert (answer.status, answer.code) == (400, "malformed_json")


async def test_many_shallow_brackets_are_accepted(service: Served) -> None:
    params: dict[str, Any] = {"a": [[]] * 100, "b": "[[[[" * 100}

    assert (await service.submit(params=params))["params"] == params


async def test_stalled_body_times_out_after_ten_seconds(service: Served) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 300\r\n\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    began_at = service.clock.now()

    writer.write(head + b'{"kind":')
    answer = await reader.readuntil(b"\r\n\r\n")
    body = orjson.loads(await reader.readuntil(b"}"))

    assert (service.clock.now() - began_at) / 1e6 == pytest.approx(10, abs=0.1)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"Connection: close" in answer
    assert body["code"] == "body_timeout"
    assert await reader.read() == b""
    writer.close()


async def test_slow_body_times_out(service: Served) -> None:
    parts = [JOB[i : i + 1] for i in range(len(JOB))]
    began_at = service.clock.now()

    answer = await service.post("/v1/jobs", data=in_parts(*parts, pause=4.0), type="application/json")

    assert (answer.status, answer.code) == (408, "body_timeout")
    assert (service.clock.now() - began_at) / 1e6 == pytest.approx(10, abs=0.1)


async def test_large_body_may_take_as_long_as_its_size_allows(serve: Serve) -> None:
    service = await serve(limits=LimitsSection(max_params=1_000_000, max_body=1_000_000))
    text = orjson.dumps({"kind": "echo", "params": {"a": "x" * 600_000}})
    parts = [text[i : i + 50_000] for i in range(0, len(text), 50_000)]

    answer = await service.post("/v1/jobs", data=in_parts(*parts, pause=3.0), type="application/json")

    assert answer.status == 201


async def test_stream_may_be_slow(service: Served) -> None:
    parts = [JOB[i : i + 1] for i in range(len(JOB))]

    answer = await service.post("/v1/jobs/batch", data=in_parts(*parts, pause=9.0), type="application/x-ndjson")

    assert answer.lines[0]["created"] is True


async def test_bodies_use_only_the_memory_reserved_for_them(serve: Serve) -> None:
    """Sixteen of the largest batches may arrive at once."""
    service = await serve(limits=LimitsSection(max_body=1_000, max_batch_body=1_000))
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
    slow = [await asyncio.open_connection("127.0.0.1", service.port) for _ in range(16)]
    for _, writer in slow:
        writer.write(head + b" " * 990)
    await asyncio.sleep(1)

    refused = await service.post("/v1/jobs", data=in_parts(b" " * 500, b" " * 100), type="application/json")
    for _, writer in slow:
        writer.transport.abort()
    await asyncio.sleep(1)
    taken = await service.post("/v1/jobs", data=in_parts(JOB, b" "), type="application/json")

    assert (refused.status, refused.code) == (503, "overloaded")
    assert "Retry-After" in refused.headers
    assert taken.status == 201


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/v1/jobs", {f"a{index}": 1 for index in range(10_000)}, ""),
        ("/v1/jobs", {"kind": "echo", "retry": {f"a{index}": 1 for index in range(10_000)}}, "/retry"),
        ("/v1/jobs", {"kind": "echo", "labels": {f"a{index}": "1" for index in range(5_000)}}, "/labels"),
        ("/v1/jobs/batch", {"jobs": [{f"a{index}": 1 for index in range(10_000)}]}, "/jobs/0"),
    ],
)
async def test_object_of_very_many_names_is_refused_as_one(
    service: Served, path: str, body: dict[str, Any], pointer: str
) -> None:
    answer = await service.post(path, body)

    assert (answer.status, answer.pointers) == (422, [pointer])


async def test_params_may_have_very_many_names(service: Served) -> None:
    params = {f"a{index}": 1 for index in range(3_000)}

    assert (await service.submit(params=params))["params"] == params


async def test_body_with_very_many_values_is_refused_unparsed(service: Served) -> None:
    text = b'{"jobs":[' + b"[]," * 400_000 + b"1]}"

    answer = await service.post("/v1/jobs/batch", data=in_parts(text), type="application/json")

    assert (answer.status, answer.code) == (413, "too_large")
    assert "300000 commas" in answer.json["detail"]
    assert "application/x-ndjson" in answer.json["detail"]


async def test_unknown_encoding_is_refused(service: Served) -> None:
    answer = await service.post("/v1/jobs", data=JOB, headers={"Content-Encoding": "nope"})

    assert (answer.status, answer.code) == (415, "unsupported_media_type")


async def disconnect_in_mid_body(service: Served) -> None:
    head = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 300\r\n\r\n"
    _, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(head + b"{")
    await asyncio.sleep(1)
    writer.transport.abort()
    await asyncio.sleep(1)


async def test_client_that_disconnects_in_mid_body_is_not_an_error(
    service: Served, caplog: pytest.LogCaptureFixture
) -> None:
    await disconnect_in_mid_body(service)

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert (await service.get("/livez")).status == 200


def requests() -> list[web.Request]:
    return [kept for kept in gc.get_objects() if issubclass(type(kept), web.Request)]


async def test_request_of_a_disconnected_client_is_freed_without_garbage_collection(service: Served) -> None:
    gc.disable()
    try:
        others = requests()
        await disconnect_in_mid_body(service)

        assert [kept for kept in requests() if not any(kept is other for other in others)] == []
    finally:
        gc.enable()
