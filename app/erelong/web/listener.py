"""The listening socket, and the check that it is not open to others by accident."""

from __future__ import annotations

import errno
import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING

from erelong.errors import Exit
from erelong.settings.section import ConfigError

if TYPE_CHECKING:
    from erelong.settings.sections import Config

SEND_BUFFER = 131_072  # bytes of responses that the kernel buffers for a slow client; by default up to 4 MiB


def refuse_open_listener(config: Config) -> None:
    """Raise `ConfigError` for a service without keys that listens beyond this machine without `allow_anonymous`."""
    host, auth = config.server.host, config.auth
    if not (is_loopback(host) or auth.keys or auth.allow_anonymous):
        raise ConfigError(
            [
                f"server.host = {host!r} is open to others and there are no keys: make one (`erelong new-key`), "
                "or listen on 127.0.0.1, or set [auth] allow_anonymous = true (ERELONG_AUTH__ALLOW_ANONYMOUS=true) "
                "if only trusted clients can reach it"
            ]
        )


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or localhost. Other names may resolve differently tomorrow."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Bind the address. No client can connect before the server listens."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        remedy = "choose another port with --port"
        if error.errno == errno.EADDRINUSE:
            remedy = f"wait if the service that uses it is draining, or {remedy}"
        raise Exit(f"cannot listen on {host} port {port}: {error.strerror}; {remedy}") from error
    return listener
