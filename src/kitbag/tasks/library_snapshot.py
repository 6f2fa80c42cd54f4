"""Snapshots of a user's library: skills, agents, personas, plugins and the settings about them, as one content that
travels with a task of a named queue and is named by its hash.

The board stores one when a task is created, the worker unpacks it. Secrets don't travel: files that hold them by name
are omitted, known values are redacted, and only settings of a fixed list are taken.
"""

import base64
import contextlib
import hashlib
import json
import math
import os
import shutil
import stat
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from kitbag.errors import InvalidError
from kitbag.library.scopes import ITEM_KINDS, Places, find_roots
from kitbag.settings import load_settings, parse_toml
from kitbag.store.briefs import register_briefs
from kitbag.store.journal import Journal, JournalEntry
from kitbag.store.private_files import open_directory, storage_error
from kitbag.store.redaction import Redactor
from kitbag.store.secret_names import has_secret_value
from kitbag.text.secret_paths import secret_path_reason
from kitbag.text.source_files import PathBoundary, directory_boundary, with_trailing_slash

SNAPSHOT_STREAM_PREFIX: Final = "snapshot/"
FOLDER: Final = "snapshots"
"""In the Kitbag home of a worker."""
MAX_BYTES: Final = 20_000_000
"""Compressed."""
MAX_UNPACKED_BYTES: Final = 200_000_000
MAX_FILES: Final = 50_000
UNUSED_DAYS: Final = 30
"""After which a worker deletes an unpacked one, and the store one that no task names."""
_USED_DAYS: Final = 7
"""How often a stored one is marked as used, so that pruning and a new task never meet."""
_DAY: Final = 86_400
_CHUNK_CHARACTERS: Final = 500_000
_SKIPPED_FOLDERS: Final = frozenset((".git", "__pycache__", "node_modules", ".venv"))
_SETTINGS: Final = ("precedence", "team", "persona", "catalog", "budget", "skills", "agents", "vars")
"""Keys and tables that travel. None of them allows or runs anything."""
_SETTINGS_FILE: Final = "kitbag/settings.toml"


class SnapshotFile(msgspec.Struct, frozen=True, array_like=True):
    path: str
    """Below `home/` or `kitbag/`."""
    is_executable: bool
    data: bytes


class _Stamp(NamedTuple):
    changed: int
    """By ctime, which `chmod` sets too."""
    size: int
    inode: int


_DECODER: Final = msgspec.msgpack.Decoder(list[SnapshotFile])
_last_taken: dict[str, tuple[object, str, bytes]] = {}
"""Per Kitbag home: the stamps of its files, and what they became."""
_MIN_FILE_AGE_NS: Final = 2_000_000_000
"""A file that is younger may change again without changing its stamp."""
_unpacking: Final = threading.Lock()
_verified: set[str] = set()
"""Folders that this process has compared with their hash."""


def take_snapshot(places: Places, redactor: Redactor) -> tuple[str, bytes]:
    """Its hash and its content. Reads files only if one changed. Raises InvalidError if it is too large."""
    found = dict(_find_files(places, tuple(load_settings(places.kitbag_home, ()).get("library.link_targets"))))
    found[_SETTINGS_FILE] = os.path.join(places.kitbag_home, "settings.toml")
    stamps = {name: _stamp(path) for name, path in found.items()}
    key = f"{places.user_home}\0{places.kitbag_home}"
    if key in _last_taken and _last_taken[key][0] == stamps:
        return _last_taken[key][1:]
    sizes = {found[name]: stamp.size for name, stamp in stamps.items()}
    if len(found) > MAX_FILES or sum(sizes.values()) > MAX_UNPACKED_BYTES:
        raise _too_large(sizes)
    packed = msgspec.msgpack.encode(list(_read_files(found, redactor)))
    content = zlib.compress(packed)
    if len(content) > MAX_BYTES:
        raise _too_large(sizes, f", {len(content) / 1e6:,.1f} MB compressed")
    taken = (stamps, _hash(packed), content)
    if time.time_ns() - max(stamp.changed for stamp in stamps.values()) > _MIN_FILE_AGE_NS:
        _last_taken[key] = taken
    return taken[1:]


def snapshot_entries(journal: Journal, name: str, content: bytes) -> list[JournalEntry]:
    """What to write so that the store has it: nothing, if it has and was used lately."""
    stream = SNAPSHOT_STREAM_PREFIX + name
    if (last := journal.last(stream)) is not None:
        age = time.time() - datetime.fromisoformat(last.at).timestamp()
        return [JournalEntry(stream, "used", {})] if age > _USED_DAYS * _DAY else []
    text = base64.b64encode(content).decode()
    pieces = [text[start : start + _CHUNK_CHARACTERS] for start in range(0, len(text), _CHUNK_CHARACTERS)]
    chunk = os.urandom(6).hex()  # two machines may store it at the same moment
    return [JournalEntry(stream, "chunk", {"copy": chunk, "count": len(pieces), "text": piece}) for piece in pieces]


