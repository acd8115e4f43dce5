"""Outgoing connections: certificates are always verified, and with a proxy there is no other connection."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from pydantic import SecretStr

from erelong.clock import instants as clock
from erelong.errors import Invalid
from erelong.handlers.base import AttemptFailed
from erelong.handlers.http import egress
from erelong.handlers.http.runner import Webhooks
from erelong.settings.sections import WebhooksSection
from tests.handlers.attempts import make_attempt
from tests.handlers.receiver import LOOPBACK, Receiver

SELF_SIGNED = Path(__file__).parent / "self_signed.pem"

pytestmark = pytest.mark.real_loop("asyncio", "uvloop")


@asynccontextmanager
async def opened(config: WebhooksSection) -> AsyncIterator[Webhooks]:
    handler = Webhooks(config=config, now=clock.now)
    await handler.open()
    yield handler
    await handler.close()


async def failure_of(http: Webhooks, url: str) -> AttemptFailed:
    with pytest.raises(AttemptFailed) as failure:
        await http.run(make_attempt(orjson.dumps({"url": url})))
    return failure.value


@asynccontextmanager
async def tls_server(receiver: Receiver) -> AsyncIterator[str]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(SELF_SIGNED)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", receiver.receive)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


class Proxy:
    """A proxy that forwards requests and records their first lines and credentials."""

    def __init__(self) -> None:
        self.request_lines: list[str] = []
        self.credentials: list[str] = []
        self.answer = b""
        self.tunnel_to = 0

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        async with await asyncio.start_server(self._pass_on, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.request_lines.append(head.split("\r\n")[0])
        self.credentials += [
            line[21:] for line in head.split("\r\n") if line.lower().startswith("proxy-authorization: ")
        ]
        if self.tunnel_to:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.tunnel_to)
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
        else:
            writer.write(self.answer or b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nproxied")
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.close()


# TLS


async def test_certificate_that_cannot_be_verified_is_a_connection_error(receiver: Receiver) -> None:
    async with tls_server(receiver) as url, opened(WebhooksSection(allow_networks=list(LOOPBACK))) as http:
        failure = await failure_of(http, url)

    assert (failure.type, failure.retryable) == ("connection", True)
    assert failure.message.endswith("its certificate is not accepted: self-signed certificate")
    assert receiver.seen == []


async def test_certificate_of_another_host_is_a_connection_error(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", ssl.create_default_context(cafile=SELF_SIGNED))
    async with tls_server(receiver) as url, opened(WebhooksSection(allow_networks=list(LOOPBACK))) as http:
        await http.run(make_attempt(orjson.dumps({"url": url})))  # a trusted certificate for this address
        failure = await failure_of(http, url.replace("127.0.0.1", "127.0.0.2"))

    assert failure.type == "connection"
    assert len(receiver.seen) == 1


# The proxy


def through(port: int, credentials: str = "", **settings: Any) -> WebhooksSection:
    return WebhooksSection(proxy=SecretStr(f"http://{credentials}127.0.0.1:{port}"), **settings)


async def test_call_goes_through_the_proxy_with_its_credentials() -> None:
    proxy = Proxy()
    async with proxy.serve() as port, opened(through(port, "user:canary@")) as http:
        result = orjson.loads(await http.run(make_attempt(b'{"url": "http://app.example/hook"}')))

    assert result["body"] == "proxied"
    assert proxy.request_lines == ["POST http://app.example/hook HTTP/1.1"]
    assert proxy.credentials == [f"Basic {b64encode(b'user:canary').decode()}"]


async def test_https_call_goes_through_a_tunnel_to_the_owner_of_the_certificate(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", ssl.create_default_context(cafile=SELF_SIGNED))
    proxy = Proxy()
    async with tls_server(receiver) as url, proxy.serve() as port:
        proxy.tunnel_to = int(url.rpartition(":")[2].strip("/"))
        async with opened(through(port, "user:canary@", allow_networks=list(LOOPBACK))) as http:
            await http.run(make_attempt(b'{"url": "https://127.0.0.1/hook"}'))
            failure = await failure_of(http, "https://app.example/hook")

    assert [seen.target for seen in receiver.seen] == ["/hook"]
    assert "proxy-authorization" not in receiver.seen[0].headers
    assert proxy.credentials == [f"Basic {b64encode(b'user:canary').decode()}"] * 2
    assert proxy.request_lines == ["CONNECT 127.0.0.1:443 HTTP/1.1", "CONNECT app.example:443 HTTP/1.1"]
    assert "its certificate is not accepted" in failure.message


async def test_tunnel_that_the_proxy_refuses_is_a_connection_error() -> None:
    proxy = Proxy()
    proxy.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    async with proxy.serve() as port, opened(through(port, "user:canary@")) as http:
        failure = await failure_of(http, "https://app.example/hook")

    assert proxy.request_lines == ["CONNECT app.example:443 HTTP/1.1"]
    assert (failure.type, failure.message) == (
        "connection",
        "no answer from app.example:443: the proxy answered 403 Forbidden",
    )


async def test_proxy_that_does_not_answer_is_a_connection_error_without_its_address() -> None:
    async with Proxy().serve() as port:
        pass
    async with opened(through(port, "user:canary@")) as http:
        failures = [await failure_of(http, f"{scheme}://app.example/") for scheme in ("http", "https")]

    assert [failure.message for failure in failures] == [
        f"no answer from app.example:{port}: the proxy does not answer" for port in (80, 443)
    ]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "https://[::ffff:10.0.0.1]/", "http://0x7f.1/", "http://localhost/"]
)
async def test_forbidden_address_in_a_url_does_not_reach_the_proxy(url: str) -> None:
    proxy = Proxy()
    async with proxy.serve() as port, opened(through(port)) as http:
        with pytest.raises(Invalid):
            http.check(orjson.dumps({"url": url}))
        failure = await failure_of(http, url)  # such as a job accepted before the settings changed

    assert (failure.type, failure.retryable) == ("blocked_address", False)
    assert failure.message.endswith(egress.REMEDY)
    assert proxy.request_lines == []


async def test_proxy_variables_of_the_environment_are_ignored(
    monkeypatch: pytest.MonkeyPatch, receiver: Receiver
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with opened(WebhooksSection(allow_networks=list(LOOPBACK))) as http:
        await http.run(make_attempt(orjson.dumps({"url": receiver.url})))

    assert len(receiver.seen) == 1


# Names


async def test_cookies_are_not_kept(receiver: Receiver) -> None:
    receiver.answers(headers={"Set-Cookie": "a=1"})
    url = receiver.url.replace("127.0.0.1", "localhost")  # no cookie jar keeps cookies of an address

    async with opened(WebhooksSection(allow_networks=list(LOOPBACK))) as http:
        for _ in range(2):
            await http.run(make_attempt(orjson.dumps({"url": url})))

    assert "cookie" not in receiver.seen[1].headers


async def test_unanswered_lookups_do_not_delay_others(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    real, stuck = socket.getaddrinfo, threading.Event()

    def ask(host: Any, *rest: Any, **more: Any) -> Any:
        if host.startswith("silent"):
            stuck.wait(5)
        return real("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    async with opened(WebhooksSection(allow_networks=list(LOOPBACK))) as http:
        silent = [asyncio.create_task(failure_of(http, f"http://silent{n}.example:9/")) for n in range(50)]
        await asyncio.sleep(0.05)
        url = receiver.url.replace("127.0.0.1", "answered.example")
        await http.run(make_attempt(orjson.dumps({"url": url})))
        assert not any(task.done() for task in silent)
        stuck.set()
        await asyncio.gather(*silent)

    assert len(receiver.seen) == 1


async def test_lookup_without_a_free_slot_fails_the_attempt_after_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()
    monkeypatch.setattr(egress, "MAX_LOOKUPS", 2)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: stuck.wait(5) and [])

    async with opened(WebhooksSection(connect_timeout=0.05)) as http:
        silent = [asyncio.create_task(failure_of(http, f"http://silent{n}.example:9/")) for n in range(2)]
        await asyncio.sleep(0)
        failure = await failure_of(http, "http://third.example/")
        assert not any(task.done() for task in silent)
        stuck.set()
        await asyncio.gather(*silent)

    assert (failure.type, failure.retryable) == ("connection", True)
    assert "2 other DNS lookups are waiting" in failure.message


# Shown bodies


@pytest.mark.parametrize(
    ("peer", "is_shown"),
    [(("8.8.8.8", 80), True), (("2606:4700::1", 80, 0, 0), True), (("10.0.0.1", 80), False), (("::1", 80, 0, 0), False),
     (None, False), ("/tmp/socket", False)],
)  # fmt: skip
async def test_only_bodies_of_public_servers_are_shown_in_errors(peer: object, is_shown: bool) -> None:
    assert egress.may_show(peer) is is_shown


@pytest.mark.parametrize("body", [b"", b"short", b"x" * 100_000])
async def test_peer_is_known_after_the_connection_was_released(
    receiver: Receiver, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers: list[object] = []

    def note(peer: object) -> bool:
        peers.append(peer)
        return True

    monkeypatch.setattr("erelong.handlers.http.runner.may_show", note)
    receiver.answers(500, body=body)
    async with opened(WebhooksSection(allow_networks=list(LOOPBACK))) as http:
        failures = [await failure_of(http, receiver.url) for _ in range(2)]

    port = int(receiver.url.rpartition(":")[2].strip("/"))
    if len(body) < 65_536:  # above, the connection is closed and has no peer
        assert peers == [("127.0.0.1", port)] * 2
    assert all(body[:5].decode() in failure.message for failure in failures)
