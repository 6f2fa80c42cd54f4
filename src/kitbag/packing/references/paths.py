"""Where an `@` path leads: looked up, expanded when it has wildcards, and read; all of it bounded.

Wildcards match no leading dot and enter no linked directory, so a loop of links ends. Nothing is judged here:
references asks policy about every target between finding and reading. Used by references.
"""

import fnmatch
import itertools
import os
import re
import stat
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

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


class ReferenceTarget(NamedTuple):
    requested: str
    """Absolute, as it is written."""
    resolved: str
    """Where links lead."""
    display_path: str


class TargetContent(NamedTuple):
    text: str
    size: int
    omitted_bytes: int
    """Bytes of the file that are not in the text."""
    problems: list[FileProblem]


class PatternMatches(NamedTuple):
    targets: list[ReferenceTarget]
    """Sorted by their parts."""
    is_complete: bool
    """False: the walk was stopped, there may be more."""
    alternatives: int
    """How many the braces stand for; only the first MOST_ALTERNATIVES are looked at."""


class WalkBudget:
    """What all wildcards of one text may cost together."""

    __slots__ = ("deadline", "entries", "incomplete", "stopped")

    def __init__(self, seconds: float = WALK_SECONDS, entries: int = WALK_ENTRIES) -> None:
        self.deadline = time.monotonic() + seconds
        self.entries = entries
        self.stopped = False
        self.incomplete = False
        """Something lies too deep to be looked at."""

    def spend(self, entries: int) -> bool:
        self.entries -= entries
        if self.entries < 0 or time.monotonic() > self.deadline:
            self.stopped = True
        return not self.stopped


def display_path(path: str) -> str:
    """Safe in a text for a model or a person: one line, valid Unicode, nothing hidden, not too long."""
    if not (path.isascii() and path.isprintable()):
        path = collapse_whitespace(
            reveal_hidden(os.fsencode(path).decode("utf-8", "replace") if is_valid_filename(path) else repr(path))
        )
    return path if len(path) <= _MAX_SHOWN else f"{path[:_MAX_SHOWN]}..."


def is_valid_filename(path: str) -> bool:
    """Something on disk could be called so."""
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return "\0" not in path


def candidate_paths(path: str, source: ReferenceSource) -> list[str]:
    """The places that a path may speak of, best first."""
    if path.startswith("~/"):
        return [os.path.expanduser(path)]
    if os.path.isabs(path):
        return [path]
    places = (source.base, source.root) if source.base != source.root else (source.base,)
    return [f"{place if place.startswith(os.sep) else os.path.abspath(place)}/{path}" for place in places]


def locate_target(path: str, source: ReferenceSource, directories: dict[str, str]) -> tuple[ReferenceTarget, bool]:
    """The first candidate that exists, else the first; and whether it exists. `directories`: resolved already."""
    places = candidate_paths(path, source)
    for place in places:
        try:
            is_link = stat.S_ISLNK(os.lstat(place).st_mode)
        except OSError:
            continue
        above, name = os.path.split(place)
        if is_link or name in ("", ".", ".."):
            resolved = os.path.realpath(place)
        else:
            if above not in directories:
                directories[above] = os.path.realpath(above)
            resolved = os.path.join(directories[above], name)
        return ReferenceTarget(place, resolved, display_path(path)), True
    return ReferenceTarget(places[0], os.path.realpath(places[0]), display_path(path)), False


class PathPattern(NamedTuple):
    """Wildcards below one directory that has none."""

    directory: str
    branches: tuple[tuple[str, ...], ...]
    alternatives: int


def parse_path_pattern(path: str) -> PathPattern:
    """`docs/{a,b}/*.md` is `docs` with `a/*.md` and `b/*.md` below it."""
    absolute = "/" if path.startswith("/") else ""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    fixed = list(itertools.takewhile(lambda part: not is_glob(part) and "{" not in part, parts))
    expanded, total = _expand_braces("/".join(parts[len(fixed) :]))
    rests = tuple(tuple(_drop_repeated_wildcards(rest.split("/"))) for rest in expanded)
    return PathPattern(absolute + "/".join(fixed), rests, total)


