"""Shows how far an import is: in place on a terminal, or else as a line every two seconds."""

from __future__ import annotations

import sys
import time
from typing import Final

from erelong.cli.console.blocks import bar
from erelong.cli.console.output import counted

WIDTH: Final = 12
OFTEN: Final = 0.2  # seconds between two lines on a terminal
SELDOM: Final = 2.0


class Meter:
    """Counts stored jobs and rejected lines. `total` is the size of the file in bytes, 0 if that is not known."""

    def __init__(self, *, total: int) -> None:
        self._total = total
        self._began = self._shown = time.monotonic()
        self._sent = self._skipped = 0  # bytes
        self.stored = 0  # jobs
        self.known = 0  # of them, by an earlier run
        self.rejected = 0  # lines

    def skip(self, size: int) -> None:
        self._skipped += size

    def add(self, size: int) -> None:
        self._sent += size

    def show(self, *, is_last: bool = False) -> None:
        now, is_terminal = time.monotonic(), sys.stderr.isatty()
        if not is_last and now - self._shown < (OFTEN if is_terminal else SELDOM):
            return
        self._shown = now
        line = self._line(max(now - self._began, 0.001))
        if is_terminal:
            print(f"\r\x1b[K{line}", end="\n" if is_last else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def _line(self, seconds: float) -> str:
        parts = [counted(self.stored, "job"), self._share(), f"{self.stored / seconds:,.0f}/s"]
        parts += [f"{self.rejected:,} rejected"] if self.rejected else []
        left = self._total - self._sent - self._skipped
        parts += [f"{left * seconds / self._sent:,.0f} s left"] if left > 0 and self._sent else []
        return " · ".join(parts)

    def _share(self) -> str:
        done = self._sent + self._skipped
        if not self._total:
            return f"{done / 1e6:,.1f} MB"
        filled = f"{bar(done / self._total, WIDTH):{WIDTH}} " if sys.stderr.isatty() else ""
        return f"{filled}{done / 1e6:,.1f} of {self._total / 1e6:,.1f} MB"
