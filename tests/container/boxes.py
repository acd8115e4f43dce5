"""A container of the image as an operator runs it: read-only, without privileges, reached over HTTP."""

from __future__ import annotations

import itertools
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from tests.container.engines import CallFailedError, Engine

LOOK: Final = 0.02
STOP_TIME: Final = 35
STRICT: Final = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges")
PROCESSES: Final = """
import glob
for path in glob.glob("/proc/[0-9]*/stat"):
    number, _, rest = open(path).read().partition(" ")
    print(number, rest.rpartition(") ")[2][0])
"""

_numbers = itertools.count()


class Ended(NamedTuple):
    """The exit code and log of a stopped container."""

    code: int
    seconds: float


class Box:
    """One container; `volume` holds its data, `folder` its settings."""

    def __init__(
        self,
        *,
        engine: Engine,
        image: str,
        volume: str,
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = f"erelong-test-{next(_numbers)}-{time.time_ns():x}"
        self._engine = engine
        self._image = image
        port = _free_port()
        self._url = f"http://127.0.0.1:{port}"
        mounts = [f"--volume={volume}:/data", *([f"--volume={folder}:/etc/erelong:ro"] if folder else [])]
        given = [f"--env={name}={value}" for name, value in (environment or {}).items()]
        self._options = [*STRICT, *engine.run_options, *engine.network(port), *mounts, *given]

    def start(self) -> float:
        """Start it and wait until it is healthy; return the seconds."""
        began = time.monotonic()
        self.launch()
        self.wait_until(self.is_healthy, "healthy")
        return time.monotonic() - began

    def launch(self) -> None:
        self._engine.ask("run", "--detach", f"--name={self.name}", *self._options, self._image)

    def stop(self) -> Ended:
        began = time.monotonic()
        self._engine.ask("stop", "-t", str(STOP_TIME), self.name)
        return Ended(self.exit_code(), time.monotonic() - began)

    def exit_code(self) -> int:
        """Wait until it ends; return its exit code."""
        return int(self._engine.ask("wait", self.name))

    def remove(self) -> None:
        self._engine.ask("rm", "--force", self.name)

    # requests

    def is_healthy(self) -> bool:
        """Run the image's health check at once, without the engine's interval."""
        _, *check = orjson.loads(self._engine.ask("inspect", "--format={{json .Config.Healthcheck.Test}}", self.name))
        try:
            self.run(*check)
        except CallFailedError:
            return False
        return True

    def ask(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else orjson.dumps(body)
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return orjson.loads(answer.read())

    def text(self, path: str) -> str:
        with urllib.request.urlopen(self._url + path, timeout=30) as answer:
            text: str = answer.read().decode()
            return text

    def run_job(self, **job: object) -> Any:
        """Submit a job and wait until it is final."""
        submitted = self.ask("POST", "/v1/jobs", job)
        return self.ask("GET", f"/v1/jobs/{submitted['id']}?wait=20")

    def run(self, *command: str) -> str:
        """Run a command in the container."""
        return self._engine.ask("exec", self.name, *command)

    def log(self) -> str:
        return self._engine.log(self.name)

    def processes(self) -> dict[int, str]:
        """Return all processes in the container with their states; "Z" is an unreaped one."""
        return {int(number): state for number, state in map(str.split, self._lines("python", "-c", PROCESSES))}

    def wait_until(self, is_so: Callable[[], bool], what: str, timeout: float = 30.0) -> None:
        until = time.monotonic() + timeout
        while not is_so():
            assert time.monotonic() < until, f"not {what} within {timeout:g} s: {self.log()}"
            time.sleep(LOOK)

    def _lines(self, *command: str) -> Sequence[str]:
        return self.run(*command).splitlines()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
