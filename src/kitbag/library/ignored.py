"""Which folders git ignores: so that what a package manager put below a skills root is not taken for skills.

Only folders of skills are asked about, never a skill itself: a skill that somebody keeps out of git is
still theirs. Nothing is ignored when the root itself is. Used by discover; reads .gitignore files only.
"""

import os
from typing import Any


class IgnoreRules:
    def __init__(self, root: str) -> None:
        self.files: dict[str, tuple[int, int, int] | None] = {}
        """The .gitignore files that were looked for, with their stamps."""
        self._specs: list[tuple[str, Any]] = []
        directory = root
        while True:
            self._add(directory)
            if os.path.lexists(os.path.join(directory, ".git")):
                break
            parent = os.path.dirname(directory)
            if parent == directory:
                self._specs = []  # no repository: no rules
                break
            directory = parent
        if self._matches(root):
            self._specs = []

    def _add(self, directory: str) -> None:
        path = os.path.join(directory, ".gitignore")
        try:
            status = os.stat(path)
            if status.st_size > 1 << 20 or status.st_mode & 0o170000 != 0o100000:
                return
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = file.read().splitlines()
        except OSError:
            self.files[path] = None
            return
        self.files[path] = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        if any(line.strip() and line[0] != "#" for line in lines):
            from pathspec import GitIgnoreSpec

            self._specs.append((directory, GitIgnoreSpec.from_lines(lines)))

    def _matches(self, path: str) -> bool:
        return any(
            spec.match_file(os.path.relpath(path, directory) + "/")
            for directory, spec in self._specs
            if path != directory and path.startswith(directory + os.sep)
        )

    def matches(self, folder: str) -> bool:
        return self._matches(folder)
