"""Runs a command, and again whenever a Python file of a folder has changed. For development."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

CHECK_EVERY: Final = 0.5  # seconds between two checks of the files
SKIPPED: Final = frozenset({"__pycache__", "node_modules"})
FRESH: Final = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Leaves no bytecode, which Python takes for current when a file of the same size is written in the same second."""


class Reloader:
    """Keeps one process of a command. SIGTERM and SIGINT end it, and then the reloader."""

    def __init__(self, *, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._command = command
        self._environment = environment
        self._folder = folder
        self._process: subprocess.Popen[bytes]
        self._is_stopping = False

    def run(self) -> int:
        """Return the exit code of the last process, once it has ended with 0 or by a signal to the reloader."""
        with self._signals():
            while True:
                seen = times_of(self._folder)
                self._process = subprocess.Popen(self._command, env={**os.environ, **FRESH, **self._environment})
                if self._is_stopping:
                    self._process.terminate()
                code = self._wait_for_change(seen)
                if self._is_stopping or code == 0:
                    return code or 0

    def _wait_for_change(self, seen: Mapping[str, float]) -> int | None:
        """Wait until files have changed, and end the process then; or until it has ended well. Return its exit code.

        A process that has failed, by a syntax error for example, is started again after the next change.
        """
        is_failed = False
        while True:
            code = None
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(CHECK_EVERY)
            if code == 0 or (code is not None and self._is_stopping):
                return code
            if code is not None:
                if not is_failed:
                    _say(f"the worker ended with {code}; waiting for a change")
                is_failed = True
                time.sleep(CHECK_EVERY)
            if (changed := changes(seen, times_of(self._folder))) and not self._is_stopping:
                _say(f"{', '.join(changed[:3])} changed; starting again")
                self._process.terminate()
                self._process.wait()
                return None

    @contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self._stop) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)

    def _stop(self, number: int, _: Any) -> None:
        self._is_stopping = True
        # Ctrl-C is a signal to both processes, and a second one would end the worker without a drain.
        has_signal = number == signal.SIGINT and os.isatty(0)
        if hasattr(self, "_process") and not has_signal:
            self._process.terminate()


def times_of(folder: Path) -> dict[str, float]:
    """Return when each Python file of a folder was written, without those of environments and hidden folders."""
    found: dict[str, float] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if name[0] != "." and name not in SKIPPED and not Path(place, name, "pyvenv.cfg").exists()
        ]
        for name in files:
            if name.endswith(".py"):
                with suppress(OSError):  # it was removed just now
                    found[str(Path(place, name))] = Path(place, name).stat().st_mtime
    return found


def changes(before: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _say(text: str) -> None:
    sys.stderr.write(f"erelong: {text}\n")
