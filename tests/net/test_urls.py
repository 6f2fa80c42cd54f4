"""What is a URL that may be fetched, and what is shown of it."""

import urllib.parse

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.net.errors import FetchError
from kitbag.net.urls import FetchTarget, parse_url, resolve_redirect


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://docs.python.org", FetchTarget(scheme="https", host="docs.python.org", port=443, path="/")),
        (
            "HTTPS://DOCS.python.org.:443/3/?q=a#b",
            FetchTarget(scheme="https", host="docs.python.org", port=443, path="/3/?q=a"),
        ),
        ("http://a.com:8080?x", FetchTarget(scheme="http", host="a.com", port=8080, path="/?x")),
        ("http://a.com:/x", FetchTarget(scheme="http", host="a.com", port=80, path="/x")),
        ("http://a.com:00080/x", FetchTarget(scheme="http", host="a.com", port=80, path="/x")),
        ("http://[2606:4700::1]:81/", FetchTarget(scheme="http", host="2606:4700::1", port=81, path="/")),
        (
            'https://bücher.example/ü?ö="<>{}|^`',
            FetchTarget(
                scheme="https", host="xn--bcher-kva.example", port=443, path="/%C3%BC?%C3%B6=%22%3C%3E%7B%7D%7C%5E%60"
            ),
        ),
        ("http://a.com/%zz%41?a=b@c:d/e", FetchTarget(scheme="http", host="a.com", port=80, path="/%zz%41?a=b@c:d/e")),
        (
            "http://evil.com/docs.python.org",
            FetchTarget(scheme="http", host="evil.com", port=80, path="/docs.python.org"),
        ),
        (
            "http://evil.com?@docs.python.org",
            FetchTarget(scheme="http", host="evil.com", port=80, path="/?@docs.python.org"),
        ),
        ("http://evil.com#@docs.python.org", FetchTarget(scheme="http", host="evil.com", port=80, path="/")),
    ],
)
def test_a_url_is_taken_apart(url: str, target: FetchTarget) -> None:
    assert parse_url(url) == target
    assert parse_url(target.url) == target


NOT_WHOLE = [
    "",
    "docs.python.org",
    "//docs.python.org/",
    "/etc/passwd",
    "http:",
    "http:/a.com",
    "http:a.com",
    "http://",
    "http:///a.com",
]
OTHER_SCHEMES = [
    "file:///etc/passwd",
    "FILE:///x",
    "data:text/html,hi",
    "ftp://a.com/",
    "gopher://a.com/",
    "javascript:alert(1)",
    "ws://a.com",
]
WRAPPED = [
    "view-source:http://a.com",
    "jar:http://a.com!/x",
    "http+unix://%2fvar%2frun%2fdocker.sock/",
    "unix:/x",
    "blob:http://a.com/1",
]
WITH_USERS = [
    "http://ok@127.0.0.1",
    "http://user:pass@a.com/",
    "http://@a.com/",
    "http://a.com@/",
    "http://a.com:80@b.com/",
]
WITH_BACKSLASHES_OR_BREAKS = [
    "http://a.com\\@b.com/",
    "http:\\\\a.com\\",
    "http://a.com\\.b.com",
    "http://a\tb.com/",
    "http://a.com/\r\nX: y",
    "ht\ntp://a.com",
]
WITH_OTHER_CHARACTERS = [
    " http://a.com",
    "http://a.com ",
    "http://a.com/a b",
    "http://a.com/\0",
    "http://a.com/\x1b[31m",
    "http://a.com/\x85",
    "http://a.com/\ud800",
]
BAD_PORTS = [
    "http://a.com:0/",
    "http://a.com:65536/",
    "http://a.com:99999999/",
    "http://a.com:-1/",
    "http://a.com:8a/",
    "http://a.com:８０/",
    "http://a.com:80:80/",
]
BAD_HOSTS = [
    "http://[::1/",
    "http://::1/",
    "http://[::1]x/",
    "http://[[::1]]/",
    "http://[fe80::1%25eth0]/",
    "http://[v1.x]/",
    "http://a%00.com/",
]
UNUSUAL = [
    "http://127.1/",
    "http://0x7f000001/",
    "http://2130706433/",
    "http://017700000001/",
    "http://127.0.0.1.5/",
    "http://a.com/" + "x" * 9000,
]


