"""Permitted addresses in every notation, and the addresses in hosts of URLs."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from erelong.handlers.http.ip_policy import Addresses, literal

FORBIDDEN = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1",
    "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.7", "224.0.0.1",
    "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::2", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::8.8.8.8", "64:ff9b:1::127.0.0.1", "100::1", "2001::1",
    "2001:0:808:808::8.8.8.8", "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::",
    "2002:808:808::1", "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "2606:4700::1%eth0",
    "fec0::1", "ff02::1", "ff0e::1", "4000::1", "2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "128.0.0.0", "168.63.129.15",
    "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "198.17.255.255", "198.20.0.0", "223.255.255.255",
    "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2606:4700:4700::1111", "2a00:1450::1", "2001:4860:4860::8888",
    "2606:4700::5efe:8.8.8.8",
]  # fmt: skip

NONE = Addresses(opened=())


@pytest.mark.parametrize("address", FORBIDDEN)
def test_address_that_is_not_public_may_not_be_called(address: str) -> None:
    assert not NONE.has(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_address_may_be_called(address: str) -> None:
    assert NONE.has(address)


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.1", "0x7f.0.0.1", "2130706433", "8.8.8.8 ", "[::1]", "8.8.8.8:80"]
)
def test_text_that_is_not_an_address_may_not_be_called(text: str) -> None:
    assert not NONE.has(text)


@given(st.ip_addresses())
def test_addresses_that_python_calls_private_may_not_be_called(address: IPv4Address | IPv6Address) -> None:
    if NONE.may_call(address) and address not in ip_network("64:ff9b::/96") and not _mapped(address):
        assert address.is_global
        assert not address.is_multicast


def _mapped(address: IPv4Address | IPv6Address) -> bool:
    return isinstance(address, IPv6Address) and address.ipv4_mapped is not None


# IPv4 inside IPv6


def _teredo(address: int) -> int:
    return (0x2001_0000 << 96) | (0x0808_0808 << 64) | (address ^ 0xFFFF_FFFF)


EMBEDDINGS: dict[str, Callable[[int], int]] = {
    "mapped": lambda address: 0xFFFF << 32 | address,
    "compatible": lambda address: address,
    "translated": lambda address: 0xFFFF << 48 | address,
    "NAT64": lambda address: 0x64_FF9B << 96 | address,
    "local NAT64": lambda address: 0x64_FF9B_0001 << 80 | address,
    "6to4": lambda address: 0x2002 << 112 | address << 80 | 1,
    "Teredo client": _teredo,
    "Teredo server": lambda address: 0x2001 << 112 | address << 64 | 0xFFFF_FFFF ^ 0x0808_0808,
    "ISATAP": lambda address: 0x2606_4700 << 96 | 0x0000_5EFE << 32 | address,
    "ISATAP, global": lambda address: 0x2606_4700 << 96 | 0x0200_5EFE << 32 | address,
}
V4 = [address for address in FORBIDDEN if ":" not in address]
WITH_ALL_OF_V6 = Addresses(opened=[ip_network("::/0")])


@given(st.sampled_from(list(EMBEDDINGS)), st.one_of(st.sampled_from(V4).map(IPv4Address), st.ip_addresses(v=4)))
def test_address_with_a_forbidden_one_inside_may_not_be_called_even_where_all_of_ipv6_is_open(
    way: str, inside: IPv4Address
) -> None:
    outside = IPv6Address(EMBEDDINGS[way](int(inside)))

    # ::1 and :: have their own meaning in IPv6; no translator extracts an address from "translated".
    if not NONE.may_call(inside) and way != "translated" and int(outside) > 1:
        assert not WITH_ALL_OF_V6.may_call(outside)
    if not NONE.may_call(inside):
        assert not NONE.may_call(outside)


# Networks that are opened


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.0.0.0/8", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3"], ["127.0.0.1", "192.168.0.1"]),
        ("169.254.169.254/32", ["169.254.169.254"], ["169.254.169.253"]),
        ("fd00::/8", ["fd00::1"], ["fc00::1", "fd00::5efe:127.0.0.1", "fe80::1"]),
        ("::1/128", ["::1"], ["::", "127.0.0.1", "::ffff:127.0.0.1"]),
        ("fe80::/10", ["fe80::1"], ["fe80::1%eth0"]),
        ("0.0.0.0/0", ["127.0.0.1", "::ffff:127.0.0.1"], ["::1", "::127.0.0.1", "2002:7f00:1::"]),
    ],
)
def test_opened_network_opens_only_itself(network: str, inside: list[str], outside: list[str]) -> None:
    addresses = Addresses(opened=[ip_network(network)])

    assert [address for address in inside if not addresses.has(address)] == []
    assert [address for address in outside if addresses.has(address)] == []
    assert addresses.has("8.8.8.8")


# Hosts of URLs

NOTATIONS = [
    "127.0.0.1", "127.1", "127.0.1", "0177.0.0.1", "0177.1", "0x7f.0.0.1", "0x7f.1", "0X7F.1", "2130706433",
    "017700000001", "0x7f000001", "0x7F.0x0.0x0.0x1", "127.0.0.1.", "2130706433.", "0x7f.1.", "00000177.0.0.01",
]  # fmt: skip


@pytest.mark.parametrize("host", NOTATIONS)
def test_every_notation_that_libc_reads_is_read(host: str) -> None:
    assert socket.inet_ntoa(socket.inet_aton(host.rstrip("."))) == "127.0.0.1"
    assert literal(host) == ip_address("127.0.0.1")


@pytest.mark.parametrize("host", ["::1", "0:0:0:0:0:0:0:1", "::ffff:7f00:1", "::1%25lo", "fe80::1%eth0"])
def test_ipv6_is_read_with_its_zone(host: str) -> None:
    assert literal(host) == ip_address(host.replace("%25", "%"))


@pytest.mark.parametrize(
    "host", ["256.0.0.1", "1.2.3.4.5", "08.0.0.1", "4294967296", "a.1", "x.0x7f", "1..2", "v1.a:b"]
)
def test_host_that_only_ends_like_an_address_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        literal(host)


@pytest.mark.parametrize("host", ["localhost", "app.example", "1.example", "0x7f.example.", "127.0.0.1.nip.example"])
def test_name_is_not_an_address(host: str) -> None:
    assert literal(host) is None
