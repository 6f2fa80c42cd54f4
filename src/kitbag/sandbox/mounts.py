"""What is mounted for a command: what is hidden, what is writable, and control paths that stay read-only.

Used by `bubblewrap`; uses `filesystem_view` for what is hidden and `protected_paths` for control paths.
"""

import os
from collections.abc import Generator, Iterable

import msgspec

from kitbag.permissions.model import Workspace, is_inside
from kitbag.sandbox.control_snapshot import ControlSnapshot
from kitbag.sandbox.errors import SandboxError
from kitbag.sandbox.filesystem_view import FilesystemView
from kitbag.sandbox.protected_paths import find_control_paths


class ProtectedPaths(msgspec.Struct, frozen=True, kw_only=True):
    read_only: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    """Their parents: writable, but not movable."""
    repositories: tuple[str, ...] = ()
    """Git directories, in which commands can commit."""


def protect_paths(
    writable: tuple[str, ...], workspace: Workspace, snapshot: ControlSnapshot, allowed: tuple[str, ...]
) -> ProtectedPaths:
    """What must not change in the writable roots. `allowed`: control paths that the command may change."""
    if not writable:
        return ProtectedPaths()
    control = find_control_paths(workspace)
    for link in control.links:
        # git would obey another repository there at once; other links are watched.
        if os.path.basename(link).casefold() == ".git":
            problem = f"{link} is a symbolic link, which the sandbox cannot protect"
            raise SandboxError(problem, "replace it with the directory or file itself")
    existing = {*control.existing}
    found = (path if os.path.basename(path) != "HEAD" else os.path.dirname(path) for path in snapshot.repositories)
    # Deeper than control paths are searched for: protect the whole directory, even if git needs to write there.
    known = {*existing, *control.repositories}
    existing.update(path for path in found if not any(is_inside(one, path) for one in known))
    existing = {path for path in existing if not any(is_inside(path, one) or is_inside(one, path) for one in allowed)}
    return ProtectedPaths(
        read_only=tuple(sorted(existing)),
        pinned=tuple(sorted({*control.pinned, *_folders_above(existing, writable)} - existing)),
        repositories=control.repositories,
    )


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

    def __init__(self, view: FilesystemView, protected: ProtectedPaths, writable: tuple[str, ...]) -> None:
        self._found: dict[str, tuple[int, tuple[str, ...]]] = {}
        for path in view.hidden_folders:
            self._add(path, 1, "--tmpfs")
        for path in view.shown:
            self._add(path, 2, "--ro-bind", path)
        for path in writable:
            self._add(path, 3, "--bind", path)
        for rank, option, paths in ((3, "--bind", protected.pinned), (4, "--ro-bind", protected.read_only)):
            for path in paths:
                if not _is_hidden(path, view, writable):
                    self._add(path, rank, option, path)
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


def _is_hidden(path: str, view: FilesystemView, writable: tuple[str, ...]) -> bool:
    """Below a hidden directory that is itself inside a writable root."""
    root = max((len(root) for root in writable if is_inside(path, root)), default=0)
    return any(is_inside(path, folder) and len(folder) > root for folder in view.hidden_folders)
