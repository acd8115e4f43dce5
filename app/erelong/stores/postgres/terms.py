"""The term of the node that writes: how it begins, is renewed and ends. The database's clock alone judges it.

A lock of the session only hastens a take-over: the database frees it when the process that had it dies. Safety comes
from the fence, never from what a node believes.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import threading
import time
from typing import NamedTuple

import psycopg

from erelong.clock import instants
from erelong.clock.remote import RemoteClock
from erelong.errors import Exit
from erelong.stores.postgres.connection import Connection, connect, is_alive
from erelong.stores.postgres.failures import FailureKind, described, diagnose
from erelong.telemetry.log import get_logger

TTL = 2.0
RENEWALS = 3.3  # per ttl
LOOK_PAUSE = 0.1
LOCK = 0x45524C5400  # "ERLT" and the slice
HAS_LOCK = f"pg_try_advisory_lock({LOCK})"

NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
LOOK = f"""
SELECT node, address, epoch, until < clock_timestamp() AS is_over, locked, {NOW}
FROM terms JOIN fences USING (slice) WHERE slice = 0
"""
NEXT_EPOCH = "UPDATE fences SET epoch = epoch + 1 WHERE slice = 0 AND epoch = %s RETURNING epoch"
TAKE = """
UPDATE terms SET
    node = %s, address = inet_client_addr()::text, token = %s, locked = %s,
    until = clock_timestamp() + make_interval(secs => %s::float8)
WHERE slice = 0
"""
RENEW = f"""
UPDATE terms SET until = clock_timestamp() + make_interval(secs => %s::float8), locked = %s
WHERE slice = 0 AND node = %s RETURNING {NOW}
"""
RESIGN = "UPDATE terms SET node = NULL, until = clock_timestamp() WHERE slice = 0 AND node = %s"
END_WRITERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'erelong/0/%%/writer' AND pid <> pg_backend_pid()
"""

log = get_logger(__name__)


class Seen(NamedTuple):
    """The current term: its node, if any, and whether its time is over; `locked`: its node had the lock."""

    node: str | None
    address: str | None
    epoch: int
    is_over: bool
    locked: bool


