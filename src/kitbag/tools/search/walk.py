"""Walks a folder without what git ignores, following no links. Each folder is opened relative to its parent, so that a
folder replaced meanwhile can't lead outside. `walk_files` lists files as ripgrep does, sorted by name.

Used by undo's snapshots, and by Glob and search_process where ripgrep is missing; its ignore rules also by ripgrep.
Imports nothing of Kitbag but glob_patterns and no_follow.
"""

import contextlib
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final, NamedTuple

from kitbag.text.glob_patterns import GlobError, path_regex
from kitbag.text.no_follow import DIRECTORY_FLAGS, open_directory, open_file

VCS_DIRECTORIES: Final = (".git", ".hg", ".svn", ".jj", ".bzr")
"""Data of version control systems; searched only if named."""
_MAX_RULE_FILE_BYTES = 1 << 20
_MAX_RULES = 2_000
_MAX_RULE_CHARS = 1_000
_SKIPPED_NAMES = frozenset(VCS_DIRECTORIES)
_NO_LIMIT = 1 << 30


class _IgnoreFile(NamedTuple):
    """The rules of one ignore file."""

    start: str
    """The file's folder, as the walk names it, with a trailing slash."""
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


WalkedBatch = tuple[int, list[tuple[str, "os.DirEntry[str]", bool]]]
"""The descriptor of a folder, and of some of its entries: path, entry, whether it is a folder itself."""


def parent_ignore_rules(resolved: str, start: str = "") -> tuple[IgnoreStack, bool]:
    """The rules of the folders above, and whether they ignore the folder itself: then none apply, because it was named
    explicitly. `start`: what the paths of the walk start with."""
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
    relocated = tuple((f"{from_top[len(rules.start) :]}/", rules._replace(start=start)) for _, rules in ignore.rules)
    return IgnoreStack(relocated, in_repository=True), False


def walk_files(
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
    depth = max_depth or _NO_LIMIT
    for folder, batch in walk(
        root, ignore, sort=True, include_hidden=include_hidden, max_depth=depth, on_error=on_error
    ):
        for path, entry, is_folder in batch:
            if is_stopped():
                return
            if not is_folder and _is_regular_file(entry):
                yield path, entry.name, folder


def walk(
    root: int,
    ignore: IgnoreStack | None,
    *,
    path: str = "",
    enter: Callable[[IgnoreStack, int, str, Iterable[str]], IgnoreStack] = IgnoreStack.enter,
    excluded: Container[str] = (),
    never_ignored: Container[str] = (),
    sort: bool = False,
    include_hidden: bool = True,
    max_depth: int,
    on_error: Callable[[str, OSError], None],
) -> Iterator[WalkedBatch]:
    """Yields what is neither excluded nor ignored: with `sort` in order of paths, else folder by folder. In batches,
    because a step of a generator for each entry takes measurably longer. All paths start with `path`, which is empty or
    ends with a slash. `enter` returns the rules of a folder, given those of its parent."""

    def walk_folder(folder: int, path: str, ignore: IgnoreStack | None, depth: int) -> Iterator[WalkedBatch]:
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=_name_bytes) if sort else list(found)
        except OSError as error:
            on_error(path, error)
            return
        if ignore is not None:
            ignore = enter(ignore, folder, path, (entry.name for entry in entries))
        rules = ignore if ignore is not None and ignore.rules else None
        batch: list[tuple[str, os.DirEntry[str], bool]] = []
        subfolders: list[str] = []
        for entry in entries:
            name = entry.name
            below = path + name
            if name in _SKIPPED_NAMES or below in excluded or (not include_hidden and name.startswith(".")):
                continue
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError:
                continue
            if rules is not None and below not in never_ignored and rules.ignores(below, is_folder=is_folder):
                continue
            batch.append((below, entry, is_folder))
            if is_folder and depth < max_depth:
                subfolders.append(name)
                if sort:
                    yield folder, batch
                    yield from walk_subfolders(folder, path, subfolders, ignore, depth)
                    batch, subfolders = [], []
        yield folder, batch
        yield from walk_subfolders(folder, path, subfolders, ignore, depth)

    def walk_subfolders(
        folder: int, path: str, names: list[str], ignore: IgnoreStack | None, depth: int
    ) -> Iterator[WalkedBatch]:
        for name in names:
            try:
                deeper = os.open(name, DIRECTORY_FLAGS, dir_fd=folder)
            except OSError as error:
                on_error(path + name, error)
                continue
            try:
                yield from walk_folder(deeper, f"{path}{name}/", ignore, depth + 1)
            finally:
                os.close(deeper)

    return walk_folder(root, path, ignore, 1)


def _name_bytes(entry: "os.DirEntry[str]") -> bytes:
    return os.fsencode(entry.name)


def _is_regular_file(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_file(follow_symlinks=False)
    except OSError:
        return False


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
