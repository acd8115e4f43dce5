"""A proxy before a PostgreSQL server that loses, holds and cuts what one kind of session sends or receives."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

CHUNK = 1 << 16
SOCKET_NAME = ".s.PGSQL.5432"


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self.client = client
        self.server = server
        self.role = ""
        self.is_passing_requests = threading.Event()
        self.is_passing_requests.set()
        self.is_passing_responses = threading.Event()
        self.is_passing_responses.set()
        self.loses_responses = False

    def pump_requests(self) -> None:
        while data := _receive(self.client):
            if not self.role and b"erelong/0/" in data:
                self.role = data.partition(b"erelong/0/")[2].partition(b"\0")[0].decode()
            self.is_passing_requests.wait()
            time.sleep(len(data) / self._proxy.bytes_per_second)
            with suppress(OSError):
                self.server.sendall(data)
        with suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)

    def pump_responses(self) -> None:
        while data := _receive(self.server):
            self.is_passing_responses.wait()
            if not self.loses_responses:
                with suppress(OSError):
                    self.client.sendall(data)
        with suppress(OSError):
            self.client.shutdown(socket.SHUT_RDWR)


class Proxy:
    """Listens on a Unix socket in `home`. Faults apply to the links that a role has at that moment."""

    def __init__(self, *, home: Path, server: Path) -> None:
        self.home = home
        self._server = server / SOCKET_NAME
        self._links: list[Link] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(home / SOCKET_NAME))
        self._listener.listen()
        self.is_refusing = False
        self.bytes_per_second = math.inf  # of each link, to the server
        self._is_passing = {"requests": True, "responses": True}
        self._run(self._accept)

    @property
    def url(self) -> str:
        return f"postgresql://erelong@/postgres?host={self.home}"

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for link in self._links:
            link.is_passing_requests.set()
            link.is_passing_responses.set()
            _cut(link)
        for thread in self._threads:
            thread.join()
        self._listener.close()
        for link in self._links:
            link.client.close()
            link.server.close()

    def lose_responses(self, role: str) -> None:
        """Let requests pass and lose what the server answers."""
        for link in self._of(role):
            link.loses_responses = True

    def hold_requests(self, role: str) -> list[Link]:
        """Keep requests until they are released, as a network or a frozen server does; return the links."""
        links = self._of(role)
        for link in links:
            link.is_passing_requests.clear()
        return links

    def isolate(self, *, requests: bool = True, responses: bool = True) -> None:
        """Hold everything in these directions, also of new links, as a broken network does."""
        self._is_passing = {"requests": not requests, "responses": not responses}
        for link in self._links:
            self._hold(link)

    def heal(self) -> None:
        """Let everything pass again, beginning with the bytes that were held."""
        self._is_passing = {"requests": True, "responses": True}
        for link in self._links:
            link.is_passing_requests.set()
            link.is_passing_responses.set()

    def cut(self, role: str) -> None:
        for link in self._of(role):
            _cut(link)

    def _of(self, role: str) -> list[Link]:
        return [link for link in self._links if link.role == role]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                if self.is_refusing:
                    raise OSError("refused")
                server.connect(str(self._server))
            except OSError:
                client.close()
                server.close()
                continue
            link = Link(self, client, server)
            self._hold(link)
            self._links.append(link)
            self._run(link.pump_requests)
            self._run(link.pump_responses)

    def _hold(self, link: Link) -> None:
        if not self._is_passing["requests"]:
            link.is_passing_requests.clear()
        if not self._is_passing["responses"]:
            link.is_passing_responses.clear()

    def _run(self, work: Callable[[], None]) -> None:
        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()


def _receive(source: socket.socket) -> bytes:
    try:
        return source.recv(CHUNK)
    except OSError:
        return b""


def _cut(link: Link) -> None:
    for end in (link.client, link.server):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
