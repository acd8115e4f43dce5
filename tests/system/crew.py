"""Worker processes that are killed, stopped and continued at random, and their records."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.support.process import ServiceProcess

SCRIPT = Path(__file__).with_name("pull_worker.py")
LONGEST_FREEZE = 2.5


class Answer(NamedTuple):
    """A response that a worker recorded: to a call, or (`lent`) a leased job."""

    verb: str
    token: str
    id: str
    attempt: int
    status: int
    code: str


class Crew:
    """Workers of one service; a killed one is replaced at once."""

    def __init__(self, *, service: ServiceProcess, size: int, work: float) -> None:
        self.done: Counter[str] = Counter()
        self._log = service.folder / "answers.txt"
        self._port_file = service.folder / "port.txt"
        self._service = service
        self._work = work
        self._workers: list[subprocess.Popen[bytes]] = []
        self._thaws: dict[int, asyncio.TimerHandle] = {}
        self.write_port()
        for _ in range(size):
            self._hire()

    def write_port(self) -> None:
        """Write the port of the service for the workers."""
        fresh = self._port_file.with_suffix(".new")
        fresh.write_text(self._service.url.rpartition(":")[2])
        fresh.replace(self._port_file)

    async def harass(self, pause: float) -> None:
        """Harm a random worker, repeatedly."""
        while True:
            await asyncio.sleep(random.uniform(0.5, 1.5) * pause)
            worker = random.choice(self._workers)
            if random.random() < 0.4:
                self._replace(worker)
            elif worker.pid not in self._thaws:
                self._freeze(worker, random.uniform(0.1, LONGEST_FREEZE))

    def dismiss(self) -> None:
        for worker in self._workers:
            self._forget_thaw(worker)
            worker.kill()
            worker.wait()

    def answers(self) -> list[Answer]:
        lines = map(str.split, self._log.read_text().splitlines())
        return [
            Answer(verb, token, id, int(attempt), int(status), code) for verb, token, id, attempt, status, code in lines
        ]

    def _hire(self) -> None:
        command = [sys.executable, str(SCRIPT), str(self._port_file), str(self._log), str(self._work)]
        self._workers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))

    def _replace(self, worker: subprocess.Popen[bytes]) -> None:
        self.done["killed"] += 1
        self._forget_thaw(worker)
        worker.kill()
        worker.wait()
        self._workers.remove(worker)
        self._hire()

    def _freeze(self, worker: subprocess.Popen[bytes], seconds: float) -> None:
        self.done["frozen"] += 1
        os.kill(worker.pid, signal.SIGSTOP)
        self._thaws[worker.pid] = asyncio.get_running_loop().call_later(seconds, self._thaw, worker)

    def _thaw(self, worker: subprocess.Popen[bytes]) -> None:
        del self._thaws[worker.pid]
        os.kill(worker.pid, signal.SIGCONT)

    def _forget_thaw(self, worker: subprocess.Popen[bytes]) -> None:
        thaw = self._thaws.pop(worker.pid, None)
        if thaw is not None:
            thaw.cancel()
