"""What bubblewrap mounts: hidden paths, writable roots, and protected paths inside the writable roots.

Used by `bubblewrap`; uses `protected_paths` for the control paths, `placeholders` for missing ones, and `repositories`
for what no mount can protect.
"""

import contextlib
import os
from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

from kitbag.permissions.model import Workspace, is_inside
from kitbag.sandbox.filesystem_view import FilesystemView
from kitbag.sandbox.placeholders import HeldPath, is_placeholder, link_error, placeholders
from kitbag.sandbox.protected_paths import find_control_paths
from kitbag.sandbox.repositories import disable_repositories, find_repositories, read_links, restore_links

EMPTY_FILE = "--ro-bind-data"
_PERMISSIONS_SINCE = (0, 5)
"""The first version that can set the permissions of an empty directory."""


class ProtectedPaths(NamedTuple):
    held: Sequence[HeldPath]
    notes: list[str]
    """Filled at the end: what was undone."""


@contextlib.contextmanager
def protect_paths(writable: tuple[str, ...], workspace: Workspace) -> Generator[ProtectedPaths, None, None]:
    """Keep control paths in the writable roots unchanged. On exit, undo what mounts can't prevent."""
    if not writable:
        yield ProtectedPaths((), [])
        return
    control = find_control_paths(workspace)
    for link in control.links:
        # git would obey another repository there at once; other links can be restored in time.
        if os.path.basename(link).casefold() == ".git":
            raise link_error(link)
    leftover = [path for path in control.existing if is_placeholder(path)]
    existing = {*control.existing} - {*leftover}
    before = find_repositories(writable)
    covered = {*existing, *control.missing, *leftover}
    found = (path if os.path.basename(path) != "HEAD" else os.path.dirname(path) for path in before)
    # Deeper than control paths are searched for: protect the whole directory, even if git needs to write there.
    existing.update(path for path in found if not any(is_inside(one, path) for one in covered))
    pinned = {*control.pinned, *_folders_above(existing, writable)} - existing
    control_links = read_links(control.links)
    with placeholders((*control.missing, *leftover), writable) as occupied:
        held = [HeldPath(path, "parent") for path in pinned] + [HeldPath(path, "there") for path in existing]
        protected = ProtectedPaths((*held, *occupied), [])
        try:
            yield protected
        finally:
            created = find_repositories(writable) - before - {one.path for one in occupied}
            protected.notes.extend((*disable_repositories(created, writable), *restore_links(control_links)))


def _folders_above(paths: Iterable[str], roots: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        parent = os.path.dirname(path)
        while parent not in roots and parent not in found and any(is_inside(parent, root) for root in roots):
            found.add(parent)
            parent = os.path.dirname(parent)
    return found


class Mounts:
    """Mount options by path, outer directories first."""

    __slots__ = ("_found",)

    def __init__(
        self, view: FilesystemView, held: Iterable[HeldPath], writable: tuple[str, ...], version: tuple[int, ...]
    ) -> None:
        self._found: dict[str, tuple[int, tuple[str, ...]]] = {}
        for path in view.hidden_folders:
            self._add(path, 1, "--tmpfs")
        for path in view.shown:
            self._add(path, 2, "--ro-bind", path)
        for path in writable:
            self._add(path, 3, "--bind", path)
        for one in held:
            if not _is_hidden(one.path, view, writable):
                self._add(one.path, 3 if one.kind == "parent" else 4, *_option(one, version))
        for path in view.hidden_files:
            self._add(path, 5, "--ro-bind", "/dev/null")

    def _add(self, path: str, rank: int, *option: str) -> None:
        """For the same path, the higher rank wins."""
        if path not in self._found or self._found[path][0] <= rank:
            self._found[path] = (rank, option)

    def arguments(self) -> Generator[tuple[tuple[str, ...], str], None, None]:
        """(options, path) pairs."""
        for path in sorted(self._found, key=lambda path: (path.count("/"), path)):
            yield self._found[path][1], path

    def has_vanished_path(self) -> bool:
        """Whether a path has vanished; nothing can be mounted on it."""
        return not all(map(os.path.lexists, self._found))

    def hidden_folders(self) -> list[str]:
        return [path for path, (rank, _) in self._found.items() if rank == 1]


def _option(one: HeldPath, version: tuple[int, ...]) -> tuple[str, ...]:
    if one.kind == "file":
        return (EMPTY_FILE,)
    if one.kind == "folder" and version >= _PERMISSIONS_SINCE:
        # Faster than a bind: for each of those bubblewrap reads the list of all mounts.
        return ("--perms", "0555", "--tmpfs")
    return ("--bind" if one.kind == "parent" else "--ro-bind", one.path)


def _is_hidden(path: str, view: FilesystemView, writable: tuple[str, ...]) -> bool:
    """Below a hidden directory that is itself inside a writable root."""
    root = max((len(root) for root in writable if is_inside(path, root)), default=0)
    return any(is_inside(path, folder) and len(folder) > root for folder in view.hidden_folders)
