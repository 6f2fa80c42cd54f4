"""Which addresses are public, in every spelling there is."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.net.addresses import classify_address, parse_address
from kitbag.net.errors import FetchError
from kitbag.net.policy import HostPolicy
from kitbag.net.urls import parse_url

_BLOCKED = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.255.255.254
168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1
198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 ::2 ::7f00:1 ::ffff:127.0.0.1 ::ffff:8.8.8.8 0:0:0:0:0:ffff:7f00:1 ::ffff:0:7f00:1 64:ff9b::7f00:1 64:ff9b::808:808
64:ff9b:1::a00:1 100::1 2001::1 2001:0:7f00:1::1 2001:2::1 2001:10::1 2001:20::1 2001:db8::1 2002:7f00:1:: 2002:808:808::1
3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 febf::1 fec0::1 ff02::1 ff0e::1 2606:4700::5efe:7f00:1
2606:4700::200:5efe:7f00:1 8000::1
"""
_PUBLIC = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0 168.63.129.17
169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0
223.255.255.255 2606:4700:4700::1111 2a00:1450::1 2001:4860:4860::8888 2001:200::1 2003::1 2400:cb00::1 3ffe:ffff::1
"""
BLOCKED, PUBLIC = _BLOCKED.split(), _PUBLIC.split()


@pytest.mark.parametrize("text", BLOCKED)
def test_an_address_that_is_not_public_says_why(text: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert classify_address(address).reason


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_are_left_alone(text: str) -> None:
    address = parse_address(text)
    assert address is not None
    assert not classify_address(address).reason


@pytest.mark.parametrize(
    "text", ["fe80::1%eth0", "127.1", "localhost", "", "1.2.3.4/8", " 1.2.3.4", "0x7f000001", "01.2.3.4"]
)
def test_what_is_not_an_address_in_the_usual_spelling_is_none(text: str) -> None:
    assert parse_address(text) is None


@given(st.integers(0, 2**32 - 1))
def test_no_ipv4_address_that_python_calls_special_is_public(number: int) -> None:
    address = ipaddress.IPv4Address(number)
    special = (
        address.is_private,
        address.is_loopback,
        address.is_link_local,
        address.is_multicast,
        address.is_reserved,
    )
    if any(special) or address.is_unspecified or not address.is_global:
        assert classify_address(address).reason


@given(st.integers(0, 2**128 - 1) | st.integers(0x2000 << 112, (0x4000 << 112) - 1))
def test_no_ipv6_address_that_python_calls_special_is_public(number: int) -> None:
    address = ipaddress.IPv6Address(number)
    inside = [address.ipv4_mapped, address.sixtofour, address.teredo]
    special = (
        address.is_private,
        address.is_link_local,
        address.is_site_local,
        address.is_multicast,
        address.is_reserved,
    )
    if any(inside) or any(special) or not address.is_global:
        assert classify_address(address).reason


def spellings(address: ipaddress.IPv4Address) -> list[str]:
    """Every way that some resolver or library reads as this address, in one URL host each."""
    number, (a, b, c, d) = int(address), address.packed
    high, low = number >> 16, number & 0xFFFF
    four = [
        str(address),
        f"{address}.",
        f"0{a:o}.{b}.{c}.{d}",
        f"{a:#x}.{b:#x}.{c:#x}.{d:#x}",
        f"0X{a:x}.{b}.{c}.0{d:o}",
    ]
    four += [
        f"{a:03}.{b:03}.{c:03}.{d:03}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"{a}%2e{b}%2e{c}%2e{d}",
        f"{a}。{b}．{c}｡{d}",
    ]
    fewer = [
        f"{number}",
        f"{number:#x}",
        f"0{number:o}",
        f"{a}.{number & 0xFFFFFF}",
        f"{a:#x}.{b}.{low}",
        f"{a}.{b}.{low}",
    ]
    wide = ["".join(chr(0xFF10 + int(digit)) if digit.isdigit() else digit for digit in str(address))]
    six = [f"::ffff:{address}", f"0:0:0:0:0:ffff:{high:x}:{low:x}", f"::{high:x}:{low:x}", f"::ffff:0:{high:x}:{low:x}"]
    six += [
        f"64:ff9b::{high:x}:{low:x}",
        f"64:ff9b::{address}",
        f"64:ff9b:1::{high:x}:{low:x}",
        f"2002:{high:x}:{low:x}::",
    ]
    six += [f"2001:0:{high:x}:{low:x}::", f"2001::{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}", f"2a00:1::5efe:{high:x}:{low:x}"]
    return four + fewer + wide + [f"[{text}]" for text in six] + [f"[{six[0]}%25lo]", six[0]]


@given(st.sampled_from([text for text in BLOCKED if ":" not in text]).map(ipaddress.IPv4Address))
def test_a_blocked_address_is_blocked_in_every_spelling(address: ipaddress.IPv4Address) -> None:
    for spelling in spellings(address):
        with pytest.raises(FetchError):
            HostPolicy().check(parse_url(f"http://{spelling}/"))


@given(st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address))
def test_an_ipv4_address_hidden_in_another_form_is_never_reached(address: ipaddress.IPv4Address) -> None:
    plain = (str(address), f"{address}.")
    for spelling in spellings(address):
        try:
            target = parse_url(f"http://{spelling}/")
            HostPolicy().check(target)
        except FetchError:
            continue
        assert target.host == str(address)
        assert not classify_address(address).reason
        assert spelling in plain or not spelling.isascii() or spelling == target.host
