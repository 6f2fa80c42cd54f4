"""One file, read once: its hash, what it is, its text. Bounded; waits for no pipe and follows no link.

Used by examine. Uses file_types and text.source.
"""

import hashlib
import os
import re
from typing import Final, NamedTuple

from kitbag.audit.file_types import TextKind, language_of, magic_of, text_kind
from kitbag.audit.findings import Entry
from kitbag.text.source_files import SourceError, decode, folder_of, open_regular

TEXT_LIMIT: Final = 512 << 10
"""Of a text as much is examined; longer ones are told apart as not wholly read."""
HASH_LIMIT: Final = 64 << 20
_CHUNK = 1 << 20
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]")


class Content(NamedTuple):
    entry: Entry
    sha256: str
    """Of the whole file, or of its first HASH_LIMIT bytes."""
    size: int
    data: bytes
    """The first TEXT_LIMIT bytes."""
    text: str | None
    """None: not a text."""
    kind: TextKind
    language: str
    magic: str
    cut: bool
    """The text has more than was examined."""
    problem: str = ""
    """Why nothing, or not everything, was read."""

    @property
    def name(self) -> str:
        return os.path.basename(self.entry.relative)


def read(entry: Entry) -> Content:
    """Never raises for what the file is: then `problem` says why there is nothing."""
    try:
        descriptor, _ = open_regular(entry.path, folder_of(entry.path))
    except SourceError as error:
        return _nothing(entry, error.problem)
    try:
        return _content(entry, descriptor)
    except OSError as error:
        return _nothing(entry, f"can't be read: {(error.strerror or str(error)).lower()}")
    finally:
        os.close(descriptor)


def _nothing(entry: Entry, problem: str) -> Content:
    return Content(entry, "", entry.size, b"", None, "other", "", "", False, problem)


def _content(entry: Entry, descriptor: int) -> Content:
    digest = hashlib.sha256()
    data = b""
    size = 0
    while size < HASH_LIMIT and (chunk := os.read(descriptor, _CHUNK)):
        digest.update(chunk)
        size += len(chunk)
        if len(data) < TEXT_LIMIT:
            data = (data + chunk)[:TEXT_LIMIT]
    more = size >= HASH_LIMIT
    if more:
        size = max(size, entry.size)
    name = os.path.basename(entry.relative)
    magic = magic_of(data)
    text = None if magic else _text(data, size > len(data))
    problem = f"only the first {HASH_LIMIT >> 20} MiB were read" if more else ""
    start = text or ""
    kind, language = text_kind(name, start), language_of(name, start)
    return Content(entry, digest.hexdigest(), size, data, text, kind, language, magic, size > len(data), problem)


def _text(data: bytes, cut: bool) -> str | None:
    try:
        text, _ = decode(data, cut)
    except SourceError:
        return None
    # Bytes that only happen to have no NUL among them.
    sample = text[:65536]
    return None if len(_CONTROL.findall(sample)) * 20 > len(sample) else text
