"""The service as a real process on a free port, with its data, settings and log in one folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from tests.support import ROOT, SOURCE

READY_TIMEOUT = 60.0
LOOK = 0.005
TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
HAS_PROC = Path("/proc/self/stat").exists()


class NotReadyError(Exception):
    """The service ended, or took too long, before it listened."""


class Ended(NamedTuple):
    """The result of an ended process."""

    code: int
    seconds: float


class ServiceProcess:
    """A folder for services that start one after another; `url` is the address of the last one.

    `config` is the text of its settings; modules they name are found in the folder. `settings` override it like
    environment variables: {"workers.grace": "0.5"}; `environment` extends that of the test. The service runs from the
    checkout `root`; with `is_installed`, from its folder like an installed package. `port` stays the same over
    restarts; 0 takes a free one at each start. `options` are further ones of `serve`; without `has_data`, the option
    `--data` is missing.
    """

    def __init__(
        self,
        *,
        folder: Path,
        config: str = "",
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        root: Path = ROOT,
        is_installed: bool = False,
        stdin: int = subprocess.DEVNULL,
        port: int = 0,
        options: Sequence[str] = (),
        has_data: bool = True,
    ) -> None:
        self._stdin = stdin
        self._port = port
        self._cwd, self.module = (folder, "erelong") if is_installed else (root, "app")
        self._path = {"PYTHONPATH": str(SOURCE)} if is_installed else {}
        self.folder = folder
        self.data = folder / "data"
        self.url = ""
        self.options = [*options]
        self._has_data = has_data
        self.environment = dict(environment or {})
        self._settings = {"log.format": "json", **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log = folder / "service.log"
        self._log_start = 0
        self._config = folder / "config.toml"
        self.configure(config)

    def configure(self, config: str) -> None:
        """Write the settings for the next start or SIGHUP."""
        self._config.write_text(config)

    # life

    def start(self, *, is_standby: bool = False) -> float:
        """Start the service and wait until it responds; return how many seconds that took. A standby is not ready."""
        began = time.perf_counter()
        self.launch()
        while (url := self._listens_at()) is None:
            code = self._running.poll()
            if code is not None:
                raise NotReadyError(f"the service ended with {code} before it listened: {self.log_text()}")
            if time.perf_counter() - began > READY_TIMEOUT:
                self.kill()
                raise NotReadyError(f"the service did not listen within {READY_TIMEOUT:g} s: {self.log_text()}")
            time.sleep(LOOK)
        self.url = url
        path = "livez" if is_standby else "readyz"
        with urllib.request.urlopen(f"{url}/{path}", timeout=READY_TIMEOUT) as answer:
            assert answer.status == 200
        return time.perf_counter() - began

    def keep_port(self) -> None:
        """Listen on the same port from the next start on."""
        self._port = int(self.url.rpartition(":")[2])

    def launch(self) -> None:
        """Start the service without waiting for it."""
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ERELONG_")}
        given = {f"ERELONG_{name.upper().replace('.', '__')}": value for name, value in self._settings.items()}
        command = [sys.executable, "-m", self.module, "serve", "--port", str(self._port)]
        data = ["--data", str(self.data)] if self._has_data else []
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, *data, "--config", str(self._config), *self.options],
                cwd=self._cwd,
                env=inherited | given | self._path | self.environment,
                stdin=self._stdin,
                stdout=log,
                stderr=log,
            )

    def signal(self, number: int) -> None:
        self._running.send_signal(number)

    def kill(self) -> None:
        """Kill it, as a crash at any point would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, timeout: float = 30.0) -> Ended:
        """Request a stop and wait for it."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = 30.0) -> Ended:
        began = time.perf_counter()
        code = self._running.wait(timeout)
        return Ended(code, time.perf_counter() - began)

    # questions

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log_text(self) -> str:
        """Return the log of the current process without that of earlier ones."""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        return [event for event in self._events() if event["event"] == name]

    def errors(self) -> list[dict[str, Any]]:
        return [event for event in self._events() if event["level"] == "error"]

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def resident_bytes(self) -> int:
        return resident_bytes(self.pid)

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the service was never started: call start() or launch() first")
        return self._process

    def _listens_at(self) -> str | None:
        return next((str(event["url"]) for event in self.events("listening")), None)

    def _events(self) -> Iterator[dict[str, Any]]:
        for line in self.log_text().splitlines():
            try:
                yield orjson.loads(line)
            except orjson.JSONDecodeError:  # plain text, or an incomplete line
                continue


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of the threads of a process; ended threads may be missing."""
    threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    if threads:
        return sum(int(thread.split()[0]) for thread in threads) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024
