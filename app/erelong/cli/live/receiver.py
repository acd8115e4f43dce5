"""An HTTP server that takes any request, answers it as planned, and hands it over to be shown."""

from __future__ import annotations

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from erelong.cli.live.answers import Answers

MAX_BODY: Final = 16 << 20
PATIENCE: Final = 30.0  # seconds for a client to send its request


class Received(NamedTuple):
    """A request, and the status of its answer. Names of headers are in lower case."""

    at: float
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    status: int


class Receiver(ThreadingHTTPServer):
    """Serves in threads from `with` on; `received` has the requests in the order of their answers."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *, host: str, port: int, answers: Answers, delay: float) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.received: SimpleQueue[Received] = SimpleQueue()
        self.answers = answers
        self.delay = delay
        super().__init__((host, port), _Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that break off."""


class _Handler(BaseHTTPRequestHandler):
    """Reads one request after another of a connection."""

    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    server: Receiver

    def _take(self) -> None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdigit() or int(length) > MAX_BODY:
            self.close_connection = True
            self._finish(411 if "Transfer-Encoding" in self.headers else 413, b"")
            return
        body = self.rfile.read(int(length))
        if self.server.delay:
            time.sleep(self.server.delay)
        self._finish(self.server.answers.next_for(self.headers.get("webhook-id", "")), body)

    def _finish(self, status: int, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(time.time(), self.command, self.path, headers, body, status)
        try:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
        finally:
            self.server.received.put(received)  # after the answer, since the program may end with it

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _take  # noqa: N815 - names of the library

    def log_message(self, *_: object) -> None:
        """Leave it to the command to print."""
