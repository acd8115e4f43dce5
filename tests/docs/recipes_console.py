"""Runs the console lines of a page in bash, and compares their output with the output shown."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

VOLATILE = {"id", "execute_at", "due_at", "created_at", "started_at", "finished_at", "late_by", "sha256"}
MEMBER = re.compile(r'"(\w+)":("[^"]*"|-?[\d.]+|null|true|false)?')
ID = re.compile(r"\b[0-9a-f]{26}\b")
PORT = re.compile(r"--port (\d+)")
COMMAND_TIMEOUT = 8.0


class Line(NamedTuple):
    """A command, and the output shown under it."""

    command: str
    shown: str


def split(block: str) -> list[Line]:
    """Return the commands of a block; output begins with a brace."""
    lines = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, brace, shown = part.partition("\n{")
        lines.append(Line(command.strip(), brace.strip() + shown))
    return lines


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port: int = door.getsockname()[1]
        return port


class Console:
    """A terminal in `folder`. Each of the `replaced` texts stands for an address of this test.

    A command with `&` at its end runs until `close`.
    """

    def __init__(self, *, folder: Path, replaced: Mapping[str, str], environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._replaced = dict(replaced)
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        # A package that is missing must fail, not be fetched.
        self._environment = {**os.environ, "PATH": programs, "PIP_NO_INDEX": "1", **environment}
        self._ids: dict[str, str] = {}
        self._background: list[subprocess.Popen[bytes]] = []

    def replace(self, shown: str, real: str) -> None:
        """Replace an address of the page by a real one."""
        self._replaced[shown] = real

    def address(self, shown: str) -> str:
        return f"http://{self._replaced[shown]}"

    def run(self, block: str) -> None:
        """Run the commands one after another; each must exit 0 with the members that the page shows."""
        for line in split(block):
            command = self._made_real(line.command)
            if command.endswith("&"):
                self.start(command.removesuffix("&"))
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            self._compare(line, done.stdout)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a program that runs until it is stopped; wait until it listens if it names a port."""
        with (self._folder / "background.log").open("ab") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self._folder, env=self._environment, stdout=log, stderr=log
            )
        self._background.append(process)
        if port := PORT.search(command):
            _wait_for(int(port[1]), process)
        return process

    def close(self) -> None:
        for process in self._background:
            process.kill()
            process.wait()

    @property
    def output(self) -> str:
        """What the background programs have written."""
        return (self._folder / "background.log").read_text()

    def _made_real(self, command: str) -> str:
        for shown, real in self._replaced.items():
            command = command.replace(shown, real)
            if shown.startswith("localhost:"):
                shown_port, real_port = shown.rpartition(":")[2], real.rpartition(":")[2]
                command = command.replace(f"--port {shown_port}", f"--port {real_port}")
        return ID.sub(lambda shown: self._ids[shown[0]], command)

    def _compare(self, line: Line, output: str) -> None:
        for name, value in MEMBER.findall(line.shown):
            assert f'"{name}":' in output, f"{line.command}\n{name} is missing: {output}"
            is_same = name in VOLATILE or not value or f'"{name}":{value}' in output
            assert is_same, f"{line.command}\n{name} is not {value}: {output}"
        self._ids.update(zip(ID.findall(line.shown), ID.findall(output), strict=False))


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + COMMAND_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise AssertionError(f"nothing listens on port {port}; exit code {process.poll()}")
