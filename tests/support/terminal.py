"""A program on a terminal of its own: its screen, keys to press, and whether it restores the terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

HOME = "\x1b[H"
STYLES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
PATIENCE = 30.0


class OnTerminal:
    """Runs a command on a pseudo terminal from `with` on; `text` is everything that it has printed."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], size: tuple[int, int] = (100, 40)
    ) -> None:
        self._master, self._slave = pty.openpty()
        self._saved = termios.tcgetattr(self._slave)
        self.resize(*size)
        self.text = ""
        self.process = subprocess.Popen(
            [*command],
            cwd=folder,
            env={**environment, "TERM": "xterm-256color"},
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # so that Ctrl-C is a signal
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, wanted: str | Callable[[str], bool]) -> str:
        """Read until the screen has a text, or is as a function says; return the screen."""
        deadline = time.monotonic() + PATIENCE
        while not (wanted in self.screen if isinstance(wanted, str) else wanted(self.screen)):
            assert time.monotonic() < deadline, f"the terminal does not show {wanted!r}, but:\n{self.screen}"
            if not self._read(0.1) and self.process.poll() is not None and not self._read(0.1):
                raise AssertionError(f"the program ended with {self.process.returncode}:\n{self.text}")
        return self.screen

    def wait_for_frame(self) -> None:
        """Read until the program has drawn once more."""
        drawn = self.text.count(HOME)
        self.wait_for(lambda _: self.text.count(HOME) > drawn)

    def wait_for_output(self, seconds: float) -> None:
        """Read what the program prints within so many seconds, if anything."""
        self._read(seconds)

    def wait(self) -> int:
        """Read until the program has ended; return its exit code."""
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"the program does not end:\n{self.text}"
            self._read(0.1)
        while self._read(0.0):
            pass
        return self.process.returncode

    @property
    def screen(self) -> str:
        """The text of the last frame, or everything that was printed, without styles and overwritten lines."""
        lines = STYLES.sub("", self.text.rpartition(HOME)[2]).split("\n")
        return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)

    @property
    def is_restored(self) -> bool:
        """Whether the terminal is as it was, with its cursor and without the alternate screen."""
        shows = [self.text.rfind("\x1b[?1049h") <= self.text.rfind("\x1b[?1049l")]
        shows.append(self.text.rfind("\x1b[?25l") <= self.text.rfind("\x1b[?25h"))
        return all(shows) and self._settings() == self._saved

    def _settings(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def _read(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            self.text += os.read(self._master, 65_536).decode(errors="replace")
        return bool(ready)
