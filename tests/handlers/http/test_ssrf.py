"""Forbidden addresses in every notation: listeners count that the service never connects to them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import ThreadedResolver
from yarl import URL

from erelong.clock import instants as clock
from erelong.errors import Invalid
from erelong.handlers.base import AttemptFailed
from erelong.handlers.http.runner import Webhooks
from erelong.settings.sections import WebhooksSection
from tests.handlers.attempts import make_attempt
from tests.handlers.receiver import raw_server

REMEDY = "an operator can open its network with [webhooks] allow_networks"
LOCAL = ["127.0.0.1", "127.0.0.2", "127.255.255.254"]

# Notations of forbidden addresses; the port is that of the listeners.
LITERALS = [
    "127.0.0.1", "127.0.0.2", "127.255.255.254", "127.1", "127.0.1", "0", "0.0.0.0", "0x7f.0.0.1", "0x7f.1",
    "0x7f000001", "0X7F000001", "0x7F.0x0.0x0.0x1", "0177.0.0.1", "0177.1", "00000177.0.0.1", "017700000001",
    "2130706433", "2130706434", "127.0.0.1.", "2130706433.", "0x7f.1.",
    "①②⑦.0.0.1", "\uff11\uff12\uff17.0.0.1", "127。0。0。1", "127\uff0e0\uff0e0\uff0e1", "²¹³⁰⁷⁰⁶⁴³³", "127.0.0.1。",
    "[::1]", "[::]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::127.0.0.1]", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:0001]", "[::ffff:0:0]", "[::ffff:0:127.0.0.1]", "[::1%25lo]", "[::1%lo]",
    "[64:ff9b::127.0.0.1]", "[64:ff9b::7f00:1]", "[64:ff9b:1::127.0.0.1]", "[2002:7f00:1::]", "[2002:7f00:1::1]",
    "[2001:0:7f00:1::]", "[2001::80ff:fffe]", "[2606:4700::5efe:127.0.0.1]", "[fe80::1]", "[fe80::1%25lo]", "[fec0::1]",
    "[fd00:ec2::254]", "[fc00::1]", "[ff02::1]", "[2001:db8::1]",
    "10.0.0.1", "172.16.0.1", "192.168.0.1", "169.254.169.254", "0xa9fea9fe", "2852039166", "[::ffff:169.254.169.254]",
    "[64:ff9b::a9fe:a9fe]", "100.100.100.200", "168.63.129.16", "192.0.0.192", "192.88.99.1", "198.18.0.1", "224.0.0.1",
    "255.255.255.255", "240.0.0.1",
    "localhost", "LOCALHOST", "localhost.", "ⓛocalhost", "a.localhost", "app.LocalHost.",
]  # fmt: skip

# URLs that parsers read differently: some find a forbidden host in them.
PUZZLES = [
    "http://app.example@127.0.0.1:{port}/", "http://127.0.0.1:{port}@app.example/", "http://app.example\\@127.0.0.1:{port}/",
    "http:\\\\127.0.0.1:{port}/", "http:127.0.0.1:{port}", "http:/127.0.0.1:{port}/", "///127.0.0.1:{port}/",
    "http://%31%32%37.0.0.1:{port}/", "http://127.0.0.1%2f@app.example/", "http://127.0.0.1%00.app.example:{port}/",
    "http://127.0.0.1\n.app.example:{port}/", "http://[::1]app.example:{port}/", "http://app.example[::1]:{port}/",
    "http://[v1.127.0.0.1]:{port}/", "http://127.0.0.1\u200b:{port}/", "http://1.2.3.4.127.0.0.1:{port}/",
    "http://256.0.0.1:{port}/", "file:///etc/passwd", "gopher://127.0.0.1:{port}/", "unix:///tmp/a.sock",
]  # fmt: skip

# Names, and the resolver's answers to consecutive lookups.
NAMES: dict[str, list[list[str]]] = {
    "loopback.example": [["127.0.0.1"]],
    "loopback6.example": [["::1"]],
    "both.example": [["::1", "127.0.0.1"]],
    "mapped.example": [["::ffff:127.0.0.1"]],
    "unspecified.example": [["0.0.0.0"]],
    "private.example": [["10.0.0.1", "172.16.0.1", "192.168.0.1"]],
    "metadata.example": [["169.254.169.254"]],
    "nat64.example": [["64:ff9b::7f00:1"]],
    "6to4.example": [["2002:7f00:1::1"]],
    "link.example": [["fe80::1%lo"]],
    "localhost.localdomain": [["127.0.0.1"]],
    "a_b.example.": [["127.0.0.2"]],
}


class Listeners:
    """Count connections to all addresses of this machine, on one port."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self._servers: list[asyncio.Server] = []

    async def open(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            server = await asyncio.start_server(self._count, host, self.port)
            self.port = server.sockets[0].getsockname()[1]
            self._servers.append(server)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()

    async def _count(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()


@pytest_asyncio.fixture
async def listeners() -> AsyncIterator[Listeners]:
    listeners = Listeners()
    await listeners.open(["0.0.0.0", "::1"] if socket.has_ipv6 and _has_address("::1") else ["0.0.0.0"])
    yield listeners
    await listeners.close()


@pytest_asyncio.fixture
async def http() -> AsyncIterator[Webhooks]:
    handler = Webhooks(config=WebhooksSection(connect_timeout=1.0), now=clock.now)
    await handler.open()
    yield handler
    await handler.close()


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, list[list[str]]]], list[str]]:
    """Replace the system's resolver and record lookups; the last answer repeats."""
    real = socket.getaddrinfo

    def answer_for(names: dict[str, list[list[str]]]) -> list[str]:
        lookups: list[str] = []

        def answer(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
            if host not in names:
                return real(host, port, *rest, **more)
            answers = names[host]
            addresses = answers[min(lookups.count(host), len(answers) - 1)]
            lookups.append(host)
            return [info for address in addresses for info in real(address, port, type=socket.SOCK_STREAM)]

        monkeypatch.setattr(socket, "getaddrinfo", answer)
        return lookups

    return answer_for


async def failure_of(http: Webhooks, url: str) -> AttemptFailed:
    """Return the failure of an attempt without a check at submit, as for a job from before a change of settings."""
    with pytest.raises(AttemptFailed) as failure:
        await http.run(make_attempt(orjson.dumps({"url": url, "method": "GET"})))
    return failure.value


def _has_address(host: str) -> bool:
    try:
        with socket.create_server((host, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_the_list_is_long_enough() -> None:
    assert len(set(LITERALS)) + len(set(PUZZLES)) + len(NAMES) >= 100


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_listeners_count(listeners: Listeners) -> None:
    for host in LOCAL:
        _, writer = await asyncio.open_connection(host, listeners.port)
        writer.close()
    await asyncio.sleep(0.01)

    assert listeners.connections == len(LOCAL)


@pytest.mark.parametrize("host", LITERALS)
def test_forbidden_address_in_a_url_is_refused_at_submit_with_the_remedy(host: str) -> None:
    http = Webhooks(config=WebhooksSection(), now=clock.now)

    with pytest.raises(Invalid) as refusal:
        http.check(orjson.dumps({"url": f"http://{host}:8000/"}))

    (fault,) = refusal.value.faults
    assert fault.pointer == "/url"
    assert fault.detail.endswith(REMEDY)


@pytest.mark.parametrize("url", PUZZLES)
def test_ambiguous_url_is_refused_at_submit(url: str) -> None:
    http = Webhooks(config=WebhooksSection(), now=clock.now)

    with pytest.raises(Invalid) as refusal:
        http.check(orjson.dumps({"url": url.format(port=8000)}))

    assert [fault.pointer for fault in refusal.value.faults] == ["/url"]


@pytest.mark.real_loop("asyncio", "uvloop")
async def test_nothing_forbidden_in_a_url_is_ever_connected_to(http: Webhooks, listeners: Listeners) -> None:
    urls = [f"{scheme}://{host}:{listeners.port}/" for host in LITERALS for scheme in ("http", "https")]
    urls += [url.format(port=listeners.port) for url in PUZZLES]

    failures = await asyncio.gather(*(failure_of(http, url) for url in urls))

    assert listeners.connections == 0
    assert [failure.message for failure in failures if failure.type not in _EXPECTED] == []
    blocked = [failure for failure in failures if failure.type == "blocked_address"]
    assert len(blocked) >= 60
    assert not any(failure.retryable for failure in blocked)


_EXPECTED = {"blocked_address", "connection", "exception"}  # the last two: the HTTP library rejects the host


@pytest.mark.real_loop
@pytest.mark.parametrize("name", NAMES)
async def test_name_of_a_forbidden_address_fails_the_attempt_with_the_remedy(
    http: Webhooks, listeners: Listeners, resolver: Callable[..., list[str]], name: str
) -> None:
    lookups = resolver(NAMES)
    url = f"http://{name}:{listeners.port}/secret"
    http.check(orjson.dumps({"url": url}))

    failure = await failure_of(http, url)

    assert lookups == [name]
    assert listeners.connections == 0
    assert (failure.type, failure.retryable) == ("blocked_address", False)
    assert failure.message == f"{name}:{listeners.port} was not called: it has no public address: {REMEDY}"


@pytest.mark.real_loop
async def test_name_rebound_to_a_forbidden_address_is_not_called(
    listeners: Listeners, resolver: Callable[..., list[str]]
) -> None:
    lookups = resolver({"rebinding.example": [["127.0.0.2"], ["127.0.0.1"]]})
    # The opened network stands for a public address, which a test must not call.
    http = Webhooks(config=WebhooksSection(allow_networks=["127.0.0.2/32"]), now=clock.now)  # type: ignore[list-item]
    url = f"http://rebinding.example:{listeners.port}/"

    await http.open()
    await http.run(make_attempt(orjson.dumps({"url": url})))
    await http.close()  # drops the DNS cache too
    await http.open()
    failure = await failure_of(http, url)
    await http.close()

    assert lookups == ["rebinding.example"] * 2
    assert listeners.connections == 1
    assert failure.type == "blocked_address"


@pytest.mark.real_loop
async def test_only_permitted_addresses_of_a_name_are_tried(
    listeners: Listeners, resolver: Callable[..., list[str]]
) -> None:
    resolver({"mixed.example": [["127.0.0.1", "::1", "127.0.0.2", "10.0.0.1"]]})
    http = Webhooks(config=WebhooksSection(allow_networks=["127.0.0.2/32"]), now=clock.now)  # type: ignore[list-item]

    await http.open()
    await http.run(make_attempt(orjson.dumps({"url": f"http://mixed.example:{listeners.port}/"})))
    await http.close()

    assert listeners.connections == 1


@pytest.mark.real_loop
async def test_no_socket_is_opened_to_a_forbidden_address_from_the_resolver(
    http: Webhooks, listeners: Listeners, resolver: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver({"mixed.example": [["127.0.0.1", "::1", "127.0.0.2"]]})
    assert http._client is not None
    monkeypatch.setattr(http._client._connector, "_resolver", ThreadedResolver())

    failure = await failure_of(http, f"http://mixed.example:{listeners.port}/")

    assert listeners.connections == 0
    assert failure.type == "blocked_address"


@pytest.mark.real_loop
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_to_a_forbidden_address_is_not_followed(listeners: Listeners, status: int) -> None:
    # Not even to an opened network: only another job may call it.
    http = Webhooks(config=WebhooksSection(allow_networks=["127.0.0.0/8"]), now=clock.now)  # type: ignore[list-item]
    answer = f"HTTP/1.1 {status} Go\r\nLocation: http://127.0.0.1:{listeners.port}/\r\nContent-Length: 0\r\n\r\n"

    await http.open()
    async with raw_server(answer.encode()) as url:
        failure = await failure_of(http, url)
    await http.close()

    assert listeners.connections == 0
    assert failure.message.endswith("and redirects are not followed")


@pytest.mark.parametrize(
    ("network", "url"),
    [
        ("127.0.0.0/8", "http://127.0.0.1/"),
        ("127.0.0.0/8", "http://[::ffff:127.0.0.1]/"),
        ("127.0.0.0/8", "http://localhost/"),
        ("::1/128", "http://app.localhost:80/"),
        ("::1/128", "http://[::1]/"),
        ("10.0.0.0/8", "http://10.1.2.3/"),
        ("fd00::/8", "http://[fd00::7]/"),
    ],
)
def test_opened_network_may_be_called(network: str, url: str) -> None:
    http = Webhooks(config=WebhooksSection(allow_networks=[network]), now=clock.now)  # type: ignore[list-item]

    http.check(orjson.dumps({"url": url}))

    assert http._egress.find_fault(URL(url)) is None


def test_public_address_in_an_odd_notation_is_refused_with_the_plain_notation() -> None:
    http = Webhooks(config=WebhooksSection(), now=clock.now)

    with pytest.raises(Invalid, match=r"write 0x8080808 as 8\.8\.8\.8"):
        http.check(b'{"url": "http://0x8080808/"}')
