"""Folders that git ignores, so that packages installed below a skills root are not taken for skills.

Applies to folders of skills, never to a skill itself: an untracked skill still counts. If the root itself is
ignored, nothing is. Used by discover; reads .gitignore files only, with pathspec.
"""

import os
import re
from typing import Any

from kitbag.text.source_files import SourceError, parent_boundary, read_bytes

_MAX_LINES = 2_000
_MAX_STARS = 3


class GitignoreRules:
    """`root` and all queried folders are resolved paths."""

    def __init__(self, root: str) -> None:
        self.stamps: dict[str, tuple[int, ...] | None] = {}
        """Stamps of the .gitignore files and .git directories it looked for; None if missing."""
        self._specs: list[tuple[str, Any]] = []
        directory = root
        while True:
            self._add(directory)
            if self._is_repository(directory):
                break
            parent = os.path.dirname(directory)
            if parent == directory:
                self._specs = []  # no repository: no rules
                break
            directory = parent
        if self.is_ignored(root):
            self._specs = []

    def _is_repository(self, directory: str) -> bool:
        path = os.path.join(directory, ".git")
        try:
            self.stamps[path] = (os.stat(path).st_ino,)
        except OSError:
            self.stamps[path] = None
            return False
        return True

    def _add(self, directory: str) -> None:
        path = os.path.join(directory, ".gitignore")
        try:
            status = os.lstat(path)  # git does not follow links here either
            self.stamps[path] = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
            if status.st_size > 1 << 20 or status.st_mode & 0o170000 != 0o100000:
                return
            lines = read_bytes(path, parent_boundary(path))[0].decode("utf-8", "replace").splitlines()
        except (OSError, SourceError):
            self.stamps.setdefault(path, None)
            return
        if any(line.strip() and line[0] != "#" for line in lines):
            self._specs.append((directory, _compile(lines)))

    def is_ignored(self, folder: str) -> bool:
        """The closest .gitignore that matches the folder decides."""
        for directory, spec in self._specs:
            if folder != directory and folder.startswith(directory.rstrip(os.sep) + os.sep):
                is_included = spec.check_file(os.path.relpath(folder, directory) + "/").include
                if is_included is not None:
                    return is_included
        return False


def _compile(lines: list[str]) -> Any:
    import warnings

    from pathspec import GitIgnoreSpec

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GitIgnoreSpec.from_lines(line for line in lines[:_MAX_LINES] if _is_usable_pattern(GitIgnoreSpec, line))


def _is_usable_pattern(spec: Any, line: str) -> bool:
    """Whether the pattern is valid and cheap to match."""
    if line.count("**") > _MAX_STARS or any(part.count("*") > _MAX_STARS for part in line.split("/")):
        return False
    try:
        spec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True
