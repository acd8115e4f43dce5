"""A service in a process for the commands that use one, and ways to run them."""

from __future__ import annotations

import io
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from erelong import Client
from erelong.cli.commands import main
from tests.support import SOURCE
from tests.support.process import ServiceProcess
from tests.support.terminal import OnTerminal


class Ended(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Erelong = Callable[..., Ended]
Program = Callable[..., subprocess.Popen[str]]
Terminal = Callable[..., OnTerminal]


@pytest.fixture(scope="session")
def service_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that the tests share."""
    config = '[store]\nkind = "memory"\n[kinds.pulled]\npull = true\n'
    service = ServiceProcess(folder=tmp_path_factory.mktemp("service"), config=config)
    service.start()
    yield service.url
    service.kill()


@pytest.fixture
def client(service_url: str) -> Iterator[Client]:
    with Client(service_url, key="") as client:
        yield client


@pytest.fixture
def queue() -> str:
    """A queue of this test alone, since tests share the service."""
    return f"q-{secrets.token_hex(4)}"


@pytest.fixture
def erelong(
    service_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Erelong:
    """Run a command in this process: `erelong("get", id)`; `stdin` is its standard input."""
    for name in ("ERELONG_KEY", "ERELONG_KEY_FILE", "ERELONG_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ERELONG_URL", service_url)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def run(*arguments: str, stdin: str = "") -> Ended:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        try:
            code = main(arguments)
        except SystemExit as error:  # of argparse
            code = int(error.code or 0)
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def program(service_url: str, tmp_path: Path) -> Iterator[Program]:
    """Start a command as a process, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "erelong", *arguments],
            cwd=tmp_path,
            env=environment(service_url, tmp_path) | options,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def terminal(service_url: str, tmp_path: Path) -> Iterator[Terminal]:
    """Start a command on a terminal of its own, which ends with the test."""
    with ExitStack() as stack:

        def start(*arguments: str, size: tuple[int, int] = (100, 40), **options: str) -> OnTerminal:
            command = [sys.executable, "-m", "erelong", *arguments]
            variables = environment(service_url, tmp_path) | options
            return stack.enter_context(OnTerminal(command, folder=tmp_path, environment=variables, size=size))

        yield start


def environment(service_url: str, folder: Path) -> dict[str, str]:
    """Return the variables of a command that knows the service, without those of the developer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ERELONG_", "PYTHON"))}
    own = {"PYTHONPATH": str(SOURCE), "ERELONG_URL": service_url, "XDG_CONFIG_HOME": str(folder / "config")}
    return kept | own
