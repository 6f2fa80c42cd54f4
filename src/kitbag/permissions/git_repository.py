"""Finds the repository that git would use in a directory, and the programs that its configuration would make git run.

Used by `decisions/git_command`. Reads git's files without running git, and reads them loosely: a setting counts by its
name alone, in whatever section it is. What environment variables disable (`sandbox/git_environment`) does not count.
"""

import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.permissions.git_index import read_index
from kitbag.text.source_files import SourceError, open_regular_file

_MAX_CONFIG_BYTES: Final = 1 << 20
_MAX_FILES: Final = 300
_MAX_DEPTH: Final = 4
_PROGRAM = re.compile(
    r"(?:^|\])\s*(clean|process|textconv|external|command|smudge|driver|cmd|uploadpack|receivepack|vcs)"
    r"[ \t]*=[ \t]*\"?(.*)",
    re.IGNORECASE | re.MULTILINE,
)
_WHEN_READING: Final = frozenset({"clean", "process", "textconv", "external", "command"})
"""`filter.x.clean`, `diff.x.textconv`, `diff.external`, ...: run by commands that only read. The others, such as
`merge.x.driver`, are not."""
_INCLUDE = re.compile(r"(?:^|\])\s*path[ \t]*=[ \t]*(.*)", re.IGNORECASE | re.MULTILINE)
_ALIAS = re.compile(r"(?:^|\])\s*([\w-]+|command)[ \t]*=[ \t]*\"?!", re.IGNORECASE | re.MULTILINE)
_LFS = re.compile(r"git-lfs (?:clean|smudge|filter-process|pre-auto-fetch)\b")


class GitRepository(NamedTuple):
    git_directory: str
    work_tree: str
    """Empty for a bare repository."""


class ConfiguredProgram(NamedTuple):
    setting: str
    file: str
    when_reading: bool = True
    """Whether commands that only read run it."""


def find_repository(directory: str) -> GitRepository | None:
    """The repository that git uses in a directory, given by its absolute path."""
    place: str = os.path.realpath(directory)
    while True:
        git = _git_directory(place)
        if git:
            return GitRepository(git, place)
        if _is_git_directory(place):
            return GitRepository(place, "")
        if place == "/":
            return None
        place = os.path.dirname(place)


def find_programs(repository: GitRepository, subcommand: str, only_reads: bool) -> Iterator[ConfiguredProgram]:
    """Programs that git may run in a repository and its submodules. `subcommand` counts if it is an alias;
    `only_reads`: whether the command changes nothing."""
    budget = [_MAX_FILES]
    for git in _git_directories(repository, budget, 0):
        if not git:
            yield ConfiguredProgram("its submodules cannot be checked", repository.git_directory)
            return
        for name in ("config", "config.worktree"):
            for program in _programs_in_file(os.path.join(git, name), subcommand, budget, 0):
                if program.when_reading or not only_reads:
                    yield program


def _git_directories(repository: GitRepository, budget: list[int], depth: int) -> Iterator[str]:
    """The git directories whose configuration counts; an empty string if there are too many."""
    git = repository.git_directory
    budget[0] -= 1
    if budget[0] < 0 or depth > _MAX_DEPTH:
        yield ""
        return
    common = _read_text(os.path.join(git, "commondir"))
    places = dict.fromkeys((git, os.path.join(git, common.strip()) if common else git))
    yield from places
    for place in places:
        for folder, folders, files in os.walk(os.path.join(place, "modules")):
            budget[0] -= 1
            if budget[0] < 0:
                yield ""
                return
            if "config" in files or "config.worktree" in files:
                folders[:] = [name for name in folders if name == "modules"]
                yield folder
    entries = read_index(git) if repository.work_tree else ()
    if entries is None:
        yield ""
        return
    for entry in entries:
        work_tree = os.path.join(repository.work_tree, entry.path)
        if entry.is_submodule and (inner := _git_directory(work_tree)):
            yield from _git_directories(GitRepository(inner, work_tree), budget, depth + 1)


def _git_directory(work_tree: str) -> str:
    """The git directory of a work tree; empty if it has none."""
    path = os.path.join(work_tree, ".git")
    if os.path.isdir(path):
        return path if _is_git_directory(path) else ""
    text = _read_text(path)
    return os.path.normpath(os.path.join(work_tree, text[7:].strip())) if text.startswith("gitdir:") else ""


def _is_git_directory(place: str) -> bool:
    return os.path.lexists(f"{place}/HEAD") and (
        os.path.isdir(f"{place}/objects") or os.path.lexists(f"{place}/commondir")
    )


def _programs_in_file(path: str, subcommand: str, budget: list[int], depth: int) -> Iterator[ConfiguredProgram]:
    budget[0] -= 1
    if budget[0] < 0 or depth > _MAX_DEPTH:
        yield ConfiguredProgram("too many files to check", path)
        return
    text = _read_text(path)
    for match in _PROGRAM.finditer(text):
        value = match[2].strip().rstrip('"')
        if value and not _LFS.match(value):
            name = match[1].lower()
            yield ConfiguredProgram(f"{name} = {value[:100]}", path, name in _WHEN_READING)
    for match in _ALIAS.finditer(text):
        if match[1].lower() in (subcommand.lower(), "command"):
            yield ConfiguredProgram(f"an alias that runs a command: {subcommand}", path)
    for match in _INCLUDE.finditer(text):
        value = match[1].strip().strip('"')
        included = os.path.join(os.path.dirname(path), os.path.expanduser(value))
        if os.path.lexists(included):
            yield from _programs_in_file(included, subcommand, budget, depth + 1)
        elif any(character in value for character in '"\\#;%'):
            yield ConfiguredProgram(f"path = {value[:100]}", path)


def _read_text(path: str) -> str:
    """The text of a regular file; empty if it can't be read, as for git."""
    try:
        descriptor, _ = open_regular_file(path, None)
    except SourceError:
        return ""
    with open(descriptor, "rb") as file:
        return file.read(_MAX_CONFIG_BYTES).decode("utf-8", "surrogateescape")
