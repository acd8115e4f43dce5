"""The term of the node that writes: how it begins, is renewed and ends. The database's clock alone judges it.

A lock of the session only hastens a take-over: the database frees it when the process that had it dies. It is also free
when only the session has ended, so a leader trusts its term no longer than its session. Safety comes from the fence,
never from what a node believes.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import select
import socket
import threading
import time
from contextlib import suppress
from typing import NamedTuple

import psycopg

from erelong.clock.instants import SECOND
from erelong.clock.remote import RemoteClock, uptime
from erelong.errors import Exit, StoreCorrupt
from erelong.stores.postgres.connection import Connection, connect
from erelong.stores.postgres.failures import GONE, FailureKind, TermLost, Unsettled, described, diagnose
from erelong.telemetry.log import get_logger

TTL = 2.0
RENEWALS = 3.3  # per ttl
LONGEST_PAUSE = 0.6  # a leader that was deposed and has kept its session learns of it within this time
LOOK_PAUSE = 0.05
TRUST_MARGIN = 0.25  # of the ttl, before its end
LOCK = 0x45524C5400  # "ERLT" and the slice
SHORT_WAIT, LONG_WAIT = "200ms", "1500ms"  # for the group that the last leader is writing

NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
# Only a lock that the leader had says that its process is dead. No other look touches the lock, which the leader may
# still have to take.
LOOK = f"""
SELECT node, address, epoch, until < clock_timestamp() AS is_over,
    CASE WHEN locked AND %s THEN pg_try_advisory_lock({LOCK}) ELSE false END AS is_dead, {NOW}
FROM terms JOIN fences USING (slice) WHERE slice = 0
"""
_LOCKED = f"CASE WHEN %s THEN true ELSE pg_try_advisory_lock({LOCK}) END"
TAKE = f"""
WITH next AS (UPDATE fences SET epoch = epoch + 1 WHERE slice = 0 AND epoch = %s RETURNING epoch)
UPDATE terms SET
    node = %s, address = inet_client_addr()::text, token = %s, locked = {_LOCKED},
    until = clock_timestamp() + make_interval(secs => %s::float8)
FROM next WHERE slice = 0 RETURNING locked
"""
RENEW = f"""
UPDATE terms SET until = clock_timestamp() + make_interval(secs => %s::float8), locked = {_LOCKED}
WHERE slice = 0 AND node = %s RETURNING locked, {NOW}
"""
UNLOCK = "SELECT pg_advisory_unlock_all()"
RESIGN = """
UPDATE terms SET node = NULL, locked = false, until = clock_timestamp() WHERE slice = 0 AND node = %s
RETURNING pg_advisory_unlock_all()
"""
END_WRITERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'erelong/0/%%/writer' AND pid <> pg_backend_pid()
"""

log = get_logger(__name__)


