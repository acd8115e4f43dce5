"""Accepts connections up to a limit, and rejects those beyond it."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from aiohttp import web

from erelong.errors import Problem, TooManyConnections
from erelong.telemetry.log import get_logger
from erelong.web.connection import Connection
from erelong.web.problems import make_request_id, problem_reply, stamp
from erelong.web.response import AnyReply
from erelong.web.router import note_refused

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from aiohttp.web_request import BaseRequest

    from erelong.settings.sections import LimitsSection, ServerSection
    from erelong.telemetry.metrics import Metrics
    from erelong.web.router import Router

PROBES = frozenset({"/livez", "/readyz", "/metrics"})  # answered even when all connections are busy
MAX_OVERFLOW = 64  # connections beyond the limit, which get a 503
SHUTDOWN_TIMEOUT = 0.1  # seconds for open requests at shutdown: a client may never finish its request
MAX_CHECKED = 32  # connections to check for an idle one
BACKLOG = 1024
QUIET = 10.0  # seconds between two log lines about full connections

log = get_logger(__name__)


class Server:
    """Accepts up to `max_connections` connections.

    A connection beyond the limit replaces one that is between two requests. When all are busy, it gets a 503 and is
    closed. Probes are still answered, so a flood does not look like a dead process.
    """

    def __init__(self, *, timeouts: ServerSection, limits: LimitsSection, metrics: Metrics) -> None:
        self._timeouts = timeouts
        self._limits = limits
        self._max_connections = limits.max_connections
        self._metrics = metrics
        self._connections: dict[Connection, None] = {}
        self._overflow: dict[Connection, None] = {}
        self._warned_at = -QUIET
        self.also: Mapping[str, str] = {}

    async def open(self, router: Router, listener: socket.socket) -> None:
        """Start accepting connections."""
        self.also = router.also
        loop = asyncio.get_running_loop()
        self._server = web.Server(router.serve, request_factory=partial(web.Request, loop=loop, client_max_size=0))  # type: ignore[arg-type]  # the routes take only web.Request
        self._runner = web.ServerRunner(self._server, handle_signals=False, shutdown_timeout=SHUTDOWN_TIMEOUT)
        await self._runner.setup()
        self._listener = await loop.create_server(self._connect, sock=listener, backlog=BACKLOG)

    async def close(self) -> None:
        self._listener.close()
        await self._runner.cleanup()

    def _connect(self) -> Connection:
        return Connection(self._server, connections=self, timeouts=self._timeouts, limits=self._limits)

    def admit(self, newcomer: Connection) -> None:
        if len(self._connections) >= self._max_connections:
            self._warn()
            if not self._make_room():
                self._add_to_overflow(newcomer)
                return
        self._connections[newcomer] = None
        self._count()

    def left(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        self._overflow.pop(connection, None)
        self._count()

    def _count(self) -> None:
        self._metrics.connections.values = {(): len(self._connections) + len(self._overflow)}

    async def reject(self, request: BaseRequest) -> AnyReply:
        """Answer a request on a connection beyond the limit."""
        if request.path in PROBES:
            reply: AnyReply = await self._server.request_handler(request)
        else:
            problem = TooManyConnections(
                f"{self._max_connections} connections are busy (max_connections); try again later"
            )
            request_id = make_request_id()
            reply = stamp(problem_reply(problem, request_id), request_id)
            reply.headers |= self.also
            self.note_refused(problem, request_id)
        reply.force_close()
        return reply

    def note_refused(self, problem: Problem, request_id: str) -> None:
        note_refused(self._metrics, problem, request_id)

    def _make_room(self) -> bool:
        """Close an idle connection. Checked ones move to the end, so all are checked in turn."""
        for connection in list(islice(self._connections, MAX_CHECKED)):
            del self._connections[connection]
            if connection.is_idle:
                connection.abort()
                return True
            self._connections[connection] = None
        return False

    def _add_to_overflow(self, newcomer: Connection) -> None:
        if len(self._overflow) >= MAX_OVERFLOW:
            oldest = next(iter(self._overflow))
            del self._overflow[oldest]
            oldest.abort()
        self._overflow[newcomer] = None
        newcomer.reject()

    def _warn(self) -> None:
        tick = asyncio.get_running_loop().time()
        if tick - self._warned_at >= QUIET:
            self._warned_at = tick
            log.warning("connections_full", max_connections=self._max_connections)
