"""Lines of files of any size."""

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kitbag.tools.files.lines import (
    CHUNK_BYTES,
    TextLine,
    decode_utf8,
    read_chunks,
    skip_lines,
    split_lines,
    truncate_lines,
)

pieces = st.lists(st.lists(st.sampled_from([b"a", b"\n", b"bcd", b"\xc3\xa9"]), max_size=6).map(b"".join), max_size=6)


@given(pieces=pieces, longest=st.integers(1, 6))
def test_lines_are_the_same_however_the_text_is_cut_into_pieces(pieces: list[bytes], longest: int) -> None:
    whole = b"".join(pieces)
    expected = whole.split(b"\n")
    expected = expected if expected[-1] else expected[:-1]
    found = list(split_lines(pieces, longest))
    assert [line.data for line in found] == [line[:longest] for line in expected]
    for line, full in zip(found, expected, strict=True):
        assert line.missing_chars == len([byte for byte in full[longest:] if byte & 0xC0 != 0x80])


@given(pieces=pieces, longest=st.integers(1, 6))
def test_shortened_pieces_have_the_same_lines_up_to_the_limit(pieces: list[bytes], longest: int) -> None:
    cut: list[bool] = []
    made = b"".join(truncate_lines(pieces, longest, lambda: cut.append(True)))
    expected = b"".join(pieces).split(b"\n")
    assert made.split(b"\n") == [line[:longest] for line in expected]
    assert bool(cut) == any(len(line) > longest for line in expected)


@given(pieces=pieces, count=st.integers(0, 8))
def test_what_follows_some_lines_is_the_rest_of_the_text(pieces: list[bytes], count: int) -> None:
    after = b"".join(skip_lines(iter(pieces), count))
    parts = b"".join(pieces).split(b"\n")
    assert after == (b"\n".join(parts[count:]) if count < len(parts) else b"")


def test_a_character_that_is_cut_in_two_pieces_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    text = "é" * CHUNK_BYTES  # two bytes each, and the mark before them makes pieces end inside one
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    descriptor = os.open(path, os.O_RDONLY)
    try:
        (line,) = split_lines(read_chunks(descriptor), 4 * CHUNK_BYTES)
    finally:
        os.close(descriptor)
    assert decode_utf8(line.data) == text


def test_utf_16_of_any_length_becomes_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "a"
    text = "a\U0001f600\n" * (CHUNK_BYTES // 5)
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        mark = {"utf-16": b"", "utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}[encoding]
        path.write_bytes(mark + text.encode(encoding))
        descriptor = os.open(path, os.O_RDONLY)
        try:
            assert b"".join(read_chunks(descriptor)).decode() == text
        finally:
            os.close(descriptor)


def test_a_carriage_return_belongs_to_the_line_end() -> None:
    assert list(split_lines([b"a\r\nb\rc\r", b"\n"], 9)) == [TextLine(b"a", 0), TextLine(b"b\rc", 0)]
