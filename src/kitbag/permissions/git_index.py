"""Reads the files that a git repository tracks from its index, without running git.

Used by `git_repository` for submodules and by `decisions/git_reads` for tracked files that rules deny. Supports
versions 2 to 4 with SHA-1 and SHA-256, and split indexes.
"""

import os
from functools import lru_cache
from typing import Final, NamedTuple

from kitbag.text.source_files import SourceError, open_regular_file

_MAX_BYTES: Final = 256 << 20
_HEADER: Final = 12
_MODE_OFFSET: Final = 24
_OBJECT_OFFSET: Final = 40
_HASH_SIZES: Final = (20, 32)
_EXTENDED: Final = 0x4000
_GITLINK: Final = 0o160000


class IndexEntry(NamedTuple):
    path: str
    """Relative to the root of the work tree."""
    object_id: str
    is_submodule: bool


def read_index(git_directory: str) -> tuple[IndexEntry, ...] | None:
    """None if the index can't be parsed; empty if there is none."""
    entries: list[IndexEntry] = []
    for name in ("index", *_shared_indexes(git_directory)):
        path = os.path.join(git_directory, name)
        try:
            status = os.stat(path)
        except OSError:
            continue
        found = _read_cached(path, status.st_mtime_ns, status.st_size, status.st_ino)
        if found is None:
            return None
        entries += found
    return tuple(entries)


def _shared_indexes(git_directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(git_directory) if name.startswith("sharedindex."))
    except OSError:
        return []


@lru_cache(maxsize=16)
def _read_cached(path: str, _mtime: int, _size: int, _inode: int) -> tuple[IndexEntry, ...] | None:
    try:
        descriptor, _ = open_regular_file(path, None)
    except SourceError:
        return None
    with open(descriptor, "rb") as file:
        data = file.read(_MAX_BYTES)
    for hash_size in _HASH_SIZES:
        entries = _parse(data, hash_size)
        if entries is not None:
            return entries
    return None


def _parse(data: bytes, hash_size: int) -> tuple[IndexEntry, ...] | None:
    version = int.from_bytes(data[4:8], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        return None
    at, name = _HEADER, b""
    entries: list[IndexEntry] = []
    for _ in range(int.from_bytes(data[8:12], "big")):
        start, flags_at = at, at + _OBJECT_OFFSET + hash_size
        flags = int.from_bytes(data[flags_at : flags_at + 2], "big")
        begins = flags_at + (4 if flags & _EXTENDED else 2)
        removed = 0
        if version == 4:  # the name continues the one before
            removed, begins = _varint(data, begins)
        ends = data.find(b"\0", begins)
        if ends < 0 or removed > len(name):
            return None
        name = name[: len(name) - removed] + data[begins:ends] if version == 4 else data[begins:ends]
        at = ends + 1 if version == 4 else start + ((ends - start) // 8 + 1) * 8
        mode = int.from_bytes(data[start + _MODE_OFFSET : start + _MODE_OFFSET + 4], "big")
        object_id = data[start + _OBJECT_OFFSET : flags_at].hex()
        entries.append(IndexEntry(os.fsdecode(name), object_id, mode == _GITLINK))
    rest = len(data) - at
    # Extensions or the checksum follow; anything else is another hash size.
    ends_here = rest == hash_size or (rest > hash_size and data[at : at + 4].isalpha())
    return tuple(entries) if ends_here else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """git's offset encoding, and the index after it."""
    value = -1
    while True:
        byte = data[at] if at < len(data) else 0
        value = ((value + 1) << 7) | (byte & 127)
        at += 1
        if byte < 128:
            return value, at
