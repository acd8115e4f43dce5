"""Sends the batches of an import, several at a time, and notes those that are stored."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from erelong.cli.console.running import INTERRUPTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from erelong.cli.files.lines import Batch
    from erelong.cli.files.meter import Meter
    from erelong.cli.files.progress import Progress
    from erelong.cli.files.sending import Sender


class Importer:
    """Keeps `parallel` batches in flight. `rate` bounds the jobs per second."""

    def __init__(
        self,
        *,
        sender: Sender,
        progress: Progress,
        meter: Meter,
        stop: threading.Event,
        parallel: int,
        rate: float | None,
    ) -> None:
        self._sender = sender
        self._progress = progress
        self._meter = meter
        self._stop = stop
        self._parallel = parallel
        self._rate = rate
        self._running: dict[Future[bool], Batch] = {}
        self._left: list[int] = []  # offsets of the batches that were not stored before the stop

    def run(self, batches: Iterable[Batch]) -> bool:
        """Send all batches; return whether none is missing. Ctrl-C ends it after the batches in flight."""
        with ThreadPoolExecutor(self._parallel) as pool:
            try:
                self._send_all(batches, pool)
            except KeyboardInterrupt:
                self._finish()
                return False
            except BaseException:
                self._stop.set()
                raise
        return True

    def _send_all(self, batches: Iterable[Batch], pool: ThreadPoolExecutor) -> None:
        began, sent = time.monotonic(), 0
        for batch in batches:
            if self._progress.has(batch.offset):
                self._meter.skip(batch.size)
                continue
            if self._rate:
                self._stop.wait(max(began + sent / self._rate - time.monotonic(), 0.0))
            self._running[pool.submit(self._sender.send, batch)] = batch
            sent += len(batch.lines)
            while len(self._running) >= self._parallel:
                self._collect()
        while self._running:
            self._collect()

    def _finish(self) -> None:
        """Wait for the batches in flight. A second Ctrl-C leaves them: a resumed import sends them again."""
        try:
            self._stop.set()
            print("\nerelong: waiting for the batches in flight; Ctrl-C again leaves them", file=sys.stderr, flush=True)
            while self._running:
                self._collect()
        except KeyboardInterrupt:
            self._progress.save()
            sys.stderr.flush()
            os._exit(INTERRUPTED)  # threads still wait for their answers

    def _collect(self) -> None:
        """Note the batches that have been stored."""
        done, _ = wait(self._running, timeout=0.2, return_when=FIRST_COMPLETED)
        for future in done:
            batch = self._running.pop(future)
            if future.result():
                self._progress.add(batch.offset)
                self._meter.add(batch.size)
            else:
                self._left.append(batch.offset)
        if self._running:
            self._progress.reached(min([*self._left, *(batch.offset for batch in self._running.values())]))
        self._meter.show()
