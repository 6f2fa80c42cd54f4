"""One look at the files of a workspace: what is there, with every content kept, so that what a command changes can be
told and taken back. A file that has not changed since the last look is not read again.

Used by changes, before and after a command. Looks at what git does not ignore, follows no link, runs nothing. Each
folder is opened inside the one above it; what is too big is told from its like by size and time, and not kept.
"""

import os
import stat
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kitbag.agent.undo.change_records import NOT_STORED_PREFIX, UNKNOWN_MODE, FileChange, FileKind, FileState
from kitbag.store.content_store import ContentWriter
from kitbag.text.no_follow import open_directory
from kitbag.tools.search.walk import VCS_DIRECTORIES, IgnoreStack, parent_ignore_rules

MAX_FILE_BYTES: Final = 5 << 20
MAX_FILES: Final = 50_000
MAX_TOTAL_BYTES: Final = 256 << 20
MAX_SECONDS: Final = 3.0
_MAX_DEPTH = 100
_SETTLE_NS = 2_000_000_000
"""Nanoseconds: a change that follows another sooner may leave the same times behind."""
_CLOCK_SKEW_NS = 1_000_000_000
"""How much a file's time may lag behind the clock."""
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SKIPPED_NAMES = frozenset(VCS_DIRECTORIES)
_NO_STAMP = (0, 0, 0, 0)


class FileSnapshot(NamedTuple):
    state: FileState
    stamp: tuple[int, int, int, int]
    """Size, the two times of a change, and the number of the file: as long as these are the same, so is it."""
    settled: bool = True
    """Whether that can be believed."""


class SnapshotLimits(NamedTuple):
    files: int = MAX_FILES
    bytes: int = MAX_TOTAL_BYTES
    seconds: float = MAX_SECONDS


class WorkspaceSnapshot(NamedTuple):
    files: dict[str, FileSnapshot]
    """By path, absolute."""
    ignore_rules: dict[str, IgnoreStack]
    """What git ignores in each folder."""
    unreadable_folders: frozenset[str]
    """Folders that could not be read, each with a slash at its end."""
    files_read: int
    """How many were new or had changed, and had to be read."""
    started_ns: int
    """Nanoseconds on the clock."""


