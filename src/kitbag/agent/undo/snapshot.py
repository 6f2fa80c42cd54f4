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

from kitbag.agent.undo.change_records import UNKEPT, UNKNOWN, Change, Kind, State
from kitbag.store.content_store import Putting
from kitbag.text.no_follow import open_directory
from kitbag.tools.search.walk import NEVER_ENTERED, Ignoring, ignoring_above

LARGEST_FILE: Final = 5 << 20
MOST_FILES: Final = 50_000
MOST_BYTES: Final = 256 << 20
MOST_SECONDS: Final = 3.0
_DEEPEST = 100
_SETTLED = 2_000_000_000
"""Nanoseconds: a change that follows another sooner may leave the same times behind."""
_CLOCK = 1_000_000_000
"""How much a file's time may lag behind the clock."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEVER = frozenset(NEVER_ENTERED)
_NO_STAMP = (0, 0, 0, 0)


class Seen(NamedTuple):
    state: State
    stamp: tuple[int, int, int, int]
    """Size, the two times of a change, and the number of the file: as long as these are the same, so is it."""
    settled: bool = True
    """Whether that can be believed."""


class Limits(NamedTuple):
    files: int = MOST_FILES
    bytes: int = MOST_BYTES
    seconds: float = MOST_SECONDS


class Look(NamedTuple):
    seen: dict[str, Seen]
    """By path, absolute."""
    rules: dict[str, Ignoring]
    """What git ignores in each folder."""
    closed: frozenset[str]
    """Folders that could not be read, each with a slash at its end."""
    read: int
    """How many were new or had changed, and had to be read."""
    began: int
    """Nanoseconds on the clock."""


class TooMuchError(Exception):
    """`far` is how far the look came, so that the next one need not begin anew; None when there is no use."""

    def __init__(self, why: str, far: dict[str, Seen] | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.far = far


def stamp_of(found: os.stat_result) -> tuple[int, int, int, int]:
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


def unkept(found: os.stat_result) -> str:
    """In place of the digest of a file that is too big to be kept."""
    return f"{UNKEPT}{found.st_size}-{found.st_mtime_ns}"


def look_at(
    roots: Sequence[str],
    keep: Putting,
    known: Mapping[str, Seen],
    *,
    rules: Mapping[str, Ignoring] | None = None,
    leave_out: Iterable[str] = (),
    limits: Limits = Limits(),  # noqa: B008 - a NamedTuple can't be changed
    stop: threading.Event | None = None,
    only_count: bool = False,
) -> Look:
    """`known` is an earlier look's, with contents that are still kept. With the `rules` of an earlier look the same
    files count as then, whatever became of .gitignore. `only_count` reads and keeps nothing, to see whether it is too
    much. Raises TooMuchError, OSError and StoreError.
    """
    walk = _Walk(keep, known, rules, frozenset(leave_out), limits, stop)
    walk.only_count = only_count
    for root in roots:
        if not any(root != other and root.startswith(other.rstrip("/") + "/") for other in roots):
            walk.root(root)
    return Look(walk.seen, walk.rules, frozenset(walk.closed), walk.read, walk.began)


class _Walk:
    def __init__(
        self,
        keep: Putting,
        known: Mapping[str, Seen],
        rules: Mapping[str, Ignoring] | None,
        leave_out: frozenset[str],
        limits: Limits,
        stop: threading.Event | None,
    ) -> None:
        self.keep = keep
        self.known = known
        self.given_rules = rules
        self.leave_out = leave_out
        self.limits = limits
        self.stop = stop
        self.seen: dict[str, Seen] = {}
        self.rules: dict[str, Ignoring] = {}
        self.closed: set[str] = set()
        self.only_count = False
        self.read = 0
        self.bytes = 0
        self.began = time.time_ns()
        self.deadline = time.monotonic() + limits.seconds

    def root(self, path: str) -> None:
        try:
            descriptor = open_directory(path)
        except FileNotFoundError:
            return  # not there yet, or no more: so nothing is in it
        except OSError:
            self.closed.add(path.rstrip("/") + "/")
            return
        try:
            self._folder(descriptor, path.rstrip("/") + "/", "", ignoring_above(path)[0], 1)
        finally:
            os.close(descriptor)

    def _folder(self, folder: int, base: str, path: str, above: Ignoring, depth: int) -> None:
        """`path` from the root on, as the rules need it; `base` is the root. Both end with a slash, or are empty."""
        with os.scandir(folder) as found:
            entries = list(found)
        self._check()
        place = base + path
        ignoring = self.given_rules.get(place) if self.given_rules is not None else None
        same_rules = ignoring is not None
        if ignoring is None:
            ignoring = above.inside(folder, path, (entry.name for entry in entries))
        self.rules[place] = ignoring
        known, seen, leave_out = self.known, self.seen, self.leave_out
        asks = bool(ignoring.rules)
        deeper: list[str] = []
        for entry in entries:
            name = entry.name
            whole = place + name
            if name in _NEVER or whole in leave_out:
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
                state = State("folder", "", status.st_mode & 0o7777)
                seen[whole] = before if before is not None and before.state == state else Seen(state, _NO_STAMP)
                deeper.append(name)
            elif before is not None and before.settled and before.stamp == stamp_of(status):
                seen[whole] = before
                self.bytes += status.st_size if status.st_size <= LARGEST_FILE else 0
            else:
                self._other(folder, name, whole, status)
        if len(seen) > self.limits.files:
            raise TooMuchError(f"there are more than {self.limits.files:,} files")
        for name in deeper if depth < _DEEPEST else ():
            self._enter(folder, name, base, path, ignoring, depth)

    def _enter(self, folder: int, name: str, base: str, path: str, ignoring: Ignoring, depth: int) -> None:
        try:
            inner = os.open(name, _FOLDER, dir_fd=folder)
        except OSError:
            self.closed.add(f"{base}{path}{name}/")
            return
        try:
            self._folder(inner, base, f"{path}{name}/", ignoring, depth + 1)
        except OSError:
            self.closed.add(f"{base}{path}{name}/")
        finally:
            os.close(inner)

    def _other(self, folder: int, name: str, whole: str, status: os.stat_result) -> None:
        """What is new or has changed. Pipes, sockets and devices are no content and are passed over."""
        self._check()
        mode = status.st_mode & 0o7777
        kind: Kind = "file"
        if stat.S_ISLNK(status.st_mode):
            try:
                digest = self.keep.put(os.fsencode(os.readlink(name, dir_fd=folder)))
            except OSError:
                return
            kind, mode = "link", UNKNOWN
            self.read += 1
        elif not stat.S_ISREG(status.st_mode):
            return
        elif status.st_size > LARGEST_FILE:
            digest = unkept(status)
        else:
            self.bytes += status.st_size
            if self.bytes > self.limits.bytes:
                raise TooMuchError(f"there are more than {self.limits.bytes >> 20:,} MB of files")
            data, status = _read(folder, name, status) if not self.only_count else (None, status)
            digest = self.keep.put(data) if data is not None else unkept(status)
            mode = status.st_mode & 0o7777
            self.read += 1
        settled = self.began - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED
        self.seen[whole] = Seen(State(kind, digest, mode), stamp_of(status), settled)

    def _check(self) -> None:
        far = None if self.only_count else self.seen
        if self.stop is not None and self.stop.is_set():
            raise TooMuchError("it was stopped", far)
        if time.monotonic() > self.deadline:
            raise TooMuchError(f"to look at its files takes longer than {self.limits.seconds:g} s", far)


def _read(folder: int, name: str, status: os.stat_result) -> tuple[bytes | None, os.stat_result]:
    """Its bytes and what it was when they were read; None when it can't be read, or has grown too big."""
    try:
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except OSError:
        return None, status
    try:
        opened = os.fstat(descriptor)
        if not stat.S_ISREG(opened.st_mode):
            return None, status
        pieces: list[bytes] = []
        size = 0
        while size <= LARGEST_FILE and (piece := os.read(descriptor, min(opened.st_size, LARGEST_FILE) + 1)):
            pieces.append(piece)
            size += len(piece)
            if size == opened.st_size:
                break  # all of it: another read would only say so
        return (b"".join(pieces) if size <= LARGEST_FILE else None), opened
    except OSError:
        return None, status
    finally:
        os.close(descriptor)


def differences(before: Look, after: Look) -> list[Change]:
    """What came, went and changed between two looks, in the order of the paths."""
    changes: list[Change] = []
    inodes = {seen.stamp[3] for seen in before.seen.values()}
    for path, seen in before.seen.items():
        now = after.seen.get(path)
        if now is None:
            if not _is_hidden(path, after.closed):
                changes.append(Change(path, seen.state, None))
        elif now.state != seen.state:
            changes.append(Change(path, seen.state, now.state))
    for path, seen in after.seen.items():
        if path not in before.seen and not _is_hidden(path, before.closed):
            older = 0 < seen.stamp[1] < before.began - _CLOCK and seen.stamp[3] not in inodes
            changes.append(Change(path, None, seen.state, older))
    return sorted(changes)


def _is_hidden(path: str, closed: frozenset[str]) -> bool:
    """Whether it lies in a folder that could not be looked into."""
    return bool(closed) and any(path.startswith(folder) for folder in closed)