class Seen(NamedTuple):
    """The current term: its node, if any, whether its time is over, and whether its node had the lock and lost it."""

    node: str | None
    address: str | None
    epoch: int
    is_over: bool
    is_dead: bool


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
        self.looks = 0
        self.failure: str | None = None
        """Why the term could not be read or renewed, if so."""
        self._url = url
        self._ttl = ttl
        self._connection: Connection | None = None
        self._has_lock = False
        self._patient_until = self._trusted_until = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._beat_at = math.inf  # when the loop answered last; before the thread runs, it cannot hang
        self._began, self._ended = asyncio.Event(), asyncio.Event()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._alarm: socket.socket | None = None

    @property
    def is_vacant(self) -> bool:
        """Whether no other node leads, by the last look."""
        if self.failure is not None or self.leader is None:
            return self.is_mine
        return self.leader.node is None or self.leader.is_over or self.leader.is_dead

    def look(self) -> None:
        """Take over if no other node leads."""
        self._look(self._connected())

    def start(self) -> None:
        """Continue in the thread, for the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._beat()
        self._alarm, alarm = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=(alarm,), name="store-term", daemon=True)
        self._thread.start()

    async def began(self) -> None:
        """Wait until this node leads."""
        await self._began.wait()

    @property
    def is_trusted(self) -> bool:
        """Return whether no other node can lead yet.

        One may after the session of the term has ended, or the process or the machine was stopped.
        """
        return uptime() / SECOND < self._trusted_until

    async def trust(self) -> None:
        """Wait until the term is renewed, if it may be over; raise if it is, or is not renewed in time."""
        until = time.monotonic() + self._ttl
        while not self.is_trusted:
            if self.is_lost or self._stop.is_set():
                raise TermLost
            if time.monotonic() > until:
                raise Unsettled
            await asyncio.sleep(LOOK_PAUSE)

    def status(self) -> str | None:
        """Return why another node may lead already, or None while the term is certain."""
        if self.is_trusted:
            return None
        reason = self.failure or "it was not renewed in time"
        return f"the term may be over, so another node may lead: {reason}; check the server and [store] url"

    async def ended(self) -> None:
        """Wait until another node has taken over from this one."""
        await self._ended.wait()

    def resign(self) -> None:
        """End the term, so that another node can take over at once."""
        self.halt()
        try:
            if self._connection is not None and self.is_mine:
                self._connection.run(RESIGN, self.node)
        except psycopg.Error as error:  # then it ends with its ttl
            log.warning("term_not_resigned", problem=described(error))
        self.is_mine = False
        self._disconnect()

    def halt(self) -> None:
        """End the thread. The term and its session stay."""
        self._stop.set()
        if self._thread is not None and self._alarm is not None:
            with self._alarm, suppress(OSError):  # the thread of a lost term has ended
                self._alarm.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._thread = None

    def _run(self, alarm: socket.socket) -> None:
        assert self._loop is not None
        with alarm:
            while not self._stop.is_set() and not self.is_lost:
                self._loop.call_soon_threadsafe(self._beat)
                was_failing = self.failure is not None
                try:
                    connection = self._connected()
                    if self.is_mine:
                        self._renew(connection)
                    else:
                        self._look(connection)
                except (psycopg.Error, Exit) as error:  # the writer finds out whether it still leads
                    self._fail(error)
                self.looks += 1
                self._rest(alarm, self._pause(was_failing))

    def _pause(self, was_failing: bool) -> float:
        """Return the seconds until the next lap: none after the first failure, to renew on a new connection at once.

        The next renewal follows soon: another node may have seen the lock free, and take over between the two.
        """
        if self.failure is not None and not was_failing:
            return 0.0
        if self.is_mine and not was_failing:
            return min(self._ttl / RENEWALS, LONGEST_PAUSE)
        return LOOK_PAUSE * random.uniform(0.8, 1.2)

    def _rest(self, alarm: socket.socket, seconds: float) -> None:
        """Wait, but not longer than the session lasts. The next lap finds out why it has ended."""
        poll = select.poll()
        poll.register(alarm, select.POLLIN)
        if self._connection is not None and self.failure is None:
            poll.register(self._connection.pgconn.socket, select.POLLIN)
        poll.poll(seconds * 1000)

    def _fail(self, error: Exception) -> None:
        """Any error means: not renewed, or not taken over. The connection is made again."""
        self._disconnect()
        if self.failure is None:
            log.warning("term_not_renewed" if self.is_mine else "term_not_read", problem=described(error))
        self.failure = described(error)
        # The leader has lost its connection too, and its lock with it. Give it time to return.
        self._patient_until = time.monotonic() + self._ttl / 2

    def _look(self, connection: Connection) -> None:
        """Take over if the term is free; otherwise note whose it is."""
        sent = uptime()
        rows = connection.rows(LOOK, self.may_lead)
        if not rows:  # the database is being restored, for example
            raise StoreCorrupt(str(GONE))
        ((*seen, theirs),) = rows
        self.clock.note(sent=sent, theirs=theirs, received=uptime())
        self.failure, self.leader = None, Seen._make(seen)
        if self._is_free(self.leader) and self._take(connection, self.leader):
            self.is_mine, self.leader = True, None
            self._tell(self._began)
        elif self.leader.is_dead:  # but its node may return, and is to have the lock
            connection.run(UNLOCK)

    def _is_free(self, seen: Seen) -> bool:
        if self._hangs() or not self.may_lead:
            return False
        if seen.node in (None, self.node):  # it is its own if the answer to its take-over was lost
            return True
        return (seen.is_over or seen.is_dead) and time.monotonic() >= self._patient_until

    def _take(self, connection: Connection, seen: Seen) -> bool:
        """Begin a new epoch; return False if another node was first."""
        values = (seen.epoch, self.node, secrets.token_bytes(32), seen.is_dead, self._ttl)
        connection.script(f"SET lock_timeout = '{SHORT_WAIT}'")
        sent = uptime()
        try:
            taken = connection.rows(TAKE, *values)
        except psycopg.Error as error:
            if diagnose(error) is not FailureKind.WAIT:
                raise
            connection.rows(END_WRITERS)  # the last leader hangs inside a transaction, and holds the fence
            connection.script(f"SET lock_timeout = '{LONG_WAIT}'")
            taken = connection.rows(TAKE, *values)
        if not taken:
            return False
        ((self._has_lock,),) = taken
        self._trust_from(sent)
        log.info("term_began", node=self.node, epoch=seen.epoch + 1, after=seen.node)
        return True

    def _renew(self, connection: Connection) -> None:
        if self._hangs():
            if self.failure is None:
                log.error("term_given_up", reason="the event loop does not answer")
            self.failure = "the event loop does not answer"
            return
        sent = uptime()
        rows = connection.rows(RENEW, self._ttl, self._has_lock, self.node)
        if not rows:
            self.is_mine, self.is_lost, self._trusted_until = False, True, 0.0
            log.error("term_taken", node=self.node)
            self._tell(self._ended)
            return
        self.failure = None
        ((self._has_lock, theirs),) = rows
        self.clock.note(sent=sent, theirs=theirs, received=uptime())
        self._trust_from(sent)

    def _trust_from(self, sent: int) -> None:
        self._trusted_until = sent / SECOND + self._ttl * (1 - TRUST_MARGIN)

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

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._url, role="0/term")
        return self._connection

    def _disconnect(self) -> None:
        self._has_lock, self._trusted_until = False, 0.0
        if self._connection is not None:
            self._connection.drop()
            self._connection = None
