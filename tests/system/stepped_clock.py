"""Steps the wall clock of a running service, but not that of the machine."""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.needs import report_missing
from tests.support.process import ServiceProcess

SECOND = 1_000_000
SOURCE = Path(__file__).with_suffix(".c")
UNDER_WAY: Final = 0.1  # seconds within which a job claimed before a step may begin after it


def build(folder: Path) -> Path:
    """Compile the preloaded library; without a compiler, skip the test, or fail it under CI."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        report_missing("NOT TRIED: a stepped clock needs Linux and a C compiler: apt-get install gcc libc6-dev")
    library = folder / "stepped_clock.so"
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True, timeout=60)
    return library


class Stretch(NamedTuple):
    """A period without a step: its start on the monotonic clock, and the offset of the wall clock."""

    since: float
    apart: float


class SteppedClock:
    """The wall clock of services started with its `environment`, and its `stretches` so far."""

    def __init__(self, *, library: Path, file: Path) -> None:
        file.write_bytes(bytes(mmap.PAGESIZE))
        with file.open("r+b") as opened:
            self._shared = mmap.mmap(opened.fileno(), 0)
        self._off = 0.0
        self._apart = time.time() - time.monotonic()
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(file)}
        self.stretches = [Stretch(0.0, self._apart)]

    def now(self) -> float:
        return time.time() + self._off

    def step(self, seconds: float, service: ServiceProcess) -> None:
        self._off += seconds
        self.stretches.append(Stretch(time.monotonic(), self._apart + self._off))
        self._shared[:8] = struct.pack("<q", round(self._off * SECOND))
        os.kill(service.pid, signal.SIGRTMIN)

    def due_since(self, due_at: int, at: float) -> float | None:
        """Return the monotonic time since which a job was due when it began; None if it began early."""
        since: float | None = None
        until = at
        for stretch in reversed([stretch for stretch in self.stretches if stretch.since <= at]):
            reached = max(stretch.since, due_at / SECOND - stretch.apart)
            if reached <= until:
                since = reached
            elif since is not None or at - stretch.since > UNDER_WAY:
                return since
            if reached > stretch.since and since is not None:
                return since
            until = stretch.since
        return since
