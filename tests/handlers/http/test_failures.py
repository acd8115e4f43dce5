"""The failure of a call without a response: one line that quotes nothing received."""

from __future__ import annotations

import asyncio
import re
import socket
import struct

import orjson
import pytest

from erelong.handlers.base import AttemptFailed
from erelong.handlers.http.runner import Webhooks
from tests.handlers.attempts import make_attempt
from tests.handlers.http.test_client import opened, serving
from tests.handlers.receiver import raw_server

HEAD = b"HTTP/1.1 200 OK\r\n"
HUNG_UP = "it closed the connection before it answered"
BROKE_OFF = "it closed the connection in the middle of its answer"
NOT_HTTP = "its response is not HTTP: check the scheme and port of the URL, and that no 204 or 304 has a body"
TOO_LONG = "one of its header lines is too long"
MALFORMED = "its headers, or the chunks of its body, are malformed or too many"


async def message_of(http: Webhooks, url: str) -> str:
    with pytest.raises(AttemptFailed) as failure:
        await http.run(make_attempt(orjson.dumps({"url": url})))
    assert (failure.value.type, failure.value.retryable) == ("connection", True)
    return failure.value.message


@pytest.mark.real_loop("asyncio", "uvloop")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", HUNG_UP),
        (HEAD + b"X: canary", HUNG_UP),
        (HEAD + b"Content-Length: 10\r\n\r\ncanary", BROKE_OFF),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n9\r\ncanary", BROKE_OFF),
        (b"SSH-2.0-canary\r\n\r\n", NOT_HTTP),
        (b"\x15\x03\x01canary\r\n\r\n", NOT_HTTP),
        (b"HTTP/1.1 canary OK\r\n\r\n", NOT_HTTP),
        (HEAD + b"X: canary" + b"x" * 70_000 + b"\r\n\r\n", TOO_LONG),
        (HEAD + b"X: canary\r\n" * 40_000 + b"\r\n", MALFORMED),
        (HEAD + b"canary\r\n\r\n", MALFORMED),
        (HEAD + b"X: canary\0\r\n\r\n", MALFORMED),
        (HEAD + b"Content-Length: canary\r\n\r\n", MALFORMED),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\ncanary\r\n", MALFORMED),
    ],
)
async def test_malformed_response_is_reported_in_one_line(answer: bytes, reason: str) -> None:
    async with raw_server(answer) as url, opened() as http:
        message = await message_of(http, f"{url}canary-path")

    assert message == f"no answer from {url.removeprefix('http://').rstrip('/')}: {reason}"


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_reset_connection_is_reported() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        at_once = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        writer.transport.abort()

    async with serving(reset) as server, opened() as http:
        message = await message_of(http, server.url)

    assert message.endswith(": the connection broke: Connection reset by peer")


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_server_without_tls_is_reported() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"X: canary\r\n\r\n")

    async with serving(answer) as server, opened() as http:
        message = await message_of(http, server.url.replace("http:", "https:"))

    assert re.fullmatch(r"no answer from [0-9.:]+: no connection: TLS failed: [a-z ]+", message)


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_unknown_name_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    async with opened() as http:
        message = await message_of(http, "http://nobody.example/canary-path")

    assert message == ("no answer from nobody.example:80: its name could not be resolved: Name or service not known")
