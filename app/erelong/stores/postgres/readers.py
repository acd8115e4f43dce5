"""The reader threads: each has a connection, which it restores when it is lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import psycopg

from erelong.errors import Exit
from erelong.stores.group_thread import Call, in_runs, run_as_one
from erelong.stores.postgres import reading, snapshots
from erelong.stores.postgres.connection import Connection, connect
from erelong.stores.postgres.failures import FailureKind, TooSlow, as_problem, described, diagnose
from erelong.stores.postgres.listing import pages, walks
from erelong.stores.postgres.snapshots import Snapshots
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from erelong.clock.instants import Instant
    from erelong.model.document import Document
    from erelong.model.job import Job, State
    from erelong.model.query import Query
    from erelong.model.submission import IdempotencyRecord, Receipt
    from erelong.stores.base import Bins, Documents, Found, Instants, Jobs, Override, Peeks, Spread, Tally

RESTORE_PATIENCE, RESTORE_PAUSE = 2.0, 0.05  # seconds, of a lost connection

log = get_logger(__name__)


class Reading:
    """The work of a reader thread, which has none between groups."""

    repeats_slow = True
    """Whether to repeat a read that took too long, since its connection may have been dead."""

    def __init__(self, *, url: str, role: str, by_number: bool, patience: float) -> None:
        self._url = url
        self._role = role
        self._by_number = by_number
        self._patience = patience
        self._connection: Connection | None = None
        self._lost: psycopg.Error | None = None  # why it could not be restored for this group
        self._locked: Exception | None = None  # why a read of this group failed that waited for a lock

    @property
    def connection(self) -> Connection:
        """The connection; only for the thread that runs this work."""
        if self._connection is None:
            if self._lost is not None:  # the other calls of the group need not wait as long again
                raise self._lost
            self._restore(time.monotonic() + RESTORE_PATIENCE)
        assert self._connection is not None
        return self._connection

    def open(self) -> None:
        """Connect before the first read needs it."""
        self._connection = connect(self._url, role=self._role, by_number=self._by_number, patience=self._patience)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.drop()
            self._connection = None

    def run(self, group: Sequence[Call]) -> None:
        for calls in in_runs([call for call in group if not call.future.done()]):
            self._run(calls)
        self._lost = self._locked = None

    def rest(self) -> float | None:
        return None

    def _restore(self, until: float) -> None:
        """Connect, and try again until a deadline."""
        while True:
            try:
                self.open()
                return
            except psycopg.Error as error:
                if diagnose(error) is not FailureKind.SESSION or time.monotonic() + RESTORE_PAUSE > until:
                    self._lost = error
                    raise
            time.sleep(RESTORE_PAUSE)

    def _run(self, calls: Sequence[Call]) -> None:
        if self._locked is not None:
            _refuse(calls, self._locked)
            return
        try:
            _run(calls)
        except Exception as error:  # noqa: BLE001 - any error is the answer to these calls
            self._run_again(error, calls)

    def _run_again(self, error: Exception, calls: Sequence[Call]) -> None:
        """Repeat reads once, on a new connection if it was lost, and one by one; those that waited for a lock fail."""
        kind = diagnose(error)
        if isinstance(error, TooSlow) and not self.repeats_slow:
            self.close()
            _refuse(calls, error)
            return
        if kind is FailureKind.WAIT:
            self._locked = error
            _refuse(calls, error)
            return
        if kind is FailureKind.SESSION:
            log.warning("reader_disconnected", role=self._role, problem=described(error))
            if self._connection is None:  # the next reads try again
                _refuse(calls, error)
                return
            self.close()
        for call in calls:
            try:
                call.run()
            except Exception as second:  # noqa: BLE001 - as above
                if diagnose(second) is FailureKind.SESSION:
                    self.close()
                call.error = as_problem(second)


def _refuse(calls: Sequence[Call], error: Exception) -> None:
    for call in calls:
        call.error = as_problem(error)


def _run(calls: Sequence[Call]) -> None:
    if len(calls) == 1:
        calls[0].run()
    else:
        run_as_one(calls)


class QuickReads(Reading):
    """Reads of few rows, by number or name."""

    def find_replay(self, record: IdempotencyRecord, now: Instant) -> Receipt | None:
        return reading.find_replay(self.connection, record, now)

    def get(self, seqs: Sequence[int]) -> dict[int, Job]:
        return reading.read_jobs(self.connection, seqs)

    def holder(self, queue: str, key: str) -> Job | None:
        return reading.read_holder(self.connection, queue, key)

    def peek(self, seqs: Sequence[int]) -> Peeks:
        return reading.peek(self.connection, seqs)

    def overrides(self) -> dict[str, Override]:
        return reading.read_overrides(self.connection)

    def document(self, sort: str, name: str) -> Document | None:
        return reading.read_document(self.connection, sort, name)

    def named(self, sort: str, names: Sequence[str]) -> Documents:
        return reading.read_named(self.connection, sort, names)


class SlowReads(Reading):
    """Reads that may take long, and a look for old snapshots from time to time."""

    repeats_slow = False  # nobody waits any more

    def __init__(self, *, url: str, role: str, by_number: bool, patience: float) -> None:
        super().__init__(url=url, role=role, by_number=by_number, patience=patience)
        self.snapshots = Snapshots()
        self._check_at = 0.0

    def rest(self) -> float:
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + snapshots.CHECK_INTERVAL
            try:
                self.snapshots.note(self.connection.rows(snapshots.HOLDERS), now)
            except (psycopg.Error, Exit):  # a read will report it
                self.close()
        return self._check_at - now

    def list(self, query: Query) -> Jobs:
        return pages.select_jobs(self.connection, query)

    def search(self, query: Query, within: int) -> Found:
        return pages.search_jobs(self.connection, query, within)

    def tally(self, query: Query, within: int) -> Tally:
        return pages.tally_jobs(self.connection, query, within)

    def label_values(self, name: str) -> Sequence[str]:
        return walks.select_label_values(self.connection, name)

    def due(self, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        return walks.select_due(self.connection, after, before, limit)

    def spread(self, bins: Bins, query: Query) -> Spread:
        return walks.count_due(self.connection, bins, query)

    def ended(self, queue: str, state: State, after: tuple[Instant, int], before: Instant, limit: int) -> Instants:
        return walks.select_ended(self.connection, queue, state, after, before, limit)

    def documents(self, sort: str, after: str, limit: int) -> Documents:
        return reading.read_documents(self.connection, sort, after, limit)
