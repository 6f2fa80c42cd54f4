"""The control paths that a sandbox must protect inside writable directories.

Used by the sandbox before each command, so the search is limited: the top of each root, then breadth first, three
levels and a hundred directories, without package and build directories. Commands can still commit: in a repository only
what makes git run something is protected. Uses `permissions/control_paths` for the names.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from kitbag.permissions.control_paths import (
    AGENT_NAMES,
    EDITOR_NAMES,
    GIT_CONTROL_NAMES,
    GIT_NAMES,
    HOME_SEQUENCES,
    PACKAGE_DIRECTORIES,
    PROJECT_SEQUENCES,
    START_NAMES,
    TOOL_NAMES,
    is_control_name,
    normalize_path_part,
)
from kitbag.permissions.model import Workspace, is_inside

MAX_DEPTH: Final = 3
MAX_DIRECTORIES: Final = 100
_MAX_ENTRIES = 2000
_MAX_SUBMODULES = 200
_MAX_BYTES = 1 << 16
_PROJECT_NAMES: Final = sorted(GIT_NAMES | AGENT_NAMES | EDITOR_NAMES | TOOL_NAMES)
_SUBMODULE_PATH = re.compile(r'^\s*path\s*=\s*"?([^"\n]+?)"?\s*$', re.MULTILINE)


class ControlPaths(msgspec.Struct, frozen=True, kw_only=True):
    """Absolute paths inside the writable roots, unique and sorted."""

    existing: tuple[str, ...]
    """Files and directories to keep read-only."""
    links: tuple[str, ...]
    """Control paths that are links: nothing can be mounted on them."""
    pinned: tuple[str, ...]
    """Parent directories of those: they stay writable but must not be moved, or others could take their place."""
    repositories: tuple[str, ...]
    """Git directories. Commands can commit: only what makes git run something is protected in them."""


def find_control_paths(workspace: Workspace) -> ControlPaths:
    """Never raises: what we can't read, the command can't read either."""
    scan = _ControlPathScan(workspace.write_roots)
    for root in dict.fromkeys(workspace.write_roots):
        scan.top(root, _PROJECT_NAMES, PROJECT_SEQUENCES)
        scan.below(root)
    if scan.holds(workspace.home):
        scan.top(workspace.home, sorted(START_NAMES), (*HOME_SEQUENCES, ("bin",)))
    if scan.holds(workspace.kitbag_home):
        scan.add(workspace.kitbag_home)
    return scan.result()


class _ControlPathScan:
    __slots__ = ("existing", "links", "repositories", "roots")

    def __init__(self, roots: tuple[str, ...]) -> None:
        self.roots = roots
        self.existing: set[str] = set()
        self.repositories: set[str] = set()
        self.links: set[str] = set()

    def holds(self, path: str) -> bool:
        return any(is_inside(path, root) for root in self.roots)

    def add(self, path: str) -> None:
        """Add a control path, if it exists."""
        if not self.holds(path):
            return
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return
        if stat.S_ISLNK(mode):
            self.links.add(path)
            target = os.path.realpath(path)
            # Its target counts too, but not a whole root because a link leads there.
            if target not in self.roots and os.path.lexists(target) and self.holds(target):
                self.existing.add(target)
        elif normalize_path_part(os.path.basename(path)) == ".git":
            self.repository(path, is_file=not stat.S_ISDIR(mode))
        else:
            self.existing.add(path)

    def repository(self, path: str, *, is_file: bool) -> None:
        if not is_file:
            self.git_directory(path)
            return
        self.existing.add(path)
        text = _read_start(path)
        if text.startswith("gitdir:"):
            place = os.path.realpath(os.path.join(os.path.dirname(path), text[len("gitdir:") :].strip("\n ")))
            self.git_directory(place)
            self.git_directory(os.path.realpath(os.path.join(place, _read_start(f"{place}/commondir").strip("\n "))))

    def git_directory(self, path: str) -> None:
        # An empty `.git` directory is not a repository but can become one.
        if self.holds(path):
            self.repositories.add(path)
            for name in GIT_CONTROL_NAMES:
                self.add(f"{path}/{name}")

    def top(self, root: str, names: Iterable[str], sequences: Iterable[tuple[str, ...]]) -> None:
        for name in names:
            self.add(f"{root}/{name}")
        for sequence in sequences:
            self.add(f"{root}/{'/'.join(sequence)}")
        for found in _SUBMODULE_PATH.findall(_read_start(f"{root}/.gitmodules"))[:_MAX_SUBMODULES]:
            folder = os.path.normpath(f"{root}/{found}")
            if os.path.realpath(folder) == folder:
                self.add(f"{folder}/.git")

    def below(self, root: str) -> None:
        """Add existing control paths in subdirectories."""
        folders, left = [root], MAX_DIRECTORIES
        for _ in range(MAX_DEPTH + 1):
            deeper = [found for folder in folders[:left] for found in self.folder(folder)]
            left = max(0, left - len(folders))
            folders = deeper

    def folder(self, folder: str) -> Iterator[str]:
        """Add the control paths of one directory and return the subdirectories to search."""
        names: set[str] = set()
        for name, is_directory in _entries(folder):
            names.add(name)
            path = f"{folder}/{name}"
            if is_control_name(name):
                self.add(path)
            elif is_directory and name.casefold() not in PACKAGE_DIRECTORIES:
                yield path
        if "HEAD" in names and ("objects" in names or "commondir" in names):
            self.git_directory(folder)
        for sequence in PROJECT_SEQUENCES:
            if sequence[0] in names:
                self.add(f"{folder}/{'/'.join(sequence)}")

    def result(self) -> ControlPaths:
        above = {*self.repositories}
        for path in (*self.existing, *self.links, *self.repositories):
            parent = os.path.dirname(path)
            while parent not in self.roots and parent not in above and parent != "/" and self.holds(parent):
                above.add(parent)
                parent = os.path.dirname(parent)
        pinned = (path for path in above - self.existing if os.path.isdir(path) and not os.path.islink(path))
        return ControlPaths(
            existing=tuple(sorted(self.existing)),
            links=tuple(sorted(self.links)),
            pinned=tuple(sorted(pinned)),
            repositories=tuple(sorted(self.repositories)),
        )


def _entries(folder: str) -> list[tuple[str, bool]]:
    found: list[tuple[str, bool]] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                found.append((entry.name, entry.is_dir(follow_symlinks=False)))
                if len(found) == _MAX_ENTRIES:
                    # Check the important names individually.
                    found.extend((name, False) for name in _PROJECT_NAMES)
                    break
    except OSError:
        pass
    return found


def _read_start(path: str) -> str:
    """The beginning of a text file, empty if there is none. Never blocks on a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return os.fsdecode(os.read(descriptor, _MAX_BYTES).partition(b"\0")[0])
    except OSError:
        return ""
    finally:
        os.close(descriptor)
