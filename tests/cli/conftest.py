"""A service in a process for the commands that use one, and a way to run them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from erelong import Client
from erelong.cli.commands import main
from tests.support import SOURCE
from tests.support.process import ServiceProcess


class Ended(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Erelong = Callable[..., Ended]


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
def program(service_url: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command as a process, which ends with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, **options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "erelong", *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(SOURCE), "ERELONG_URL": service_url, **options},
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
