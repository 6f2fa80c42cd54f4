"""What a response's bytes are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.net.content import _ENCODINGS, decode_body, detect_encoding, parse_media_type  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("header", "body", "encoding"),
    [
        ("text/html; charset=UTF-8", b"", "utf-8"),
        ('text/html;Charset="iso-8859-1"', b"", "cp1252"),
        ("text/plain; charset=Shift_JIS", b"", "cp932"),
        ("text/plain; charset=utf-16", b"", "utf-16-le"),
        ("text/plain; charset=base64", b"", "utf-8"),
        ("text/plain; charset=idna", b"", "utf-8"),
        ("text/plain; charset=../../x", b"", "utf-8"),
        ("text/plain; charset=" + "x" * 5000, b"", "utf-8"),
        ("text/html", b"<html><META http-equiv=x content='text/html; charset=windows-1251'>", "cp1251"),
        ("text/html", b"<meta charset=utf-16>", "utf-8"),
        ("text/html", b"<meta " * 1000, "utf-8"),
        ("text/plain; charset=latin-1", b"\xef\xbb\xbfx", "utf-8-sig"),
        ("text/plain", b"\xff\xfex\0", "utf-16"),
        ("application/json", b"{}", "utf-8"),
        ("application/ld+json", b"{}", "utf-8"),
        ("application/xhtml+xml", b"", "utf-8"),
        ("image/svg+xml", b"", "utf-8"),
        ("image/png", b"text", ""),
        ("application/octet-stream", b"text", ""),
        ("application/zip; charset=utf-8", b"", ""),
        ("", b"plain", "utf-8"),
        ("", b"\x7fELF\0", ""),
        ("nonsense", b"plain", "utf-8"),
    ],
)
def test_the_encoding_is_found(header: str, body: bytes, encoding: str) -> None:
    assert detect_encoding(header, body) == encoding


def test_every_encoding_that_is_known_exists() -> None:
    for encoding in _ENCODINGS.values():
        assert decode_body(b"text", encoding, complete=False) is not None


@given(st.text(max_size=100), st.binary(max_size=200), st.booleans())
def test_any_header_and_body_give_a_text_or_none(header: str, body: bytes, whole: bool) -> None:
    encoding = detect_encoding(header, body)
    if encoding:
        assert isinstance(decode_body(body, encoding, whole), str)


def test_a_character_that_a_cut_split_is_left_out() -> None:
    assert decode_body("aé".encode()[:-1], "utf-8", complete=False) == "a"
    assert decode_body("aé".encode()[:-1], "utf-8", complete=True) == "a\ufffd"


@pytest.mark.parametrize(
    ("header", "kind"), [(" Text/HTML ; x", "text/html"), ("a", ""), ("a/b/c", ""), ("text/\x1b", ""), ("", "")]
)
def test_a_media_type_is_read_or_empty(header: str, kind: str) -> None:
    assert parse_media_type(header) == kind
