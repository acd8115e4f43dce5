"""Sends requests on http.client, over connections that are kept and shared by threads."""

from __future__ import annotations

import http.client
import io
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from erelong.client.errors import refused
from erelong.client.requests import Answer, Cut, tls_cut
from erelong.client.retries import retry_after

if TYPE_CHECKING:
    from erelong.client.requests import Request

MAX_IDLE: Final = 32  # connections that are kept


class Transport:
    """Connections to one service. A process that was forked makes its own."""

    def __init__(self, *, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        self._url = url
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._base = parts.path
        self._is_secure = parts.scheme == "https"
        self._headers = headers
        self._tls: ssl.SSLContext | None = None
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._is_closed = False
        self._pid = os.getpid()

    def send(self, request: Request, timeout: float) -> Answer:
        """Return the whole answer; raise Cut if it does not arrive in time."""
        deadline = time.monotonic() + timeout
        connection = self._take(deadline)
        is_whole = False
        try:
            response = self._start(connection, request)
            is_open_ended = response.length is None and not response.chunked
            body = response.read()
            if is_open_ended and not body:  # headers that were cut off look like this to http.client
                raise http.client.IncompleteRead(b"")
            is_whole = not response.will_close
        except TimeoutError:
            raise Cut(f"nothing within {timeout:.3g} s", is_sent=True) from None
        except (OSError, http.client.HTTPException) as error:
            raise Cut(f"the connection broke: {str(error) or type(error).__name__}", is_sent=True) from error
        finally:
            if is_whole:
                self._give_back(connection)
            else:
                connection.close()  # also closes the response
        return Answer(response.status, _headers(response), body)

    @contextmanager
    def stream(self, request: Request, silence: float) -> Iterator[Iterator[bytes]]:
        """Open an endless answer and give its lines; raise Cut if none arrives within `silence` seconds."""
        connection = self._take(time.monotonic() + silence)
        try:
            sock: Any = connection.sock
            response = self._start(connection, request)
            if response.status >= 300:
                answer = Answer(response.status, _headers(response), response.read())
                raise refused(answer.status, answer.body, retry_after(answer))
            yield self._lines(sock, response, silence)
        except (OSError, http.client.HTTPException) as error:
            raise Cut(f"the stream broke: {error}", is_sent=True) from error
        finally:
            connection.close()

    def _lines(self, sock: _TimedSocket, response: http.client.HTTPResponse, silence: float) -> Iterator[bytes]:
        while True:
            sock.deadline = time.monotonic() + silence
            line = response.readline()
            if not line:
                return
            yield line

    def tick(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for connection in idle:
            connection.close()

    def _start(self, connection: http.client.HTTPConnection, request: Request) -> http.client.HTTPResponse:
        headers = {**self._headers, **request.headers}
        # The service may have answered before it had read everything, as with 413.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(request.method, self._base + request.path, request.body, headers)
        return connection.getresponse()

    def _take(self, deadline: float) -> http.client.HTTPConnection:
        if os.getpid() != self._pid:  # sockets of the parent must not be shared with it
            self._pid, self._idle, self._lock = os.getpid(), [], threading.Lock()
        if self._is_closed:
            raise RuntimeError("the client is closed: make another one")
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect(deadline)
            if not _is_stale(connection):
                sock: Any = connection.sock
                sock.deadline = deadline
                return connection
            connection.close()

    def _connect(self, deadline: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port)
        try:
            sock = self._open(deadline)
        except ssl.SSLCertVerificationError as error:
            raise Cut(f"{self._url} is not trusted: {error.verify_message}", is_sent=False, is_lasting=True) from error
        except ssl.SSLError as error:
            raise tls_cut(self._url, error) from error
        except OSError as error:
            raise Cut(f"no connection to {self._url}: {error.strerror or error}", is_sent=False) from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        timed: Any = _TimedSocket(sock, deadline)
        connection.sock = timed
        return connection

    def _open(self, deadline: float) -> socket.socket:
        """Return a socket that is connected to the first address that answers. Each gets a share of the time left."""
        addresses = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        for place, (family, kind, protocol, _, address) in enumerate(addresses, start=1):
            sock = socket.socket(family, kind, protocol)
            try:
                sock.settimeout(max((deadline - time.monotonic()) / (len(addresses) - place + 1), 0.001))
                sock.connect(address)
                return self._secured(sock)
            except OSError:
                sock.close()
                if place == len(addresses):
                    raise
        raise OSError("it has no address")

    def _secured(self, sock: socket.socket) -> socket.socket:
        if not self._is_secure:
            return sock
        self._tls = self._tls or ssl.create_default_context()
        return self._tls.wrap_socket(sock, server_hostname=self._host)

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < MAX_IDLE and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()


class _TimedSocket:
    """A socket with one deadline for everything, so that a service that sends a byte now and then cannot outlast it."""

    def __init__(self, sock: Any, deadline: float) -> None:
        self._sock = sock
        self._users = 1
        self.deadline = deadline

    def sendall(self, data: Any) -> None:
        self._sock.settimeout(self._left())
        self._sock.sendall(data)

    def makefile(self, mode: str, buffering: int | None = None) -> io.BufferedReader:
        self._users += 1
        return io.BufferedReader(_TimedReader(self), 65_536)

    def receive_into(self, buffer: Any) -> int:
        self._sock.settimeout(self._left())
        received: int = self._sock.recv_into(buffer)
        return received

    def _left(self) -> float:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def fileno(self) -> int:
        number: int = self._sock.fileno()
        return number

    def close(self) -> None:
        """Close the socket, once the connection and its response are done with it."""
        self._users -= 1
        if not self._users:
            with suppress(OSError):
                self._sock.close()


class _TimedReader(io.RawIOBase):
    """Reads from a timed socket."""

    def __init__(self, sock: _TimedSocket) -> None:
        super().__init__()
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.receive_into(buffer)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._sock.close()


def _is_stale(connection: http.client.HTTPConnection) -> bool:
    """Return whether the service has closed an idle connection, which then is readable."""
    if connection.sock is None:
        return True
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([connection.sock], [], [], 0)[0])
    poll = select.poll()  # select() takes no descriptor from 1,024 on, which a program with many files has
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.getheaders()}
