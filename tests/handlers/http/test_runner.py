"""The http kind against a real server: requests, responses and results."""

from __future__ import annotations

import asyncio
import socket
from datetime import datetime
from typing import Any

import orjson
import pytest
from aiohttp import web

from erelong import __version__
from erelong.handlers.base import AttemptFailed, current_traceparent
from erelong.handlers.http.ip_policy import Addresses
from erelong.handlers.http.runner import Webhooks
from erelong.settings.sections import WebhooksSection
from tests.handlers.attempts import ID, make_attempt
from tests.handlers.receiver import LOOPBACK, Receiver, raw_server
from tests.support.served import Serve
from tests.support.virtual import EPOCH


async def call(http: Webhooks, url: str, **params: Any) -> dict[str, Any]:
    text = orjson.dumps({"url": url, **params})
    http.check(text)
    result: dict[str, Any] = orjson.loads(await http.run(make_attempt(text)))
    return result


async def failure_of(http: Webhooks, url: str, **params: Any) -> AttemptFailed:
    with pytest.raises(AttemptFailed) as failure:
        await call(http, url, **params)
    return failure.value


async def test_json_is_posted(http: Webhooks, receiver: Receiver) -> None:
    text = f'{{"url": "{receiver.url}hook?a=1", "json": {{"order": 7, "big": 1180591620717411303424, "text": "ä"}}}}'

    await http.run(make_attempt(text.encode()))

    (seen,) = receiver.seen
    assert (seen.method, seen.target) == ("POST", "/hook?a=1")
    assert seen.headers["content-type"] == "application/json"
    assert seen.body == '{"order":7,"big":1180591620717411303424,"text":"ä"}'.encode()


@pytest.mark.parametrize(
    ("params", "body", "content_type"),
    [
        ({"json": None}, b"null", "application/json"),
        ({"body": "ä"}, b"\xc3\xa4", "text/plain; charset=utf-8"),
        ({"body_base64": "AP8="}, b"\x00\xff", "application/octet-stream"),
        ({"body": "a,b", "headers": {"content-type": "text/csv"}}, b"a,b", "text/csv"),
        ({"json": 1, "headers": {"CONTENT-TYPE": "application/vnd.x+json"}}, b"1", "application/vnd.x+json"),
    ],
)
async def test_body_is_sent_with_its_content_type(
    http: Webhooks, receiver: Receiver, params: dict[str, Any], body: bytes, content_type: str
) -> None:
    await call(http, receiver.url, **params)

    (seen,) = receiver.seen
    assert (seen.body, seen.headers["content-type"]) == (body, content_type)
    assert seen.headers["content-length"] == str(len(body))


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "post"])
async def test_method_is_that_of_the_job(http: Webhooks, receiver: Receiver, method: str) -> None:
    result = await call(http, receiver.url, method=method)

    assert receiver.seen[0].method == method.upper()
    assert receiver.seen[0].body == b""
    assert result["body"] == ("" if method == "HEAD" else "ok")


