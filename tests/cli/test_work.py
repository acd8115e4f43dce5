"""The commands about workers: options of `work`, and the schemas of its kinds."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from erelong import Client
from erelong.client.worker.reloading import changes, times_of
from tests.cli.conftest import Erelong, Terminal

Program = Callable[..., subprocess.Popen[str]]

MODULE = """
from typing import Literal
from erelong import Worker
worker = Worker()

@worker.kind("KIND", timeout="2m", retry={"max_attempts": 3})
def work(n: int, how: Literal["fast", None] = None) -> int:
    return FACTOR * n
"""

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def kind() -> str:
    return f"kind-{secrets.token_hex(4)}"


def write(folder: Path, kind: str, factor: int) -> None:
    (folder / "mine.py").write_text(MODULE.replace("KIND", kind).replace("FACTOR", str(factor)))


def test_registered_worker_works_once_and_logs_json(
    program: Program, client: Client, tmp_path: Path, kind: str
) -> None:
    write(tmp_path, kind, 2)
    first = program("work", "mine:worker", "--register", "--once", "--log-format", "json")
    first.communicate(timeout=30)
    job = client.submit(kind, {"n": 4})

    second = program("work", "mine:worker", "--once", "--log-format", "json")
    _, err = second.communicate(timeout=30)

    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert (first.returncode, second.returncode, client.get(job).raw["result"]) == (0, 0, 8)
    assert events == ["worker_started", "attempt_started", "attempt_ended", "worker_ended"]


def test_worker_starts_again_when_its_module_has_changed(
    program: Program, client: Client, tmp_path: Path, kind: str
) -> None:
    write(tmp_path, kind, 2)
    written = 1_000_000_000
    os.utime(tmp_path / "mine.py", (written, written))
    process = program("work", "mine:worker", "--register", "--reload")
    client.kind(kind).put()

    before = client.submit(kind, {"n": 4}).result(timeout=30)
    (tmp_path / "mine.py").write_text("nonsense(")
    assert process.stderr is not None
    lines = [next(process.stderr)]
    while "waiting for a change" not in lines[-1]:
        lines.append(next(process.stderr))
    write(tmp_path, kind, 3)
    os.utime(tmp_path / "mine.py", (written, written + 0.5))  # a file of the same size within the same second
    after = client.submit(kind, {"n": 4}).result(timeout=30)
    process.terminate()
    process.communicate(timeout=30)

    assert (before, after, process.returncode) == (8, 12, 0)
    assert any("mine.py changed; starting again" in line for line in lines)
    assert "the worker ended with 1;" in lines[-1]


def test_ctrl_c_lets_a_reloaded_worker_finish_its_job(
    terminal: Terminal, client: Client, tmp_path: Path, kind: str
) -> None:
    write(tmp_path, kind, 2)
    slow = (tmp_path / "mine.py").read_text().replace("    return", "    time.sleep(1)\n    return")
    (tmp_path / "mine.py").write_text(f"import time\n{slow}")
    client.kind(kind).put()
    job = client.submit(kind, {"n": 4})

    shown = terminal("work", "mine:worker", "--reload")
    shown.wait_for("attempt_started")
    shown.press("\x03")

    assert shown.wait() == 0
    assert client.get(job).raw["result"] == 8


def test_python_files_are_watched_but_those_of_environments(tmp_path: Path) -> None:
    for name in ("a.py", "b/c.py", "venv/pyvenv.cfg", "venv/d.py", ".git/e.py", "__pycache__/f.py", "g.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    before = times_of(tmp_path)

    os.utime(tmp_path / "b" / "c.py", (1, 1))
    (tmp_path / "a.py").unlink()

    assert {Path(name).name for name in before} == {"a.py", "c.py"}
    assert [Path(name).name for name in changes(before, times_of(tmp_path))] == ["a.py", "c.py"]


def test_schema_prints_the_lines_of_the_settings(
    erelong: Erelong, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, kind, 2)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    printed = erelong("schema", "mine:worker")

    table = tomllib.loads(printed.out)["kinds"][kind]
    assert (table["pull"], table["timeout"], table["retry"]) == (True, "2m", {"max_attempts": 3})
    assert table["params_schema"]["required"] == ["n"]
    assert {"type": "null"} in table["params_schema"]["properties"]["how"]["anyOf"]
