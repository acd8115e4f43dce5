"""The service refuses to start on a store of another process, on a foreign file, or on bad settings."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.process import ServiceProcess
from tests.system.client import Client

pytestmark = [pytest.mark.real_loop, pytest.mark.timeout(30)]


async def test_second_process_on_the_same_data_exits_75_and_the_first_goes_on(
    make_service: Callable[..., ServiceProcess], make_client: Callable[[ServiceProcess], Client]
) -> None:
    first, second = make_service(), make_service()
    second.data = first.data
    first.start()

    second.launch()
    ended = second.wait()

    assert ended.code == 75
    assert f"process {first.pid} " in second.log_text()
    client = make_client(first)
    job = await client.submit(kind="echo")
    assert (await client.wait_until_final(job["id"]))["state"] == "succeeded"


def test_data_of_a_killed_process_is_taken_over(make_service: Callable[..., ServiceProcess]) -> None:
    first, second = make_service(), make_service()
    second.data = first.data
    first.start()
    first.kill()

    second.start()

    assert second.stop().code == 0


@pytest.mark.parametrize("content", [b"no database at all" * 100, None], ids=["text", "database"])
def test_foreign_file_exits_65_and_is_left_as_it_was(
    make_service: Callable[..., ServiceProcess], content: bytes | None
) -> None:
    service = make_service()
    path = service.data / "erelong.db"
    service.data.mkdir()
    _write_foreign(path, content)
    before = path.read_bytes()

    service.launch()
    ended = service.wait()

    assert ended.code == 65
    assert str(path) in service.log_text()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[server]\nport = 8080\nbacklog = 3\n", ["config.toml", "server.backlog", "no such setting"]),
        ("[workers]\n\nconcurrency = 0\n", ["config.toml", "workers.concurrency", "0"]),
        ("[server\nport = 1", ["config.toml", "line 1"]),
        ('[kinds.mail]\npython = "nowhere:send"\n', ["kinds.mail", "nowhere"]),
    ],
    ids=["unknown", "bound", "syntax", "module"],
)
def test_invalid_settings_exit_78_and_are_named(
    make_service: Callable[..., ServiceProcess], config: str, words: list[str]
) -> None:
    service = make_service(config=config)

    service.launch()
    ended = service.wait()

    assert ended.code == 78
    assert [word for word in words if word not in service.log_text()] == []


def test_missing_settings_file_exits_78(make_service: Callable[..., ServiceProcess]) -> None:
    service = make_service()
    (service.folder / "config.toml").unlink()

    service.launch()
    ended = service.wait()

    assert ended.code == 78
    assert str(service.folder / "config.toml") in service.log_text()


def _write_foreign(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
        return
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE recipes (name TEXT)")
        database.commit()
