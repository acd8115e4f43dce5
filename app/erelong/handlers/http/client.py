"""Sends requests and reads responses over connections that aiohttp makes, pools and parses."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from aiohttp import (
    ClientConnectorError,
    ClientOSError,
    ClientRequest,
    ClientTimeout,
    ConnectionTimeoutError,
    ServerDisconnectedError,
)
from aiohttp.http import HttpProcessingError

from erelong.handlers.http.params import CONTROL
from erelong.version import VERSION

if TYPE_CHECKING:
    from asyncio import Transport
    from collections.abc import Mapping

    from aiohttp import StreamReader, TCPConnector
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage
    from multidict import CIMultiDictProxy
    from yarl import URL

MAX_URLS: Final = 1_000  # in the cache
MAX_HEADS: Final = 250  # in the cache, of up to 8 KB each
LARGE: Final = 65_536  # bytes of a body
NO_TIMEOUT: Final = 0.0  # of reading; a connection that has not been used yet has None
UNEXPECTED: Final = "it sent data that belongs to no request, such as a body after a 204 or 304"

_HEADERS: Final = {"User-Agent": f"erelong/{VERSION}", "Accept-Encoding": "identity"}
_LINES: Final = {name.lower(): f"{name}: {value}\r\n" for name, value in (_HEADERS | {"Accept": "*/*"}).items()}
_TYPELESS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS"})  # without a body, they have no Content-Type
_LENGTHLESS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_BODILESS: Final = frozenset({204, 304})
_IDEMPOTENT: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PUT"})


class Call(NamedTuple):
    """A request. `lines` holds the headers that the service sets; no header of a job has the name of one of these."""

    method: str
    url: URL
    headers: Mapping[str, str]
    lines: str
    content: tuple[bytes, str] | None


class Answer(NamedTuple):
    """A response, with the part of the body that was read."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    is_whole: bool
    transport: Transport

    @property
    def peer(self) -> object:
        """Return the address of the server, as the socket reports it."""
        return self.transport.get_extra_info("peername")


class _Target(NamedTuple):
    """A URL prepared for requests: for the connector, and as the text between the method and the headers."""

    request: ClientRequest
    opening: str


class HttpClient:
    """A lighter client session, without redirects, cookies and streams.

    aiohttp connects, pools connections and reads responses. This class writes each request in one piece, where aiohttp
    makes an object of each part and a task to send the body.
    """

    def __init__(
        self, *, connector: TCPConnector, proxy: URL | None, connect_timeout: float, max_response: int
    ) -> None:
        self._connector = connector
        self._proxy = proxy
        # The worker limits the whole call, and a wait for a free connection is not a failure to connect.
        self._timeout = ClientTimeout(total=None, sock_connect=connect_timeout)
        self._max_response = max_response
        # No cache with a proxy: the connector writes the proxy's credentials into the request.
        self._target_of = lru_cache(maxsize=MAX_URLS)(self._make_target) if proxy is None else self._make_target

    async def close(self) -> None:
        await self._connector.close()

    async def send(self, call: Call) -> Answer:
        """Send a request. Send an idempotent one again if its connection breaks before a response."""
        try:
            connection, transport, message, content = await self._exchange(call)
        except ClientConnectorError:
            raise
        except (ClientOSError, ServerDisconnectedError):  # such as a pooled connection that the server just closed
            if call.method not in _IDEMPOTENT:
                raise
            connection, transport, message, content = await self._exchange(call)
        try:
            body, is_whole = await self._read(content)
        finally:
            if _is_sent(call, transport) and not _may_send_more(call, message):
                connection.release()  # closes it if the response was not read to its end
            else:  # the next request would wait for the rest of this one, or take the rest of this response as its own
                _drop(connection)
        return Answer(message.code, message.headers, body, is_whole, transport)

    async def _exchange(self, call: Call) -> tuple[Connection, Transport, RawResponseMessage, StreamReader]:
        target = self._target_of(call.url)
        try:
            connection = await self._connector.connect(target.request, traces=[], timeout=self._timeout)
        except TimeoutError:
            raise ConnectionTimeoutError(f"no connection within {self._timeout.sock_connect:g} s") from None
        try:
            protocol, transport = connection.protocol, connection.transport
            if protocol is None or transport is None or protocol.should_close:  # such as after unexpected data
                raise ServerDisconnectedError
            is_reused = protocol.read_timeout is not None
            protocol.set_response_params(
                skip_payload=call.method == "HEAD", read_until_eof=True, auto_decompress=False, read_timeout=NO_TIMEOUT
            )
            transport.write(_request_bytes(call, target))
            message, content = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, content = await protocol.read()
        except BaseException as error:
            _drop(connection)
            if isinstance(error, HttpProcessingError) and is_reused:
                raise ClientOSError(UNEXPECTED) from None
            raise
        return connection, transport, message, content

    async def _read(self, content: StreamReader) -> tuple[bytes, bool]:
        """Read up to `max_response` bytes; return them and whether they are the whole body."""
        left, chunks = self._max_response, []
        if content.is_eof() and content.total_bytes <= left:  # a short body arrives with its headers
            return content.read_nowait(), True
        while left > 0 and not content.at_eof():
            chunk = await content.read(left)
            left -= len(chunk)
            chunks.append(chunk)
        return b"".join(chunks), content.at_eof()

    def _make_target(self, url: URL) -> _Target:
        proxy = self._proxy
        request = ClientRequest("GET", url, proxy=proxy, proxy_headers=None if proxy is None else _HEADERS)
        path = url.raw_path_qs if proxy is None or request.is_ssl() else str(request.url)
        return _Target(request, f" {path} HTTP/1.1\r\nHost: {url.host_port_subcomponent}\r\n")


