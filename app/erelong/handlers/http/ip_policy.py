"""Which addresses may be called: public addresses, and networks that the settings open."""

from __future__ import annotations

import re
import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from erelong.settings.types import Network

Address: TypeAlias = IPv4Address | IPv6Address

# From the IANA registries, not `is_global`, which differs between versions of Python and permits multicast, relays and
# the metadata addresses of clouds.
_SPECIAL_V4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers; the metadata of Alibaba Cloud
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # the host agent of Azure
        "169.254.0.0/16",  # link-local; the metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocols; the metadata of Oracle Cloud
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays to IPv6
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_UNICAST_V6: Final = IPv6Network("2000::/3")
_SPECIAL_V6: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocols, Teredo, benchmarks
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4
        "3fff::/20",  # documentation
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")
_COMPATIBLE: Final = IPv6Network("::/96")
_UNSPECIFIED, _LOOPBACK = IPv6Address("::"), IPv6Address("::1")
_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)  # the upper half of the interface identifier

# A host that ends in a number is an address or invalid; libc reads 127.1, 0x7f.1 and 2130706433 as 127.0.0.1.
_NUMBER_AT_THE_END: Final = re.compile(r"(.*\.)?([0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE | re.DOTALL)


def literal(host: str) -> Address | None:
    """Return the address that a host of a URL is, in any notation; None for a name.

    Raise ValueError for a host that is neither.
    """
    if ":" in host:
        return IPv6Address(host.replace("%25", "%"))
    if not _NUMBER_AT_THE_END.fullmatch(host):
        return None
    try:
        return IPv4Address(socket.inet_aton(host.removesuffix(".")))
    except OSError:
        raise ValueError(f"{host!r} is not an IPv4 address") from None


class Addresses:
    """The set of addresses that may be called."""

    def __init__(self, *, opened: Sequence[Network]) -> None:
        self._opened = tuple(opened)

    def has(self, text: str) -> bool:
        """Whether an address from the resolver or a socket may be called; False for any other text."""
        try:
            return self.may_call(ip_address(text))
        except ValueError:
            return False

    def may_call(self, address: Address) -> bool:
        if isinstance(address, IPv6Address) and address.scope_id is not None:  # link-local, so never public
            return False
        return all(_is_public(target) or _is_within(target, self._opened) for target in _targets(address))

    def has_loopback(self) -> bool:
        return any(_is_within(address, self._opened) for address in (IPv4Address("127.0.0.1"), _LOOPBACK))


def _targets(address: Address) -> Iterator[Address]:
    """Yield the addresses that a packet may reach: this one, and embedded IPv4 addresses that a translator extracts."""
    if isinstance(address, IPv4Address):
        yield address
        return
    lowest = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.ipv4_mapped is not None or address in _NAT64:
        yield lowest
        return
    yield address
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    has_lowest = int(address) >> 32 & 0xFFFF_FFFF in _ISATAP or address in _COMPATIBLE or address in _LOCAL_NAT64
    if has_lowest and address not in (_UNSPECIFIED, _LOOPBACK):
        yield lowest


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not _is_within(address, _SPECIAL_V4)
    return address in _UNICAST_V6 and not _is_within(address, _SPECIAL_V6)


def _is_within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)
