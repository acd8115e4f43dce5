"""The bytes that an http job writes, and the reuse of its connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import ClientConnectorError, TCPConnector
from aiohttp.connector import Connection
from pydantic import SecretStr
from yarl import URL

from erelong import __version__
from erelong.clock import instants as clock
from erelong.handlers.base import AttemptFailed
from erelong.handlers.http.client import Call, HttpClient
from erelong.handlers.http.runner import Webhooks
from erelong.settings.sections import WebhooksSection
from tests.handlers.attempts import ID, make_attempt
from tests.handlers.receiver import LOOPBACK, raw_server

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
JSON = "Content-Type: application/json"
TEXT = "Content-Type: text/plain; charset=utf-8"
BYTES = "Content-Type: application/octet-stream"
LARGE = 8_000_000  # larger than the socket buffers of both sides

OPENING = f"User-Agent: erelong/{__version__}|Accept-Encoding: identity|Accept: */*"
ATTEMPT = (
    f"webhook-id: {ID}|webhook-timestamp: 1767225600|X-Erelong-Attempt: 1|X-Erelong-Due-At: 2026-01-01T00:00:00.000000Z"
)

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A server that runs a script for each connection and counts connections."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._script(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has disconnected
        finally:
            writer.close()


@asynccontextmanager
async def serving(script: Script, ssl: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    server = Server(script)
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=ssl) as listener:
        server.port = listener.sockets[0].getsockname()[1]
        yield server


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Webhooks]:
    handler = Webhooks(config=WebhooksSection(allow_networks=list(LOOPBACK), **settings), now=clock.now)
    await handler.open()
    yield handler
    await handler.close()


async def call(http: Webhooks, url: str, **params: Any) -> dict[str, Any]:
    result: dict[str, Any] = orjson.loads(await http.run(make_attempt(orjson.dumps({"url": url, **params}))))
    return result


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
    return head + await reader.readexactly(int(lengths[0][16:]) if lengths else 0)


# The bytes


@pytest.mark.parametrize(
    ("params", "path", "request_line", "fields", "length", "body"),
    [
        ({"json": {"order": 7}}, "hook?a=1&b=%20#part", "POST /hook?a=1&b=%20", JSON, 11, b'{"order":7}'),
        ({"json": None}, "", "POST /", JSON, 4, b"null"),
        ({"body": "ä"}, "ä?ö", "POST /%C3%A4?%C3%B6", TEXT, 2, b"\xc3\xa4"),
        ({"body": ""}, "", "POST /", TEXT, 0, b""),
        ({"body_base64": "AP8="}, "", "POST /", BYTES, 2, b"\0\xff"),
        ({}, "", "POST /", BYTES, 0, b""),
        ({"method": "PUT"}, "", "PUT /", BYTES, 0, b""),
        ({"method": "PATCH"}, "", "PATCH /", BYTES, 0, b""),
        ({"method": "DELETE"}, "", "DELETE /", "", 0, b""),
        ({"method": "DELETE", "json": 1}, "", "DELETE /", JSON, 1, b"1"),
        ({"method": "GET"}, "", "GET /", "", None, b""),
        ({"method": "HEAD"}, "", "HEAD /", "", None, b""),
        ({"method": "OPTIONS"}, "", "OPTIONS /", "", None, b""),
        ({"method": "GET", "body": "?"}, "", "GET /", TEXT, 1, b"?"),
        ({"json": 1, "headers": {"X-A": "ä", "X-B": ""}}, "", "POST /", f"{JSON}|X-A: ä|X-B: ", 1, b"1"),
        ({"headers": {"Content-type": "a/b"}}, "", "POST /", "Content-type: a/b", 0, b""),
        ({"method": "GET", "headers": {"X-A": "1", "x-a": "2"}}, "", "GET /", "x-a: 2", None, b""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("through_proxy", [False, True])
async def test_request_is_written_to_the_byte(
    params: dict[str, Any],
    path: str,
    request_line: str,
    fields: str,
    length: int | None,
    body: bytes,
    through_proxy: bool,
) -> None:
    requests = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK if body else EMPTY)

    async with serving(note) as server:
        proxy = SecretStr(f"http://user:canary@127.0.0.1:{server.port}") if through_proxy else SecretStr("")
        async with opened(proxy=proxy) as http:
            await call(http, f"{server.url}{path}", **params)

    host = f"127.0.0.1:{server.port}"
    line = f"{request_line} HTTP/1.1".replace(" /", f" http://{host}/" if through_proxy else " /")
    ends = [] if length is None else [f"Content-Length: {length}"]
    ends += ["Proxy-Authorization: Basic dXNlcjpjYW5hcnk="] if through_proxy else []
    lines = [line, f"Host: {host}", *OPENING.split("|"), *(fields.split("|") if fields else []), *ATTEMPT.split("|")]
    assert requests == ["\r\n".join([*lines, *ends, "", ""]).encode() + body]


async def test_headers_of_the_job_replace_defaults_of_the_library() -> None:
    requests = []

    async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)

    async with serving(note) as server, opened() as http:
        await call(http, server.url, method="GET", headers={"user-agent": "me", "ACCEPT": "text/csv"})

    (request,) = requests
    assert b"\r\nuser-agent: me\r\nAccept-Encoding: identity\r\nACCEPT: text/csv\r\nwebhook-id" in request


async def test_tunnel_request_has_the_user_agent_of_the_service() -> None:
    requests = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    async with serving(refuse) as server, opened(proxy=SecretStr(server.url)) as http:
        with pytest.raises(AttemptFailed, match="the proxy answered 403"):
            await call(http, "https://app.example/secret", headers={"X-Mine": "1"})

    lines = ["CONNECT app.example:443 HTTP/1.1", "Host: app.example", *OPENING.split("|"), "", ""]
    assert requests == ["\r\n".join(lines).encode()]


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\nb", "a\0"])
async def test_header_with_a_line_break_is_never_written(value: str) -> None:
    received = []

    async def note(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        received.append(await reader.read())

    async with serving(note) as server:
        client = HttpClient(connector=TCPConnector(), proxy=None, connect_timeout=5, max_response=9)
        with pytest.raises(ValueError, match="the header X-Mine has a line break"):
            await client.send(Call("GET", URL(server.url), {"X-Mine": value}, "", None))
        await client.close()
        await asyncio.sleep(1)

    assert received == [b""]


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_large_body_is_sent_completely_to_a_slow_reader() -> None:
    text = "0123456789" * (LARGE // 10)
    received = []

    async def read_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = b""
        while len(body) < LARGE:
            body += await reader.read(100_000)
            await asyncio.sleep(0)
        received.append((f"Content-Length: {LARGE}\r\n".encode() in head, body))
        writer.write(OK)

    async with serving(read_slowly) as server, opened() as http:
        result = await call(http, server.url, body=text)

    assert result["body"] == "ok"
    assert received == [(True, text.encode())]


# The response


async def test_informational_responses_are_skipped() -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    async with raw_server(early + OK) as url, opened() as http:
        result = await call(http, url)

    assert (result["status"], result["headers"], result["body"]) == (200, {"content-length": "2"}, "ok")


async def test_switch_to_another_protocol_is_a_failure() -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    async with raw_server(switch + OK) as url, opened() as http:
        with pytest.raises(AttemptFailed, match="answered 101"):
            await call(http, url)


async def test_response_without_a_length_ends_with_its_connection() -> None:
    async with raw_server(b"HTTP/1.0 200 OK\r\n\r\nall of it") as url, opened() as http:
        result = await call(http, url)

    assert (result["body"], result["truncated"]) == ("all of it", False)


# The connection


def answering_once(methods: list[str]) -> Script:
    """Answer the first request of each connection, and close the connection at the second."""

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in (EMPTY, b""):
            methods.append((await read_request(reader)).split(b" ")[0].decode())
            writer.write(answer)

    return answer_once


@pytest.mark.real_loop("asyncio", "uvloop")
@pytest.mark.parametrize("method", ["DELETE", "GET", "HEAD", "OPTIONS", "PUT"])
async def test_idempotent_request_is_repeated_when_its_pooled_connection_is_dead(method: str) -> None:
    methods: list[str] = []
    async with serving(answering_once(methods)) as server, opened() as http:
        results = [await call(http, server.url, method=method) for _ in range(2)]

    assert [result["status"] for result in results] == [200, 200]
    assert methods == [method] * 3
    assert server.connections == 2


@pytest.mark.real_loop("asyncio", "uvloop")
@pytest.mark.parametrize("method", ["PATCH", "POST"])
async def test_other_request_fails_when_its_pooled_connection_is_dead(method: str) -> None:
    methods: list[str] = []
    async with serving(answering_once(methods)) as server, opened() as http:
        await call(http, server.url, method=method)
        with pytest.raises(AttemptFailed, match="before it answered") as failure:
            await call(http, server.url, method=method)

    assert (failure.value.type, failure.value.retryable) == ("connection", True)
    assert methods == [method] * 2


async def test_request_is_repeated_once() -> None:
    async def hang_up(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async with serving(hang_up) as server, opened() as http:
        with pytest.raises(AttemptFailed, match="before it answered"):
            await call(http, server.url, method="GET")

    assert server.connections == 2


async def test_connection_that_cannot_be_made_is_not_tried_again() -> None:
    class Connector(TCPConnector):
        attempts = 0

        async def connect(self, *request: Any, **more: Any) -> Connection:
            self.attempts += 1
            return await super().connect(*request, **more)

    async with serving(lambda *_: asyncio.sleep(0)) as server:
        pass  # the port is closed
    connector = Connector()
    client = HttpClient(connector=connector, proxy=None, connect_timeout=5, max_response=9)
    with pytest.raises(ClientConnectorError):
        await client.send(Call("GET", URL(server.url), {}, "", None))
    await client.close()

    assert connector.attempts == 1


@pytest.mark.parametrize("through_proxy", [False, True])
async def test_connection_is_reused(through_proxy: bool) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader):
            writer.write(OK)

    async with serving(answer) as server:
        proxy = SecretStr(f"http://user:canary@127.0.0.1:{server.port}" if through_proxy else "")
        async with opened(proxy=proxy) as http:
            for path in ("a", "a", "b"):
                await call(http, f"{server.url}{path}")

    assert server.connections == 1


@pytest.mark.parametrize(
    ("method", "status", "announced"),
    [
        ("POST", "204 No Content", "Content-Length: 5"),
        ("POST", "204 No Content", "Transfer-Encoding: chunked"),
        ("HEAD", "200 OK", "Content-Length: 5"),
    ],
)
async def test_connection_is_not_reused_after_a_response_with_a_body_that_it_must_not_have(
    method: str, status: str, announced: str
) -> None:
    async def send_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader):
            writer.write(f"HTTP/1.1 {status}\r\n{announced}\r\n\r\n".encode())
            await asyncio.sleep(0.01)
            writer.write(b"hello")

    async with serving(send_body) as server, opened() as http:
        results = [await call(http, server.url, method=method) for _ in range(2)]

    assert [result["status"] for result in results] == [int(status[:3])] * 2
    assert server.connections == 2


async def test_connection_is_reused_after_a_response_without_a_body() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await read_request(reader):
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    async with serving(answer) as server, opened() as http:
        for _ in range(3):
            await call(http, server.url)

    assert server.connections == 1


def answering_with_rest(methods: list[str]) -> Script:
    """Answer the first request of each connection, and send data that belongs to no request after the second."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for rest in (b"", b"hello"):
            methods.append((await read_request(reader)).split(b" ")[0].decode())
            writer.write(rest or b"HTTP/1.1 204 No Content\r\n\r\n")

    return answer


