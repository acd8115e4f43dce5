"""Secrets in every setting that takes one, and a search of every output of the real process for them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from tests.support import ROOT
from tests.support.process import ServiceProcess
from tests.system.client import Client

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(60)]

SIGNING = b64encode(b"canary of the signing key, 1").decode()
VALUE = 'canary-"of\\the/header'
PROXY = "canary-of-the-proxy"
SETTINGS = f"""\
[log]
level = "debug"

[webhooks]
signing_secrets = ["whsec_{SIGNING}"]
proxy = "http://{PROXY}:{PROXY}@127.0.0.1:%d"

[webhooks.secrets.crm]
value = '{VALUE}'
origins = ["http://receiver.example"]
"""
CANARIES = [b"canary", SIGNING.encode(), b64encode(f"{PROXY}:{PROXY}".encode()), quote(VALUE, safe="").encode()]
AUTHORIZATION = {"Authorization": "Bearer {secret:crm}"}


class Echo:
    """A proxy, and a server behind it that echoes secrets in the form that the path names."""

    def __init__(self) -> None:
        self.heads: list[str] = []

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[int]:
        async with await asyncio.start_server(self._answer, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        method, target, _ = head.split(" ", 2)
        given = [line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("authorization: ")]
        said = (given[0] if given else "").encode()
        if method == "CONNECT" or target.endswith("/hang-up"):
            writer.close()
        elif target.endswith("/garbage"):
            writer.write(b"HTTP/9 " + said + b"\r\n\r\n")
        else:
            status = target.rpartition("/")[2].encode()
            location = b"http://h/?" + quote(said).encode()
            writer.write(b"HTTP/1.1 %s Said\r\nX-Said: %s\r\nLocation: %s\r\n" % (status, said, location))
            writer.write(b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
        writer.close()


async def ask_for_everything(client: Client, session: aiohttp.ClientSession, service: ServiceProcess) -> list[bytes]:
    """Submit jobs with permitted and forbidden secrets; return all responses of the API."""
    pages: list[str] = []
    for path in ("200", "302", "401", "410", "503", "garbage", "hang-up"):
        job = {"kind": "http", "params": {"url": f"http://receiver.example/{path}", "headers": AUTHORIZATION}}
        status, answer = await client.ask("POST", "/v1/jobs", job | {"retry": {"max_attempts": 1}})
        assert status == 201, answer
        pages += [str(answer), str(await client.wait_until_final(answer["id"]))]
    for url in ("https://receiver.example/", "http://evil.example/", "http://127.0.0.1/", "nonsense"):
        status, answer = await client.ask(
            "POST", "/v1/jobs", {"kind": "http", "params": {"url": url, "headers": AUTHORIZATION}}
        )
        assert status == 422
        pages.append(str(answer))
    texts = [page.encode() for page in pages]
    for path in ("/v1/jobs?view=full", "/v1/kinds", "/v1/queues", "/openapi.json", "/metrics", "/readyz", "/nowhere"):
        async with session.get(service.url + path) as response:
            texts.append(await response.read())
    return texts


async def test_planted_secrets_are_sent_and_never_shown(
    make_service: Callable[..., ServiceProcess],
    make_client: Callable[[ServiceProcess], Client],
    session: aiohttp.ClientSession,
) -> None:
    echo = Echo()
    async with echo.serve() as port:
        service = make_service(config=SETTINGS % port)
        await asyncio.to_thread(service.start)
        texts = await ask_for_everything(make_client(service), session, service)
        await asyncio.to_thread(service.stop)

    assert sum(f"authorization: bearer {VALUE}" in head.lower() for head in echo.heads) == 7
    assert all("webhook-signature: v1," in head and "Proxy-Authorization: Basic " in head for head in echo.heads)
    texts += [service.log_text().encode(), *(path.read_bytes() for path in service.data.rglob("*") if path.is_file())]
    assert len(texts) > 25
    assert [text[:2_000] for text in texts if any(canary in text for canary in CANARIES)] == []


@pytest.mark.parametrize(
    ("command", "fault", "code"),
    [
        ("check-config", "", 0),
        ("serve", "", 65),
        ("serve", "[webhooks.secrets.mail]\nvalue = 'canary'\n", 78),
        ("check-config", '[store]\nurl = "canary"\n', 78),
        ("serve", '[store]\nkind = "postgres"\nurl = "postgresql://u:canary@[/"\n', 78),
        ("serve", '[store]\nkind = "postgres"\nurl = "postgresql://u:canary@127.0.0.1:1/"\n', 74),
    ],
)
def test_failed_start_does_not_show_planted_secrets(tmp_path: Path, command: str, fault: str, code: int) -> None:
    config = tmp_path / "config.toml"
    config.write_text(SETTINGS % 3128 + fault)
    (tmp_path / "erelong.db").write_text("no database")

    ended = subprocess.run(
        [sys.executable, "-m", "app", command, "--port", "0", "--config", str(config), "--data", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        timeout=30,
    )

    assert ended.returncode == code
    said = ended.stdout + ended.stderr
    assert said
    assert not any(canary in said for canary in CANARIES)
