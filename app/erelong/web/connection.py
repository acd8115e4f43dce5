"""One client connection: its timeouts and bounds, and problems for input that never becomes a request."""

from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from aiohttp.http import HttpVersion10, HttpVersion11, RawRequestMessage
from aiohttp.http_exceptions import ContentEncodingError, InvalidHeader, LineTooLong
from yarl import URL

from erelong.errors import BadHeader, BadRequest, HeaderTimeout, Internal, Problem, UnsupportedMediaType
from erelong.telemetry.log import get_logger
from erelong.web.body import ENCODINGS, UNREADABLE
from erelong.web.problems import CONTENT_TYPE, make_request_id, problem_body, problem_reply, stamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.web_request import BaseRequest

    from erelong.settings.sections import LimitsSection, ServerSection
    from erelong.web.response import Reply
    from erelong.web.server import Server

NOWHERE = URL("/")
VERSIONS = (HttpVersion10, HttpVersion11)
LEAST_RATE = 16_384  # bytes a second of a response that a slow client must read
MAX_HEADERS = 100  # header lines of a request
STALLED = 30.0  # seconds in which the reader of a stream must take something
STREAM_BUFFER = 65_536  # bytes of a stream that the kernel keeps for its reader
LINGER = 2.0  # seconds to go on reading a refused body, so that the response is not lost
HEAD_FACTOR = 4  # all headers of a request may take this many times `max_header`

log = get_logger(__name__)