async def test_unexpected_data_on_a_reused_connection_does_not_blame_the_url() -> None:
    async with serving(answering_with_rest([])) as server, opened() as http:
        await call(http, server.url)
        with pytest.raises(AttemptFailed, match="it sent data that belongs to no request") as failure:
            await call(http, server.url)

    assert (failure.value.type, failure.value.retryable) == ("connection", True)


async def test_idempotent_request_is_repeated_after_unexpected_data_on_a_reused_connection() -> None:
    methods: list[str] = []
    async with serving(answering_with_rest(methods)) as server, opened() as http:
        results = [await call(http, server.url, method="PUT") for _ in range(2)]

    assert [result["status"] for result in results] == [204, 204]
    assert methods == ["PUT"] * 3


async def test_request_is_not_repeated_after_a_partial_response() -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK[:-1])

    async with serving(break_off) as server, opened() as http:
        with pytest.raises(AttemptFailed, match="in the middle of its answer"):
            await call(http, server.url, method="GET")

    assert server.connections == 1


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_connection_is_not_reused_when_the_response_arrives_before_the_request_is_sent() -> None:
    async def answer_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()
        while await reader.read(LARGE):  # until the client closes
            pass

    async with serving(answer_at_once) as server, opened() as http:
        for _ in range(2):
            assert (await call(http, server.url, body="x" * LARGE))["body"] == "ok"

    assert server.connections == 2


