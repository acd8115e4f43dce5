"""How far an import has come, in a file from which it resumes."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from erelong.cli.files.lines import Batch

MAX_AGE: Final = 23 * 3_600.0  # the service remembers idempotency keys for 24 hours
SAVE_EVERY: Final = 0.25
HEAD: Final = 1 << 20


class Unresumable(Exception):
    """The import cannot go on from its file."""


class Progress:
    """The batches of one file that are stored, and how the others were sent.

    `path` is None for standard input, which cannot be resumed. `made_by` are the options that affect jobs.
    """

    def __init__(self, *, path: Path | None, url: str, count: int, made_by: Any, is_resumed: bool) -> None:
        self._file = None if path is None else path.with_name(f"{path.name}.import")
        self._lock = threading.Lock()
        self._saved = 0.0
        id = _fingerprint(path, made_by) if path else hashlib.sha256(str(time.time_ns()).encode()).hexdigest()[:16]
        self._state: dict[str, Any] = {
            "id": id,
            "url": url,
            "count": count,
            "began": time.time(),
            "until": 0,
            "done": [],
            "rejected": {},
            "split": {},
        }
        if is_resumed:
            self._load()
        elif self._file is not None and self._file.exists():
            raise Unresumable(
                f"an import of this file was interrupted: add --resume to continue it, or delete {self._file} to begin "
                "again"
            )

    @property
    def id(self) -> str:
        """A fingerprint of the file, of which idempotency keys are made: the same file makes no job twice."""
        id: str = self._state["id"]
        return id

    @property
    def count(self) -> int:
        """The lines of a batch: those of the first run, so that batches are cut alike."""
        count: int = self._state["count"]
        return count

    @property
    def is_old(self) -> bool:
        """Whether the service may have forgotten which batches it has."""
        return time.time() - float(self._state["began"]) > MAX_AGE

    def begin_again(self) -> None:
        """Count the age from now on."""
        self._state["began"] = time.time()

    def has(self, offset: int) -> bool:
        return offset < self._state["until"] or offset in self._state["done"]

    def rejected(self, part: Batch) -> list[list[int]]:
        """Return the positions that were rejected in each round of a part."""
        rounds: list[list[int]] = self._state["rejected"].get(str(part.offset), {}).get(part.path, [])
        return [*rounds]

    def reject(self, part: Batch, positions: list[int]) -> None:
        """Note the lines that a part was rejected for, before its next round is sent.

        So a resumed import sends that round again, and not an earlier one, whose lines may have become valid since.
        """
        with self._lock:
            rounds = self._state["rejected"].setdefault(str(part.offset), {})
            rounds.setdefault(part.path, []).append(positions)
            self._write()

    def is_split(self, part: Batch) -> bool:
        return part.path in self._state["split"].get(str(part.offset), ())

    def split(self, part: Batch) -> None:
        """Note that a part is sent as two halves, before they are sent."""
        with self._lock:
            self._state["split"].setdefault(str(part.offset), []).append(part.path)
            self._write()

    def add(self, offset: int) -> None:
        """Note a batch that is on the disk of the service."""
        with self._lock:
            self._state["done"] = sorted({*self._state["done"], offset})
            for notes in (self._state["rejected"], self._state["split"]):
                notes.pop(str(offset), None)
            now = time.monotonic()
            if now - self._saved >= SAVE_EVERY:
                self._saved = now
                self._write()

    def reached(self, offset: int) -> None:
        """Note that everything before an offset is done, which keeps the file short."""
        with self._lock:
            self._state["until"] = max(self._state["until"], offset)
            self._state["done"] = [done for done in self._state["done"] if done >= self._state["until"]]

    def save(self) -> None:
        with self._lock:
            self._write()

    def remove(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _write(self) -> None:
        if self._file is not None:
            new = self._file.with_name(f"{self._file.name}.new")
            new.write_text(json.dumps(self._state))
            new.replace(self._file)

    def _load(self) -> None:
        if self._file is None:
            raise Unresumable("standard input cannot be resumed: write it to a file first")
        if not self._file.exists():
            return  # nothing was done yet
        try:
            state = {**self._state, **json.loads(self._file.read_text())}
        except ValueError:
            raise Unresumable(f"{self._file} is damaged; delete it to begin again") from None
        if state["id"] != self._state["id"]:
            raise Unresumable(
                "the file, or the options that fill in or map fields, are not those that the import began with; delete "
                f"{self._file} to import the file from its beginning"
            )
        if state["url"] != self._state["url"]:
            raise Unresumable(f"the import began with {state['url']}")
        self._state = state


def _fingerprint(path: Path, made_by: Any) -> str:
    status = path.stat()
    with path.open("rb") as file:
        digest = hashlib.sha256(b"%d %d " % (status.st_size, status.st_mtime_ns) + file.read(HEAD))
    if made_by:
        digest.update(json.dumps(made_by, sort_keys=True).encode())
    return digest.hexdigest()[:16]
