"""Who is connected: how many may be, and what happens to those who are too many."""

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

    from aiohttp.web_request import BaseRequest

    from erelong.settings.sections import LimitsSection, ServerSection
    from erelong.telemetry.metrics import Metrics
    from erelong.web.router import Router

PROBES = frozenset({"/livez", "/readyz", "/metrics"})  # answered also when all places are taken
MAX_DOORSTEP = 64  # connections beyond the bound, which hear that they are too many
HANG_UP_TIME = 0.1  # at the end, for requests under way, whose clients may never come to their end
LOOKS = 32  # connections looked at to find an idle one
BACKLOG = 1024
QUIET = 10.0  # seconds between two lines of the log about the same want

log = get_logger(__name__)


class Server:
    """Lets clients in, `max_connections` at once.

    A newcomer beyond that takes the place of one that is between two requests. When all are busy, it is answered 503
    and closed; only probes get what they ask for, so a flood does not look like a dead process.
    """

    def __init__(self, *, timeouts: ServerSection, limits: LimitsSection, metrics: Metrics) -> None:
        self._timeouts = timeouts
        self._limits = limits
        self._max_connections = limits.max_connections
        self._metrics = metrics
        self._inside: dict[Connection, None] = {}
        self._doorstep: dict[Connection, None] = {}
        self._warned_at = -QUIET

    async def open(self, router: Router, listener: socket.socket) -> None:
        """Let clients in to the routes."""
        loop = asyncio.get_running_loop()
        self._server = web.Server(router.serve, request_factory=partial(web.Request, loop=loop, client_max_size=0))  # type: ignore[arg-type]  # of requests, the routes take this sort
        self._runner = web.ServerRunner(self._server, handle_signals=False, shutdown_timeout=HANG_UP_TIME)
        await self._runner.setup()
        self._listener = await loop.create_server(self._connect, sock=listener, backlog=BACKLOG)

    async def close(self) -> None:
        self._listener.close()
        await self._runner.cleanup()

    def _connect(self) -> Connection:
        return Connection(self._server, connections=self, timeouts=self._timeouts, limits=self._limits)

    def admit(self, newcomer: Connection) -> None:
        if len(self._inside) >= self._max_connections:
            self._warn()
            if not self._make_room():
                self._keep_out(newcomer)
                return
        self._inside[newcomer] = None
        self._note()

    def left(self, connection: Connection) -> None:
        self._inside.pop(connection, None)
        self._doorstep.pop(connection, None)
        self._note()

    def _note(self) -> None:
        self._metrics.connections.values = {(): len(self._inside) + len(self._doorstep)}

    async def reject(self, request: BaseRequest) -> AnyReply:
        """Answer a request for which there is no place."""
        if request.path in PROBES:
            reply: AnyReply = await self._server.request_handler(request)
        else:
            problem = TooManyConnections(
                f"{self._max_connections} connections are busy (max_connections); try again later"
            )
            request_id = make_request_id()
            reply = stamp(problem_reply(problem, request_id), request_id)
            self.note_refused(problem, request_id)
        reply.force_close()
        return reply

    def note_refused(self, problem: Problem, request_id: str) -> None:
        note_refused(self._metrics, problem, request_id)

    def _make_room(self) -> bool:
        """End an idle connection; those that were looked at go to the end, so all are looked at in turn."""
        for connection in list(islice(self._inside, LOOKS)):
            del self._inside[connection]
            if connection.is_idle:
                connection.abort()
                return True
            self._inside[connection] = None
        return False

    def _keep_out(self, newcomer: Connection) -> None:
        if len(self._doorstep) >= MAX_DOORSTEP:
            longest = next(iter(self._doorstep))
            del self._doorstep[longest]
            longest.abort()
        self._doorstep[newcomer] = None
        newcomer.reject()

    def _warn(self) -> None:
        tick = asyncio.get_running_loop().time()
        if tick - self._warned_at >= QUIET:
            self._warned_at = tick
            log.warning("connections_full", max_connections=self._max_connections)
