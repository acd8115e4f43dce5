"""Stores one batch of an import: without its bad lines, in parts where a queue has little room, and only once."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.console.output import printable
from erelong.cli.files.lines import Row
from erelong.client.batches import bad_positions
from erelong.client.errors import Busy, Conflict, Forbidden, Invalid, NoAnswer, NotFound, Refused
from erelong.client.requests import JSON, Repeat, Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from erelong.cli.console.session import Session
    from erelong.cli.files.lines import Batch, Line
    from erelong.cli.files.meter import Meter
    from erelong.cli.files.progress import Progress

PAUSE: Final = 2.0  # seconds before a batch is sent again
FIRST_PAUSE: Final = 0.1
REQUEST_TIMEOUT: Final = 408
UNREADABLE: Final = "malformed_json"
FULL: Final = "backlog_full"

Faults = dict[int, list[dict[str, Any]]]
"""The faults of lines, by their positions."""


class NoRoom(Exception):
    """A queue is full, and may have room for half of the lines."""

    def __init__(self, part: Batch) -> None:
        self.part = part


class Sender:
    """Sends batches, from several threads. Without an answer, a part is repeated under the same key until there is one.

    `stop` ends it at the next pause.
    """

    def __init__(
        self, *, client: Session, progress: Progress, meter: Meter, rejects: Path, stop: threading.Event, is_check: bool
    ) -> None:
        self._client = client
        self._progress = progress
        self._meter = meter
        self._rejects = rejects
        self._stop = stop
        self._is_check = is_check
        self._path = "/v1/jobs/batch?dry_run=true" if is_check else "/v1/jobs/batch"
        self._lock = threading.Lock()
        self._told = 0.0
        self._first: tuple[int, str] | None = None

    @property
    def first_reject(self) -> str:
        """The first line that was rejected, and why."""
        return "" if self._first is None else f"line {self._first[0]}: {self._first[1]}"

    def send(self, batch: Batch) -> bool:
        """Store a batch; return False if the import was stopped before."""
        faults = {n: _fault(row.fault) for n, (_, row) in enumerate(batch.lines) if isinstance(row, Row) and row.fault}
        parts = [batch]
        while parts:
            part = self._as_sent_before(parts.pop())
            if faults and not part.path and not part.rounds:
                part = self._without(part, faults, UNREADABLE)
            if self._progress.is_split(part):
                parts += reversed(part.halves())
                continue
            try:
                if not self._store(part):
                    return False
            except NoRoom as error:
                self._progress.split(error.part)
                parts += reversed(error.part.halves())
        return True

    def _as_sent_before(self, part: Batch) -> Batch:
        """Return a part without the lines for which an earlier run has rejected it."""
        for positions in self._progress.rejected(part):
            part = part.without(positions)
        return part

    def _store(self, part: Batch) -> bool:
        while part.lines:
            try:
                return self._ask(part)
            except NotFound as problem:
                if problem.code != "job_not_found":
                    raise
                self._count(len(part.lines), known=True)  # stored by an earlier run, and some were deleted since
                return True
            except (Invalid, Conflict, Forbidden) as problem:
                faults = _unreadable(part.lines) or bad_positions(problem)
                if not faults:
                    raise
                part = self._without(part, faults, problem.code)
        return True

    def _ask(self, part: Batch) -> bool:
        """Send a part until there is an answer. Raise NoRoom if its queue is still full after a pause."""
        key = f"imp-{self._progress.id}-{part.offset}{part.path}-{part.rounds}"
        headers = {"Content-Type": JSON} | ({} if self._is_check else {"Idempotency-Key": key})
        request = Request(method="POST", path=self._path, body=part.body(), headers=headers, repeat=Repeat.SAFE)
        failed = full = 0
        while True:
            try:
                answer = self._client.ask(request)
            except Refused as error:
                if not isinstance(error, Busy) and error.status != REQUEST_TIMEOUT:
                    raise
                full += error.code == FULL
                if full > 1 and len(part.lines) > 1 and not self._is_check:
                    raise NoRoom(part) from None
                pause = PAUSE if error.retry_after is None else max(error.retry_after, FIRST_PAUSE)
                self._tell(f"{error.detail}: retrying in {pause:.0f} s")
            except NoAnswer as error:
                failed += 1
                pause = min(FIRST_PAUSE * 2.0**failed, PAUSE)
                if failed > 1:
                    self._tell(f"{error.__cause__ or error}: retrying until Ctrl-C")
            else:
                number = answer.body.count(b'"created":') or len(part.lines)
                self._count(number, known=answer.headers.get("idempotency-replayed") == "true")
                return True
            if self._stop.wait(pause):
                return False

    def _count(self, number: int, *, known: bool) -> None:
        with self._lock:
            self._meter.stored += number
            self._meter.known += number if known else 0

    def _tell(self, text: str) -> None:
        with self._lock:
            if time.monotonic() - self._told >= PAUSE:
                self._told = time.monotonic()
                start = "\r\x1b[K" if sys.stderr.isatty() else ""
                print(f"{start}erelong: {printable(text)}", file=sys.stderr)

    def _without(self, part: Batch, faults: Faults, code: str) -> Batch:
        """Write bad lines to the file of rejected ones; return the next round without them."""
        with self._lock, self._rejects.open("a", encoding="utf-8") as file:
            for position, errors in sorted(faults.items()):
                number, line = part.lines[position]
                job = line.decode(errors="replace").strip()
                report = {"line": number, "code": code, "errors": errors, "job": job}
                file.write(json.dumps(report, ensure_ascii=False) + "\n")
                if self._first is None or number < self._first[0]:
                    self._first = (number, reason_of(errors, code))
            self._meter.rejected += len(faults)
        if not self._is_check:
            self._progress.reject(part, sorted(faults))
        return part.without(faults)


def _unreadable(lines: list[Line]) -> Faults:
    """Find the lines that are not one JSON value: with them, the service counts other lines than we do."""
    faults = {}
    for position, (_, line) in enumerate(lines):
        try:
            json.loads(line)
        except ValueError as error:
            faults[position] = _fault(f"not JSON: {error}")
    return faults


def reason_of(errors: Sequence[Mapping[str, Any]], code: str) -> str:
    """Return the first fault of a line as text."""
    if not errors:
        return code
    pointer, detail = errors[0].get("pointer"), errors[0].get("detail")
    return f"{pointer}: {detail}" if pointer else str(detail)


def _fault(detail: str) -> list[dict[str, Any]]:
    return [{"pointer": "", "detail": detail}]
