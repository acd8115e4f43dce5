"""How clients connect: addresses that do not answer, and services behind TLS."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from erelong import AsyncClient, Client, NoAnswer

FD_SETSIZE = 1_024  # what select() can take
CERTIFICATE = Path(__file__).parents[1] / "handlers" / "http" / "self_signed.pem"


@pytest.fixture
def silent() -> Iterator[tuple[str, int]]:
    """An address that answers no connection: the queue of its listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes every name lead to addresses."""

    def resolve(*addresses: tuple[str, int]) -> None:
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    return resolve


def test_address_that_does_not_answer_leaves_time_for_the_next(
    real_service: str, silent: tuple[str, int], resolve: Callable[..., None]
) -> None:
    parts = urlsplit(real_service)
    resolve(silent, (parts.hostname, parts.port))

    with Client("http://localhost", timeout=1) as client:
        assert client.me()["anonymous"]


def test_many_addresses_that_do_not_answer_take_no_longer_than_the_timeout(
    silent: tuple[str, int], resolve: Callable[..., None]
) -> None:
    resolve(*[silent] * 5)
    began = time.monotonic()

    with (
        Client("http://localhost", timeout=1, retries=False) as client,
        pytest.raises(NoAnswer, match="no connection to"),
    ):
        client.me()

    assert time.monotonic() - began < 4


class Hello(BaseHTTPRequestHandler):
    """Answers every request."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "17")
        self.end_headers()
        self.wfile.write(b'{"name": "hello"}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def secured() -> Iterator[str]:
    """The address of a service with a certificate that nobody has signed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE)
    server = HTTPServer(("127.0.0.1", 0), Hello)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of clients that do not trust it
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_service_behind_tls_is_used_if_it_is_trusted(secured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))

    with Client(secured) as client:
        assert [client.me()["name"], client.me()["name"]] == ["hello", "hello"]


def test_certificate_that_is_not_trusted_is_not_tried_again(secured: str) -> None:
    began = time.monotonic()

    with Client(secured) as client, pytest.raises(NoAnswer, match="is not trusted: self-signed") as caught:
        client.me()

    assert not caught.value.maybe_done
    assert time.monotonic() - began < 5


@pytest.mark.real_loop
async def test_certificate_that_is_not_trusted_is_not_tried_again_by_asyncio(secured: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()

    async with AsyncClient(secured) as client:
        with pytest.raises(NoAnswer, match="self-signed"):
            await client.me()

    assert loop.time() - began < 5


def test_certificate_that_is_not_trusted_ends_events(secured: str) -> None:
    with Client(secured) as client, pytest.raises(NoAnswer, match="is not trusted: self-signed"):
        next(client.events())


@pytest.mark.real_loop
async def test_certificate_that_is_not_trusted_ends_events_of_asyncio(secured: str) -> None:
    async with AsyncClient(secured) as client:
        with pytest.raises(NoAnswer, match="self-signed"):
            await anext(client.events())


async def test_client_that_is_closed_reads_no_events() -> None:
    client = AsyncClient("http://127.0.0.1:9")
    await client.close()

    with pytest.raises(RuntimeError, match="the client is closed"):
        await anext(client.events())


async def test_service_that_does_not_begin_its_events_is_asked_again() -> None:
    asked: list[str] = []
    is_asked_again = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode())
        if len(asked) == 2:
            is_asked_again.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            following = asyncio.ensure_future(anext(client.events()))
            await asyncio.wait_for(is_asked_again.wait(), 300)
            following.cancel()
            await asyncio.wait([following])

    assert asked == ["GET /v1/events HTTP/1.1\r\n"] * 2


def test_connection_is_kept_in_a_program_with_many_open_files(real_service: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(2 * FD_SETSIZE, hard)), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(FD_SETSIZE)]

    try:
        with Client(real_service) as client:
            assert [client.me()["anonymous"], client.me()["anonymous"]] == [True, True]
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
