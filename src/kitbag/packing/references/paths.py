"""Locates, expands and reads the files that `@` paths name, within limits.

Wildcards match no leading dot and enter no symlinked directory, so symlink loops terminate. This module decides
nothing: plan and resolve ask the policy about every target before it is read. Used by plan and resolve.
Walks on its own: it enters only folders that can match the rest of a pattern, and ignored files count.
"""

import fnmatch
import itertools
import os
import re
import stat
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from kitbag.packing.references.policy import ReferenceSource
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.text.reference_syntax import is_glob
from kitbag.text.source_files import FileProblem, SourceError, decode_text, open_regular_file, source_error_from_os

MAX_ALTERNATIVES: Final = 64
WALK_ENTRIES: Final = 200_000
WALK_SECONDS: Final = 1.0
_WALK_DEPTH = 40
_MAX_SHOWN = 200
_GROUP = re.compile(r"\{([^{}]*,[^{}]*)\}")
_CONTROL = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")


class ReferenceTarget(msgspec.Struct, frozen=True, kw_only=True):
    requested: str
    """Absolute path as written."""
    resolved: str
    """Path with symlinks followed; empty until resolve_target fills it."""
    display_path: str


class TargetContent(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    size: int
    omitted_bytes: int
    """Bytes of the file that are not in `text`."""
    problems: list[FileProblem]


class PatternMatches(msgspec.Struct, frozen=True, kw_only=True):
    targets: list[ReferenceTarget]
    """Sorted by path components."""
    is_complete: bool
    """False if the walk stopped early, so there may be more matches."""
    alternatives: int
    """Number of brace alternatives; only the first MAX_ALTERNATIVES are expanded."""


class WalkBudget:
    """Limits shared by all wildcards of one text."""

    __slots__ = ("deadline", "entries", "incomplete", "stopped")

    def __init__(self, seconds: float = WALK_SECONDS, entries: int = WALK_ENTRIES) -> None:
        self.deadline = time.monotonic() + seconds
        self.entries = entries
        self.stopped = False
        self.incomplete = False
        """True if a directory was too deep to visit."""

    def spend(self, entries: int) -> bool:
        self.entries -= entries
        if self.entries < 0 or time.monotonic() > self.deadline:
            self.stopped = True
        return not self.stopped


def display_path(path: str) -> str:
    """Safe to show to a model or a user: one line, valid Unicode, no hidden characters, limited length."""
    if not (path.isascii() and path.isprintable()):
        path = collapse_whitespace(
            reveal_hidden(os.fsencode(path).decode("utf-8", "replace") if is_valid_filename(path) else repr(path))
        )
    return path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}..."


