"""Checks a file before its text is examined: programs, misleading names, archives, links, pipes.

Used by examine_item; uses file_types.
"""

import os
import re
from typing import Final

import msgspec

from kitbag.audit.file_content import HASH_LIMIT, FileContent
from kitbag.audit.file_types import (
    DOCUMENTS,
    PICKLES,
    PROGRAMS,
    expected_magic,
    file_extension,
    is_archive,
    is_data_file,
    is_encrypted,
)
from kitbag.audit.findings import AuditFile, Severity
from kitbag.text.hidden_characters import find_hidden, format_code_points


class FileRemark(msgspec.Struct, frozen=True, kw_only=True):
    """A finding about a whole file."""

    rule: str
    severity: Severity | None
    excerpt: str
    note: str = ""


def check_entry(entry: AuditFile, folder: str, root: str) -> list[FileRemark]:
    """Checks names, links and special files; opens nothing."""
    remarks: list[FileRemark] = []
    hidden = find_hidden(entry.relative)
    if hidden:
        remarks.append(
            FileRemark(
                rule="hidden-characters",
                severity="high",
                excerpt=entry.relative,
                note=f"in the file name: {format_code_points(hidden)}",
            )
        )
    if entry.kind == "special":
        remarks.append(FileRemark(rule="special-file", severity=None, excerpt=entry.relative))
    if entry.kind == "link":
        remarks += _check_link(entry, folder, root)
    return remarks


def read_link_target(entry: AuditFile, folder: str) -> tuple[str, bool]:
    """The target as written in the link, and whether it is outside the item. Does not touch the target."""
    try:
        target = os.readlink(entry.path)
        real = os.path.realpath(entry.path)
    except OSError:
        return "", True
    inside = real == folder or real.startswith(folder.rstrip("/") + "/")
    return target, not inside


def _check_link(entry: AuditFile, folder: str, root: str) -> list[FileRemark]:
    target, outside = read_link_target(entry, folder)
    excerpt = f"{entry.relative} -> {target}"
    if not outside:
        return []
    real = os.path.realpath(entry.path)
    in_root = real == root or real.startswith(root.rstrip("/") + "/")
    if in_root and not os.path.isabs(target):
        # One skill linked from several tools' folders; its target is audited where it is.
        return [
            FileRemark(
                rule="link-outside",
                severity="low",
                excerpt=excerpt,
                note="points to another directory of this repository; not followed",
            )
        ]
    return [
        FileRemark(
            rule="link-outside",
            severity=None,
            excerpt=excerpt,
            note="" if os.path.exists(entry.path) else "its target does not exist",
        )
    ]


def check_content(content: FileContent) -> list[FileRemark]:
    """Compares the content with what the name suggests."""
    remarks: list[FileRemark] = []
    name, magic = content.name, content.magic
    if content.problem and content.size <= HASH_LIMIT:
        return [FileRemark(rule="not-read", severity=None, excerpt=name, note=content.problem)]
    expected = expected_magic(name)
    if magic in PROGRAMS:
        is_disguised = bool(expected) or content.kind != "other"
        remarks.append(
            FileRemark(
                rule="type-mismatch" if is_disguised else "program-file", severity=None, excerpt=name, note=magic
            )
        )
    elif expected and magic not in expected and content.size:
        remarks.append(_mismatch_remark(content, magic))
    elif magic and content.kind != "other" and not expected:
        remarks.append(
            FileRemark(rule="type-mismatch", severity=None, excerpt=name, note=f"{magic} named like a text file")
        )
    elif content.text is None and not magic and content.size:
        remarks.append(_unknown_binary_remark(content))
    elif content.kind != "other" and 0 < content.data.count(0) * 20 <= len(content.data):
        remarks.append(
            FileRemark(rule="type-mismatch", severity="medium", excerpt=name, note="NUL bytes in a text file")
        )
    if is_archive(magic):
        remarks += _check_archive(content)
    elif magic == "image" and (appended := _check_image_tail(content)) is not None:
        remarks.append(appended)
    if content.truncated and content.text is not None:
        severity: Severity = "low" if is_data_file(name) else "medium"
        note = f"{content.size:,} bytes; only the first {len(content.data):,} were examined"
        remarks.append(FileRemark(rule="not-read", severity=severity, excerpt=name, note=note))
    if file_extension(name) == "svg" and content.text is not None and "<script" in content.text.lower():
        remarks.append(FileRemark(rule="active-picture", severity=None, excerpt=name, note="script in the image"))
    return remarks


def _mismatch_remark(content: FileContent, magic: str) -> FileRemark:
    actual = magic or ("text" if content.text is not None else "unknown binary data")
    text = content.text or ""
    if content.text is not None and text.lstrip().startswith(("<svg", "<?xml", "version https://git-lfs")):
        return FileRemark(
            rule="type-mismatch",
            severity="low",
            excerpt=content.name,
            note="placeholder text instead of the file's content",
        )
    severity: Severity | None = "medium" if not magic and content.text is None else None
    return FileRemark(rule="type-mismatch", severity=severity, excerpt=content.name, note=f"content is {actual}")


def _unknown_binary_remark(content: FileContent) -> FileRemark:
    name = content.name
    if content.kind != "other":
        return FileRemark(
            rule="type-mismatch",
            severity="medium",
            excerpt=name,
            note="binary content in a file named like a text file",
        )
    loads = file_extension(name) in PICKLES
    return FileRemark(rule="binary-file", severity=None, excerpt=name, note="loading it can run code" if loads else "")


def _check_archive(content: FileContent) -> list[FileRemark]:
    name = content.name
    if is_encrypted(content.magic, content.data):
        return [FileRemark(rule="encrypted-archive", severity=None, excerpt=name, note=content.magic)]
    severity: Severity = "info" if file_extension(name) in DOCUMENTS else "low"
    return [FileRemark(rule="archive-file", severity=severity, excerpt=name, note=f"{content.magic}; not examined")]


_IMAGE_ENDS: Final = ((b"\x89PNG", b"IEND\xaeB`\x82"), (b"\xff\xd8", b"\xff\xd9"), (b"GIF8", b"\0;"))
_PROGRAM_TEXT = re.compile(
    rb"PK\x03\x04|\x7fELF|#!/|<\?php|<script|\b(?:import|require|eval|exec|curl|wget|powershell|base64|function|subprocess)\b"
)
_MAX_TAIL: Final = 65536


def _check_image_tail(content: FileContent) -> FileRemark | None:
    """A program, an archive or code that follows the end of an image."""
    data = content.data
    start, end = next(((start, end) for start, end in _IMAGE_ENDS if data.startswith(start)), (b"", b""))
    is_jpeg = start == b"\xff\xd8"
    at = data.find(end, len(start)) if is_jpeg else data.rfind(end)
    tail = data[at + len(end) :][:_MAX_TAIL] if start and at >= 0 else b""
    # A JPEG thumbnail has an end of its own, and binary data follows it.
    if not _PROGRAM_TEXT.search(tail) or (is_jpeg and not _is_plain(tail)):
        return None
    severity: Severity = "medium" if b"PK\3\4" in tail else "high"
    note = "archive or code appended to the image"
    return FileRemark(rule="active-picture", severity=severity, excerpt=content.name, note=note)


def _is_plain(tail: bytes) -> bool:
    sample = tail[:400]
    return sample.startswith((b"PK\3\4", b"\x7fELF")) or all(32 <= byte < 127 or byte in b"\t\r\n" for byte in sample)


def is_binary(content: FileContent) -> bool:
    return content.text is None and content.size > 0 and not content.problem
