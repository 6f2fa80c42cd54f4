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
    chunk = os.read(descriptor, CHUNK_BYTES)
    if not is_utf_16(chunk):
        chunk = chunk.removeprefix(codecs.BOM_UTF8)
        while chunk:
            yield chunk
            chunk = os.read(descriptor, CHUNK_BYTES)
        return
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    while chunk:
        yield decoder.decode(chunk).encode("utf-8", "replace")
        chunk = os.read(descriptor, CHUNK_BYTES)
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")


def split_lines(chunks: Iterable[bytes], max_bytes: int) -> Iterator[TextLine]:
    """Of a line longer than `max_bytes` the rest is counted and dropped."""
    kept, missing_chars, has_started = bytearray(), 0, False
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            if not has_started and len(part) <= max_bytes:  # the usual case
                yield TextLine(part.removesuffix(b"\r"), 0)
                continue
            room = max_bytes - len(kept)
            missing_chars += _count_characters(part[room:])
            kept += part[:room]
            yield TextLine(bytes(kept) if missing_chars else bytes(kept).removesuffix(b"\r"), missing_chars)
            kept, missing_chars, has_started = bytearray(), 0, False
        if rest:
            has_started = True
            room = max_bytes - len(kept)
            missing_chars += _count_characters(rest[room:])
            kept += rest[:room]
    if has_started:
        yield TextLine(bytes(kept), missing_chars)


def truncate_lines(chunks: Iterable[bytes], max_bytes: int, on_truncate: Callable[[], None]) -> Iterator[bytes]:
    """The same chunks with lines cut at `max_bytes` bytes; calls `on_truncate` for each cut."""
    length = 0
    """Of the current line."""
    for chunk in chunks:
        at = 0
        while at < len(chunk):
            room = max_bytes - length
            end = chunk.rfind(b"\n", at, at + room + 1) + 1
            if end:  # all lines up to here are short enough
                yield chunk[at:end]
                at, length = end, 0
            elif len(chunk) - at <= room:
                yield chunk[at:]
                length += len(chunk) - at
                break
            else:
                on_truncate()
                yield chunk[at : at + room]
                end = chunk.find(b"\n", at + room)
                at, length = end if end >= 0 else len(chunk), max_bytes


def skip_lines(chunks: Iterator[bytes], count: int) -> Iterator[bytes]:
    """The chunks after the first `count` lines; none if there are fewer."""
    for chunk in chunks:
        newlines = chunk.count(b"\n") if count else 0
        if newlines < count:
            count -= newlines
            continue
        at = 0
        for _ in range(count):
            at = chunk.index(b"\n", at) + 1
        return chain((chunk[at:],), chunks)
    return iter(())


def decode_utf8(data: bytes, is_truncated: bool = False) -> str:
    """Raises UnicodeDecodeError. `is_truncated`: the last character may be incomplete, and is dropped."""
    return codecs.utf_8_decode(data, "strict", not is_truncated)[0]


def _count_characters(data: bytes) -> int:
    return len(data) if data.isascii() else len(data.translate(None, _CONTINUATION_BYTES))
