"""SIGHUP: a running service reads its keys again, and a closed terminal stops it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from erelong.settings.api_keys import fingerprint_of, new_key
from tests.support.process import ServiceProcess
from tests.system.client import Client, looks

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]

MakeService = Callable[..., ServiceProcess]


@pytest.fixture
def terminal() -> Iterator[int]:
    """Open a pseudo-terminal, as for a shell."""
    main, other = os.openpty()
    yield other
    os.close(other)
    os.close(main)


def settings_of(*keys: str, scopes: str = "'read'", more: str = "") -> str:
    tables = [f"[auth.keys.k{key[4:16]}]\nsha256 = '{fingerprint_of(key)}'\nscopes = [{scopes}]\n" for key in keys]
    return more + "".join(tables)


async def status_of(session: aiohttp.ClientSession, service: ServiceProcess, key: str) -> int:
    async with session.get(f"{service.url}/v1/jobs", headers={"Authorization": f"Bearer {key}"}) as answer:
        return answer.status


async def hang_up(service: ServiceProcess, event: str) -> dict[str, Any]:
    """Send SIGHUP, and return its log event."""
    before = len(service.events(event))
    service.signal(signal.SIGHUP)
    async for _ in looks():
        if len(events := service.events(event)) > before:
            return events[-1]
    raise AssertionError("unreachable")


async def test_keys_are_reloaded_from_the_file(make_service: MakeService, session: aiohttp.ClientSession) -> None:
    old, new = new_key(), new_key()
    service = make_service(config=settings_of(old))
    service.start()

    service.configure(settings_of(old, new))
    both = await hang_up(service, "auth_reloaded")
    while_both = [await status_of(session, service, key) for key in (old, new)]
    service.configure(settings_of(new))
    one = await hang_up(service, "auth_reloaded")

    assert [await status_of(session, service, key) for key in (old, new)] == [401, 200]
    assert (while_both, both["keys"], one["keys"]) == ([200, 200], 2, 1)


async def test_key_is_reloaded_from_the_file_that_a_variable_names(
    make_service: MakeService, session: aiohttp.ClientSession, tmp_path: Path
) -> None:
    old, new = new_key(), new_key()
    secret = tmp_path / "secret"
    secret.write_text(fingerprint_of(old))
    names = {"ERELONG_AUTH__KEYS__APP__SHA256_FILE": str(secret), "ERELONG_AUTH__KEYS__APP__SCOPES": '["read"]'}
    service = make_service(environment=names)
    service.start()

    secret.write_text(fingerprint_of(new))
    await hang_up(service, "auth_reloaded")

    assert [await status_of(session, service, key) for key in (old, new)] == [401, 200]


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ("[auth.keys.b]\nsha256 = 'x'\n", "auth.keys.b.scopes: is required"),
        ("[auth\n", "is not TOML"),
        ("[server]\nport = 'x'\n", "server.port"),
        ("", "auth.keys is empty"),
        ("[server]\nhost = '0.0.0.0'\n", "open to others"),
    ],
)
async def test_invalid_settings_leave_the_keys_unchanged(
    make_service: MakeService, session: aiohttp.ClientSession, after: str, reason: str
) -> None:
    key, other = new_key(), new_key()
    service = make_service(config=settings_of(key))
    service.start()

    service.configure(after)
    failed = await hang_up(service, "auth_reload_failed")

    assert reason in failed["reason"]
    assert failed["level"] == "error"
    assert [await status_of(session, service, one) for one in (key, other)] == [200, 401]


async def test_changes_that_need_a_restart_are_reported(make_service: MakeService) -> None:
    key = new_key()
    service = make_service(config=settings_of(key))
    service.start()

    service.configure(settings_of(key, more="[auth]\nopen_metrics = false\n"))
    events = [await hang_up(service, "auth_reloaded") for _ in range(2)]

    assert [line["restart_for"] for line in events] == ["open_metrics"] * 2


async def test_stream_ends_when_its_key_is_revoked(make_service: MakeService, session: aiohttp.ClientSession) -> None:
    old, new = new_key(), new_key()
    service = make_service(config=settings_of(old, scopes="'submit'"))
    service.start()
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def send() -> Any:
        while (line := await lines.get()) is not None:
            yield line

    headers = {"Authorization": f"Bearer {old}", "Content-Type": "application/x-ndjson"}
    lines.put_nowait(b'{"kind": "echo"}\n')
    async with session.post(f"{service.url}/v1/jobs/batch", data=send(), headers=headers) as answer:
        first = orjson.loads(await answer.content.readline())
        service.configure(settings_of(new, scopes="'submit'"))
        await hang_up(service, "auth_reloaded")
        lines.put_nowait(b'{"kind": "echo"}\n')
        second = orjson.loads(await answer.content.readline())
        rest = await answer.content.read()
    lines.put_nowait(None)

    assert first["created"] is True
    assert second["problem"]["code"] == "unauthenticated"
    assert rest == b""


async def test_service_drains_when_its_terminal_is_closed(
    make_service: MakeService, make_client: Callable[[ServiceProcess], Client], terminal: int
) -> None:
    service = make_service(stdin=terminal)
    service.start()
    client = make_client(service)
    job = await client.submit_and_wait_for_start(kind="echo", params={"sleep": 0.5})

    service.signal(signal.SIGHUP)
    async for _ in looks():
        if service.events("draining"):
            break
    service.signal(signal.SIGHUP)  # the kernel's, after the shell's
    ended = await asyncio.to_thread(service.wait)

    assert ended.code == 0
    service.start()
    assert (await client.read(job["id"]))["state"] == "succeeded"
