"""The way out for calls: connections to addresses that may be called, or to the proxy that decides in our place."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from erelong.handlers.http.ip_policy import Addresses, literal
from erelong.handlers.python.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from erelong.settings.sections import WebhooksSection

MAX_LOOKUPS: Final = 100  # names asked for at once
REMEDY: Final = "an operator can open its network with [webhooks] allow_networks"


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

    def __init__(self, *, config: WebhooksSection) -> None:
        self._config = config
        self._addresses = Addresses(opened=config.allow_networks)
        proxy = config.proxy.get_secret_value()
        self.proxy = URL(proxy) if proxy else None
        self._resolver: _Resolver | None = None

    def connector(self) -> TCPConnector:
        config = self._config
        limits: dict[str, Any] = {"limit": config.max_connections, "limit_per_host": config.per_host}
        if self.proxy is not None:  # an address of its own, set by the operator; where it goes on to is not seen here
            return TCPConnector(**limits)
        self._resolver = _Resolver(self._addresses, patience=config.connect_timeout)
        return TCPConnector(**limits, resolver=self._resolver, socket_factory=self._open_socket)

    async def close(self) -> None:
        """After the connector was closed."""
        if self._resolver is not None:
            await self._resolver.close()

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


_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_PUBLIC: Final = Addresses(opened=())


def may_show(peer: object) -> bool:
    """Whether what a socket names as its other end is public, so that what it says to strangers may be shown."""
    return isinstance(peer, tuple) and _PUBLIC.has(peer[0])


class _Resolver(AbstractResolver):
    """Asks the system what names mean, and leaves out what may not be called; fails when that is all.

    In threads of its own: names whose servers never answer would soon hold the few that the loop has, and with them the
    calls of everybody. They are daemons, so that no name holds up the end of the service either.
    """

    def __init__(self, addresses: Addresses, *, patience: float) -> None:
        self._addresses = addresses
        self._patience = patience
        self._threads = ThreadPool(name="names")
        self._free = asyncio.Semaphore(MAX_LOOKUPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        ask = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        async with self._turn():
            found = await self._threads.run(ask)
        results = [
            ResolveResult(hostname=host, host=str(address[0]), port=port, family=family, proto=protocol, flags=_NUMERIC)
            for family, _, protocol, _, address in found
            if self._addresses.has(str(address[0]))
        ]
        if not results:
            raise BlockedAddressError(f"it has no public address: {REMEDY}")
        return results

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Wait for one of the lookups to end, but not for ever: who asks stays here even when its attempt is over."""
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise OSError(errno.EAGAIN, f"{MAX_LOOKUPS} other names are being asked for, and no answers come") from None
        try:
            yield
        finally:
            self._free.release()

    async def close(self) -> None:
        self._threads.close()


def _is_localhost(host: str) -> bool:
    name = host.removesuffix(".").lower()
    return name == "localhost" or name.endswith(".localhost")
