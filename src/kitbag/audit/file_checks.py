"""What is wrong with a file before its text is looked at: programs, false names, archives, links, pipes.

Used by examine; uses file_types.
"""

import os
from typing import NamedTuple

from kitbag.audit.file_content import HASH_LIMIT, Content
from kitbag.audit.file_types import (
    DOCUMENTS,
    PICKLES,
    PROGRAMS,
    expected_magic,
    extension,
    is_archive,
    is_data,
    is_encrypted,
)
from kitbag.audit.findings import Entry, Severity
from kitbag.text.hidden_characters import code_points, find_hidden


class Remark(NamedTuple):
    """A finding about a whole file."""

    rule: str
    severity: Severity | None
    excerpt: str
    note: str = ""


def check_entry(entry: Entry, folder: str, root: str) -> list[Remark]:
    """Names, links and special files; nothing is opened."""
    found: list[Remark] = []
    hidden = find_hidden(entry.relative)
    if hidden:
        found.append(Remark("hidden-characters", "high", entry.relative, f"in the file's name: {code_points(hidden)}"))
    if entry.kind == "special":
        found.append(Remark("special-file", None, entry.relative))
    if entry.kind == "link":
        found += _link(entry, folder, root)
    return found


def link_target(entry: Entry, folder: str) -> tuple[str, bool]:
    """Where a link says it leads, and whether that is outside of its item. The target itself is not touched."""
    try:
        written = os.readlink(entry.path)
        real = os.path.realpath(entry.path)
    except OSError:
        return "", True
    inside = real == folder or real.startswith(folder.rstrip("/") + "/")
    return written, not inside


def _link(entry: Entry, folder: str, root: str) -> list[Remark]:
    written, outside = link_target(entry, folder)
    shown = f"{entry.relative} -> {written}"
    if not outside:
        return []
    real = os.path.realpath(entry.path)
    in_root = real == root or real.startswith(root.rstrip("/") + "/")
    if in_root and not os.path.isabs(written):
        # One skill linked from several tools' folders; the target is audited at its own place.
        return [Remark("link-outside", "low", shown, "to another place of the same repository; not followed")]
    return [Remark("link-outside", None, shown, "" if os.path.exists(entry.path) else "it leads nowhere here")]


def check_content(content: Content) -> list[Remark]:
    """What its bytes are, against what its name says."""
    found: list[Remark] = []
    name, magic = content.name, content.magic
    if content.problem and content.size <= HASH_LIMIT:
        return [Remark("not-read", None, name, content.problem)]
    expected = expected_magic(name)
    if magic in PROGRAMS:
        disguised = bool(expected) or content.kind != "other"
        found.append(Remark("type-mismatch" if disguised else "program-file", None, name, magic))
    elif expected and magic not in expected and content.size:
        found.append(_mismatch(content, magic))
    elif magic and content.kind != "other" and not expected:
        found.append(Remark("type-mismatch", None, name, f"{magic} with the name of a text"))
    elif content.text is None and not magic and content.size:
        found.append(_unknown_binary(content))
    if is_archive(magic):
        found += _archive(content)
    elif magic == "picture" and _has_tail(content.data):
        found.append(Remark("active-picture", None, name, "an archive or script behind the picture"))
    if content.cut and content.text is not None:
        severity: Severity = "low" if is_data(name) else "medium"
        note = f"{content.size:,} bytes; only the first {len(content.data):,} were examined"
        found.append(Remark("not-read", severity, name, note))
    if extension(name) == "svg" and content.text is not None and "<script" in content.text.lower():
        found.append(Remark("active-picture", None, name, "a script in the picture"))
    return found


def _mismatch(content: Content, magic: str) -> Remark:
    what = magic or ("text" if content.text is not None else "unknown bytes")
    text = content.text or ""
    if content.text is not None and text.lstrip().startswith(("<svg", "<?xml", "version https://git-lfs")):
        return Remark("type-mismatch", "low", content.name, "a text that stands for the file")
    severity: Severity | None = "medium" if not magic and content.text is None else None
    return Remark("type-mismatch", severity, content.name, f"it is {what}")


def _unknown_binary(content: Content) -> Remark:
    name = content.name
    if content.kind != "other":
        return Remark("type-mismatch", None, name, "not a text, but it has the name of one")
    loads = extension(name) in PICKLES
    return Remark("binary-file", None, name, "loading it can run code" if loads else "")


def _archive(content: Content) -> list[Remark]:
    name = content.name
    if is_encrypted(content.magic, content.data):
        return [Remark("encrypted-archive", None, name, content.magic)]
    severity: Severity = "info" if extension(name) in DOCUMENTS else "low"
    return [Remark("archive-file", severity, name, f"{content.magic}; not looked into")]


def _has_tail(data: bytes) -> bool:
    if not data.startswith(b"\x89PNG"):
        return False
    end = data.rfind(b"IEND\xaeB`\x82")
    tail = data[end + 8 :] if end >= 0 else b""
    return b"PK\3\4" in tail or b"#!/" in tail or b"\x7fELF" in tail or b"<?php" in tail


def is_binary(content: Content) -> bool:
    return content.text is None and content.size > 0 and not content.problem
