"""Takes a snapshot of a workspace and stores every file's content, so that the changes of a command can be detected
and undone. Unchanged files are not read again.

Used by session_changes before and after a command. Walks as the search tools do: skips what git ignores, follows no
links. Oversized files are compared by size and time and not stored.
"""

import os
import stat
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from kitbag.agent.undo.change_records import NOT_STORED_PREFIX, UNKNOWN_MODE, FileKind, FileState, PathChange
from kitbag.store.content_store import ContentWriter
from kitbag.text.no_follow import open_directory
from kitbag.tools.search.walk import IgnoreStack, parent_ignore_rules, walk

MAX_FILE_BYTES: Final = 5 << 20
MAX_FILES: Final = 50_000
MAX_TOTAL_BYTES: Final = 256 << 20
MAX_SECONDS: Final = 3.0
_MAX_DEPTH = 100
_SETTLE_NS = 2_000_000_000
"""Nanoseconds: two changes closer together may leave the same timestamps."""
_CLOCK_SKEW_NS = 1_000_000_000
"""How far a file's timestamp may lag behind the clock."""
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_STAMP = (0, 0, 0, 0)


class FileSnapshot(NamedTuple):
    state: FileState
    stamp: tuple[int, int, int, int]
    """Size, mtime, ctime and inode; an unchanged stamp means an unchanged file."""
    settled: bool = True
    """Whether the stamp can be trusted."""


class SnapshotLimits(msgspec.Struct, frozen=True, kw_only=True):
    files: int = MAX_FILES
    bytes: int = MAX_TOTAL_BYTES
    seconds: float = MAX_SECONDS


class WorkspaceSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    files: dict[str, FileSnapshot]
    """By absolute path."""
    ignore_rules: dict[str, IgnoreStack]
    """What git ignores, by folder."""
    unreadable_folders: frozenset[str]
    """Each with a trailing slash."""
    files_read: int
    """New or changed files that had to be read."""
    started_ns: int
    """time.time_ns() at the start."""