async def test_headers_describe_the_attempt(http: Webhooks, receiver: Receiver) -> None:
    text = orjson.dumps({"url": receiver.url})

    await http.run(make_attempt(text, number=3, due_at=EPOCH + 1_500_001, started_at=EPOCH + 2_999_999))

    headers = receiver.seen[0].headers
    assert headers["webhook-id"] == ID
    assert headers["webhook-timestamp"] == str(EPOCH // 1_000_000 + 2)
    assert headers["x-erelong-attempt"] == "3"
    assert headers["x-erelong-due-at"] == "2026-01-01T00:00:01.500001Z"
    assert headers["user-agent"] == f"erelong/{__version__}"
    assert headers["accept-encoding"] == "identity"


async def test_headers_name_the_schedule_and_the_occurrence(http: Webhooks, receiver: Receiver) -> None:
    job = make_attempt(orjson.dumps({"url": receiver.url}))

    await http.run(job.with_extras({"schedule": "report", "occurrence": EPOCH + 1_500_000}))
    await http.run(job.with_extras({"callback_of": "7"}))

    first, second = [seen.headers for seen in receiver.seen]
    assert (first["x-erelong-schedule"], first["x-erelong-occurrence"]) == ("report", "2026-01-01T00:00:01.500Z")
    assert "x-erelong-schedule" not in second


async def test_headers_of_the_job_are_sent_and_its_user_agent_wins(http: Webhooks, receiver: Receiver) -> None:
    await call(http, receiver.url, headers={"user-agent": "me", "Authorization": "Bearer x", "X-A": "ä"})

    headers = receiver.seen[0].headers
    assert (headers["user-agent"], headers["authorization"], headers["x-a"]) == ("me", "Bearer x", "ä")


async def test_result_is_the_response(http: Webhooks, receiver: Receiver) -> None:
    receiver.answers(201, text="schön", headers=[("X-Twice", "1"), ("x-twice", "2")])

    result = await call(http, receiver.url)

    assert (result["status"], result["body"], result["truncated"]) == (201, "schön", False)
    assert result["headers"]["x-twice"] == "1, 2"
    assert result["headers"]["content-type"] == "text/plain; charset=utf-8"


async def test_empty_response_is_a_success(http: Webhooks, receiver: Receiver) -> None:
    receiver.answers(204)

    assert (await call(http, receiver.url))["body"] == ""


@pytest.mark.parametrize(
    ("size", "kept", "truncated"), [(4_096, 4_096, False), (4_097, 4_096, True), (65_537, 4_096, True)]
)
async def test_only_the_start_of_a_long_body_is_kept(
    http: Webhooks, receiver: Receiver, size: int, kept: int, truncated: bool
) -> None:
    receiver.answers(body=b"x" * size)

    result = await call(http, receiver.url)

    assert (len(result["body"]), result["truncated"]) == (kept, truncated)


async def test_body_is_not_truncated_inside_a_character(http: Webhooks, receiver: Receiver) -> None:
    receiver.answers(body=b"x" + "ä".encode() * 4_000)

    assert (await call(http, receiver.url))["body"] == "x" + "ä" * 2_047


async def test_bytes_that_are_not_utf8_are_replaced(http: Webhooks, receiver: Receiver) -> None:
    receiver.answers(body=b"a\xff")

    assert (await call(http, receiver.url))["body"] == "a\ufffd"


async def test_connection_is_reused_after_a_response_that_was_read(http: Webhooks, receiver: Receiver) -> None:
    for size in (0, 5, 60_000):
        receiver.answers(body=b"x" * size)
        await call(http, receiver.url)
    receiver.answers(500, text="no")
    await failure_of(http, receiver.url)
    await failure_of(http, receiver.url)

    assert len({seen.connection for seen in receiver.seen}) == 1


async def test_endless_response_is_read_up_to_the_limit_and_the_connection_closed(
    http: Webhooks, receiver: Receiver
) -> None:
    sent = 0
    closed = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 1_000)
                sent += 1_000
                await asyncio.sleep(0.1)
        finally:
            closed.set()

    receiver.answer = drip
    result = await call(http, receiver.url)
    await asyncio.wait_for(closed.wait(), 5)

    assert (len(result["body"]), result["truncated"]) == (4_096, True)
    assert 65_536 <= sent < 70_000


async def test_compressed_response_is_not_decompressed(http: Webhooks, receiver: Receiver) -> None:
    receiver.answers(body=b"bomb", headers={"Content-Encoding": "gzip"})

    assert (await call(http, receiver.url))["body"] == "bomb"


@pytest.mark.parametrize("status", [400, 404, 500, 503, 304])
async def test_other_status_of_a_public_server_fails_with_its_body_shown(
    http: Webhooks, receiver: Receiver, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("erelong.handlers.http.egress._PUBLIC", Addresses(opened=LOOPBACK))
    receiver.answers(status, body=b"" if status == 304 else b"out of\n  order" + b"x" * 1_000)

    failure = await failure_of(http, receiver.url)

    assert (failure.type, failure.retryable, failure.delay) == ("http_status", True, 0.0)
    assert f"answered {status}" in failure.message
    assert len(failure.message) < 300
    assert status == 304 or ": out of order" in failure.message


@pytest.mark.parametrize("size", [5, 60_000, 100_000])
async def test_body_of_a_failure_on_a_private_network_is_not_shown(
    http: Webhooks, receiver: Receiver, size: int
) -> None:
    receiver.answers(500, body=b"x" * size)

    assert (await failure_of(http, receiver.url)).message == f"{receiver.url[7:-1]} answered 500"


async def test_redirect_fails_and_names_its_location(http: Webhooks, receiver: Receiver) -> None:
    receiver.answers(302, headers={"Location": "https://other.example/"})

    failure = await failure_of(http, receiver.url)

    assert failure.type == "http_status"
    assert failure.message.endswith("answered 302 to https://other.example/, and redirects are not followed")
    assert len(receiver.seen) == 1


async def test_status_410_gives_up(http: Webhooks, receiver: Receiver) -> None:
    receiver.answers(410)

    failure = await failure_of(http, receiver.url)

    assert (failure.type, failure.retryable) == ("give_up", False)


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [
        ("120", 120.0),
        ("0", 0.0),
        ("86401", 86_400.0),
        ("9" * 5_000, 86_400.0),
        ("Thu, 01 Jan 2026 00:02:00 GMT", 120.0),
        ("Thursday, 01-Jan-26 00:02:00 GMT", 120.0),
        ("Thu Jan  1 00:02:00 2026", 120.0),
        ("Wed, 31 Dec 2025 00:00:00 GMT", 0.0),
        ("Fri, 01 Jan 2027 00:00:00 GMT", 86_400.0),
        ("-5", 0.0),
        ("1.5", 0.0),
        ("soon", 0.0),
        ("²", 0.0),
        ("", 0.0),
    ],
)
async def test_retry_after_of_429_and_503_delays(
    http: Webhooks, receiver: Receiver, status: int, retry_after: str, delay: float
) -> None:
    receiver.answers(status, headers={"Retry-After": retry_after})

    assert (await failure_of(http, receiver.url)).delay == delay