def _expand_braces(pattern: str) -> tuple[list[str], int]:
    pieces = _GROUP.split(pattern)  # text and groups by turns
    choices = [piece.split(",") if index % 2 else [piece] for index, piece in enumerate(pieces)]
    total = 1
    for choice in choices:
        total *= len(choice)
    return ["".join(chosen) for chosen in itertools.islice(itertools.product(*choices), MAX_ALTERNATIVES)], total


def _drop_repeated_wildcards(parts: Sequence[str]) -> list[str]:
    """`**/**` says the same as `**`, at a price; a last `**` means the files below."""
    kept = [
        part for index, part in enumerate(parts) if part and not (part == "**" and parts[index - 1 : index] == ["**"])
    ]
    return [*kept, "*"] if kept[-1:] == ["**"] else kept


def expand_pattern(pattern: PathPattern, directory: str, walk: WalkBudget) -> PatternMatches:
    """The files below `directory`. A part `..` matches nothing: names never are `..`."""
    found: set[tuple[str, ...]] = set()
    for rest in pattern.branches:
        _descend(directory, (), rest, walk, found)
    targets = [
        ReferenceTarget(
            os.path.join(directory, *parts), "", display_path("/".join((pattern.directory, *parts)).lstrip("/"))
        )
        for parts in sorted(found)
    ]
    return PatternMatches(targets, not walk.stopped and not walk.incomplete, pattern.alternatives)


def _descend(
    directory: str,
    above: tuple[str, ...],
    rest: Sequence[str],
    walk: WalkBudget,
    found: set[tuple[str, ...]],
    listed: tuple[list[str], list[str]] | None = None,
) -> None:
    if len(above) > _WALK_DEPTH:
        walk.incomplete = True
        return
    if not rest or walk.stopped:
        return
    part, below = rest[0], rest[1:]
    files, directories = listed = listed or _list_directory(directory, walk)
    if part == "**":
        _descend(directory, above, below, walk, found, listed)
        for name in directories:
            if not name.startswith("."):
                _descend(os.path.join(directory, name), (*above, name), rest, walk, found)
        return
    is_match = re.compile(fnmatch.translate(part)).match
    hidden = part.startswith(".")
    for name in directories if below else files:
        if is_match(name) and (hidden or not name.startswith(".")):
            if below:
                _descend(os.path.join(directory, name), (*above, name), below, walk, found)
            else:
                found.add((*above, name))


def _list_directory(directory: str, walk: WalkBudget) -> tuple[list[str], list[str]]:
    """Names of what may be a file and of real directories, sorted. What can't be listed is empty."""
    files: list[str] = []
    directories: list[str] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if len(files) % 1024 == 1023 and not walk.spend(0):
                    break
                if entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
                elif not entry.is_symlink() or not entry.is_dir():
                    files.append(entry.name)
    except OSError:
        pass
    walk.spend(len(files) + len(directories) + 1)
    return sorted(files), sorted(directories)


def resolve_target(target: ReferenceTarget) -> ReferenceTarget:
    return target if target.resolved else target._replace(resolved=os.path.realpath(target.requested))


def read_target(target: ReferenceTarget, limit: int) -> TargetContent:
    """At most `limit` bytes of it as text. Raises SourceError for what is no text or can't be read."""
    descriptor, status = open_regular_file(target.resolved, None)
    try:
        if _was_replaced(descriptor, target.resolved):
            raise SourceError("unreadable", "it was exchanged while it was being read", "try again")
        data = _read(descriptor, limit)
    except OSError as error:
        raise source_error_from_os(error) from error
    finally:
        os.close(descriptor)
    text, problems = decode_text(data, truncated=status.st_size > len(data))
    if problems and _CONTROL.search(data) and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("binary", "not a text file: it has control characters and is not UTF-8", "name a text file")
    return TargetContent(text, status.st_size, max(0, status.st_size - len(data)), problems)


def _read(descriptor: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    while limit > 0 and (chunk := os.read(descriptor, min(limit, 1 << 20))):
        chunks.append(chunk)
        limit -= len(chunk)
    return b"".join(chunks)


def _was_replaced(descriptor: int, resolved: str) -> bool:
    """Between policy's answer and the opening, a link may have been put in the way."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") != resolved
    except OSError:
        return False
