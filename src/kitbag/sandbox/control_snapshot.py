"""The control paths in a workspace at one moment, at any depth, and which are new.

Used by `bubblewrap`: repositories and links that need protection, and, where the guard noticed an attack or there is no
guard, what a command created. A directory is read again only if its ctime, which can't be forged, has changed.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from kitbag.permissions.control_paths import PACKAGE_DIRECTORIES, PROJECT_SEQUENCES, is_control_name

MAX_SECONDS: Final = 2.0
"""The next search of the same directories gets further, because it need not read them again."""
_MAX_CACHED_DIRECTORIES = 400_000
_SETTLED_NANOSECONDS = 100_000_000
"""After this, a change gets a different timestamp."""
_SEQUENCE_STARTS = frozenset(sequence[0] for sequence in PROJECT_SEQUENCES)


class ControlSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    paths: frozenset[str]
    """Existing control paths, with each `.git` and the `HEAD` of each bare repository."""
    repositories: frozenset[str]
    """Those that are repositories."""
    cut: str = ""
    """What was not searched, and why; empty if everything was."""


class _DirectorySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    identity: tuple[int, int]
    changed: int
    read_at: int
    folders: tuple[str, ...]
    control_names: tuple[str, ...]
    repository_names: tuple[str, ...]
    """The entries that make it a repository."""


_cache: dict[str, _DirectorySnapshot] = {}


def take_snapshot(roots: Iterable[str], clock: Callable[[], float] = time.monotonic) -> ControlSnapshot:
    """Breadth first and bounded in time. Follows no links and never raises."""
    deadline, cut = clock() + MAX_SECONDS, ""
    paths: set[str] = set()
    repositories: set[str] = set()
    seen: set[str] = set()
    for root in roots:
        pending = deque([(root, False)])
        while pending:
            path, in_package = pending.popleft()
            if path in seen:
                continue
            if clock() > deadline:
                cut = (
                    f"stopped searching {root} for control files after {MAX_SECONDS:g} s and {len(seen):,} directories"
                )
                break
            seen.add(path)
            folder = _scan_directory(path)
            if folder is None:
                continue
            repositories.update(f"{path}/{name}" for name in folder.repository_names)
            if not in_package:
                paths.update(f"{path}/{name}" for name in folder.control_names)
            pending += [
                (f"{path}/{name}", in_package or name.casefold() in PACKAGE_DIRECTORIES) for name in folder.folders
            ]
    if len(_cache) > _MAX_CACHED_DIRECTORIES:
        _cache.clear()
    return ControlSnapshot(paths=frozenset(paths | repositories), repositories=frozenset(repositories), cut=cut)


def _scan_directory(path: str) -> _DirectorySnapshot | None:
    try:
        state = os.lstat(path)
        cached = _cache.get(path)
        identity = (state.st_dev, state.st_ino)
        if (
            cached
            and cached.identity == identity
            and cached.changed == state.st_ctime_ns < cached.read_at - _SETTLED_NANOSECONDS
        ):
            return cached
        now = time.time_ns()
        folders: list[str] = []
        names: set[str] = set()
        control: list[str] = []
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if name == "HEAD" or name.casefold() in (".git", "objects", "commondir"):
                    names.add(name)
                elif is_control_name(name):
                    control.append(name)
                elif name in _SEQUENCE_STARTS:
                    found = ("/".join(sequence) for sequence in PROJECT_SEQUENCES if sequence[0] == name)
                    control += [sequence for sequence in found if os.path.lexists(f"{path}/{sequence}")]
                if entry.is_dir(follow_symlinks=False) and name.casefold() != ".git":
                    folders.append(name)
    except OSError:
        _cache.pop(path, None)
        return None
    repository_names = [name for name in names if name.casefold() == ".git"]
    if "HEAD" in names and ("objects" in names or "commondir" in names):
        repository_names.append("HEAD")
    snapshot = _DirectorySnapshot(
        identity=identity,
        changed=state.st_ctime_ns,
        read_at=now,
        folders=tuple(folders),
        control_names=tuple(control),
        repository_names=tuple(repository_names),
    )
    # What lies in `.github` can change without a change of this directory.
    if not _SEQUENCE_STARTS.intersection(folders):
        _cache[path] = snapshot
    return snapshot


def find_created(before: ControlSnapshot, after: ControlSnapshot, allowed: Sequence[str]) -> list[str]:
    """New control paths, without those that were allowed and what is in them. None if a search was cut: what it did not
    find may have been there before."""
    if before.cut or after.cut:
        return []
    return [
        path
        for path in sorted(after.paths - before.paths)
        if not any(path == one or path.startswith(f"{one}/") for one in allowed)
    ]