@pytest.mark.parametrize(("backoff", "wait"), [(1, 3), (10, 10)])
async def test_retry_is_due_at_retry_after_unless_the_backoff_is_longer(
    serve: Serve, receiver: Receiver, backoff: int, wait: int
) -> None:
    service = await serve(webhooks=WebhooksSection(allow_networks=list(LOOPBACK)))
    receiver.answers(503, headers={"Retry-After": "3"})
    retry = {"max_attempts": 2, "delay": backoff, "jitter": 0}

    job = await service.submit(kind="http", params={"url": receiver.url}, retry=retry)
    first, second = (await service.until(job["id"], "failed"))["attempts"]

    between = datetime.fromisoformat(second["started_at"]) - datetime.fromisoformat(first["finished_at"])
    assert between.total_seconds() == pytest.approx(wait, abs=0.01)


async def test_due_time_is_sent_to_the_microsecond(serve: Serve, receiver: Receiver) -> None:
    service = await serve(webhooks=WebhooksSection(allow_networks=list(LOOPBACK)))

    job = await service.submit(kind="http", params={"url": receiver.url}, execute_at="2026-01-01T00:00:05.000250Z")
    await service.until(job["id"], "succeeded")

    assert receiver.seen[0].headers["x-erelong-due-at"] == "2026-01-01T00:00:05.000250Z"


async def test_retry_after_of_another_status_is_ignored(http: Webhooks, receiver: Receiver) -> None:
    receiver.answers(500, headers={"Retry-After": "120"})

    assert (await failure_of(http, receiver.url)).delay == 0.0


async def test_refused_connection_is_a_connection_error(http: Webhooks) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    failure = await failure_of(http, f"http://127.0.0.1:{port}/secret-path")

    assert (failure.type, failure.retryable) == ("connection", True)
    assert failure.message == f"no answer from 127.0.0.1:{port}: no connection: Connection refused"


async def test_connection_that_is_not_accepted_times_out(http: Webhooks) -> None:
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        first.connect(full.getsockname())

        port = full.getsockname()[1]
        failure = await failure_of(http, f"http://127.0.0.1:{port}/secret-path")

    assert (failure.type, failure.message) == (
        "connection",
        f"no answer from 127.0.0.1:{port}: no connection within 5 s",
    )
    assert asyncio.get_running_loop().time() == pytest.approx(5, abs=1)


async def test_tls_to_a_server_without_tls_is_a_connection_error(http: Webhooks, receiver: Receiver) -> None:
    failure = await failure_of(http, receiver.url.replace("http:", "https:"))

    assert failure.type == "connection"


async def test_headers_that_are_not_utf8_are_replaced(http: Webhooks) -> None:
    async with raw_server(b"HTTP/1.1 200 OK\r\nX-Name: \xff\r\nContent-Length: 0\r\n\r\n") as url:
        result = await call(http, url)

    assert result["headers"]["x-name"] == "\ufffd"


async def test_cancelled_attempt_closes_its_connection(http: Webhooks, receiver: Receiver) -> None:
    ended = asyncio.Event()

    async def hang(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x")
                await asyncio.sleep(1)
        finally:
            ended.set()

    receiver.answer = hang
    attempt = asyncio.ensure_future(call(http, receiver.url))
    await asyncio.sleep(10)
    attempt.cancel()

    with pytest.raises(asyncio.CancelledError):
        await attempt
    await asyncio.wait_for(ended.wait(), 5)


async def test_params_of_an_earlier_version_fail_for_good(http: Webhooks) -> None:
    with pytest.raises(AttemptFailed, match="/url: is required") as failure:
        await http.run(make_attempt(b"{}"))

    assert not failure.value.retryable


async def test_trace_of_the_attempt_is_sent(http: Webhooks, receiver: Receiver) -> None:
    plain = make_attempt(orjson.dumps({"url": receiver.url}))
    own = make_attempt(orjson.dumps({"url": receiver.url, "headers": {"TraceParent": "00-3-4-01"}}))

    token = current_traceparent.set("00-1-2-01")
    await http.run(plain)
    await http.run(own)
    current_traceparent.reset(token)
    await http.run(plain)

    traces = [
        [value for name, value in seen.headers.items() if name.lower() == "traceparent"] for seen in receiver.seen
    ]
    assert traces == [["00-1-2-01"], ["00-3-4-01"], []]
