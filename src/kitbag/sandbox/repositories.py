"""Finds the git repositories in a workspace, and disables those that a sandboxed command created.

Mounts protect known paths, but not directories that the command creates. git runs what a repository's config names, so
a new repository is renamed before the command's result is reported. A directory is read again only if its ctime, which
can't be forged, has changed.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

DISABLED_SUFFIX: Final = ".held-by-kitbag"
_REASON = "git can run commands from a repository's config"
_MAX_CACHED_DIRECTORIES = 400_000
_SETTLED_NANOSECONDS = 100_000_000
"""After this, a change gets a different timestamp."""


class _DirectorySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    identity: tuple[int, int]
    changed: int
    read_at: int
    folders: tuple[str, ...]
    repository_names: tuple[str, ...]
    """The entries that make it a repository."""


_cache: dict[str, _DirectorySnapshot] = {}


def find_repositories(roots: Iterable[str]) -> set[str]:
    """Each `.git`, and the `HEAD` of each bare repository."""
    found: set[str] = set()
    seen: set[str] = set()
    for root in roots:
        pending = [root]
        while pending:
            path = pending.pop()
            if path in seen:
                continue
            seen.add(path)
            folder = _scan_directory(path)
            if folder is not None:
                found.update(f"{path}/{name}" for name in folder.repository_names)
                pending += [f"{path}/{name}" for name in folder.folders]
    if len(_cache) > _MAX_CACHED_DIRECTORIES:
        _cache.clear()
    return found


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
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if name == "HEAD" or name.casefold() in (".git", "objects", "commondir"):
                    names.add(name)
                if entry.is_dir(follow_symlinks=False) and name.casefold() != ".git":
                    folders.append(name)
    except OSError:
        _cache.pop(path, None)
        return None
    repository_names = [name for name in names if name.casefold() == ".git"]
    if "HEAD" in names and ("objects" in names or "commondir" in names):
        repository_names.append("HEAD")
    _cache[path] = _DirectorySnapshot(
        identity=identity,
        changed=state.st_ctime_ns,
        read_at=now,
        folders=tuple(folders),
        repository_names=tuple(repository_names),
    )
    return _cache[path]


def disable_repositories(paths: Iterable[str], roots: Iterable[str]) -> list[str]:
    """Rename them in place. Returns a sentence for each."""
    roots = tuple(roots)
    return [
        _disable_repository(path, max((r for r in roots if path.startswith(f"{r}/")), key=len))
        for path in sorted(paths)
    ]


def _disable_repository(path: str, root: str) -> str:
    shown = os.path.relpath(path, root)
    try:
        # Directory by directory, so that no link can redirect the rename.
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in shown.split(os.sep)[:-1]:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                os.close(folder)
                folder = below
            name = _move_aside(os.path.basename(path), folder)
            # A renamed `.git` directory would still be a bare repository.
            with contextlib.suppress(OSError):
                inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                try:
                    _move_aside("HEAD", inside)
                finally:
                    os.close(inside)
        finally:
            os.close(folder)
    except OSError as error:
        return f"the command created a git repository, but {shown} could not be renamed ({error.strerror}): {_REASON}"
    return f"the command created a git repository; {shown} was renamed to {name} because {_REASON}"


def _move_aside(name: str, folder: int) -> str:
    free, count = name + DISABLED_SUFFIX, 1
    with contextlib.suppress(FileNotFoundError):
        while os.stat(free, dir_fd=folder, follow_symlinks=False):
            free, count = f"{name}{DISABLED_SUFFIX}-{count}", count + 1
    os.rename(name, free, src_dir_fd=folder, dst_dir_fd=folder)
    return free


class ControlLink(NamedTuple):
    """A control path that is a link: no mount can protect it, so it is checked afterwards."""

    path: str
    target: str


def read_links(paths: Iterable[str]) -> list[ControlLink]:
    found: list[ControlLink] = []
    for path in paths:
        with contextlib.suppress(OSError):
            found.append(ControlLink(path, os.readlink(path)))
    return found


def restore_links(before: Iterable[ControlLink]) -> list[str]:
    """Restore each link that is missing or changed. Returns a sentence for each."""
    messages: list[str] = []
    for link in before:
        try:
            if os.readlink(link.path) == link.target:
                continue
        except OSError:
            pass
        parent, name = os.path.split(link.path)
        try:
            folder = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                aside = ""
                with contextlib.suppress(FileNotFoundError):
                    aside = _move_aside(name, folder)
                os.symlink(link.target, name, dir_fd=folder)
            finally:
                os.close(folder)
            suffix = f"; the new file was renamed to {aside}" if aside else ""
            messages.append(f"the command changed the symbolic link {link.path}, which was restored{suffix}")
        except OSError as error:
            messages.append(
                f"the command changed the symbolic link {link.path}, which could not be restored: {error.strerror}"
            )
    return messages
