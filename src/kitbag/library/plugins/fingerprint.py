"""The fingerprint of a plugin: one digest of all files, and one hash per file with active content.

Used by store: an update that changes active content needs a new approval, changed prose does not.
Every file counts as active unless it is known to be prose or an image, so new formats are never missed.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from kitbag.errors import InvalidError
from kitbag.library.plugins.safe_copy import IMAGE_SUFFIXES, INERT_NAMES, MAX_ENTRIES, PROSE_SUFFIXES
from kitbag.text.frontmatter_fences import split_frontmatter
from kitbag.text.source_files import BODY_LIMIT, SourceError, decode_text

_CHUNK = 1 << 20
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_ACTIVE_FOLDERS = frozenset((".claude-plugin", "hooks", "bin", "monitors", "scripts", "workflows"))
_COMMAND = re.compile(r"!`|(?:`{3,}|~{3,})[ \t]*!")
# Any mention counts: a key can be quoted or escaped in too many ways to parse.
_CAPABILITY = re.compile(r"tools|hooks|permission|servers|command|\\", re.IGNORECASE)


class PluginFileChange(NamedTuple):
    sign: Literal["+", "~", "-"]
    path: str
    """Relative to the plugin; `*` means files without active content."""

    def __str__(self) -> str:
        return f"{self.sign} {self.path}"


class PluginFingerprint(NamedTuple):
    digest: str
    active_files: dict[str, str]
    """Relative path to sha256 of the file, or of its frontmatter if only that is active."""


def fingerprint_tree(path: str) -> PluginFingerprint:
    """Reads every file below `path`, without following links or blocking on pipes."""
    import hashlib

    whole = hashlib.sha256()
    acting: dict[str, str] = {}
    for number, (relative, mode) in enumerate(sorted(_walk_files(path))):
        if number >= MAX_ENTRIES:
            raise InvalidError(f"{path}: more than {MAX_ENTRIES:,} files", "reinstall the plugin")
        if stat.S_ISREG(mode):
            digest, active_digest = _hash_file(os.path.join(path, relative), relative, mode)
        else:
            # Never installed by Kitbag: added by hand.
            target = os.readlink(os.path.join(path, relative)) if stat.S_ISLNK(mode) else "special"
            digest = active_digest = hashlib.sha256(os.fsencode(f"{stat.S_IFMT(mode):o} {target}")).hexdigest()
        if active_digest is not None:
            acting[relative] = active_digest
        name = os.fsencode(relative)
        whole.update(b"%d %s %d %s\n" % (len(name), name, bool(mode & stat.S_IXUSR), digest.encode()))
    return PluginFingerprint(f"sha256:{whole.hexdigest()}", acting)


def diff_files(old: Mapping[str, str], new: Mapping[str, str]) -> list[PluginFileChange]:
    """Sorted by path."""
    changes = [PluginFileChange("+" if path not in old else "~", path) for path in new if old.get(path) != new[path]]
    changes += [PluginFileChange("-", path) for path in old if path not in new]
    return sorted(changes, key=lambda change: change.path)


def _walk_files(top: str) -> Iterator[tuple[str, int]]:
    pending = [""]
    while pending:
        folder = pending.pop()
        with os.scandir(os.path.join(top, folder)) as entries:
            for entry in entries:
                # Python creates these next to the scripts it runs.
                if entry.name == "__pycache__":
                    continue
                relative = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(relative)
                else:
                    yield relative, entry.stat(follow_symlinks=False).st_mode


def _hash_file(path: str, relative: str, mode: int) -> tuple[str, str | None]:
    """The hash of the file, and the hash of its active content; None if it has none."""
    import hashlib

    whole = hashlib.sha256()
    start = b""
    size = 0
    descriptor = os.open(path, _OPEN)
    try:
        while chunk := os.read(descriptor, _CHUNK):
            whole.update(chunk)
            size += len(chunk)
            if len(start) <= BODY_LIMIT:
                start += chunk
    finally:
        os.close(descriptor)
    digest = whole.hexdigest()
    if mode & 0o111 or size > BODY_LIMIT:
        return digest, digest
    part = active_content(relative, start)
    if part is None:
        return digest, None
    return digest, digest if part == start else hashlib.sha256(part).hexdigest()


def active_content(relative: str, data: bytes) -> bytes | None:
    """The active bytes of a file without the executable bit; None if it has none."""
    *folders, name = relative.lower().split("/")
    is_prose = name.endswith(PROSE_SUFFIXES) or name in INERT_NAMES
    if data.startswith(b"#!") or not _ACTIVE_FOLDERS.isdisjoint(folders):
        return data
    if not is_prose:
        return None if name.endswith(IMAGE_SUFFIXES) else data
    try:
        parts = split_frontmatter(decode_text(data)[0])
    except SourceError:
        return data
    if _COMMAND.search(parts.body) or (parts.frontmatter and _COMMAND.search(parts.frontmatter)):
        return data
    return (
        parts.frontmatter.encode("utf-8", "replace")
        if parts.frontmatter and _CAPABILITY.search(parts.frontmatter)
        else None
    )
