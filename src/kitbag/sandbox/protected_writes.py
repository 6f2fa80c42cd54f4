"""Which writes of a sandboxed command are protected: control paths, repositories, and what Edit rules deny.

Used by `write_guard` in the supervisor, so it imports nothing of site-packages. `bubblewrap` builds the JSON that it is
made from.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kitbag.permissions.control_paths import (
    BARE_REPOSITORY_REASON,
    CONTROL_NAMES,
    CONTROL_SEQUENCES,
    GIT_CONTROL_NAMES,
    PACKAGE_DIRECTORIES,
    SEQUENCE_PARTS,
    find_control_part,
)
from kitbag.text.secret_paths import normalize_path_part
from kitbag.text.unicode_forms import compose, fold

_MAX_CARRIED = 200_000
_ANY_CHILD = "\ufffe"
"""A name that no pattern contains."""
_BARE_NAMES = ("head", "objects", "commondir")


class WriteRequest(NamedTuple):
    """One path of a system call, resolved."""

    path: str
    call: str
    exists: bool
    replaces: bool
    """Whether something that exists elsewhere gets this name."""
    source: str
    """For the target of a rename: what is renamed."""
    parent: int
    """The open directory of the path."""


class ProtectedWrite(NamedTuple):
    path: str
    """The control path, which may be a parent of the path that is written."""
    reason: str
    may_ask: bool = True


class DeniedPattern(NamedTuple):
    """A path pattern of a rule that denies Edit."""

    anchor: str
    regex: str
    only_names: bool
    rule: str


class ProtectedWrites:
    def __init__(
        self,
        *,
        roots: Sequence[str],
        repositories: Sequence[str],
        read_only: Sequence[str],
        pinned: Sequence[str],
        allowed: Sequence[str],
        denied: Sequence[DeniedPattern],
    ) -> None:
        """`repositories`: git directories that exist. `read_only` and `pinned`: mounts. `allowed`: paths that may be
        written, with all below them."""
        self._roots = sorted(roots, key=len, reverse=True)
        self._repositories = sorted(repositories, key=len, reverse=True)
        self._read_only = list(read_only)
        self._pinned = set(pinned)
        self._allowed = list(allowed)
        self._denied = [(pattern, re.compile(pattern.regex)) for pattern in denied]
        self.examines_all = bool(denied)

    @staticmethod
    def from_json(policy: Mapping[str, Any]) -> "ProtectedWrites":
        return ProtectedWrites(
            roots=policy["roots"],
            repositories=policy["repositories"],
            read_only=policy["read_only"],
            pinned=policy["pinned"],
            allowed=policy["allowed"],
            denied=[DeniedPattern(*pattern) for pattern in policy["denied"]],
        )

    def suspicious_names(self) -> bytes:
        """A pattern that finds every path that could be protected by its name."""
        end = r"[. ]*(?::[^/]*)?"
        names = [*map(re.escape, CONTROL_NAMES)]
        names += [f"{end}/".join(map(re.escape, sequence.split("/"))) for sequence in CONTROL_SEQUENCES]
        last = "|".join(map(re.escape, {*SEQUENCE_PARTS, *_BARE_NAMES}))
        inside = "".join(f"|^{re.escape(path)}/" for path in self._repositories)
        text = rf"(?:^|/)(?:(?:{'|'.join(names)}){end}(?:/|$)|(?:{last}){end}/*$)|git(?:mod)?~{inside}"
        return os.fsencode(text) + rb"|[\x80-\xff]"

    def allow(self, path: str) -> list[str]:
        """Returns the read-only mounts that must go."""
        self._allowed.append(path)
        mounts = [one for one in self._read_only if _is_inside(path, one) or _is_inside(one, path)]
        self._read_only = [one for one in self._read_only if one not in mounts]
        return mounts

    def is_pinned(self, path: str) -> bool:
        """Whether it is, or contains, a mount point or a repository."""
        if path in self._pinned:
            return True
        return any(_is_inside(one, path) for one in (*self._read_only, *self._repositories))

    def find(self, request: WriteRequest) -> ProtectedWrite | None:
        path = request.path
        root = next((root for root in self._roots if _is_inside(path, root)), None)
        if root is None:
            return None
        if request.exists and request.call.startswith("mkdir"):
            return None  # it will fail as always
        for pattern, regex in self._denied:
            if _matches(pattern, regex, path):
                return ProtectedWrite(path, f"denied by the rule {pattern.rule}", may_ask=False)
        if any(_is_inside(path, allowed) for allowed in self._allowed):
            return None
        return self._find_control(path, root, request)

    def find_target(self, path: str, target: str) -> ProtectedWrite | None:
        """Whether a link at `path` leads to a protected path that doesn't exist: writing to it would create that."""
        found = os.path.normpath(os.path.join(os.path.dirname(path), target))
        root = next((root for root in self._roots if _is_inside(found, root)), None)
        if root is None or any(_is_inside(found, allowed) for allowed in self._allowed):
            return None
        part = find_control_part(_normalized(found, root))
        return ProtectedWrite(found, f"`{part.name}`: {part.reason}") if part is not None else None

    def _find_control(self, path: str, root: str, request: WriteRequest) -> ProtectedWrite | None:
        repository = next((one for one in self._repositories if _is_inside(path, one)), None)
        if repository is not None:
            if path == repository:
                return ProtectedWrite(path, "a git repository") if not request.exists or request.replaces else None
            first = path[len(repository) + 1 :].partition("/")[0]
            if normalize_path_part(first) in GIT_CONTROL_NAMES:
                return ProtectedWrite(os.path.join(repository, first), "git may run commands from it")
            return None
        parts = _normalized(path, root)
        found = find_control_part(parts, replaces=request.replaces)
        if found is not None and PACKAGE_DIRECTORIES.intersection(parts[: found.length]):
            # Packages bring control files of their own, but no repositories.
            at = parts.index(".git") if ".git" in parts else None
            found = found._replace(length=at + 1, name=".git") if at is not None else None
        if found is not None:
            names = path[len(root) + 1 :].split("/")
            return ProtectedWrite(os.path.join(root, *names[: found.length]), f"`{found.name}`: {found.reason}")
        if parts and parts[-1] in _BARE_NAMES and _completes_repository(parts[-1], request.parent):
            return ProtectedWrite(path, BARE_REPOSITORY_REASON)
        if request.source and not PACKAGE_DIRECTORIES.intersection(parts):
            return self._find_carried(request)
        return None

    def _find_carried(self, request: WriteRequest) -> ProtectedWrite | None:
        """A directory moved out of a package directory may contain control paths."""
        root = next((root for root in self._roots if _is_inside(request.source, root)), None)
        if root is None or not PACKAGE_DIRECTORIES.intersection(_normalized(request.source, root)):
            return None
        seen = 0
        for folder, folders, files in os.walk(request.source):
            for name in (*folders, *files):
                found = find_control_part([normalize_path_part(name)])
                if found is not None:
                    path = os.path.join(request.path, os.path.relpath(os.path.join(folder, name), request.source))
                    if not any(_is_inside(path, allowed) for allowed in self._allowed):
                        return ProtectedWrite(path, f"`{found.name}`: {found.reason}")
            seen += len(folders) + len(files)
            if seen > _MAX_CARRIED:
                return ProtectedWrite(request.path, "contains too many files to check them for control files")
        return None


def _normalized(path: str, root: str) -> list[str]:
    return [normalize_path_part(part) for part in path[len(root) :].split("/") if part]


def _is_inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _completes_repository(name: str, parent: int) -> bool:
    others = ("HEAD",) if name != "head" else ("objects", "commondir")
    for other in others:
        try:
            os.stat(other, dir_fd=parent, follow_symlinks=False)
        except OSError:
            continue
        return True
    return False


def _matches(pattern: DeniedPattern, regex: "re.Pattern[str]", path: str) -> bool:
    path = compose(path)
    if pattern.only_names:
        return regex.match(fold(os.path.basename(path))) is not None
    if not _is_inside(path, pattern.anchor):
        return False
    below = fold(path[len(pattern.anchor) :].lstrip("/"))
    # A directory counts if everything in it does.
    return regex.match(below) is not None or regex.match(f"{below}/{_ANY_CHILD}" if below else _ANY_CHILD) is not None