def is_valid_filename(path: str) -> bool:
    """True if a file on disk can have this name."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return "\0" not in path


def candidate_paths(path: str, source: ReferenceSource) -> list[str]:
    """Absolute paths that `path` may refer to, best first."""
    if path.startswith("~/"):
        return [os.path.expanduser(path)]
    if os.path.isabs(path):
        return [path]
    directories = (source.base, source.root) if source.base != source.root else (source.base,)
    return [
        f"{directory if directory.startswith(os.sep) else os.path.abspath(directory)}/{path}"
        for directory in directories
    ]


def locate_target(path: str, source: ReferenceSource, directories: dict[str, str]) -> tuple[ReferenceTarget, bool]:
    """The first candidate that exists, else the first one; and whether it exists. `directories` caches realpaths."""
    paths = candidate_paths(path, source)
    for candidate in paths:
        try:
            is_link = stat.S_ISLNK(os.lstat(candidate).st_mode)
        except OSError:
            continue
        parent, name = os.path.split(candidate)
        if is_link or name in ("", ".", ".."):
            resolved = os.path.realpath(candidate)
        else:
            if parent not in directories:
                directories[parent] = os.path.realpath(parent)
            resolved = os.path.join(directories[parent], name)
        return ReferenceTarget(requested=candidate, resolved=resolved, display_path=display_path(path)), True
    return ReferenceTarget(
        requested=paths[0], resolved=os.path.realpath(paths[0]), display_path=display_path(path)
    ), False


class PathPattern(msgspec.Struct, frozen=True, kw_only=True):
    """A directory without wildcards, and the wildcard paths below it."""

    directory: str
    branches: tuple[tuple[str, ...], ...]
    alternatives: int


def parse_path_pattern(path: str) -> PathPattern:
    """`docs/{a,b}/*.md` becomes the directory `docs` with the branches `a/*.md` and `b/*.md`."""
    absolute = "/" if path.startswith("/") else ""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    leading = list(itertools.takewhile(lambda part: not is_glob(part) and "{" not in part, parts))
    expanded, total = _expand_braces("/".join(parts[len(leading) :]))
    branches = tuple(tuple(_drop_repeated_wildcards(branch.split("/"))) for branch in expanded)
    return PathPattern(directory=absolute + "/".join(leading), branches=branches, alternatives=total)


def _expand_braces(pattern: str) -> tuple[list[str], int]:
    pieces = _GROUP.split(pattern)  # literal text and brace groups alternate
    choices = [piece.split(",") if index % 2 else [piece] for index, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
    return ["".join(chosen) for chosen in itertools.islice(itertools.product(*choices), MAX_ALTERNATIVES)], total


def _drop_repeated_wildcards(parts: Sequence[str]) -> list[str]:
    """`**/**` matches the same as `**` but costs more; a trailing `**` means all files below."""
    kept = [
        part for index, part in enumerate(parts) if part and not (part == "**" and parts[index - 1 : index] == ["**"])
    ]
    return [*kept, "*"] if kept[-1:] == ["**"] else kept


def expand_pattern(pattern: PathPattern, directory: str, budget: WalkBudget) -> PatternMatches:
    """The matching files below `directory`. The component `..` matches nothing."""
    matches: set[tuple[str, ...]] = set()
    for branch in pattern.branches:
        _descend(directory, (), branch, budget, matches)
    targets = [
        ReferenceTarget(
            requested=os.path.join(directory, *parts),
            resolved="",
            display_path=display_path("/".join((pattern.directory, *parts)).lstrip("/")),
        )
        for parts in sorted(matches)
    ]
    return PatternMatches(
        targets=targets, is_complete=not budget.stopped and not budget.incomplete, alternatives=pattern.alternatives
    )


def _descend(
    directory: str,
    parents: tuple[str, ...],
    components: Sequence[str],
    budget: WalkBudget,
    matches: set[tuple[str, ...]],
    listed: tuple[list[str], list[str]] | None = None,
) -> None:
    if len(parents) > _WALK_DEPTH:
        budget.incomplete = True
        return
    if not components or budget.stopped:
        return
    component, remaining = components[0], components[1:]
    files, directories = listed = listed or _list_directory(directory, budget)
    if component == "**":
        _descend(directory, parents, remaining, budget, matches, listed)
        for name in directories:
            if not name.startswith("."):
                _descend(os.path.join(directory, name), (*parents, name), components, budget, matches)
        return
    is_match = re.compile(fnmatch.translate(component)).match
    matches_hidden = component.startswith(".")
    for name in directories if remaining else files:
        if is_match(name) and (matches_hidden or not name.startswith(".")):
            if remaining:
                _descend(os.path.join(directory, name), (*parents, name), remaining, budget, matches)
            else:
                matches.add((*parents, name))


def _list_directory(directory: str, budget: WalkBudget) -> tuple[list[str], list[str]]:
    """Sorted names of files and of real directories; both empty if the directory can't be listed."""
    files: list[str] = []
    directories: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(files) % 1024 == 1023 and not budget.spend(0):
                    break
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                elif not entry.is_symlink() or not entry.is_dir():
                    files.append(entry.name)
    except OSError:
        pass
    budget.spend(len(files) + len(directories) + 1)
    return sorted(files), sorted(directories)


def resolve_target(target: ReferenceTarget) -> ReferenceTarget:
    return target if target.resolved else msgspec.structs.replace(target, resolved=os.path.realpath(target.requested))


def read_target(target: ReferenceTarget, limit: int) -> TargetContent:
    """At most `limit` bytes of the file as text. Raises SourceError if it is unreadable or not text."""
    descriptor, status = open_regular_file(target.resolved, None)
    try:
        if _was_replaced(descriptor, target.resolved):
            raise SourceError("unreadable", "the file changed while it was being read", "retry")
        data = _read(descriptor, limit)
    except OSError as error:
        raise source_error_from_os(error) from error
    finally:
        os.close(descriptor)
    text, problems = decode_text(data, truncated=status.st_size > len(data))
    if problems and _CONTROL.search(data) and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("binary", "not a text file: contains control characters and is not UTF-8", "use a text file")
    return TargetContent(
        text=text, size=status.st_size, omitted_bytes=max(0, status.st_size - len(data)), problems=problems
    )


def _read(descriptor: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    while limit > 0 and (chunk := os.read(descriptor, min(limit, 1 << 20))):
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def _was_replaced(descriptor: int, resolved: str) -> bool:
    """A symlink may have been put in place between the policy decision and the open."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") != resolved
    except OSError:
        return False
