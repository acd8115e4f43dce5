"""The write session, which is never in doubt: one connection, and one epoch for each of its lives."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeVar

import psycopg

from erelong.errors import StoreUnavailable
from erelong.stores.postgres import statements as sql
from erelong.stores.postgres.connection import Connection, connect
from erelong.stores.postgres.failures import FailureKind, TermLost, Unsettled, described, diagnose
from erelong.telemetry.log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from erelong.stores.postgres.draft import Numbers
    from erelong.stores.postgres.writing import Writes

PATIENCE = 2.0
"""Seconds that a small group may take, and that a lost connection is tried again before callers are refused."""
SLOWEST = 2_000_000
"""Bytes per second at which a larger group must arrive. Each time that it does not, it is given twice as long."""
LAST_TRY = 15.0
"""Seconds after which a group that took too long is not sent again."""
SHORTEST_PAUSE, LONGEST_PAUSE = 0.02, 1.0
MAX_REPEATS = 8
MAX_WAITS = 2  # for a lock, each as long as `lock_timeout` of the connection
BLOCK = 65_536
"""How many job numbers a term takes at once."""

T = TypeVar("T")

log = get_logger(__name__)


class WriteSession:
    """Writes groups under the fence of its epoch.

    After a failure of the connection, the server may still execute the last statements. A new epoch waits for those
    that hold the fence and refuses all later ones. One check of a group's receipt then shows for certain whether it is
    stored.
    """

    def __init__(self, *, url: str, node: str) -> None:
        self._url = url
        self._node = node
        self._connection: Connection | None = None
        self._prepared: Connection | None = None
        self.epoch = 0
        self._receipts = 0
        self._acknowledged = 0
        self.claims_half = self.tallies_half = 0
        self.failure: str | None = None
        """Why there is no connection, if there is none."""
        self.lost_commits = False
        """Whether the database has lost something that was acknowledged, after it fell back to an older copy."""

    def prepare(self) -> None:
        """Connect, so that a take-over need not wait for it. A connection that is lost meanwhile is made again."""
        self._prepared = connect(self._url, role="0/writer", patience=PATIENCE)

    def begin(self) -> None:
        """Begin the first epoch, after this node has taken over."""
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            try:
                self._connection = self._adopt(prepared)
                return
            except psycopg.Error as error:  # such as a connection to a server that has lost its power
                if diagnose(error) is not FailureKind.SESSION:
                    raise
                log.info("prepared_connection_lost", problem=described(error))
        self._restore(time.monotonic() + PATIENCE)

    def end(self, numbers: Numbers) -> None:
        """Return the unused numbers and close the connection."""
        if self._prepared is not None:
            self._prepared.drop()
            self._prepared = None
        if self._connection is None:
            return
        try:
            self._connection.run(sql.RETURN_NUMBERS, numbers.next, self._node, numbers.end)
        except psycopg.Error as error:  # then they stay unused
            log.info("numbers_skipped", problem=described(error))
        self._connection.drop()
        self._connection = None

    def next_receipt(self) -> int:
        """Return a number that grows with every group, through all epochs."""
        self._receipts += 1
        return self.epoch << 32 | self._receipts

    @property
    def acknowledged(self) -> int:
        """The receipt of the last group that is stored."""
        return self._acknowledged

    def write(self, writes: Writes) -> None:
        """Store a group. Raise `Unsettled` if it may or may not be stored; after any other error it is not."""
        patience, last_try = PATIENCE + writes.size / SLOWEST, time.monotonic() + LAST_TRY
        for repeat in range(MAX_REPEATS):
            try:
                connection = self._connected()
                with connection.within(patience):
                    writes.run(connection, self.epoch)
                break
            except psycopg.Error as error:
                kind = diagnose(error)
                if kind is FailureKind.SESSION:
                    self._drop(error)
                elif kind is not FailureKind.WAIT or repeat + 1 >= MAX_WAITS:
                    raise
                else:
                    continue
                if self.is_stored(writes):
                    log.info("group_found_stored", receipt=writes.receipt)
                    break
                if repeat + 1 >= MAX_REPEATS or time.monotonic() > last_try:
                    problem = f"PostgreSQL did not store it: {described(error)}; nothing was stored"
                    raise StoreUnavailable(problem) from None
                patience *= 2
        self._acknowledged = writes.receipt

    def is_stored(self, writes: Writes) -> bool:
        """Return whether a group is stored; raise `Unsettled` if the database cannot be reached."""
        receipt = writes.receipt
        try:
            (is_done,) = self.read(lambda connection: connection.row(sql.IS_DONE, receipt, receipt, receipt))
        except (psycopg.Error, StoreUnavailable) as error:
            raise Unsettled from error
        return bool(is_done)

    def read(self, work: Callable[[Connection], T], *, patience: float = PATIENCE) -> T:
        """Run statements that may be repeated, on a connection whose epoch is current."""
        for _ in range(MAX_REPEATS):
            connection = self._connected()
            try:
                with connection.within(patience):
                    return work(connection)
            except psycopg.Error as error:
                if diagnose(error) is not FailureKind.SESSION:
                    raise
                self._drop(error)
        raise StoreUnavailable("PostgreSQL ends every connection")

    def once(self, work: Callable[[Connection], None]) -> None:
        """Run a transaction without repeating it; a new connection reads what became of it."""
        try:
            work(self._connected())
        except psycopg.Error as error:
            if diagnose(error) is FailureKind.SESSION:
                self._drop(error)
            raise

    def restore(self) -> None:
        """Connect again if the connection is lost."""
        self._connected()

    def reserve(self, numbers: Numbers, jobs: int) -> None:
        """Make room for this many job numbers."""
        if numbers.end - numbers.next >= jobs:
            return
        size = max(jobs, BLOCK)
        rows = self.read(lambda connection: connection.rows(sql.TAKE_NUMBERS, size, self._node))
        if not rows:
            raise TermLost
        end = rows[0][0]
        if end - size != numbers.end:  # the rest of the last block ends where this one begins
            numbers.next = end - size
        numbers.end = end

    # the connection

    def _connected(self) -> Connection:
        if self._connection is None:
            self._restore(time.monotonic() + PATIENCE)
        assert self._connection is not None
        return self._connection

    def _restore(self, until: float) -> None:
        """Connect and begin a new epoch; try again until a deadline."""
        pause, start = SHORTEST_PAUSE, time.monotonic()
        while True:
            try:
                self._connection = self._connect()
                break
            except psycopg.Error as error:
                if diagnose(error) is not FailureKind.SESSION:
                    raise
                self.failure = described(error)
                if time.monotonic() + pause > until:
                    raise
            time.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(2 * pause, LONGEST_PAUSE)
        if self.failure is not None:
            log.warning("store_reconnected", epoch=self.epoch, seconds=round(time.monotonic() - start, 3))
        self.failure = None

    def _connect(self) -> Connection:
        return self._adopt(connect(self._url, role="0/writer", patience=PATIENCE))

    def _adopt(self, connection: Connection) -> Connection:
        """Begin a new epoch on a connection."""
        try:
            with connection.transaction():
                connection.run(sql.LOCK_FENCE)
                epochs = connection.rows(sql.NEW_EPOCH, self._node)
            if not epochs:
                raise TermLost
            connection.check_doubts()
            ((self.epoch,),) = epochs
            connection.script(f"SET application_name = 'erelong/0/{self.epoch}/writer'")
            *_, self.claims_half, self.tallies_half, _ = connection.row(sql.SELECT_META)
            self._must_have(connection, self._acknowledged)
        except BaseException:
            connection.drop()
            raise
        return connection

    def _must_have(self, connection: Connection, receipt: int) -> None:
        """Note if the last acknowledged group is missing: the database went back to a copy that lacked it."""
        if receipt and not connection.row(sql.IS_DONE, receipt, receipt, receipt)[0]:
            self.lost_commits = True
            log.error("store_lost_commits", effect="jobs may be missing", remedy="restart, then check the standbys")

    def _drop(self, error: BaseException) -> None:
        log.warning("store_disconnected", problem=described(error), epoch=self.epoch)
        self.failure = described(error)
        if self._connection is not None:
            self._connection.drop()
            self._connection = None