class SnapshotLimitError(Exception):
    """`far` is how far the look came, so that the next one need not begin anew; None when there is no use."""

    def __init__(self, reason: str, partial: dict[str, FileSnapshot] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.partial = partial


def file_stamp(found: os.stat_result) -> tuple[int, int, int, int]:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def not_stored_digest(found: os.stat_result) -> str:
    """In place of the digest of a file that is too big to be kept."""
    return f"{NOT_STORED_PREFIX}{found.st_size}-{found.st_mtime_ns}"


def take_snapshot(
    roots: Sequence[str],
    keep: ContentWriter,
    previous: Mapping[str, FileSnapshot],
    *,
    ignore_rules: Mapping[str, IgnoreStack] | None = None,
    exclude: Iterable[str] = (),
    limits: SnapshotLimits = SnapshotLimits(),  # noqa: B008 - a NamedTuple can't be changed
    stop: threading.Event | None = None,
    only_count: bool = False,
) -> WorkspaceSnapshot:
    """`known` is an earlier look's, with contents that are still kept. With the `rules` of an earlier look the same
    files count as then, whatever became of .gitignore. `only_count` reads and keeps nothing, to see whether it is too
    much. Raises TooMuchError, OSError and StoreError.
    """
    walk = _SnapshotWalk(keep, previous, ignore_rules, frozenset(exclude), limits, stop)
    walk.only_count = only_count
    for root in roots:
        if not any(root != other and root.startswith(other.rstrip("/") + "/") for other in roots):
            walk.walk_root(root)
    return WorkspaceSnapshot(
        walk.files, walk.ignore_rules, frozenset(walk.unreadable_folders), walk.files_read, walk.started_ns
    )


class _SnapshotWalk:
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
        self.files: dict[str, FileSnapshot] = {}
        self.ignore_rules: dict[str, IgnoreStack] = {}
        self.unreadable_folders: set[str] = set()
        self.only_count = False
        self.files_read = 0
        self.bytes = 0
        self.started_ns = time.time_ns()
        self.deadline = time.monotonic() + limits.seconds

    def walk_root(self, path: str) -> None:
        try:
            descriptor = open_directory(path)
        except FileNotFoundError:
            return  # not there yet, or no more: so nothing is in it
        except OSError:
            self.unreadable_folders.add(path.rstrip("/") + "/")
            return
        try:
            self._walk_folder(descriptor, path.rstrip("/") + "/", "", parent_ignore_rules(path)[0], 1)
        finally:
            os.close(descriptor)

    def _walk_folder(self, folder: int, base: str, path: str, above: IgnoreStack, depth: int) -> None:
        """`path` from the root on, as the rules need it; `base` is the root. Both end with a slash, or are empty."""
        with os.scandir(folder) as found:
            entries = list(found)
        self._check_limits()
        place = base + path
        ignoring = self.previous_rules.get(place) if self.previous_rules is not None else None
        same_rules = ignoring is not None
        if ignoring is None:
            ignoring = above.enter(folder, path, (entry.name for entry in entries))
        self.ignore_rules[place] = ignoring
        known, seen, leave_out = self.previous, self.files, self.excluded
        asks = bool(ignoring.rules)
        deeper: list[str] = []
        for entry in entries:
            name = entry.name
            whole = place + name
            if name in _SKIPPED_NAMES or whole in leave_out:
                continue
            before = known.get(whole)
            is_folder = entry.is_dir(follow_symlinks=False)
            if asks and not (same_rules and before) and ignoring.ignores(path + name, is_folder=is_folder):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone meanwhile
            if is_folder:
                state = FileState("folder", "", status.st_mode & 0o7777)
                seen[whole] = before if before is not None and before.state == state else FileSnapshot(state, _NO_STAMP)
                deeper.append(name)
            elif before is not None and before.settled and before.stamp == file_stamp(status):
                seen[whole] = before
                self.bytes += status.st_size if status.st_size <= MAX_FILE_BYTES else 0
            else:
                self._snapshot_file(folder, name, whole, status)
        if len(seen) > self.limits.files:
            raise SnapshotLimitError(f"there are more than {self.limits.files:,} files")
        for name in deeper if depth < _MAX_DEPTH else ():
            self._enter_folder(folder, name, base, path, ignoring, depth)

    def _enter_folder(self, folder: int, name: str, base: str, path: str, ignoring: IgnoreStack, depth: int) -> None:
        try:
            inner = os.open(name, _FOLDER_FLAGS, dir_fd=folder)
        except OSError:
            self.unreadable_folders.add(f"{base}{path}{name}/")
            return
        try:
            self._walk_folder(inner, base, f"{path}{name}/", ignoring, depth + 1)
        except OSError:
            self.unreadable_folders.add(f"{base}{path}{name}/")
        finally:
            os.close(inner)

    def _snapshot_file(self, folder: int, name: str, whole: str, status: os.stat_result) -> None:
        """What is new or has changed. Pipes, sockets and devices are no content and are passed over."""
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
                raise SnapshotLimitError(f"there are more than {self.limits.bytes >> 20:,} MB of files")
            data, status = _read_file(folder, name, status) if not self.only_count else (None, status)
            digest = self.keep.put(data) if data is not None else not_stored_digest(status)
            mode = status.st_mode & 0o7777
            self.files_read += 1
        settled = self.started_ns - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLE_NS
        self.files[whole] = FileSnapshot(FileState(kind, digest, mode), file_stamp(status), settled)

    def _check_limits(self) -> None:
        far = None if self.only_count else self.files
        if self.stop is not None and self.stop.is_set():
            raise SnapshotLimitError("it was stopped", far)
        if time.monotonic() > self.deadline:
            raise SnapshotLimitError(f"to look at its files takes longer than {self.limits.seconds:g} s", far)


def _read_file(folder: int, name: str, status: os.stat_result) -> tuple[bytes | None, os.stat_result]:
    """Its bytes and what it was when they were read; None when it can't be read, or has grown too big."""
    try:
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except OSError:
        return None, status
    try:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            return None, status
        pieces: list[bytes] = []
        size = 0
        while size <= MAX_FILE_BYTES and (piece := os.read(descriptor, min(opened.st_size, MAX_FILE_BYTES) + 1)):
            pieces.append(piece)
            size += len(piece)
            if size == opened.st_size:
                break  # all of it: another read would only say so
        return (b"".join(pieces) if size <= MAX_FILE_BYTES else None), opened
    except OSError:
        return None, status
    finally:
        os.close(descriptor)


def diff_snapshots(before: WorkspaceSnapshot, after: WorkspaceSnapshot) -> list[FileChange]:
    """What came, went and changed between two looks, in the order of the paths."""
    changes: list[FileChange] = []
    inodes = {seen.stamp[3] for seen in before.files.values()}
    for path, seen in before.files.items():
        now = after.files.get(path)
        if now is None:
            if not _is_in_unreadable(path, after.unreadable_folders):
                changes.append(FileChange(path, seen.state, None))
        elif now.state != seen.state:
            changes.append(FileChange(path, seen.state, now.state))
    for path, seen in after.files.items():
        if path not in before.files and not _is_in_unreadable(path, before.unreadable_folders):
            older = 0 < seen.stamp[1] < before.started_ns - _CLOCK_SKEW_NS and seen.stamp[3] not in inodes
            changes.append(FileChange(path, None, seen.state, older))
    return sorted(changes)


def _is_in_unreadable(path: str, unreadable_folders: frozenset[str]) -> bool:
    """Whether it lies in a folder that could not be looked into."""
    return bool(unreadable_folders) and any(path.startswith(folder) for folder in unreadable_folders)
