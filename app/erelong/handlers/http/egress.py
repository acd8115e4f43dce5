"""Outgoing connections: to permitted addresses only, or to a proxy that decides instead."""

from __future__ import annotations

import asyncio
import errno
import socket
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Any, Final

from aiohttp import TCPConnector
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from erelong.handlers.http.ip_policy import Addresses, literal
from erelong.handlers.python.threads import ThreadPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from erelong.settings.sections import WebhooksSection

MAX_LOOKUPS: Final = 100  # concurrent DNS lookups
REMEDY: Final = "an operator can open its network with [webhooks] allow_networks"


class BlockedAddressError(OSError):
    """The address is neither public nor opened by the settings.

    An OSError, since aiohttp tries the next address of a name only after an OSError.
    """


class Egress:
    """Decides which hosts may be called, and makes the connector that enforces it.

    The connector checks the address of each socket before it connects. The notation of the URL and earlier answers of
    the resolver therefore do not matter. Pooled connections were checked, and serve the same host and port only.
    """

    def __init__(self, *, config: WebhooksSection) -> None:
        self._config = config
        self._addresses = Addresses(opened=config.allow_networks)
        proxy = config.proxy.get_secret_value()
        self.proxy = URL(proxy) if proxy else None
        self._resolver: _Resolver | None = None
        self._fault_of = lru_cache(maxsize=1_000)(self._find_fault)  # most jobs share a few hosts

    def connector(self) -> TCPConnector:
        config = self._config
        limits: dict[str, Any] = {"limit": config.max_connections, "limit_per_host": config.per_host}
        if self.proxy is not None:  # set by the operator; the proxy checks the addresses behind it
            return TCPConnector(**limits)
        self._resolver = _Resolver(self._addresses, patience=config.connect_timeout)
        return TCPConnector(**limits, resolver=self._resolver, socket_factory=self._open_socket)

    async def close(self) -> None:
        """Close the resolver; call it after the connector is closed."""
        if self._resolver is not None:
            await self._resolver.close()

    def find_fault(self, url: URL) -> str | None:
        """Return the reason why a host may not be called, without a connection; None if there is none."""
        return self._fault_of(url.raw_host or "")

    def _find_fault(self, host: str) -> str | None:
        try:
            address = literal(host)
        except ValueError:
            return f"has an invalid host: {host}"
        if address is None:
            is_closed = _is_localhost(host) and not self._addresses.has_loopback()
            return f"{host} is this machine: {REMEDY}" if is_closed else None
        if not self._addresses.may_call(address):
            return f"{address} is not public: {REMEDY}"
        if isinstance(address, IPv4Address) and host != str(address):
            return f"has an ambiguous address: write {host} as {address}"
        return None

    def _open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol, _, address = info
        if not self._addresses.has(address[0]):
            raise BlockedAddressError(f"it is not public: {REMEDY}")
        return socket.socket(family=family, type=kind, proto=protocol)


_NUMERIC: Final = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
_PUBLIC: Final = Addresses(opened=())


def may_show(peer: object) -> bool:
    """Whether a peer is public, so that its response holds nothing private and may be shown."""
    return isinstance(peer, tuple) and _PUBLIC.has(peer[0])


class _Resolver(AbstractResolver):
    """Resolves names by the system's resolver, and drops addresses that may not be called.

    It has its own threads, since names whose servers never answer would soon occupy the few threads of the loop and
    block all other calls. The threads are daemons, so that no lookup delays the end of the service.
    """

    def __init__(self, addresses: Addresses, *, patience: float) -> None:
        self._addresses = addresses
        self._patience = patience
        self._threads = ThreadPool(name="names")
        self._free = asyncio.Semaphore(MAX_LOOKUPS)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        lookup = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        async with self._slot():
            infos = await self._threads.run(lookup)
        results = [
            ResolveResult(hostname=host, host=str(address[0]), port=port, family=family, proto=protocol, flags=_NUMERIC)
            for family, _, protocol, _, address in infos
            if self._addresses.has(str(address[0]))
        ]
        if not results:
            raise BlockedAddressError(f"it has no public address: {REMEDY}")
        return results

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Hold one of the lookup slots. The wait has a limit, since aiohttp goes on with it after the attempt ends."""
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise OSError(errno.EAGAIN, f"{MAX_LOOKUPS} other DNS lookups are waiting for an answer") from None
        try:
            yield
        finally:
            self._free.release()

    async def close(self) -> None:
        self._threads.close()


def _is_localhost(host: str) -> bool:
    name = host.removesuffix(".").lower()
    return name == "localhost" or name.endswith(".localhost")
