"""Classifies IP addresses as public or not, with our own tables: what `ipaddress` calls global differs between Python
versions and omits multicast, NAT64, 6to4 and others that lead to internal networks. Used before and after connecting.
"""

import functools
import ipaddress
from typing import NamedTuple

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AddressClass(NamedTuple):
    reason: str
    """Why it is not public, to follow "its address is"; empty if it is public."""
    can_be_allowed: bool = False
    """Whether a name that the user allowed may resolve to it. Others must be allowed by address."""


_PUBLIC = AddressClass("")
_BLOCKED_NETWORKS = (
    ("0.0.0.0/8", "this machine", False),
    ("10.0.0.0/8", "on a private network", True),
    ("100.64.0.0/10", "on a carrier-grade NAT network", True),
    ("127.0.0.0/8", "this machine", True),
    ("168.63.129.16/32", "a cloud metadata service", False),
    ("169.254.0.0/16", "link-local, where cloud providers serve credentials", False),
    ("172.16.0.0/12", "on a private network", True),
    ("192.0.0.0/24", "reserved for protocols", False),
    ("192.0.2.0/24", "reserved for documentation", False),
    ("192.31.196.0/24", "reserved for protocols", False),
    ("192.52.193.0/24", "reserved for protocols", False),
    ("192.88.99.0/24", "a 6to4 relay", False),
    ("192.168.0.0/16", "on a private network", True),
    ("192.175.48.0/24", "reserved for protocols", False),
    ("198.18.0.0/15", "reserved for benchmarking", False),
    ("198.51.100.0/24", "reserved for documentation", False),
    ("203.0.113.0/24", "reserved for documentation", False),
    ("224.0.0.0/4", "multicast", False),
    ("255.255.255.255/32", "broadcast", False),
    ("240.0.0.0/4", "reserved", False),
    ("::/128", "this machine", False),
    ("::1/128", "this machine", True),
    ("::ffff:0:0/96", "an IPv4 address embedded in IPv6", False),
    ("::/96", "an IPv4 address embedded in IPv6", False),
    ("::ffff:0:0:0/96", "an IPv4 address embedded in IPv6", False),
    ("64:ff9b::/96", "an IPv4 address behind NAT64", False),
    ("64:ff9b:1::/48", "an IPv4 address behind NAT64", False),
    ("100::/8", "reserved", False),
    ("2001::/32", "an IPv4 address behind Teredo", False),
    ("2001::/23", "reserved for protocols", False),
    ("2001:db8::/32", "reserved for documentation", False),
    ("2002::/16", "an IPv4 address behind 6to4", False),
    ("2620:4f:8000::/48", "reserved for protocols", False),
    ("3fff::/20", "reserved for documentation", False),
    ("fc00::/7", "on a private network", True),
    ("fe80::/10", "link-local", False),
    ("fec0::/10", "on a private network", False),
    ("ff00::/8", "multicast", False),
)
_ISATAP = (0x00005EFE, 0x02005EFE)
"""The third quarter of an IPv6 address that embeds an IPv4 address for tunneling."""


@functools.cache
def _blocked_networks() -> tuple[tuple[_Network, AddressClass], ...]:
    return tuple(
        (ipaddress.ip_network(text), AddressClass(reason, openable)) for text, reason, openable in _BLOCKED_NETWORKS
    )


@functools.cache
def _global_unicast() -> ipaddress.IPv6Network:
    return ipaddress.IPv6Network("2000::/3")


def parse_address(text: str) -> IPAddress | None:
    """None for a name, a scoped address, and any unusual notation."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return None if address.version == 6 and address.scope_id else address


def classify_address(address: IPAddress) -> AddressClass:
    for network, address_class in _blocked_networks():
        if address.version == network.version and address in network:
            return address_class
    if address.version == 6:
        if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
            return AddressClass("an IPv4 address behind ISATAP")
        if address not in _global_unicast():
            return AddressClass("not a public address")
    return _PUBLIC
