"""`erelong copy`: what it prints, its exit codes, and targets that it refuses."""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest

from erelong.cli import copying
from erelong.cli.commands import main as run
from erelong.stores.sqlite.store import SqliteStore
from tests.support.builders import ALL, make_job, put
from tests.support.copied import Place
from tests.support.postgres import GUARDED, PostgresServer

CANARY = "canary-of-the-copy"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with a store of three jobs."""
    folder = tmp_path / "data"
    folder.mkdir()
    asyncio.run(_fill(folder / "erelong.db"))
    return folder


@pytest.fixture
def database(postgres_server: PostgresServer) -> str:
    postgres_server.drop()
    return postgres_server.url


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Return settings that permit the server of the tests, which does not sync."""
    path = tmp_path / "config.toml"
    path.write_text('[store]\ndurability = "normal"\n')
    return path


async def _fill(path: Path) -> None:
    store = SqliteStore(path=path)
    await store.open()
    await put(store, *(make_job(labels={"a": "b"}) for _ in range(3)))
    await store.close()


async def _count(place: Place) -> int:
    async with place.opened() as store:
        return len(await store.list(ALL))


def test_store_is_copied_and_the_next_steps_are_named(
    data: Path, database: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["copy", database, "--data", str(data), "--config", str(config)]) == 0

    said = capsys.readouterr()
    assert "holds 3 jobs and 3 other rows, which are equal to those of" in said.out
    assert "on one of the two stores only" in said.out
    assert "copying   [##############################] 100%  6 of 6 rows" in said.err
    assert asyncio.run(_count(Place(url=database))) == 3


def test_store_of_the_settings_is_the_source(
    data: Path, database: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["copy", database, "--data", str(data), "--config", str(config)])
    config.write_text(f'[store]\nkind = "postgres"\ndurability = "normal"\nurl = "{database}"\n')

    assert run(["copy", str(tmp_path / "back.db"), "--config", str(config)]) == 0

    assert "back.db holds 3 jobs" in capsys.readouterr().out
    assert asyncio.run(_count(Place(path=tmp_path / "back.db"))) == 3


def test_url_can_be_in_a_file(
    data: Path, database: str, config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "url").write_text(f"{database}\n")

    assert run(["copy", f"@{tmp_path / 'url'}", "--data", str(data), "--config", str(config)]) == 0

    assert "holds 3 jobs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "code", "text"),
    [
        (f"postgresql://u:{CANARY}@[bad/db", 78, "the URL cannot be read"),
        (f"postgresql://u:{CANARY}@127.0.0.1:1/db", 74, "check the server and the URL"),
        (f"postgresql://u:{CANARY}@nowhere.invalid/db", 74, "correct the host"),
        (f"mysql://u:{CANARY}@h/db", 1, "is not a PostgreSQL URL"),
        ("@/nowhere/url", 1, "cannot be read"),
        ("/nowhere/erelong.db", 1, "there is no folder /nowhere"),
    ],
)
def test_wrong_target_is_refused_without_its_password(
    target: str, code: int, text: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["copy", target, "--data", str(data)]) == code

    said = capsys.readouterr()
    assert text in said.err
    assert CANARY not in said.out + said.err


def test_wrong_password_is_refused_and_not_shown(
    data: Path, postgres_server: PostgresServer, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"postgresql://{GUARDED}:{CANARY}@/postgres?host={postgres_server.home}"

    assert run(["copy", url, "--data", str(data), "--config", str(config)]) == 74

    said = capsys.readouterr()
    assert "check the user and the password in the URL" in said.err
    assert CANARY not in said.out + said.err


def test_file_without_a_url_is_not_shown(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "url").write_text(CANARY)

    assert run(["copy", f"@{tmp_path / 'url'}", "--data", str(data)]) == 1

    said = capsys.readouterr()
    assert "holds no URL" in said.err
    assert CANARY not in said.out + said.err


def test_server_that_may_lose_commits_is_refused(data: Path, database: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["copy", database, "--data", str(data)]) == 78

    assert "fsync is off" in capsys.readouterr().err


def test_store_in_memory_is_refused(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text('[store]\nkind = "memory"\n')

    assert run(["copy", str(tmp_path / "copy.db"), "--config", str(config)]) == 78

    assert 'store.kind = "memory" has nothing to copy' in capsys.readouterr().err


def test_interrupted_copy_says_so_and_can_be_repeated(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "copy.db"
    with monkeypatch.context() as patched:
        patched.setattr(copying.Bar, "advance", _interrupt)
        assert run(["copy", str(target), "--data", str(data)]) == 130
    assert "nothing was copied" in capsys.readouterr().err
    assert not target.exists()

    assert run(["copy", str(target), "--data", str(data)]) == 0


def _interrupt(bar: copying.Bar, rows: int) -> None:
    raise KeyboardInterrupt


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_terminal_shows_one_line_for_each_phase(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)

    run(["copy", str(tmp_path / "copy.db"), "--data", str(data)])

    lines = screen.getvalue().split("\n")
    assert [line.rpartition("\x1b[K")[2].split()[0] for line in lines if line] == ["copying", "indexing", "comparing"]
    assert "100%" in lines[0]
