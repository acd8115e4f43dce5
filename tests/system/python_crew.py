"""Processes of `erelong.Worker` that are killed, frozen and drained at random."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support import SOURCE

SCRIPT = Path(__file__).with_name("python_worker.py")
LONGEST_FREEZE = 2.5


class PythonCrew:
    """Workers of one service; one that has ended is replaced at once."""

    def __init__(self, *, url: str, size: int, log: Path, pause: float) -> None:
        self.done: Counter[str] = Counter()
        self.drained: list[int] = []
        self._log = log
        self._environment = os.environ | {"ERELONG_URL": url, "PYTHONPATH": str(SOURCE)}
        self._pause = pause
        self._is_over = threading.Event()
        self._errors = log.with_suffix(".err").open("wb")
        self._workers = [self._hire() for _ in range(size)]
        self._harassing = threading.Thread(target=self._harass)

    def __enter__(self) -> Self:
        self._harassing.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spare()
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._errors.close()

    def spare(self) -> None:
        """Do no further harm."""
        self._is_over.set()
        self._harassing.join()

    def _hire(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(SCRIPT), str(self._log)]
        return subprocess.Popen(
            command, env=self._environment, stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors
        )

    def _harass(self) -> None:
        while not self._log.exists():  # until the first call has ended
            time.sleep(0.01)
        for harm in cycle([self._kill, self._freeze, self._freeze, self._drain, self._kill, self._freeze]):
            harm(random.choice(self._workers))
            if self._is_over.wait(random.uniform(0.5, 1.5) * self._pause):
                return

    def _kill(self, worker: subprocess.Popen[bytes]) -> None:
        self.done["killed"] += 1
        worker.kill()
        worker.wait()
        self._replace(worker)

    def _freeze(self, worker: subprocess.Popen[bytes]) -> None:
        """Stop a worker, often for longer than its leases last, while the others work."""
        self.done["frozen"] += 1
        worker.send_signal(signal.SIGSTOP)
        self._is_over.wait(random.uniform(0.1, LONGEST_FREEZE))
        worker.send_signal(signal.SIGCONT)

    def _drain(self, worker: subprocess.Popen[bytes]) -> None:
        if str(worker.pid) not in self._log.read_text().split()[2::3]:
            return  # it may be starting, and would end by the signal
        self.done["drained"] += 1
        worker.terminate()
        self.drained.append(worker.wait(30))
        self._replace(worker)

    def _replace(self, worker: subprocess.Popen[bytes]) -> None:
        self._workers.remove(worker)
        self._workers.append(self._hire())
