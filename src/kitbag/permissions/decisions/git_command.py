"""Decides whether a git command that no rule allows may run in its repository: not if the repository names programs.

Used by `command`; uses `permissions/git_repository` for the facts. Settings that the environment disables need no
approval, see `sandbox/git_environment`.
"""

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kitbag.permissions.decisions.policy import PartVerdict, make_verdict
from kitbag.permissions.git_repository import GitRepository, find_programs, find_repository
from kitbag.shell.analysis import SimpleCommand
from kitbag.shell.command_table import command_table, parse_leading_options
from kitbag.shell.expansions import has_marker


def is_git(simple: SimpleCommand) -> bool:
    return bool(simple.words) and simple.words[0] is not None and os.path.basename(simple.words[0]) == "git"


class GitCommand(NamedTuple):
    raw: str
    subcommand: str
    arguments: tuple[str | None, ...]
    directory: str
    """Where git works, absolute."""
    git_directory: str
    """What `--git-dir` names; empty if git looks for the repository."""


def parse_git_commands(simple: SimpleCommand, directory: str | None, home: str) -> list[GitCommand | None]:
    """One for each list of words that it can expand to; empty if it is not git."""
    return [_parse(simple, words, directory, home) for words in simple.expanded or (simple.words,)] * is_git(simple)


def _parse(simple: SimpleCommand, words: tuple[str | None, ...], directory: str | None, home: str) -> GitCommand | None:
    """None if it is unclear which repository it uses. `directory`: where it runs, if known."""
    if directory is None or any(name.startswith("GIT_") for name, _ in simple.assignments):
        return None
    parsed = parse_leading_options(words, command_table().global_options["git"], 1)
    if parsed is None:
        return None
    at, options = parsed
    git = ""
    if any(has_marker(value or "") for _, value in options):
        return None
    for name, value in options:
        path = home + value[1:] if value and value.startswith("~/") else value or ""
        if name == "-C":
            directory = os.path.join(directory, path)
        elif name == "--git-dir":
            git = path
    subcommand = (words[at] or "") if at < len(words) else ""
    git = os.path.join(directory, git) if git else ""
    return GitCommand(simple.raw, subcommand, words[at + 1 :], directory, git)


def decide_git_repository(simple: SimpleCommand, directories: Sequence[str], home: str) -> Iterator[PartVerdict]:
    """`directories`: where it may run, absolute; empty if unknown."""
    if not is_git(simple):
        return
    if not directories:
        yield make_verdict("ask", simple.raw, "cannot tell which git repository it uses")
    for directory in directories:
        yield from _decide_in_directory(simple, directory, home)


def _decide_in_directory(simple: SimpleCommand, directory: str, home: str) -> Iterator[PartVerdict]:
    for command in dict.fromkeys(parse_git_commands(simple, directory, home)):
        if command is None:
            yield make_verdict("ask", simple.raw, "cannot tell which git repository it uses")
        else:
            yield from _decide_repository(simple, command)


def _decide_repository(simple: SimpleCommand, command: GitCommand) -> Iterator[PartVerdict]:
    git = command.git_directory
    repository = GitRepository(git, command.directory) if git else find_repository(command.directory)
    if repository is None:
        return
    if not repository.work_tree:
        reason = f"{repository.git_directory} is a bare git repository, whose configuration can run programs"
        yield make_verdict("ask", simple.raw, reason)
        return
    program = next(find_programs(repository, command.subcommand, simple.kind == "read"), None)
    if program is not None:
        reason = f"the configuration of the git repository can run programs: {program.setting} in {program.file}"
        yield make_verdict("ask", simple.raw, reason)