class Connection(web.RequestHandler):
    """An aiohttp connection with the bounds that aiohttp lacks.

    * The head of a request must arrive within `header_timeout` of its first byte and `HEAD_FACTOR` times `max_header`.
      A head that arrives in one piece costs no timer.
    * The client must read a response at `LEAST_RATE`, otherwise the connection is cut. From a stream of events it need
      only take something every `STALLED` seconds.
    * A client that disconnects wakes the waits made for it.
    """

    __slots__ = (
        *("_connections", "_head_size", "_head_timer", "_is_stream", "_limits", "_make_request", "_timeouts"),
        *("_unread_timer", "_waiting"),
    )

    def __init__(
        self, server: web.Server, *, connections: Server, timeouts: ServerSection, limits: LimitsSection
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # aiohttp's own value for no access log
            keepalive_timeout=timeouts.idle_timeout,
            max_line_size=limits.max_header,
            max_field_size=limits.max_header,
            max_headers=MAX_HEADERS,
            lingering_time=LINGER,
        )
        self._make_request, self._request_factory = server.request_factory, self._read_target
        self._connections = connections
        self._timeouts = timeouts
        self._limits = limits
        self._head_size = 0
        self._is_stream = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Event] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.set_write_buffer_limits(
            high=0
        )  # so a write waits until every byte is sent, and each unsent byte is noticed
        self._connections.admit(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.left(self)
        self._end_head()
        self._end_unread()
        super().connection_lost(exc)
        for event in self._waiting:
            event.set()

    def reject(self) -> None:
        """Answer the only request of this connection with `Server.reject`."""
        self._request_handler = self._connections.reject  # type: ignore[assignment]  # as in `handle_error`

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether the connection is between two requests."""
        return self._waiter is not None and not self._waiter.done()

    # waiting clients

    @property
    def is_gone(self) -> bool:
        return self.transport is None

    @contextmanager
    def wakes(self, event: asyncio.Event) -> Iterator[None]:
        """Set the event when the client leaves."""
        self._waiting.add(event)
        try:
            yield
        finally:
            self._waiting.discard(event)

    # heads

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Skip aiohttp's empty parser run in the usual case that nothing was paused."""
        if self._reading_paused:
            super().resume_reading(resume_parser)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._messages or self._waiter is None:
            if self._head_timer is not None:
                self._end_head()
        elif data:
            self._begin_head(len(data))

    def _begin_head(self, size: int) -> None:
        """Start the timer of an incomplete head, and bound its size."""
        self._head_size += size
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._timeouts.header_timeout, self._give_up_head)
        if self._head_size > HEAD_FACTOR * self._limits.max_header:
            limit = HEAD_FACTOR * self._limits.max_header
            self._refuse(BadHeader(f"the headers are longer than {limit} bytes; send fewer, or shorter ones"))

    def _end_head(self) -> None:
        self._head_size = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up_head(self) -> None:
        limit = self._timeouts.header_timeout
        self._refuse(HeaderTimeout(f"the headers were not complete within {limit:g} s; send them in one piece"))

    def _refuse(self, problem: Problem) -> None:
        """Answer input that is not yet a request, and close the connection."""
        self._end_head()
        if self.transport is None or not self.is_idle:
            return
        request_id = make_request_id()
        body = orjson.dumps(problem_body(problem, request_id))
        also = "".join(f"{name}: {value}\r\n" for name, value in self._connections.also.items())
        head = (
            f"HTTP/1.1 {problem.status} {problem.title}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nX-Request-Id: {request_id}\r\nServer: erelong\r\n"
            f"Connection: close\r\n{also}\r\n"
        )
        self.transport.write(head.encode() + body)
        self._connections.note_refused(problem, request_id)
        self.force_close()

    # slow readers

    def begin_stream(self) -> None:
        """Keep little for the client of a stream of events, who may read slowly. The connection serves nothing else."""
        self._is_stream = True
        if self.transport is not None:
            connected = self.transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        self._end_unread()
        super().resume_writing()

    def _watch_unread(self) -> None:
        assert self.transport is not None
        seconds = STALLED if self._is_stream else self._timeouts.body_timeout
        read = 1 if self._is_stream else round(LEAST_RATE * seconds)
        unread = self.transport.get_write_buffer_size()
        self._unread_timer = self._loop.call_later(seconds, self._judge_reader, unread - read)

    def _judge_reader(self, most: int) -> None:
        if self.transport is None:
            return
        if self.transport.get_write_buffer_size() > max(most, 0):
            log.debug(
                "slow_client_disconnected", client=str(self.peername), unread=self.transport.get_write_buffer_size()
            )
            self.abort()
        else:
            self._watch_unread()

    def _end_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    # errors found by aiohttp

    def _read_target(self, message: RawRequestMessage, *rest: Any) -> BaseRequest:
        """Make the request. aiohttp would fail on a `CONNECT` without a target, and would repeat an unknown HTTP
        version in the response.
        """
        target: URL | None = message.url  # aiohttp's annotation leaves out None
        if target is None:
            message = message._replace(url=NOWHERE)
        if message.version not in VERSIONS:
            message = message._replace(version=HttpVersion11, should_close=True)
        return self._make_request(message, *rest)

    def handle_error(  # type: ignore[override]  # aiohttp needs only the methods that Reply has
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> Reply:
        """Return a problem for input that aiohttp could not parse. Any other error here is a bug in erelong."""
        if request.writer.output_size > 0:
            raise ConnectionError("the response has already begun")
        if isinstance(exc, UnicodeEncodeError):  # aiohttp repeats an Expect that is not text
            return self._problem_reply(BadHeader("Expect is not text; send 100-continue, or leave the header out"))
        if status != 400:
            log.error("connection_failed", exc_info=exc or False, status=status)
            return self._problem_reply(Internal("an internal error occurred; the log has the details"))
        return self._problem_reply(_refusal(exc, message or ""))

    def _problem_reply(self, problem: Problem) -> Reply:
        request_id = make_request_id()
        reply = stamp(problem_reply(problem, request_id), request_id)
        reply.headers |= self._connections.also
        reply.force_close()
        self._connections.note_refused(problem, request_id)
        return reply

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log why a connection ended. A body that cannot be decompressed after the response is the client's fault."""
        error = kw.get("exc_info")
        if isinstance(error, UNREADABLE):
            log.debug("connection_ended", reason=repr(error))
        else:
            log.error("connection_failed", exc_info=error or True)


def client_of(request: BaseRequest) -> Connection:
    """Return the connection of a request."""
    connection = request.protocol
    assert isinstance(connection, Connection)
    return connection


def _refusal(error: BaseException | None, message: str) -> Problem:
    first = message.strip().partition("\n")[0].rstrip(":")
    if isinstance(error, LineTooLong):
        return BadHeader(f"a header or the request line is longer than {error.args[1]} bytes; shorten it")
    if isinstance(error, InvalidHeader):
        return BadHeader(f"the header {error.hdr!r} is not valid")
    if isinstance(error, ContentEncodingError):
        return UnsupportedMediaType(ENCODINGS)
    return BadRequest(f"not an HTTP/1.1 request: {first}")