class SnapshotLimitError(Exception):
    """`partial`: the files read so far, for the next attempt; None if a retry is pointless."""

    def __init__(self, reason: str, partial: dict[str, FileSnapshot] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.partial = partial


def file_stamp(status: os.stat_result) -> tuple[int, int, int, int]:
    return (status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def not_stored_digest(status: os.stat_result) -> str:
    """Replaces the digest of a file that is too large to store."""
    return f"{NOT_STORED_PREFIX}{status.st_size}-{status.st_mtime_ns}"


def take_snapshot(
    roots: Sequence[str],
    keep: ContentWriter,
    previous: Mapping[str, FileSnapshot],
    *,
    ignore_rules: Mapping[str, IgnoreStack] | None = None,
    exclude: Iterable[str] = (),
    limits: SnapshotLimits = SnapshotLimits(),  # noqa: B008 - a NamedTuple is immutable
    stop: threading.Event | None = None,
    only_count: bool = False,
) -> WorkspaceSnapshot:
    """`previous`: files of an earlier snapshot whose content is still stored. `ignore_rules`: those of an earlier
    snapshot, so that the same files count even if .gitignore changed. `only_count`: checks the limits and reads
    nothing. Raises SnapshotLimitError, OSError and StoreError."""
    builder = _SnapshotBuilder(
        keep=keep, previous=previous, previous_rules=ignore_rules, excluded=frozenset(exclude), limits=limits, stop=stop
    )
    builder.only_count = only_count
    for root in roots:
        if not any(root != other and root.startswith(other.rstrip("/") + "/") for other in roots):
            builder.add_root(root)
    return WorkspaceSnapshot(
        files=builder.files,
        ignore_rules=builder.ignore_rules,
        unreadable_folders=frozenset(builder.unreadable_folders),
        files_read=builder.files_read,
        started_ns=builder.started_ns,
    )


def snapshot_paths(paths: Iterable[str], keep: ContentWriter) -> dict[str, FileState]:
    """The files, links and folders that exist at these absolute paths. Files that are too large are not stored."""
    builder = _SnapshotBuilder(keep, {}, None, frozenset(), SnapshotLimits(seconds=MAX_SECONDS), None)
    for path in paths:
        parent, name = os.path.split(path)
        try:
            folder = open_directory(parent)
        except OSError:
            continue
        try:
            status = os.lstat(name, dir_fd=folder)
            if stat.S_ISDIR(status.st_mode):
                builder.files[path] = FileSnapshot(FileState("folder", "", status.st_mode & 0o7777), _NO_STAMP)
            else:
                builder.snapshot_file(folder, name, path, status)
        except OSError:
            continue
        finally:
            os.close(folder)
    return {path: file.state for path, file in builder.files.items()}


class _SnapshotBuilder:
    def __init__(
        self,
        keep: ContentWriter,
        previous: Mapping[str, FileSnapshot],
        previous_rules: Mapping[str, IgnoreStack] | None,
        excluded: frozenset[str],
        limits: SnapshotLimits,
        stop: threading.Event | None,
    ) -> None:
        self.keep = keep
        self.previous = previous
        self.previous_rules = previous_rules
        self.excluded = excluded
        self.limits = limits
        self.stop = stop
        self.base = ""
        """The root that is walked, with a trailing slash."""
        self.files: dict[str, FileSnapshot] = {}
        self.ignore_rules: dict[str, IgnoreStack] = {}
        self.unreadable_folders: set[str] = set()
        self.only_count = False
        self.files_read = 0
        self.bytes = 0
        self.started_ns = time.time_ns()
        self.deadline = time.monotonic() + limits.seconds

    def add_root(self, path: str) -> None:
        self.base = path.rstrip("/") + "/"
        try:
            descriptor = open_directory(path)
        except FileNotFoundError:
            return  # does not exist
        except OSError:
            self.unreadable_folders.add(self.base)
            return
        try:
            walked = walk(
                descriptor,
                parent_ignore_rules(path, self.base)[0],
                path=self.base,
                enter=self._enter_folder,
                excluded=self.excluded,
                # Counted under the same rules before.
                never_ignored=self.previous if self.previous_rules is not None else (),
                max_depth=_MAX_DEPTH,
                on_error=self._add_unreadable,
            )
            for folder, batch in walked:
                self._add_entries(folder, batch)
                if len(self.files) > self.limits.files:
                    raise SnapshotLimitError(f"more than {self.limits.files:,} files")
        finally:
            os.close(descriptor)

    def _enter_folder(self, above: IgnoreStack, folder: int, path: str, names: Iterable[str]) -> IgnoreStack:
        self._check_limits()
        previous = self.previous_rules.get(path) if self.previous_rules is not None else None
        ignore = self.ignore_rules[path] = previous if previous is not None else above.enter(folder, path, names)
        return ignore

    def _add_entries(self, folder: int, batch: Iterable[tuple[str, "os.DirEntry[str]", bool]]) -> None:
        files, previous = self.files, self.previous
        for path, entry, is_folder in batch:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed meanwhile
            before = previous.get(path)
            if is_folder:
                state = FileState("folder", "", status.st_mode & 0o7777)
                if before is None or before.state != state:
                    before = FileSnapshot(state, _NO_STAMP)
                files[path] = before
            elif before is not None and before.settled and before.stamp == file_stamp(status):
                files[path] = before
                self.bytes += status.st_size if status.st_size <= MAX_FILE_BYTES else 0
            else:
                self.snapshot_file(folder, entry.name, path, status)

    def _add_unreadable(self, path: str, error: OSError) -> None:
        if path == self.base:
            raise error
        self.unreadable_folders.add(path.rstrip("/") + "/")

    def snapshot_file(self, folder: int, name: str, full_path: str, status: os.stat_result) -> None:
        """A new or changed file. Pipes, sockets and devices are skipped."""
        self._check_limits()
        mode = status.st_mode & 0o7777
        kind: FileKind = "file"
        if stat.S_ISLNK(status.st_mode):
            try:
                digest = self.keep.put(os.fsencode(os.readlink(name, dir_fd=folder)))
            except OSError:
                return
            kind, mode = "link", UNKNOWN_MODE
            self.files_read += 1
        elif not stat.S_ISREG(status.st_mode):
            return
        elif status.st_size > MAX_FILE_BYTES:
            digest = not_stored_digest(status)
        else:
            self.bytes += status.st_size
            if self.bytes > self.limits.bytes:
                raise SnapshotLimitError(f"more than {self.limits.bytes >> 20:,} MB of files")
            data, status = _read_file(folder, name, status) if not self.only_count else (None, status)
            digest = self.keep.put(data) if data is not None else not_stored_digest(status)
            mode = status.st_mode & 0o7777
            self.files_read += 1
        settled = self.started_ns - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLE_NS
        self.files[full_path] = FileSnapshot(FileState(kind, digest, mode), file_stamp(status), settled)

    def _check_limits(self) -> None:
        partial = None if self.only_count else self.files
        if self.stop is not None and self.stop.is_set():
            raise SnapshotLimitError("interrupted", partial)
        if time.monotonic() > self.deadline:
            raise SnapshotLimitError(f"reading the files takes longer than {self.limits.seconds:g} s", partial)


def _read_file(folder: int, name: str, status: os.stat_result) -> tuple[bytes | None, os.stat_result]:
    """The bytes and the status when they were read; None if unreadable or too large."""
    try:
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except OSError:
        return None, status
    try:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            return None, status
        chunks: list[bytes] = []
        size = 0
        while size <= MAX_FILE_BYTES and (chunk := os.read(descriptor, min(opened.st_size, MAX_FILE_BYTES) + 1)):
            chunks.append(chunk)
            size += len(chunk)
            if size == opened.st_size:
                break  # complete; another read would return nothing
        return (b"".join(chunks) if size <= MAX_FILE_BYTES else None), opened
    except OSError:
        return None, status
    finally:
        os.close(descriptor)


def diff_snapshots(before: WorkspaceSnapshot, after: WorkspaceSnapshot) -> list[PathChange]:
    """What was added, removed and changed between two snapshots, sorted by path."""
    changes: list[PathChange] = []
    inodes = {file.stamp[3] for file in before.files.values()}
    for path, file in before.files.items():
        now = after.files.get(path)
        if now is None:
            if not _is_in_unreadable(path, after.unreadable_folders):
                changes.append(PathChange(path=path, before=file.state, after=None))
        elif now.state != file.state:
            changes.append(PathChange(path=path, before=file.state, after=now.state))
    for path, file in after.files.items():
        if path not in before.files and not _is_in_unreadable(path, before.unreadable_folders):
            older = 0 < file.stamp[1] < before.started_ns - _CLOCK_SKEW_NS and file.stamp[3] not in inodes
            changes.append(PathChange(path=path, before=None, after=file.state, predates_command=older))
    return sorted(changes, key=lambda change: change.path)


def _is_in_unreadable(path: str, unreadable_folders: frozenset[str]) -> bool:
    """Whether the path is in a folder that could not be read."""
    return bool(unreadable_folders) and any(path.startswith(folder) for folder in unreadable_folders)
