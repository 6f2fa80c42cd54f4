"""Lists the files below a folder as ripgrep does: sorted by name, without what git ignores, following no links. Each
folder is opened relative to its parent, so that a folder replaced meanwhile can't lead outside.

Used by Glob and search_process where ripgrep is missing; its ignore rules also by ripgrep and undo's snapshots. Imports
nothing of Kitbag but glob_patterns and no_follow.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from kitbag.text.no_follow import DIRECTORY_FLAGS, open_directory, open_file
from kitbag.tools.search.glob_patterns import GlobError, path_regex

VCS_DIRECTORIES: Final = (".git", ".hg", ".svn", ".jj", ".bzr")
"""Data of version control systems; searched only if named."""
_MAX_RULE_FILE_BYTES = 1 << 20
_MAX_RULES = 2_000
_MAX_RULE_CHARS = 1_000


class _IgnoreFile(NamedTuple):
    """The rules of one ignore file."""

    start: str
    """The file's folder relative to the start of the walk, with a trailing slash."""
    rules: tuple[tuple[re.Pattern[str], bool, bool], ...]
    """Last rule first: the pattern, whether it ignores, whether it applies to folders only."""
    any_rule: re.Pattern[str]
    """Matches if any rule does: most paths are decided by it alone."""

    def check(self, path: str, *, is_folder: bool) -> bool | None:
        """Whether a path relative to `start` is ignored; None if no rule matches."""
        if not self.any_rule.fullmatch(path):
            return None
        for pattern, ignores, folders_only in self.rules:
            if (is_folder or not folders_only) and pattern.fullmatch(path):
                return ignores
        return None


class IgnoreStack(NamedTuple):
    """The ignore rules of one folder, derived from its parent's."""

    rules: tuple[tuple[str, _IgnoreFile], ...] = ()
    """(prefix that makes a path of the walk relative to the file's folder, the file). Closest first."""
    in_repository: bool = False

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        for above, rules in self.rules:
            below = above + path[len(rules.start) :]
            verdict = rules.check(below, is_folder=is_folder)
            if verdict is not None:
                return verdict
        return False

    def enter(self, folder: int, path: str, names: Iterable[str]) -> "IgnoreStack":
        """`path` of the folder, with a trailing slash; empty where the walk starts."""
        known_names = frozenset(names)
        rules, inside = self.rules, self.in_repository
        if ".git" in known_names:
            # A nested repository: the outer one's rules do not apply.
            rules, inside = (), True
            excluded = _read_ignore_file(folder, ".git/info/exclude", path)
            rules = (("", excluded),) if excluded else ()
        if inside and ".gitignore" in known_names:
            own = _read_ignore_file(folder, ".gitignore", path)
            rules = (("", own), *rules) if own else rules
        return IgnoreStack(rules, inside)


def parent_ignore_rules(resolved: str) -> tuple[IgnoreStack, bool]:
    """The rules of the folders above, and whether they ignore the folder itself: then none apply, because it was named
    explicitly."""
    if os.path.lexists(f"{resolved}/.git"):
        return IgnoreStack(), False
    parents = [os.path.dirname(resolved)]
    while not os.path.lexists(f"{parents[-1]}/.git"):
        if parents[-1] == "/":
            return IgnoreStack(), False
        parents.append(os.path.dirname(parents[-1]))
    ignore = IgnoreStack()
    top = parents[-1]
    for directory in reversed(parents):
        with contextlib.suppress(OSError):
            folder = open_directory(directory)
            try:
                path = directory[len(top) :].strip("/")
                ignore = ignore.enter(folder, f"{path}/" if path else "", _ignore_file_names(folder))
            finally:
                os.close(folder)
        next_part = resolved[len(directory) :].strip("/").partition("/")[0]
        if ignore.ignores(f"{directory[len(top) :]}/{next_part}".strip("/"), is_folder=True):
            return IgnoreStack(in_repository=True), True
    from_top = resolved[len(top) :].strip("/")
    relocated = tuple((f"{from_top[len(rules.start) :]}/", rules._replace(start="")) for _, rules in ignore.rules)
    return IgnoreStack(relocated, in_repository=True), False