class Term:
    """Waits for the term of another node to end, takes over, renews its own term and resigns.

    A thread with its own connection does all this. It stops renewing while the event loop hangs, so that a node that
    cannot work does not lead.
    """

    def __init__(self, *, url: str, may_lead: bool = True, ttl: float = TTL) -> None:
        self.node = secrets.token_hex(8)
        """A number of this process, never of a host: a process that restarts is another node."""
        self.clock = RemoteClock()
        self.may_lead = may_lead
        self.is_mine = self.is_lost = False
        self.leader: Seen | None = None
        """The term of another node, as last read."""
        self.failure: str | None = None
        """Why the term could not be read or renewed, if so."""
        self._url = url
        self._ttl = ttl
        self._connection: Connection | None = None
        self._has_lock = False
        self._patient_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat_at = math.inf  # when the loop answered last; before the thread runs, it cannot hang
        self._began, self._ended = asyncio.Event(), asyncio.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_vacant(self) -> bool:
        """Whether no other node leads, by the last look."""
        if self.failure is not None or self.leader is None:
            return self.is_mine
        return self.leader.node is None or self.leader.is_over

    def look(self) -> None:
        """Take over if no other node leads."""
        self._look(self._connected())

    def start(self) -> None:
        """Continue in the thread, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._beat()
        self._thread = threading.Thread(target=self._run, name="store-term", daemon=True)
        self._thread.start()

    async def began(self) -> None:
        """Wait until this node leads."""
        await self._began.wait()

    async def ended(self) -> None:
        """Wait until another node has taken over from this one."""
        await self._ended.wait()

    def resign(self) -> None:
        """End the term, so that another node can take over at once."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        try:
            if self._connection is not None and self.is_mine:
                self._connection.run(RESIGN, self.node)
        except psycopg.Error as error:  # then it ends with its ttl
            log.warning("term_not_resigned", problem=described(error))
        self.is_mine = False
        self._disconnect()

    def _run(self) -> None:
        assert self._loop is not None
        pause = 0.0
        while not self._stop.wait(pause) and not self.is_lost:
            self._loop.call_soon_threadsafe(self._beat)
            try:
                connection = self._connected()
                if self.is_mine:
                    self._renew(connection)
                else:
                    self._look(connection)
            except (psycopg.Error, Exit) as error:  # the writer finds out whether it still leads
                self._fail(error)
            pause = self._ttl / RENEWALS if self.is_mine else LOOK_PAUSE * random.uniform(0.8, 1.2)

    def _fail(self, error: Exception) -> None:
        """Any error means: not renewed, or not taken over. The connection is made again."""
        if self.failure is None:
            log.warning("term_not_renewed" if self.is_mine else "term_not_read", problem=described(error))
        self.failure = described(error)
        self._disconnect()
        # The leader has lost its connection too, and its lock with it. Give it time to return.
        self._patient_until = time.monotonic() + self._ttl / 2

    def _look(self, connection: Connection) -> None:
        """Take over if the term is free; otherwise note whose it is."""
        sent = instants.now()
        *seen, theirs = connection.row(LOOK)
        self.clock.note(sent=sent, theirs=theirs, received=instants.now())
        self.failure, self.leader = None, Seen._make(seen)
        if self.may_lead:
            self._try_lock(connection)
        if self._is_free(self.leader) and self._take(connection, self.leader):
            self.is_mine, self.leader = True, None
            self._tell(self._began)
        elif self._has_lock:  # its node came to power without the lock, and is to have it
            connection.row(f"SELECT pg_advisory_unlock({LOCK})")
            self._has_lock = False

    def _is_free(self, seen: Seen) -> bool:
        if self._hangs() or not self.may_lead:
            return False
        if seen.node in (None, self.node):  # it is its own if the answer to its take-over was lost
            return True
        return (seen.is_over or (seen.locked and self._has_lock)) and time.monotonic() >= self._patient_until

    def _take(self, connection: Connection, seen: Seen) -> bool:
        """Begin a new epoch; return False if another node was first."""
        try:
            if not self._begin(connection, seen, patience="200ms"):
                return False
        except psycopg.Error as error:
            if diagnose(error) is not FailureKind.WAIT:
                raise
            connection.rows(END_WRITERS)  # the last leader hangs inside a transaction, and holds the fence
            if not self._begin(connection, seen, patience="1500ms"):
                return False
        log.info("term_began", node=self.node, epoch=seen.epoch + 1, after=seen.node)
        return True

    def _begin(self, connection: Connection, seen: Seen, *, patience: str) -> bool:
        """Wait so long for the group that the last leader is writing."""
        connection.script(f"BEGIN; SET LOCAL lock_timeout = '{patience}'")
        try:
            is_first = bool(connection.rows(NEXT_EPOCH, seen.epoch))
            if is_first:
                connection.run(TAKE, self.node, secrets.token_bytes(32), self._has_lock, self._ttl)
        except BaseException:
            if is_alive(connection):
                connection.script("ROLLBACK")
            raise
        connection.script("COMMIT")
        return is_first

    def _renew(self, connection: Connection) -> None:
        if self._hangs():
            if self.failure is None:
                log.error("term_given_up", reason="the event loop does not answer")
            self.failure = "the event loop does not answer"
            return
        self._try_lock(connection)
        sent = instants.now()
        rows = connection.rows(RENEW, self._ttl, self._has_lock, self.node)
        if not rows:
            self.is_mine, self.is_lost = False, True
            log.error("term_taken", node=self.node)
            self._tell(self._ended)
            return
        self.failure = None
        self.clock.note(sent=sent, theirs=rows[0][0], received=instants.now())

    def _beat(self) -> None:
        self._beat_at = time.monotonic()

    def _hangs(self) -> bool:
        """Return whether the event loop does not answer."""
        return time.monotonic() - self._beat_at > 2 * self._ttl

    def _tell(self, event: asyncio.Event) -> None:
        if self._loop is None:
            event.set()
        else:
            self._loop.call_soon_threadsafe(event.set)

    def _try_lock(self, connection: Connection) -> None:
        if not self._has_lock:
            (self._has_lock,) = connection.row(f"SELECT {HAS_LOCK}")

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._url, role="0/term")
        return self._connection

    def _disconnect(self) -> None:
        self._has_lock = False
        if self._connection is not None:
            self._connection.drop()
            self._connection = None