@pytest.mark.real_loop("asyncio", "uvloop")
@pytest.mark.parametrize(("size", "connections"), [(1_000, 1), (LARGE, 3)])
async def test_tls_connection_is_not_reused_after_a_large_request(size: int, connections: int) -> None:
    is_over = asyncio.Event()

    async def answer_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(OK)
            await (is_over.wait() if size == LARGE else reader.readexactly(size))

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(Path(__file__).parent / "self_signed.pem")
    async with serving(answer_at_once, ssl=context) as server:
        client = HttpClient(connector=TCPConnector(ssl=False), proxy=None, connect_timeout=5, max_response=9)
        url = URL(server.url.replace("http:", "https:"))
        for _ in range(3):
            async with asyncio.timeout(5):
                assert (await client.send(Call("POST", url, {}, "", (b"x" * size, "a/b")))).body == b"ok"
        is_over.set()
        await client.close()

    assert server.connections == connections


async def test_unexpected_data_is_not_the_response_to_the_next_request() -> None:
    async def say_more(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await writer.drain()
        await asyncio.sleep(1)
        writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async with serving(say_more) as server, opened() as http:
        for _ in range(2):
            assert (await call(http, server.url, method="GET"))["status"] == 200
            await asyncio.sleep(2)

    assert server.connections == 2


@pytest.mark.real_loop("asyncio", "uvloop")
@pytest.mark.parametrize("size", [1, LARGE])
async def test_cancelled_request_closes_its_connection(size: int) -> None:
    came, ended = asyncio.Event(), asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        came.set()
        try:
            while await reader.read(LARGE):
                pass
        finally:
            ended.set()

    async with serving(never_answer) as server, opened() as http:
        attempt = asyncio.ensure_future(call(http, server.url, body="x" * size))
        await came.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        await ended.wait()


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_rest_of_a_cancelled_request_is_not_sent() -> None:
    came, given_up, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    received = bytearray()

    async def read_late(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        came.set()
        await given_up.wait()
        try:
            while chunk := await reader.read(LARGE):
                received.extend(chunk)
        finally:
            ended.set()

    async with serving(read_late) as server, opened() as http:
        attempt = asyncio.ensure_future(call(http, server.url, body="x" * LARGE))
        await came.wait()
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt
        given_up.set()
        await ended.wait()

    assert len(received) < LARGE


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0\r\n\r\n", OK[:-1], OK, b"HTTP/1.1 500 No\r\n\r\n" + b"x" * 70_000])
async def test_connection_is_released_however_a_call_ends(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)

    async with serving(serve) as server, opened(per_host=1) as http:
        for _ in range(3):
            ending = await asyncio.gather(call(http, server.url), return_exceptions=True)

    assert server.connections == 3
    assert (answer == OK) == isinstance(ending[0], dict)


async def test_cancelled_call_releases_its_slot() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        writer.write(b"" if b"silent" in request else OK)
        await reader.read()

    async with serving(serve) as server, opened(per_host=1) as http:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await call(http, server.url + "silent")
        assert (await call(http, server.url))["body"] == "ok"
