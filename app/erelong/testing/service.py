"""A service in a process of its own, whose clock a test moves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, Self

from erelong.client.calls import queues as calls
from erelong.client.records import Record
from erelong.client.sync.client import Client
from erelong.client.times import Duration, Instant, read_instant, write_duration, write_instant

START: Final = 60.0  # seconds that a start may take
END: Final = 30.0
LOG_LINES: Final = 200


class Move(Record):
    """Where the clock stands after a move: `now`, `settled`, `started`, `ended`, `pending` in `raw`."""

    @property
    def ended(self) -> Mapping[str, int]:
        """The number of jobs that ended, by state."""
        ended: Mapping[str, int] = self.raw.get("ended", {})
        return ended


class Service:
    """A service of its own on a free port, with its jobs in memory and its clock standing still.

    `at` is the instant at which the clock stands (default: now), `config` the text of a config.toml, and `folder` where
    modules of its kinds are found. Webhooks may call this machine.
    """

    def __init__(self, *, at: Instant = "now", config: str = "", folder: Path | None = None) -> None:
        self._at = str(write_instant(at, "at"))
        self._config = config
        self._folder = folder or Path.cwd()
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._process: subprocess.Popen[str] | None = None
        self._reader: Thread | None = None
        self.url = ""
        self.client: Client

    def __enter__(self) -> Self:
        self._start()
        self.client = Client(self.url, key="")
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self._stop()

    def advance(self, by: Duration) -> Move:
        """Move the clock forward, and return when everything due until then has been done, in order."""
        return self._move({"advance": write_duration(by)})

    def move_to(self, at: Instant) -> Move:
        return self._move({"set": write_instant(at, "at")})

    def run_until_idle(self, within: Duration = "30d") -> Move:
        """Move the clock until nothing is due any more within a time."""
        return self._move({"run_until_idle": True, "within": write_duration(within)})

    def now(self) -> Any:
        """Return the instant at which the clock stands, as a datetime."""
        return read_instant(self.client.send(calls.read_clock())["now"])

    def clear(self) -> None:
        """Delete all jobs and schedules, so that the next test begins with none."""
        for schedule in list(self.client.schedules.list()):
            self.client.schedules.delete(schedule.name)
        operations = self.client.operations
        for operation in (operations.cancel, operations.delete):
            operation(all=True, at_most=None).wait(timeout=START)

    def _move(self, move: Mapping[str, Any]) -> Move:
        moved = Move(self.client.send(calls.move_clock(move, wait=60.0)))
        if not moved.raw["settled"]:
            pending = ", ".join(moved.raw["pending"])
            raise TimeoutError(f"the service is still busy after 60 s ({moved.raw['reason']}); running jobs: {pending}")
        return moved

    def _start(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".toml", dir=self._folder, delete=False) as file:
            file.write(self._config)
        variables = {name: value for name, value in os.environ.items() if not name.startswith("ERELONG_")}
        variables |= {"ERELONG_WEBHOOKS__ALLOW_NETWORKS": '["127.0.0.0/8", "::1/128"]', "ERELONG_LOG__FORMAT": "json"}
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "erelong",
                "serve",
                "--port=0",
                f"--config={file.name}",
                f"--virtual-clock={self._at}",
            ],
            cwd=self._folder,
            env=variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        listening = Event()
        self._reader = Thread(target=self._read_log, args=(self._process, listening), daemon=True)
        self._reader.start()
        is_listening = listening.wait(START)
        Path(file.name).unlink()
        if not is_listening or not self.url:
            self._stop()
            raise RuntimeError("the service did not start:\n" + "".join(self._log))

    def _read_log(self, process: subprocess.Popen[str], listening: Event) -> None:
        assert process.stderr is not None
        for line in process.stderr:
            self._log.append(line)
            if not self.url and '"listening"' in line:
                self.url = json.loads(line)["url"]
                listening.set()
        listening.set()

    def _stop(self) -> None:
        assert self._process is not None
        assert self._reader is not None
        self._process.terminate()
        try:
            self._process.wait(END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(END)  # its next read of a closed file would be an error in a thread
        if self._process.stderr is not None and not self._reader.is_alive():
            self._process.stderr.close()