def snapshot_folder(kitbag_home: str, name: str) -> str:
    return os.path.join(os.path.realpath(kitbag_home), FOLDER, os.path.basename(name))


def unpack_snapshot(journal: Journal, kitbag_home: str, name: str) -> None:
    """Makes sure that its folder has what the hash names. Blocks. Raises InvalidError if the store lacks it."""
    folder = snapshot_folder(kitbag_home, name)
    with _unpacking:  # tasks that start together need the same
        if not _is_intact(folder, name):
            journal.fetch(SNAPSHOT_STREAM_PREFIX + name)
            _replace(folder, _decode(journal, name))
            _delete_unused(os.path.dirname(folder))
        _verified.add(folder)


def unused_snapshots(journal: Journal, named: Iterable[str], before: str) -> list[str]:
    """Streams of snapshots that none of these tasks names and that were not used since."""
    kept = {SNAPSHOT_STREAM_PREFIX + name for name in named}
    limit = min(before, datetime.fromtimestamp(time.time() - UNUSED_DAYS * _DAY, UTC).isoformat())
    return [
        stream
        for stream in journal.streams(SNAPSHOT_STREAM_PREFIX)
        if stream not in kept and (last := journal.last(stream)) is not None and last.at < limit
    ]


# Collecting


def _find_files(places: Places, link_targets: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(name in the snapshot, path) of the files of user folders and plugins."""
    roots = [root for kind in ITEM_KINDS for root in find_roots(places, kind, link_targets=link_targets)]
    plugins = os.path.join(places.kitbag_home, "plugins")
    found = [(root.path, root.boundary) for root in roots if root.scope == "user"]
    for top, boundary in (*found, (plugins, directory_boundary(plugins))):
        for path in _walk(top, boundary):
            yield snapshot_path(places, path), path


def _walk(top: str, boundary: PathBoundary | None) -> Iterator[str]:
    """Regular files that hold no secrets by their names. Links to folders are followed once, inside the boundary."""

    def may_enter(real: str) -> bool:
        return boundary is None or not boundary.violation(with_trailing_slash(real))

    seen: set[str] = set()
    for directory, folders, names in os.walk(top, followlinks=True):
        real = os.path.realpath(directory)
        if real in seen or not may_enter(real):
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        for name in names:
            path, target = os.path.join(directory, name), os.path.join(real, name)
            if os.path.islink(path):
                target = os.path.realpath(path)
                if not may_enter(os.path.dirname(target)):
                    continue
            is_secret = secret_path_reason(target) or secret_path_reason(name)
            if not is_secret and _is_utf8(path) and _is_file(target):
                yield path


def _is_utf8(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:  # another machine may name it otherwise
        return False
    return True


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path, follow_symlinks=False).st_mode)
    except OSError:
        return False


def snapshot_path(places: Places, path: str) -> str:
    """Where a file of the user's library is in a snapshot."""
    for base, place in ((places.kitbag_home, "kitbag"), (places.user_home, "home")):
        if path.startswith(os.path.join(base, "")):  # the home of a container's user may be `/`
            return f"{place}/{os.path.relpath(path, base)}"
    raise AssertionError(f"{path} is in neither home")


def _stamp(path: str) -> _Stamp:
    try:
        found = os.stat(path)
    except OSError:
        return _Stamp(0, 0, 0)
    return _Stamp(found.st_ctime_ns, found.st_size, found.st_ino)


def _too_large(sizes: dict[str, int], compressed: str = "") -> InvalidError:
    largest = max(sizes, key=lambda path: sizes[path])
    return InvalidError(
        f"your skills, agents and plugins are too large to travel with a task: {len(sizes):,} files, "
        f"{sum(sizes.values()) / 1e6:,.1f} MB{compressed}; the limits are {MAX_FILES:,} files, "
        f"{MAX_UNPACKED_BYTES / 1e6:,.0f} MB and {MAX_BYTES / 1e6:,.0f} MB compressed; "
        f"the largest file is {largest} ({sizes[largest] / 1e6:,.1f} MB)",
        "remove large files, or install them on the workers and run `kitbag config set tasks.snapshot off`",
    )


def _read_files(found: dict[str, str], redactor: Redactor) -> Iterator[SnapshotFile]:
    """Without those that were deleted or can't be read: the library here does not have them either."""
    for name in sorted(found):
        with contextlib.suppress(OSError), open(found[name], "rb") as file:
            is_executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
            data = file.read(MAX_UNPACKED_BYTES)
            data = _filter_settings(data) if name == _SETTINGS_FILE else data
            yield SnapshotFile(name, is_executable, _redact(redactor, data))


def _redact(redactor: Redactor, data: bytes) -> bytes:
    """In binary files only known values: what merely looks like a secret there is data."""
    text = data.decode(errors="surrogateescape")
    redacted = redactor.redact_known(text) if "\0" in text else redactor.redact_text(text)
    return redacted.encode(errors="surrogateescape")


def _filter_settings(data: bytes) -> bytes:
    """Only what may travel, as TOML."""
    try:
        content = parse_toml(data.decode())
    except (ValueError, RecursionError):
        return b""
    lines: list[str] = []
    tables: list[str] = []
    for key in _SETTINGS:
        value = content.get(key)
        if isinstance(value, dict) and (inner := _settings_lines(value)):  # pyright: ignore[reportUnknownArgumentType]
            tables += [f"[{key}]", *inner]
        elif isinstance(value, str):
            lines += _settings_lines({key: value})
    return "".join(f"{line}\n" for line in (*lines, *tables)).encode()


def _settings_lines(table: dict[str, Any]) -> list[str]:
    return [
        f"{_toml(name)} = {_toml(value)}"
        for name, value in table.items()
        if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))
        if not has_secret_value(name)
    ]


