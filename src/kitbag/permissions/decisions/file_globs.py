"""Which existing files the globs of a command match: superset of what bash would pass to it.

Used by `command_paths`, which decides about each file. Brackets are treated like `?`, so that no file is missed. Hidden
files match only where the pattern begins with a dot, as in bash without `dotglob`.
"""

import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.shell.expansions import ONE, STAR, UNQUOTED, is_glob

MAX_MATCHES: Final = 1_000
_MAX_ENTRIES: Final = 20_000


class TooManyFilesError(Exception):
    pass


class EntryBudget:
    """Limits how many directory entries are read for one command line."""

    __slots__ = ("_remaining",)

    def __init__(self) -> None:
        self._remaining = _MAX_ENTRIES

    def take(self, entries: int) -> None:
        """Raises TooManyFilesError."""
        self._remaining -= entries + 1
        if self._remaining < 0:
            raise TooManyFilesError


def expand_glob(template: str, directory: str, home: str, budget: EntryBudget) -> list[str]:
    """Paths as the command would receive them; empty if none matches. Raises TooManyFilesError."""
    pattern = template.removeprefix(UNQUOTED)
    start = ""
    if pattern.startswith("~/"):
        start, pattern = f"{home}/", pattern[2:]
    elif pattern.startswith("/"):
        start, pattern = "/", pattern.lstrip("/")
    found = [start]
    parts = pattern.split("/")
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if not is_glob(part):
            found = [f"{place}{part}" + ("" if is_last else "/") for place in found]
            continue
        matches = re.compile(_regex(part), re.DOTALL)
        next_found: list[str] = []
        for place in found:
            names = _names(os.path.join(directory, place))
            budget.take(len(names))
            next_found += [f"{place}{name}" + ("" if is_last else "/") for name in names if matches.fullmatch(name)]
        found = next_found
        if len(found) > MAX_MATCHES:
            raise TooManyFilesError
    return sorted(path for path in found if os.path.lexists(os.path.join(directory, path)))


class TreeEntry(NamedTuple):
    path: str
    """Absolute."""
    name: str
    is_link: bool


def walk_tree(directory: str, budget: EntryBudget) -> Iterator[TreeEntry]:
    """Everything below a directory except in `.git`; links are not followed. Raises TooManyFilesError."""
    pending = [directory]
    while pending:
        budget.take(0)
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    budget.take(0)
                    yield TreeEntry(entry.path, entry.name, entry.is_symlink())
                    if entry.is_dir(follow_symlinks=False) and entry.name != ".git":
                        pending.append(entry.path)
        except (OSError, ValueError):
            continue


def _regex(part: str) -> str:
    hidden = "" if part.startswith(".") else r"(?!\.)"
    return hidden + "".join(".*" if char == STAR else "." if char == ONE else re.escape(char) for char in part)


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except (OSError, ValueError):
        return []