def _is_sent(call: Call, transport: Transport) -> bool:
    """Whether the whole request was sent. TLS may hide an unsent part of a large one."""
    size = 0 if call.content is None else len(call.content[0])
    return transport.get_write_buffer_size() == 0 and (size <= LARGE or call.url.scheme == "http")


def _may_send_more(call: Call, message: RawResponseMessage) -> bool:
    """Whether a response that cannot have a body announces one: some servers send it nevertheless."""
    if call.method != "HEAD" and message.code not in _BODILESS:
        return False
    return "Transfer-Encoding" in message.headers or message.headers.get("Content-Length", "0") != "0"


def _drop(connection: Connection) -> None:
    """End a connection at once: a plain close would first send the rest of the request, and could block forever."""
    if connection.transport is not None and connection.transport.get_write_buffer_size():
        connection.transport.abort()
    connection.close()


def _request_bytes(call: Call, target: _Target) -> bytes:
    """Return the request for the wire."""
    body, content_type = call.content or (b"", None)
    lines, end = _header_lines(call.method, content_type, tuple(call.headers.items())), ""
    if content_type is not None or call.method not in _LENGTHLESS:
        end = f"Content-Length: {len(body)}\r\n"
    if (credentials := target.request.headers.get("Proxy-Authorization")) is not None:
        end += f"Proxy-Authorization: {credentials}\r\n"
    return f"{call.method}{target.opening}{lines}{call.lines}{end}\r\n".encode() + body


@lru_cache(maxsize=MAX_HEADS)  # hot: drain
def _header_lines(method: str, content_type: str | None, headers: tuple[tuple[str, str], ...]) -> str:
    """Return the lines that many requests share. If names of headers differ only in case, the last one wins."""
    fields = _LINES.copy()
    if content_type is not None:
        fields["content-type"] = f"Content-Type: {content_type}\r\n"
    elif method not in _TYPELESS:
        fields["content-type"] = "Content-Type: application/octet-stream\r\n"
    for name, value in headers:
        if CONTROL.search(value):
            raise ValueError(f"the header {name} has a line break or control character: remove it")
        fields[name.lower()] = f"{name}: {value}\r\n"
    return "".join(fields.values())
