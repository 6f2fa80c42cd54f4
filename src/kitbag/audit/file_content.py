"""Reads one file once: its hash, type and text. Bounded, non-blocking, follows no link.

Used by examine_item; uses file_types and text.source_files.
"""

import hashlib
import os
import re
from typing import Final

import msgspec

from kitbag.audit.file_types import TextKind, detect_language, detect_magic, detect_text_kind
from kitbag.audit.findings import AuditFile
from kitbag.text.source_files import SourceError, decode_text, open_regular_file, parent_boundary

TEXT_LIMIT: Final = 512 << 10
"""How much of a text is examined; longer ones are reported as partly read."""
HASH_LIMIT: Final = 64 << 20
_CHUNK = 1 << 20
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]")


class FileContent(msgspec.Struct, frozen=True, kw_only=True):
    entry: AuditFile
    sha256: str
    """Of the whole file, or of its first HASH_LIMIT bytes."""
    size: int
    data: bytes
    """The first TEXT_LIMIT bytes."""
    text: str | None
    """None if it is not text."""
    kind: TextKind
    language: str
    magic: str
    truncated: bool
    """The text is longer than what was examined."""
    problem: str = ""
    """Why nothing, or not everything, was read."""

    @property
    def name(self) -> str:
        return os.path.basename(self.entry.relative)


def read_content(entry: AuditFile) -> FileContent:
    """Never raises for content: `problem` says why nothing was read."""
    try:
        descriptor, _ = open_regular_file(entry.path, parent_boundary(entry.path))
    except SourceError as error:
        return _unreadable(entry, error.problem)
    try:
        return _read_descriptor(entry, descriptor)
    except OSError as error:
        return _unreadable(entry, f"cannot be read: {(error.strerror or str(error)).lower()}")
    finally:
        os.close(descriptor)


def _unreadable(entry: AuditFile, problem: str) -> FileContent:
    return FileContent(
        entry=entry,
        sha256="",
        size=entry.size,
        data=b"",
        text=None,
        kind="other",
        language="",
        magic="",
        truncated=False,
        problem=problem,
    )


def _read_descriptor(entry: AuditFile, descriptor: int) -> FileContent:
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
    magic = detect_magic(data)
    text = None if magic else _decode(data, size > len(data))
    problem = f"only the first {HASH_LIMIT >> 20} MiB were read" if more else ""
    start = text or ""
    kind, language = detect_text_kind(name, start), detect_language(name, start)
    return FileContent(
        entry=entry,
        sha256=digest.hexdigest(),
        size=size,
        data=data,
        text=text,
        kind=kind,
        language=language,
        magic=magic,
        truncated=size > len(data),
        problem=problem,
    )


def _decode(data: bytes, cut: bool) -> str | None:
    # A few NUL bytes must not keep a program from being examined: interpreters read on.
    if 0 < data.count(0) * 20 <= len(data):
        data = data.replace(b"\0", b" ")
    try:
        text, _ = decode_text(data, cut)
    except SourceError:
        return None
    # Binary data that happens to contain no NUL.
    sample = text[:65536]
    return None if len(_CONTROL.findall(sample)) * 20 > len(sample) else text
