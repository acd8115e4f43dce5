"""The way out for calls: connections to addresses that may be called, or to the proxy that decides in our place."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final

from aiohttp import TCPConnector, ThreadedResolver
from yarl import URL

from app.handlers.addresses import Addresses, literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp.abc import ResolveResult

    from app.config import HttpSection

REMEDY: Final = "an operator can open its network with [http] allow_networks"


class BlockedAddressError(OSError):
    """What would be connected to is not public and not opened.

    An OSError: of others, the library that tries the addresses of a name loses track.
    """


class Egress:
    """Says what may be called, and makes the connector that calls nothing else.

    The connector checks the address of each socket before it connects, so it does not matter how a URL writes it, what
    a name meant when it was asked before, or who asks: a connection that is open was checked, and is used again only
    for the same host and port.
    """

    def __init__(self, *, config: HttpSection) -> None:
        self._config = config
        self._addresses = Addresses(opened=config.allow_networks)
        proxy = config.proxy.get_secret_value()
        self.proxy = URL(proxy) if proxy else None

    def connector(self) -> TCPConnector:
        config = self._config
        limits: dict[str, Any] = {"limit": config.max_connections, "limit_per_host": config.per_host}
        if self.proxy is not None:  # an address of its own, set by the operator; where it goes on to is not seen here
            return TCPConnector(**limits)
        return TCPConnector(**limits, resolver=_Resolver(self._addresses), socket_factory=self._open_socket)

    def find_faults(self, url: URL) -> Iterator[str]:
        """Say what is wrong with a host before anything is called."""
        host = url.raw_host or ""
        try:
            address = literal(host)
        except ValueError:
            yield f"has no possible host: {host}"
            return
        if address is None:
            if _is_localhost(host) and not self._addresses.has_loopback():
                yield f"{host} is this machine: {REMEDY}"
        elif not self._addresses.may_call(address):
            yield f"{address} is not public: {REMEDY}"
        elif isinstance(address, IPv4Address) and host != str(address):
            yield f"has an address that not everybody reads alike: write {host} as {address}"

    def _open_socket(self, found: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = found
        if not self._addresses.has(address[0]):
            raise BlockedAddressError(f"it is not public: {REMEDY}")
        return socket.socket(family=family, type=kind, proto=protocol)


_PUBLIC: Final = Addresses(opened=())


def may_show(peer: object) -> bool:
    """Whether what a socket names as its other end is public, so that what it says to strangers may be shown."""
    return isinstance(peer, tuple) and _PUBLIC.has(peer[0])


class _Resolver(ThreadedResolver):
    """Leaves out of what a name means the addresses that may not be called; fails when that is all."""

    def __init__(self, addresses: Addresses) -> None:
        super().__init__()
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await super().resolve(host, port, family)
        open_ones = [result for result in found if self._addresses.has(result["host"])]
        if found and not open_ones:
            raise BlockedAddressError(f"it has no public address: {REMEDY}")
        return open_ones


def _is_localhost(host: str) -> bool:
    name = host.removesuffix(".").lower()
    return name == "localhost" or name.endswith(".localhost")
