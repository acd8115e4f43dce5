"""How far an import has come: on the screen, and in a file from which it resumes."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

MAX_AGE: Final = 23 * 3_600.0  # the service remembers idempotency keys for 24 hours
SAVE_EVERY: Final = 0.25
HEAD: Final = 1 << 20


class Unresumable(Exception):
    """The import cannot go on from its file."""


class Progress:
    """The batches of one file that are stored. `path` is None for standard input, which cannot be resumed."""

    def __init__(self, *, path: Path | None, url: str, count: int, is_resumed: bool) -> None:
        self._file = None if path is None else path.with_name(f"{path.name}.import")
        self._total = 0 if path is None or path.suffix == ".gz" else path.stat().st_size
        self._state: dict[str, Any] = {"url": url, "count": count, "began": time.time(), "until": 0, "done": []}
        self._state["id"] = (
            _fingerprint(path) if path else hashlib.sha256(str(time.time_ns()).encode()).hexdigest()[:16]
        )
        self._saved = self._shown = 0.0
        self._began = time.monotonic()
        self._bytes = 0
        self.stored = self.rejected = 0
        if is_resumed:
            self._load()

    @property
    def id(self) -> str:
        """A fingerprint of the file, of which idempotency keys are made: the same file makes no job twice."""
        id: str = self._state["id"]
        return id

    def has(self, offset: int) -> bool:
        return offset < self._state["until"] or offset in self._state["done"]

    def skip(self, size: int) -> None:
        self._bytes += size

    def add(self, offset: int, size: int, stored: int) -> None:
        """Note a batch that is on the disk of the service."""
        self._state["done"] = sorted({*self._state["done"], offset})
        self.stored += stored
        self._bytes += size
        now = time.monotonic()
        if now - self._saved >= SAVE_EVERY:
            self._saved = now
            self.save()

    def reached(self, offset: int) -> None:
        """Note that everything before an offset is done, which keeps the file short."""
        self._state["until"] = max(self._state["until"], offset)
        self._state["done"] = [done for done in self._state["done"] if done >= self._state["until"]]

    def save(self) -> None:
        if self._file is not None:
            new = self._file.with_name(f"{self._file.name}.new")
            new.write_text(json.dumps(self._state))
            new.replace(self._file)

    def remove(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _load(self) -> None:
        if self._file is None:
            raise Unresumable("standard input cannot be resumed: write it to a file first")
        if not self._file.exists():
            return  # nothing was done yet
        state = json.loads(self._file.read_text())
        if state["id"] != self._state["id"]:
            raise Unresumable(
                f"the file has changed since the import began; delete {self._file} to import it from its beginning"
            )
        if state["url"] != self._state["url"]:
            raise Unresumable(f"the import began with {state['url']}")
        age = time.time() - state["began"]
        if age > MAX_AGE:
            raise Unresumable(
                f"the import began {age / 3_600:.0f} h ago, and the service forgets after 24 h which batches it has; "
                f"import the rest by hand: everything before byte {state['until']} is stored"
            )
        self._state = state

    @property
    def count(self) -> int:
        """The lines of a batch: those of the first run, so that batches are cut alike."""
        count: int = self._state["count"]
        return count

    # on the screen

    def show(self, *, is_last: bool = False) -> None:
        """Print a line of progress, in place on a terminal, else every two seconds."""
        now = time.monotonic()
        is_terminal = sys.stderr.isatty()
        if not is_last and now - self._shown < (0.2 if is_terminal else 2.0):
            return
        self._shown = now
        elapsed = max(now - self._began, 0.001)
        share = f" of {self._total / 1e6:,.0f} MB" if self._total else ""
        left = (self._total - self._bytes) * elapsed / self._bytes if self._total and self._bytes else 0.0
        line = (
            f"{self.stored:,} jobs · {self._bytes / 1e6:,.0f} MB{share} · {self.stored / elapsed:,.0f}/s"
            f" · {self.rejected:,} rejected · {max(left, 0):.0f} s left"
        )
        print(
            f"\r\x1b[K{line}" if is_terminal else line, end="" if is_terminal and not is_last else "\n", file=sys.stderr
        )
        sys.stderr.flush()


def _fingerprint(path: Path) -> str:
    status = path.stat()
    with path.open("rb") as file:
        digest = hashlib.sha256(b"%d %d " % (status.st_size, status.st_mtime_ns) + file.read(HEAD))
    return digest.hexdigest()[:16]
