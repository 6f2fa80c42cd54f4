"""Which folders git ignores: so that what a package manager put below a skills root is not taken for skills.

Only folders of skills are asked about, never a skill itself: a skill that somebody keeps out of git is
still theirs. Nothing is ignored when the root itself is. Used by discover; reads .gitignore files only.
"""

import os
import re
from typing import Any

from kitbag.text.source_files import SourceError, parent_boundary, read_bytes

_MAX_LINES = 2_000
_MAX_STARS = 3


class GitignoreRules:
    """`root` is a real path, as are those it is asked about."""

    def __init__(self, root: str) -> None:
        self.stamps: dict[str, tuple[int, ...] | None] = {}
        """The .gitignore files that were looked for with their stamps, and where a repository was looked for."""
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
            status = os.lstat(path)  # git does not follow a link here either
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
        """The closest .gitignore that speaks of the folder decides."""
        for directory, spec in self._specs:
            if folder != directory and folder.startswith(directory.rstrip(os.sep) + os.sep):
                verdict = spec.check_file(os.path.relpath(folder, directory) + "/").include
                if verdict is not None:
                    return verdict
        return False


def _compile(lines: list[str]) -> Any:
    import warnings

    from pathspec import GitIgnoreSpec

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GitIgnoreSpec.from_lines(line for line in lines[:_MAX_LINES] if _is_usable_pattern(GitIgnoreSpec, line))


def _is_usable_pattern(spec: Any, line: str) -> bool:
    """Not what is malformed, nor what takes for ever to match."""
    if line.count("**") > _MAX_STARS or any(part.count("*") > _MAX_STARS for part in line.split("/")):
        return False
    try:
        spec.from_lines([line])
    except (ValueError, re.error):
        return False
    return True
