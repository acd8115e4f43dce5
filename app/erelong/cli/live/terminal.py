"""The alternate screen of a terminal, which is left again however the program ends."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import termios
import tty
from contextlib import suppress
from typing import Any, Final, Self

ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
KEYS: Final = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "k": "up",
    "j": "down",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x7f": "escape",
}


def is_usable() -> bool:
    """Return whether there is a terminal to draw on and to read keys from."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


class Terminal:
    """Draws lines on the whole screen and reads keys. Ctrl-Z suspends it, and a signal that ends it restores it."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._saved: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._typed = ""
        self._must_suspend = False

    def __enter__(self) -> Self:
        self._wake_writer.setblocking(False)
        self._saved = termios.tcgetattr(self._input)
        for number in ENDING:
            self._handlers[number] = signal.signal(number, _end)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._resized)
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspended)
        try:
            self._open()
        except BaseException:  # of a signal
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._wake_reader.close()
        self._wake_writer.close()

    @property
    def size(self) -> tuple[int, int]:
        """The columns and lines now."""
        size = os.get_terminal_size(sys.stdout.fileno())
        return size.columns or 80, size.lines or 24

    def draw(self, lines: list[str]) -> None:
        """Replace what the screen shows, without flicker: nothing is cleared before it is overwritten."""
        sys.stdout.write("\x1b[H" + "\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J")
        sys.stdout.flush()

    def wake(self) -> None:
        """End the wait for a key, from any thread."""
        with suppress(OSError):  # it is awake already, or the screen was left
            self._wake_writer.send(b"w")

    def key(self, timeout: float) -> str:
        """Return the next key; an empty text after the timeout, a resize or a wake."""
        if self._must_suspend:
            self._suspend()
        if not self._typed:
            ready, _, _ = select.select([self._input, self._wake_reader], [], [], timeout)
            if self._wake_reader in ready:
                self._wake_reader.recv(4_096)
            if self._input not in ready:
                return ""
            data = os.read(self._input, 256)
            if not data:  # the terminal is gone
                raise SystemExit(0)
            self._typed = data.decode(errors="replace")
        text = next((known for known in KEYS if len(known) > 1 and self._typed.startswith(known)), self._typed[:1])
        self._typed = self._typed[len(text) :]
        return KEYS.get(text, text)

    def _open(self) -> None:
        tty.setcbreak(self._input)
        sys.stdout.write(ENTER)
        sys.stdout.flush()

    def _close(self) -> None:
        with suppress(OSError, termios.error):  # the terminal is gone
            sys.stdout.write(LEAVE)
            sys.stdout.flush()
            termios.tcsetattr(self._input, termios.TCSADRAIN, self._saved)

    def _resized(self, *_: object) -> None:
        self.wake()

    def _suspended(self, *_: object) -> None:
        self._must_suspend = True
        self.wake()

    def _suspend(self) -> None:
        """Give the terminal back while the program is stopped by Ctrl-Z, and take it again after `fg`."""
        self._must_suspend = False
        self._close()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # continues here
        signal.signal(signal.SIGTSTP, self._suspended)
        self._open()


def _end(number: int, *_: object) -> None:
    raise SystemExit(128 + number)