@pytest.mark.parametrize(
    "url",
    [
        *NOT_WHOLE,
        *OTHER_SCHEMES,
        *WRAPPED,
        *WITH_USERS,
        *WITH_BACKSLASHES_OR_BREAKS,
        *WITH_OTHER_CHARACTERS,
        *BAD_PORTS,
        *BAD_HOSTS,
        *UNUSUAL,
    ],
)
def test_what_is_not_plainly_a_web_url_is_refused(url: str) -> None:
    with pytest.raises(FetchError) as caught:
        parse_url(url)
    assert caught.value.kind == "url"
    assert caught.value.fix


@pytest.mark.parametrize(
    "url", ["http://u:hunter2@a.com/", "ftp://a.com/hunter2", "http://a.com/hunter2 x", "http://hunter2 /?hunter2"]
)
def test_a_refused_url_is_not_quoted(url: str) -> None:
    with pytest.raises(FetchError) as caught:
        parse_url(url)
    assert "hunter2" not in caught.value.problem + caught.value.fix


def test_the_query_is_never_shown() -> None:
    shown = parse_url("https://docs.python.org:8443/3/?token=hunter2#frag").display_url
    assert shown == "https://docs.python.org:8443/3/"
    assert len(parse_url("https://a.com/" + "x" * 5000).display_url) < 200


@given(
    st.text(max_size=60)
    | st.text(max_size=60).map("http://".__add__)
    | st.text(alphabet="a.:/@[]#?%\\0x1", max_size=30).map("https://".__add__)
)
def test_any_text_is_refused_or_read_as_every_other_parser_reads_the_result(text: str) -> None:
    try:
        target = parse_url(text)
    except FetchError:
        return
    assert parse_url(target.url) == target
    split = urllib.parse.urlsplit(target.url)
    assert (split.scheme, split.hostname, split.port or {"http": 80, "https": 443}[split.scheme]) == (
        target.scheme,
        target.host,
        target.port,
    )
    assert split.username is None
    other = httpx2.URL(target.url)
    assert other.raw_host.decode().strip("[]") == target.host
    assert (other.scheme, other.port or {"http": 80, "https": 443}[other.scheme]) == (target.scheme, target.port)
    assert target.path.isascii()
    assert all("!" <= character <= "~" for character in target.path)


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/x", "https://a.com:8443/x"),
        ("x?y", "https://a.com:8443/d/x?y"),
        ("../x", "https://a.com:8443/x"),
        ("//b.com/x", "https://b.com/x"),
        ("http://b.com", "http://b.com/"),
        ("?y=2", "https://a.com:8443/d/e?y=2"),
        ("#top", "https://a.com:8443/d/e?q=1"),
        ("/ü", "https://a.com:8443/%C3%BC"),
    ],
)
def test_a_location_is_joined_to_where_it_was_said(location: str, url: str) -> None:
    assert resolve_redirect(parse_url("https://a.com:8443/d/e?q=1"), location).url == url


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "http://ok@127.0.0.1",
        "//ok@127.0.0.1",
        "\\\\127.0.0.1\\x",
        "/\t/127.0.0.1",
        "/x\x1b",
        "ht\ttp://b.com",
        "http://[",
        "//[::1",
        "//127.1/",
        "javascript:1",
    ],
)
def test_a_location_obeys_the_same_rules(location: str) -> None:
    with pytest.raises(FetchError):
        resolve_redirect(parse_url("https://a.com/"), location)