def _toml(value: str | float) -> str:
    """As in JSON, except for characters that TOML writes in another way."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# Unpacking


def _hash(packed: bytes) -> str:
    return hashlib.sha256(packed).hexdigest()


def _decode(journal: Journal, name: str) -> list[SnapshotFile]:
    """Raises InvalidError unless it is exactly what the hash names."""
    missing = InvalidError(f"the store has no snapshot {name[:12]} of the user's library", "start the task again")
    copies: dict[str, list[str]] = {}
    for record in journal.read(SNAPSHOT_STREAM_PREFIX + name, kind="chunk"):
        copies.setdefault(str(record.body["copy"]), []).append(str(record.body["text"]))
    for pieces in copies.values():
        with contextlib.suppress(ValueError, zlib.error, msgspec.MsgspecError):
            decompressor = zlib.decompressobj()
            packed = decompressor.decompress(base64.b64decode("".join(pieces)), MAX_UNPACKED_BYTES * 2)
            if _hash(packed) == name:
                files = _DECODER.decode(packed)
                if len(files) <= MAX_FILES and all(_is_safe(file.path) for file in files):
                    return files
    raise missing


def _is_safe(path: str) -> bool:
    parts = path.split("/")
    return parts[0] in ("home", "kitbag") and len(parts) > 1 and not {"", ".", ".."} & set(parts) and "\0" not in path


def _is_intact(folder: str, name: str) -> bool:
    """Whether it is there. Compared once per process: a power cut may have left a part of it."""
    try:
        os.utime(folder)
        return folder in _verified or _hash(msgspec.msgpack.encode(_read_back(folder))) == name
    except OSError:
        return False


def _read_back(folder: str) -> list[SnapshotFile]:
    """Raises OSError."""
    files: list[SnapshotFile] = []
    for directory, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(directory, name)
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
                is_executable = bool(os.fstat(opened.fileno()).st_mode & stat.S_IXUSR)
                files.append(SnapshotFile(os.path.relpath(path, folder), is_executable, opened.read()))
    return sorted(files, key=lambda file: file.path)


def _replace(folder: str, files: Iterable[SnapshotFile]) -> None:
    """Raises StoreError."""
    parent, name = os.path.split(folder)
    temporary = f"{name}.{os.urandom(6).hex()}.tmp"
    try:
        for place in ("home", "kitbag"):
            with open_directory(parent, f"{temporary}/{place}"):
                pass
        for file in files:
            _write(parent, temporary, file)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(os.path.join(parent, temporary), folder)
    except OSError as error:
        raise storage_error("write", folder, error) from error
    finally:
        shutil.rmtree(os.path.join(parent, temporary), ignore_errors=True)


def _write(parent: str, temporary: str, file: SnapshotFile) -> None:
    place, name = os.path.split(file.path)
    # Filtered here, too: somebody else may have packed it.
    data = _filter_settings(file.data) if file.path == _SETTINGS_FILE else file.data
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open_directory(parent, f"{temporary}/{place}") as directory:
        mode = 0o700 if file.is_executable else 0o600
        with open(os.open(name, flags, mode, dir_fd=directory), "wb") as opened:
            opened.write(data)


def _delete_unused(parent: str) -> None:
    for entry in list(os.scandir(parent)):
        with contextlib.suppress(OSError):
            if time.time() - entry.stat(follow_symlinks=False).st_mtime > UNUSED_DAYS * _DAY:
                shutil.rmtree(entry.path)


def _shorten(kind: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return {"copy": body["copy"]} if kind == "chunk" else None


register_briefs(SNAPSHOT_STREAM_PREFIX, _shorten)