def walk(
    root: int,
    ignore: IgnoreStack | None,
    *,
    include_hidden: bool,
    max_depth: int = 0,
    is_stopped: Callable[[], bool] = lambda: False,
    on_error: Callable[[str, OSError], None] = lambda path, error: None,
) -> Iterator[tuple[str, str, int]]:
    """Yields (path, name, descriptor of its folder) of each regular file. `ignore` has the rules of the folders above;
    None: ignore nothing. `max_depth` 1 is the folder itself, 0 unlimited."""
    return _walk(root, "", ignore, (include_hidden, max_depth or 1 << 30, is_stopped, on_error))


def _walk(
    folder: int,
    path: str,
    ignore: IgnoreStack | None,
    options: tuple[bool, int, Callable[[], bool], Callable[[str, OSError], None]],
) -> Iterator[tuple[str, str, int]]:
    include_hidden, max_depth, is_stopped, on_error = options
    try:
        with os.scandir(folder) as found:
            entries = sorted((os.fsencode(entry.name), entry.name, _entry_kind(entry)) for entry in found)
    except OSError as error:
        on_error(path, error)
        return
    if ignore is not None:
        ignore = ignore.enter(folder, path, (name for _, name, _ in entries))
    for _, name, kind in entries:
        if is_stopped():
            return
        if not kind or name in VCS_DIRECTORIES or (name.startswith(".") and not include_hidden):
            continue
        below = path + name
        if ignore is not None and ignore.ignores(below, is_folder=kind == "folder"):
            continue
        if kind == "file":
            yield below, name, folder
        elif path.count("/") + 1 < max_depth:
            try:
                deeper = os.open(name, DIRECTORY_FLAGS, dir_fd=folder)
            except OSError as error:
                on_error(below, error)
                continue
            try:
                yield from _walk(deeper, f"{below}/", ignore, options)
            finally:
                os.close(deeper)


def _entry_kind(entry: "os.DirEntry[str]") -> str:
    try:
        if entry.is_dir(follow_symlinks=False):
            return "folder"
        return "file" if entry.is_file(follow_symlinks=False) else ""
    except OSError:
        return ""


def _ignore_file_names(folder: int) -> list[str]:
    return [name for name in (".git", ".gitignore") if _exists(name, folder)]


def _exists(name: str, folder: int) -> bool:
    try:
        os.lstat(name, dir_fd=folder)
    except OSError:
        return False
    return True


def _read_ignore_file(folder: int, name: str, start: str) -> _IgnoreFile | None:
    try:
        descriptor = open_file(name, folder)
    except OSError:
        return None
    try:
        text = os.read(descriptor, _MAX_RULE_FILE_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    finally:
        os.close(descriptor)
    rules = [rule for line in text.split("\n")[:_MAX_RULES] if (rule := _parse_rule(line)) is not None]
    if not rules:
        return None
    any_rule = "|".join(f"(?:{pattern})" for pattern, _, _ in rules)
    last_first = tuple((re.compile(pattern), ignores, folders) for pattern, ignores, folders in reversed(rules))
    return _IgnoreFile(start, last_first, re.compile(any_rule))


def _parse_rule(line: str) -> tuple[str, bool, bool] | None:
    """A line of .gitignore: (regular expression, whether it ignores, whether it applies to folders only)."""
    line = line if line.endswith("\\ ") else line.rstrip()
    if not line or line.startswith("#") or "//" in line or len(line) > _MAX_RULE_CHARS:
        return None  # two slashes match nothing in git
    ignores = not line.startswith("!")
    line = line if ignores else line[1:]
    folders_only = line.endswith("/")
    line = line.rstrip("/") if folders_only else line
    parts = line.removeprefix("/").split("/")
    if "/" not in line:
        parts = ["**", *parts]
    try:
        return (path_regex(parts, hidden=True), ignores, folders_only) if line else None
    except GlobError:
        return None
