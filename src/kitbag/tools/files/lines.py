"""Reads files of any size in chunks, converted to UTF-8, and splits them into lines.

Used by Read, by Grep for a single file, and by search_process. Imports nothing of Kitbag, because search_process starts
for each search.
"""

import codecs
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

CHUNK_BYTES: Final = 1 << 18
SNIFF_BYTES: Final = 1 << 13
"""A file with a NUL byte in its first bytes is binary, as for git."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CONTINUATION_BYTES: Final = bytes(range(0x80, 0xC0))
"""Bytes that start no character in UTF-8."""


class TextLine(NamedTuple):
    data: bytes
    """Without its line end; only the start of a long line."""
    missing_chars: int
    """How many characters of the line are missing."""


def is_utf_16(head: bytes) -> bool:
    return head.startswith(_UTF_16) and not head.startswith(codecs.BOM_UTF32_LE)


def is_binary(head: bytes) -> bool:
    return not is_utf_16(head) and b"\0" in head[:SNIFF_BYTES]


def read_chunks(descriptor: int) -> Iterator[bytes]:
    """From the descriptor's offset on. Converts UTF-16 to UTF-8 and drops a byte order mark; keeps other bytes."""
    piece = os.read(descriptor, CHUNK_BYTES)
    if not is_utf_16(piece):
        piece = piece.removeprefix(codecs.BOM_UTF8)
        while piece:
            yield piece
            piece = os.read(descriptor, CHUNK_BYTES)
        return
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    while piece:
        yield decoder.decode(piece).encode("utf-8", "replace")
        piece = os.read(descriptor, CHUNK_BYTES)
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def split_lines(pieces: Iterable[bytes], max_bytes: int) -> Iterator[TextLine]:
    """Of a line longer than `max_bytes` the rest is counted and dropped."""
    kept, cut, begun = bytearray(), 0, False
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for part in ended:
            if not begun and len(part) <= max_bytes:  # the usual case
                yield TextLine(part.removesuffix(b"\r"), 0)
                continue
            room = max_bytes - len(kept)
            cut += _count_characters(part[room:])
            kept += part[:room]
            yield TextLine(bytes(kept) if cut else bytes(kept).removesuffix(b"\r"), cut)
            kept, cut, begun = bytearray(), 0, False
        if rest:
            begun = True
            room = max_bytes - len(kept)
            cut += _count_characters(rest[room:])
            kept += rest[:room]
    if begun:
        yield TextLine(bytes(kept), cut)


def truncate_lines(pieces: Iterable[bytes], max_bytes: int, on_truncate: Callable[[], None]) -> Iterator[bytes]:
    """The same chunks with lines cut at `max_bytes` bytes; calls `on_truncate` for each cut."""
    length = 0
    """Of the current line."""
    for piece in pieces:
        at = 0
        while at < len(piece):
            room = max_bytes - length
            end = piece.rfind(b"\n", at, at + room + 1) + 1
            if end:  # all lines up to here are short enough
                yield piece[at:end]
                at, length = end, 0
            elif len(piece) - at <= room:
                yield piece[at:]
                length += len(piece) - at
                break
            else:
                on_truncate()
                yield piece[at : at + room]
                end = piece.find(b"\n", at + room)
                at, length = end if end >= 0 else len(piece), max_bytes


def skip_lines(pieces: Iterator[bytes], count: int) -> Iterator[bytes]:
    """The chunks after the first `count` lines; none if there are fewer."""
    for piece in pieces:
        here = piece.count(b"\n") if count else 0
        if here < count:
            count -= here
            continue
        at = 0
        for _ in range(count):
            at = piece.index(b"\n", at) + 1
        return chain((piece[at:],), pieces)
    return iter(())


def decode_utf8(data: bytes, is_truncated: bool = False) -> str:
    """Raises UnicodeDecodeError. `is_truncated`: the last character may be incomplete, and is dropped."""
    return codecs.utf_8_decode(data, "strict", not is_truncated)[0]


def _count_characters(data: bytes) -> int:
    return len(data) if data.isascii() else len(data.translate(None, _CONTINUATION_BYTES))
