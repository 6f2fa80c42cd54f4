"""Texts of files: whatever they are, they come back as they were."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kitbag.tools.files.file_text import decode_file, find_unwritable


@given(
    data=st.binary(max_size=200), mark=st.sampled_from([b"", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
)
def test_a_text_that_is_not_changed_is_written_as_it_was(data: bytes, mark: bytes) -> None:
    found = decode_file(mark + data)
    assert found is None or found.encode(found.text) == mark + data


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (b"plain", "utf-8", "plain"),
        ("grün".encode(), "utf-8", "grün"),
        (b"gr\xfcn", "cp1252", "grün"),
        (b"\x80 \x81", "cp1252", "€ \udc81"),
        ("grün, größer".encode() + b"\xff", "utf-8", "grün, größer\udcff"),
        ("grün".encode("utf-16"), "utf-16-le", "grün"),
    ],
)
def test_the_encoding_is_told_from_the_bytes(data: bytes, encoding: str, text: str) -> None:
    found = decode_file(data)
    assert found is not None
    assert (found.encoding, found.text) == (encoding, text)


@pytest.mark.parametrize(
    ("data", "newline"), [(b"a\r\nb\r\n", "\r\n"), (b"a\r\nb\n", "\n"), (b"a\nb", "\n"), (b"", "\n"), (b"a\rb", "\n")]
)
def test_the_line_ends_are_those_that_every_line_has(data: bytes, newline: str) -> None:
    found = decode_file(data)
    assert found is not None
    assert found.line_ending == newline


def test_what_no_file_can_hold_is_named_with_its_line() -> None:
    assert find_unwritable("a\nb\0") == ("a NUL character", 2)
    assert find_unwritable("\udfff") == ("an unpaired surrogate (U+DFFF)", 1)
    assert find_unwritable("🙂\n\x1b") is None
