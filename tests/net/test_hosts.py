"""How hosts are spelled and matched."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.errors import UsageError
from kitbag.net.hosts import (
    display_host,
    host_matches,
    is_ip_address,
    is_local_name,
    normalize_host,
    normalize_host_pattern,
)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Docs.Python.ORG", "docs.python.org"),
        ("docs.python.org.", "docs.python.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
        ("docs。python．org", "docs.python.org"),
        ("１２７.０.０.１", "127.0.0.1"),
        ("exa\u00admple.com", "example.com"),
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("2001:DB8::0001", "2001:db8::1"),
        ("8.8.8.8.", "8.8.8.8"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("a.1e100.net", "a.1e100.net"),
        ("1.example", "1.example"),
    ],
)
def test_a_host_has_one_spelling(text: str, host: str) -> None:
    assert normalize_host(text) == host
    assert normalize_host(host) == host


NOT_NAMES = [
    "",
    ".",
    "..",
    "a..b",
    ".a",
    "a b",
    "a\tb",
    "a\nb",
    "a/b",
    "a@b",
    "a%2eb",
    "a\\b",
    "a:b",
    "a,b",
    "a*b",
    "a\0b",
]
NOT_IPV6 = ["[a]", "[1.2.3.4]", "fe80::1%eth0", "[fe80::1%25eth0]", "::ffff:1.2.3.256", "x" * 64, "a." * 127 + "aa"]
UNUSUAL_IPV4 = [
    "2130706433",
    "0x7f000001",
    "017700000001",
    "0x7f.1",
    "0177.0.0.1",
    "127.1",
    "127.0.1",
    "127.0.0.01",
    "0",
]
NEARLY = [
    "127.0.0.256",
    "1.2.3.4.5",
    "256",
    "0x",
    "1.0x",
    "a.0x1f",
    "example.123",
    "１２７.1",
    "\ud800.com",
    "💩.la",
    "a\u202eb.com",
]


@pytest.mark.parametrize("text", [*NOT_NAMES, *NOT_IPV6, *UNUSUAL_IPV4, *NEARLY])
def test_what_is_no_plain_host_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        normalize_host(text)


@given(st.text(alphabet="0123456789xXabcf.", min_size=1, max_size=20))
def test_what_the_system_reads_as_ipv4_is_canonical_or_refused(text: str) -> None:
    try:
        meant = socket.inet_ntoa(socket.inet_aton(text))
    except OSError:
        return
    try:
        host = normalize_host(text)
    except ValueError:
        return
    assert host == meant
    assert is_ip_address(host)


@given(st.text(max_size=40))
def test_any_text_is_a_stable_host_or_a_value_error(text: str) -> None:
    try:
        host = normalize_host(text)
    except ValueError:
        return
    assert host.isascii()
    assert normalize_host(host) == host


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        ("docs.python.org", "docs.python.org", True),
        ("docs.python.org", "DOCS.Python.org.", True),
        ("Docs.Python.Org.", "docs.python.org", True),
        ("docs.python.org", "docs.python.org.evil.com", False),
        ("docs.python.org", "evil.com", False),
        ("docs.python.org", "evil-docs.python.org", False),
        ("docs.python.org", "evildocs.python.org", False),
        ("docs.python.org", "a.docs.python.org", False),
        ("docs.python.org", "docs-python.org", False),
        ("docs.python.org", "docsxpython.org", False),
        ("*.x.com", "a.x.com", True),
        ("*.x.com", "a.b.x.com", True),
        ("*.x.com", "x.com", False),
        ("*.x.com", "evilx.com", False),
        ("*.x.com", "a.x.com.evil.org", False),
        ("docs.*.com", "docs.x.com", True),
        ("docs.*.com", "docs.a.b.com", False),
        ("docs*.x.com", "docs2.x.com", True),
        ("docs*.x.com", "docs.x.com", True),
        ("docs*.x.com", "docs.evil.x.com", False),
        ("*docs.x.com", "mydocs.x.com", True),
        ("*docs.x.com", "evil.docs.x.com", False),
        ("*.*.com", "a.x.com", True),
        ("*.*.com", "x.com", False),
        ("*", "anything.example", True),
        ("*", "127.0.0.1", True),
        ("*", "not a host", False),
        ("bücher.example", "xn--bcher-kva.example", True),
        ("*.bücher.example", "www.BÜCHER.example", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.1", False),
        ("*.0.0.1", "127.0.0.1", False),
        ("127.*.*.1", "127.0.0.1", False),
        ("[::1]", "::1", True),
        ("::1", "[0::1]", True),
        ("", "a.com", False),
        ("https://a.com", "a.com", False),
    ],
)
def test_a_pattern_matches_the_hosts_it_names(pattern: str, host: str, expected: bool) -> None:
    assert host_matches(pattern, host) is expected


@given(st.from_regex(r"[a-z0-9]{1,8}(\.[a-z]{1,5}){0,3}", fullmatch=True), st.text(alphabet="abx.-", max_size=8))
def test_only_a_dot_boundary_leads_below_a_host(suffix: str, before: str) -> None:
    host = before + suffix
    if host_matches(f"*.{suffix}", host):
        assert before.endswith(".")
        assert len(before) > 1


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        " ",
        "a b",
        "https://a.com",
        "a.com/x",
        "a.com:80",
        "*.",
        "a..b",
        "*.127.0.0.1",
        "ü*.com",
        "a*b/c",
        "*.*:80",
        "127.1",
    ],
)
def test_a_pattern_that_could_not_mean_a_host_is_refused_when_it_is_read(pattern: str) -> None:
    with pytest.raises(UsageError) as caught:
        normalize_host_pattern(pattern)
    assert caught.value.fix


def test_a_pattern_of_many_stars_is_matched_at_once() -> None:
    assert not host_matches("*a" * 31 + "b.com", "a" * 63 + ".com")
    assert host_matches("*a" * 31 + ".com", "a" * 63 + ".com")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "a.localhost",
        "printer.local",
        "metadata.google.internal",
        "router",
        "nas.lan",
        "x.home.arpa",
        "x.localdomain",
    ],
)
def test_names_of_a_local_network_are_known(host: str) -> None:
    assert is_local_name(host)


@pytest.mark.parametrize("host", ["localhost.com", "local.example", "internal.python.org", "127.0.0.1", "::1"])
def test_other_names_are_not_local(host: str) -> None:
    assert not is_local_name(host)


def test_a_name_from_another_script_is_shown_in_both_forms() -> None:
    assert display_host(normalize_host("аpple.com")) == "xn--pple-43d.com (аpple.com)"
    assert display_host("apple.com") == "apple.com"
    assert display_host("xn--a.com") == "xn--a.com"
    assert display_host("::1") == "[::1]"
