"""The command that submits the jobs of a file: in batches that may be repeated, several at a time."""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from erelong.cli.client.lines import Batch, batches, open_jobs
from erelong.cli.client.options import add_labels
from erelong.cli.client.progress import Progress, Unresumable
from erelong.cli.client.running import INTERRUPTED, REFUSED, Usage, client_of
from erelong.client.batches import bad_positions
from erelong.client.errors import Busy, Conflict, Forbidden, Invalid, NoAnswer, Refused
from erelong.client.requests import JSON, Repeat, Request

if TYPE_CHECKING:
    import argparse

    from erelong.client.requests import Answer
    from erelong.client.sync.client import Client

COUNT: Final = 2_000  # lines of a batch
PAUSE: Final = 2.0


def add(_: str, parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="NDJSON or CSV, also .gz; - reads NDJSON from standard input")
    parser.add_argument("--kind", help="for jobs without one")
    parser.add_argument("--queue", help="for jobs without one")
    add_labels(parser)
    parser.add_argument("--parallel", type=int, default=4, metavar="N", help="batches at a time (4)")
    parser.add_argument("--rate", type=float, metavar="N", help="jobs per second")
    parser.add_argument("--check", action="store_true", help="check the jobs without storing them")
    parser.add_argument("--resume", action="store_true", help="continue an import that was interrupted")
    parser.set_defaults(call=import_jobs)


def import_jobs(options: argparse.Namespace) -> int:
    path = None if options.file == "-" else Path(options.file)
    defaults = {name: value for name in ("kind", "queue") if (value := getattr(options, name)) is not None}
    if options.label:
        defaults["labels"] = dict(options.label)
    is_csv = options.file.removesuffix(".gz").endswith(".csv")
    with client_of(options) as client, open_jobs(options.file) as file:
        try:
            progress = Progress(path=path, url=client.url, count=COUNT, is_resumed=options.resume)
        except Unresumable as error:
            raise Usage(str(error)) from None
        importer = Importer(client=client, progress=progress, options=options)
        is_whole = importer.run(batches(file, count=progress.count, is_csv=is_csv, defaults=defaults))
    return _conclude(importer, is_whole, options)


def _conclude(importer: Importer, is_whole: bool, options: argparse.Namespace) -> int:
    progress = importer.progress
    progress.show(is_last=True)
    if not is_whole:
        if options.file != "-" and not options.check:
            progress.save()
            print(f"erelong: continue with: erelong import {options.file} --resume", file=sys.stderr)
        return INTERRUPTED
    progress.remove()
    if progress.rejected:
        print(f"erelong: {progress.rejected:,} lines were rejected: see {importer.rejects}", file=sys.stderr)
    return REFUSED if progress.rejected else 0


class Importer:
    """Sends batches. A batch without an answer is repeated with the same idempotency key until there is one."""

    def __init__(self, *, client: Client, progress: Progress, options: argparse.Namespace) -> None:
        self._client = client
        self._parallel = options.parallel
        self._rate = options.rate
        self._is_check = options.check
        self._path = "/v1/jobs/batch?dry_run=true" if options.check else "/v1/jobs/batch"
        self._lock = threading.Lock()
        self._is_stopping = threading.Event()
        self._told = 0.0
        self.progress = progress
        self.rejects = Path("rejected.ndjson" if options.file == "-" else f"{options.file}.rejected")

    def run(self, parts: Any) -> bool:
        """Send all batches; return whether none is missing. Ctrl-C ends it after the batches in flight."""
        running: dict[Future[int], Batch] = {}
        began, sent = time.monotonic(), 0
        with ThreadPoolExecutor(self._parallel) as pool:
            try:
                for batch in parts:
                    if self.progress.has(batch.offset):
                        self.progress.skip(batch.size)
                        continue
                    self._pace(began, sent)
                    running[pool.submit(self._send, batch)] = batch
                    sent += len(batch.lines)
                    while len(running) >= self._parallel:
                        self._collect(running)
                while running:
                    self._collect(running)
            except KeyboardInterrupt:
                self._is_stopping.set()
                while running:
                    self._collect(running)
                return False
            except BaseException:
                self._is_stopping.set()
                raise
        return True

    def _pace(self, began: float, sent: int) -> None:
        if self._rate:
            self._is_stopping.wait(max(began + sent / self._rate - time.monotonic(), 0.0))

    def _collect(self, running: dict[Future[int], Batch]) -> None:
        """Note the batches that have been stored."""
        done, _ = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            batch = running.pop(future)
            stored = future.result()
            if stored >= 0:
                self.progress.add(batch.offset, batch.size, stored)
        if running:
            self.progress.reached(min(batch.offset for batch in running.values()))
        self.progress.show()

    # one batch, in a thread

    def _send(self, batch: Batch) -> int:
        """Store a batch without its bad lines; return how many jobs are stored, or -1 if the import was stopped."""
        rounds = 0
        while batch.lines:
            try:
                answer = self._ask(batch, f"imp-{self.progress.id}-{batch.offset}-{rounds}")
            except (Invalid, Conflict, Forbidden) as problem:
                if problem.code == "idempotency_mismatch":  # an earlier run has stored the good lines
                    return 0
                batch = batch._replace(lines=self._without_bad(batch.lines, problem))
                rounds += 1
                continue
            if answer is None:
                return -1
            return answer.body.count(b'"created":true') or len(batch.lines)
        return 0

    def _ask(self, batch: Batch, key: str) -> Answer | None:
        headers = {"Content-Type": JSON} | ({} if self._is_check else {"Idempotency-Key": key})
        request = Request(method="POST", path=self._path, body=batch.body(), headers=headers, repeat=Repeat.SAFE)
        while True:
            try:
                return self._client.ask(request)
            except Busy as error:
                pause = PAUSE if error.retry_after is None else error.retry_after
                self._tell(f"{error}: retrying in {pause:.0f} s")
            except NoAnswer as error:
                pause = PAUSE
                self._tell(f"{error}: retrying in {pause:.0f} s")
            if self._is_stopping.wait(pause):
                return None

    def _tell(self, text: str) -> None:
        with self._lock:
            if time.monotonic() - self._told >= PAUSE:
                self._told = time.monotonic()
                print(f"erelong: {text}", file=sys.stderr)

    def _without_bad(self, lines: list[tuple[int, bytes]], problem: Refused) -> list[tuple[int, bytes]]:
        """Write the lines that a problem names to the file of rejected lines; return the others."""
        faults = _unreadable(lines) if problem.status == 400 else bad_positions(problem)
        if not faults:
            raise problem
        with self._lock, self.rejects.open("a", encoding="utf-8") as file:
            for position, errors in sorted(faults.items()):
                number, line = lines[position]
                report = {
                    "line": number,
                    "code": problem.code,
                    "errors": errors,
                    "job": line.decode(errors="replace").strip(),
                }
                file.write(json.dumps(report, ensure_ascii=False) + "\n")
            self.progress.rejected += len(faults)
        return [line for position, line in enumerate(lines) if position not in faults]


def _unreadable(lines: list[tuple[int, bytes]]) -> dict[int, list[dict[str, str]]]:
    """Find the lines that are not JSON, which the service cannot count."""
    faults = {}
    for position, (_, line) in enumerate(lines):
        try:
            json.loads(line)
        except ValueError as error:
            faults[position] = [{"pointer": "", "detail": f"not JSON: {error}"}]
    return faults
