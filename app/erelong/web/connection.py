"""One client's connection: what it may keep us waiting for, and problems for what never becomes a request."""

from __future__ import annotations

import asyncio
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
LEAST_RATE = 16_384  # bytes a second that a client must read of an answer, if it is slow
MAX_HEADERS = 100  # lines of a request
LINGER = 2.0  # seconds in which what still comes of a refused body is read, so that the answer is not lost
HEADS = 4  # times `max_header` is what all headers of a request may take

log = get_logger(__name__)


class Connection(web.RequestHandler):
    """What the library reads and answers, bounded where it knows no bounds.

    * The head of a request is there `header_timeout` after its first byte, and is no longer than four of the longest
      headers. A head that comes in one piece, as nearly all do, costs no timer.
    * An answer is read at `LEAST_RATE`, or the connection is cut; the next request waits for it.
    * Whoever leaves wakes what waits on its behalf.
    """

    __slots__ = (
        *("_connections", "_head_size", "_head_timer", "_limits", "_make_request", "_timeouts"),
        *("_unread_timer", "_waiting"),
    )

    def __init__(
        self, server: web.Server, *, connections: Server, timeouts: ServerSection, limits: LimitsSection
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # the library takes it so itself, to log nothing
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
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Event] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.set_write_buffer_limits(high=0)  # so answers wait for, and we hear of, every byte not taken
        self._connections.admit(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.left(self)
        self._end_head()
        self._end_unread()
        super().connection_lost(exc)
        for event in self._waiting:
            event.set()

    def reject(self) -> None:
        """Answer the one request that is taken as `Server` answers those who are too many."""
        self._request_handler = self._connections.reject  # type: ignore[assignment]  # as in `handle_error`

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether it is between two requests."""
        return self._waiter is not None and not self._waiter.done()

    # whoever waits for an answer

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
        """Nearly always nothing has been paused; the library would have its parser look at nothing each time."""
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
        """Only a part of a head is here."""
        self._head_size += size
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._timeouts.header_timeout, self._give_up_head)
        if self._head_size > HEADS * self._limits.max_header:
            limit = HEADS * self._limits.max_header
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
        """Answer what is no request yet, and end the connection."""
        self._end_head()
        if self.transport is None or not self.is_idle:
            return
        request_id = make_request_id()
        body = orjson.dumps(problem_body(problem, request_id))
        head = (
            f"HTTP/1.1 {problem.status} {problem.title}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(body)}\r\nX-Request-Id: {request_id}\r\nServer: erelong\r\nConnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self._connections.note_refused(problem, request_id)
        self.force_close()

    # answers that are not read

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_unread()

    def resume_writing(self) -> None:
        self._end_unread()
        super().resume_writing()

    def _watch_unread(self) -> None:
        assert self.transport is not None
        unread, seconds = self.transport.get_write_buffer_size(), self._timeouts.body_timeout
        self._unread_timer = self._loop.call_later(seconds, self._judge_reader, unread - round(LEAST_RATE * seconds))

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

    # what the library answers by itself

    def _read_target(self, message: RawRequestMessage, *rest: Any) -> BaseRequest:
        """Make the request; `CONNECT` may come without a target, on which the library would trip, and a version that
        nobody speaks here would be repeated in the answer.
        """
        target: URL | None = message.url  # whatever the library says of it
        if target is None:
            message = message._replace(url=NOWHERE)
        if message.version not in VERSIONS:
            message = message._replace(version=HttpVersion11, should_close=True)
        return self._make_request(message, *rest)

    def handle_error(  # type: ignore[override]  # of an answer the library asks no more than ours can do
        self, request: BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> Reply:
        """Say in our words what the library could not read; anything else that comes here is a fault of ours."""
        if request.writer.output_size > 0:
            raise ConnectionError("the answer has begun already")
        if isinstance(exc, UnicodeEncodeError):  # the library repeats an Expect that is no text
            return self._problem_reply(BadHeader("Expect: this is not text; send 100-continue, or leave it out"))
        if status != 400:
            log.error("connection_failed", exc_info=exc or False, status=status)
            return self._problem_reply(Internal("something failed; the log has more"))
        return self._problem_reply(_refusal(exc, message or ""))

    def _problem_reply(self, problem: Problem) -> Reply:
        request_id = make_request_id()
        reply = stamp(problem_reply(problem, request_id), request_id)
        reply.force_close()
        self._connections.note_refused(problem, request_id)
        return reply

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """What ends a connection; a body that cannot be unpacked, found after the answer, is not our fault."""
        error = kw.get("exc_info")
        if isinstance(error, UNREADABLE):
            log.debug("connection_ended", reason=repr(error))
        else:
            log.error("connection_failed", exc_info=error or True)


def client_of(request: BaseRequest) -> Connection:
    """The connection that a request came by."""
    connection = request.protocol
    assert isinstance(connection, Connection)
    return connection


def _refusal(error: BaseException | None, message: str) -> Problem:
    first = message.strip().partition("\n")[0].rstrip(":")
    if isinstance(error, LineTooLong):
        return BadHeader(f"a header, or the request line, is too long: {first}")
    if isinstance(error, InvalidHeader):
        return BadHeader(f"a header cannot be read: {first}")
    if isinstance(error, ContentEncodingError):
        return UnsupportedMediaType(ENCODINGS)
    return BadRequest(f"this is not a request of HTTP/1.1: {first}")
