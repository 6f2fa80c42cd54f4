"""Decides about the paths of a command: its working directory, what it reads and writes, its redirects.

Used by `command`; uses `path`, which decides about each as for a file tool. If the command table does not know a
command, each of its words is matched against the rules that deny paths.
"""

import os
import re
import stat
from collections.abc import Iterator
from typing import Final

import msgspec

from kitbag.permissions.decisions.file_globs import (
    MAX_MATCHES,
    EntryBudget,
    TooManyFilesError,
    TreeEntry,
    expand_glob,
    walk_tree,
)
from kitbag.permissions.decisions.found_files import SearchResultFilter
from kitbag.permissions.decisions.git_command import is_git
from kitbag.permissions.decisions.git_reads import decide_git_reads
from kitbag.permissions.decisions.path import PathAccess, decide_path, find_restricting_rule, rule_naming_path
from kitbag.permissions.decisions.policy import PartVerdict, PermissionPolicy, make_verdict, verdict_by_rule
from kitbag.permissions.git_index import read_index
from kitbag.permissions.git_repository import find_repository
from kitbag.permissions.model import DecisionPart, is_inside
from kitbag.permissions.paths import examine_path
from kitbag.permissions.rules.path_patterns import anchor_pattern
from kitbag.permissions.rules.rule import PermissionRule
from kitbag.shell.analysis import ShellRedirect, SimpleCommand
from kitbag.shell.command_table import classify
from kitbag.shell.expansions import BELOW, TRACKED, UNQUOTED, is_glob, show_template
from kitbag.shell.pipelines import WITHOUT_CONTENTS
from kitbag.text.secret_paths import secret_path_reason

_STANDARD_STREAMS: Final = frozenset(
    ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2")
)
_SOCKET_PREFIXES: Final = ("/dev/tcp/", "/dev/udp/")
# They print file names, not file contents.
_LISTING_COMMANDS: Final = frozenset(
    ("ls", "find", "fd", "tree", "du", "stat", "test", "[", "cd", "mkdir", "rmdir", "realpath")
)
# They modify their arguments in ways that always need approval, so the table has no paths for them.
_MODIFYING_COMMANDS: Final = frozenset(
    (
        *("rm", "rmdir", "unlink", "shred", "truncate", "chmod", "chown", "chgrp", "ln", "install", "setfacl"),
        *("chattr", "patch", "sponge"),
    )
)
# They read whole directories, even with options that the table does not know.
_SEARCH_COMMANDS: Final = frozenset(("rg", "grep", "egrep", "fgrep", "rgrep", "zgrep", "ugrep", "ag", "ack"))
# The same for names that xargs or a substitution passes on. Brackets match only files with ordinary names nearby.
_SPLIT_OR_REPLACED = re.compile(r"""[\s*?\\'"]|^\..*\[""", re.DOTALL)
_SPLIT_OR_EXPANDED = re.compile(r"[\s*?\[\\]")
_UNKNOWN_WORD: Final = "\ufffc"
"""Placeholder for a word that is known only at run time."""


_MAX_DIRECTORIES: Final = 40
MAX_RESTORABLE_BYTES: Final = 5 << 20
"""Undo stores no larger files."""


class PathBudget:
    """Limits how many paths of one command line are examined. The rest is matched against rules and asks."""

    __slots__ = ("directories", "entries", "remaining")

    def __init__(self) -> None:
        self.remaining = 300
        self.directories: set[str] = set()
        self.entries = EntryBudget()

    def can_check_directory(self, folder: str) -> bool:
        """Whether one more working directory is examined."""
        if len(self.directories) < _MAX_DIRECTORIES:
            self.directories.add(folder)
        return folder in self.directories


class _CommandContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a command runs, and the rule that allows it."""

    policy: PermissionPolicy
    directory: str | None
    allow_rule: PermissionRule | None
    budget: PathBudget


def decide_command_paths(
    policy: PermissionPolicy, simple: SimpleCommand, start: str, allow_rule: PermissionRule | None, budget: PathBudget
) -> Iterator[PartVerdict]:
    """Decides for each directory that the command may run in."""
    for place in simple.directories or (None,):
        directory = None if place is None else os.path.normpath(os.path.join(start, place))
        if directory is not None and not budget.can_check_directory(directory):
            yield make_verdict("ask", simple.raw, "uses too many directories to check")
            directory = None
        context = _CommandContext(policy=policy, directory=directory, allow_rule=allow_rule, budget=budget)
        if directory is not None and directory != policy.workspace.root:
            yield from _decide_directory(context, directory, start, place or "")
        yield from _decide_paths(context, simple)


def _decide_directory(context: _CommandContext, directory: str, start: str, written: str) -> Iterator[PartVerdict]:
    access = PathAccess(
        path=directory,
        directory=start,
        tool="Read",
        what=f"runs in {directory}",
        from_command=True,
        command_rule=context.allow_rule,
        naming_rule=rule_naming_path(context.allow_rule, written),
    )
    verdict = decide_path(context.policy, access)
    if verdict.part.effect != "allow":
        yield verdict


def _decide_paths(context: _CommandContext, simple: SimpleCommand) -> Iterator[PartVerdict]:
    for redirect in dict.fromkeys(simple.redirects):
        yield from _decide_redirect(context, redirect)
    if simple.loads and context.allow_rule is None and context.policy.mode != "plan":
        yield from _decide_loaded_files(context, simple)
    contents = _reads_contents(simple)
    for path in dict.fromkeys(simple.reads):
        if BELOW in path:
            is_printed = _program(simple) not in WITHOUT_CONTENTS
            yield from _decide_tree(context, path, is_printed)
        else:
            yield from _decide_template(context, path, writes=False, contents=contents)
    for path in dict.fromkeys((*simple.writes, *_modified_paths(simple))):
        yield from _decide_template(context, path, writes=True, contents=True)
    if context.policy.mode == "acceptEdits" and context.allow_rule is None and _program(simple) == "rm":
        yield from _decide_removal(context, simple)
    if simple.kind == "other" or is_git(simple):
        yield from _decide_words(context, simple)
    if simple.kind == "other" and _is_search(simple) and _has_path_rules(context.policy, "Read"):
        yield from _decide_named_path(context, ".", writes=False, contents=True)
    yield from decide_git_reads(context.policy, simple, context.directory, context.allow_rule)
    if simple.kind == "other":  # the others have no path that is unknown
        yield from _decide_unknown_words(context, simple)


def _decide_removal(context: _CommandContext, simple: SimpleCommand) -> Iterator[PartVerdict]:
    """Unasked, only what undo restores is removed."""
    for path in simple.writes:
        full = os.path.join(context.directory or "", expand_home(path, context.policy.workspace.home))
        try:
            status = os.lstat(full)
        except (OSError, ValueError):
            continue  # nothing to remove
        if stat.S_ISREG(status.st_mode) and status.st_size > MAX_RESTORABLE_BYTES:
            yield make_verdict("ask", f"removes {path}", "too large for undo to restore")


def _decide_loaded_files(context: _CommandContext, simple: SimpleCommand) -> Iterator[PartVerdict]:
    """A program that only informs may still run code that a file of the workspace names."""
    if context.directory is None:
        yield make_verdict("ask", simple.raw, "working directory is only known at run time")
        return
    root, place = context.policy.workspace.root, context.directory
    while True:
        for name in simple.loads:
            if os.path.lexists(os.path.join(place, name)):
                yield make_verdict("ask", simple.raw, f"`{name}` in the workspace can make it run programs")
                return
        if place == root or not is_inside(place, root):
            return
        place = os.path.dirname(place)


def _decide_tree(context: _CommandContext, template: str, is_printed: bool) -> Iterator[PartVerdict]:
    """Any file below a directory. What is printed must be no secret, and not come from elsewhere through a link."""
    before, _, suffix = template.removeprefix(UNQUOTED).partition(BELOW)
    path = before.rstrip("/") or "/"
    yield from _decide_named_path(context, path, writes=False, contents=True)
    if context.directory is None:
        return
    full = os.path.join(context.directory, expand_home(path, context.policy.workspace.home))
    what, links = f"reads {path}", 0
    try:
        for entry in walk_tree(full, context.budget.entries):
            if entry.name.startswith("-"):
                reason = f"the name of the file `{entry.name}` would be read as an option"
            elif template.startswith(UNQUOTED) and _SPLIT_OR_REPLACED.search(entry.name):
                reason = f"the name of the file `{entry.name}` would be split or expanded again"
            elif is_printed and secret_path_reason(entry.path) and _may_be_listed(entry, suffix, full):
                reason = f"prints {entry.path}, which may hold a secret"
            else:
                if is_printed and entry.is_link and not os.path.isdir(entry.path):
                    links += 1
                    if links > MAX_MATCHES:
                        raise TooManyFilesError
                    yield from _decide_named_path(context, entry.path, writes=False, contents=False)
                continue
            yield make_verdict("ask", what, reason)
            return
    except TooManyFilesError:
        yield make_verdict("ask", what, "has too many files to check")


def _may_be_listed(entry: TreeEntry, suffix: str, directory: str) -> bool:
    if suffix != TRACKED:
        return entry.name.lower().endswith(suffix.lower())
    repository = find_repository(directory)
    tracked = read_index(repository.git_directory) if repository is not None else ()
    if tracked is None or repository is None:
        return tracked is None
    path = os.path.relpath(os.path.realpath(entry.path), os.path.realpath(repository.work_tree))
    return any(one.path == path or one.path.startswith(f"{path}/") for one in tracked)


def _decide_template(context: _CommandContext, template: str, writes: bool, contents: bool) -> Iterator[PartVerdict]:
    """A path, or a glob: then each file that it matches now."""
    if not is_glob(template):
        yield from _decide_named_path(context, template, writes, contents)
        return
    pattern = show_template(template)
    what = f"{'writes' if writes else 'reads'} {pattern}"
    if context.directory is None and not template.lstrip(UNQUOTED).startswith(("/", "~")):
        yield make_verdict("ask", what, "working directory is only known at run time")
        return
    directory = context.directory or context.policy.workspace.root
    try:
        paths = expand_glob(template, directory, context.policy.workspace.home, context.budget.entries)
    except TooManyFilesError:
        yield make_verdict("ask", what, "matches too many files to check")
        return
    for path in paths:
        if path.startswith("-"):
            yield make_verdict("ask", what, f"the name of the file `{path}` would be read as an option")
            return
        if template.startswith(UNQUOTED) and _SPLIT_OR_EXPANDED.search(path):
            yield make_verdict("ask", what, f"the name of the file `{path}` would be split or expanded again")
            return
    yield from _decide_matches(context, pattern, paths, writes, contents)


def _decide_matches(
    context: _CommandContext, pattern: str, paths: list[str], writes: bool, contents: bool
) -> Iterator[PartVerdict]:
    """One verdict for all files that are surely readable, and one for each other."""
    policy, directory = context.policy, context.directory or context.policy.workspace.root
    is_fast = not writes and context.allow_rule is None
    filter_by_start: dict[str, SearchResultFilter] = {}
    others: list[str] = []
    for path in paths:
        full = os.path.normpath(os.path.join(directory, path))
        start = os.path.dirname(full)
        if is_fast and start not in filter_by_start:
            filter_by_start[start] = SearchResultFilter(policy, start, usable=True)
        if not is_fast or not filter_by_start[start].is_surely_readable(full):
            others.append(path)
    if len(others) < len(paths) or not paths:
        # The glob itself, where nothing matches; otherwise one of the files, which stands for all of them.
        shown = next((path for path in paths if path not in others), pattern) if paths else pattern
        yield from _decide_named_path(context, shown, writes, contents, what=pattern)
    for path in others:
        yield from _decide_named_path(context, path, writes, contents)


def is_file_write(redirect: ShellRedirect) -> bool:
    return redirect.writes and (redirect.target is None or not _is_standard_stream(redirect.target))


def _is_standard_stream(path: str) -> bool:
    return _normalize(path) in _STANDARD_STREAMS and ".." not in path  # the target of `..` depends on links


def expand_home(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _normalize(path: str) -> str:
    normal = os.path.normpath(path) if path else path
    return normal[1:] if normal.startswith("//") else normal


def _decide_redirect(context: _CommandContext, redirect: ShellRedirect) -> Iterator[PartVerdict]:
    verb = "writes" if redirect.writes else "reads"
    if redirect.target is None:
        yield make_verdict("ask", f"{verb} via {redirect.operator}", "redirection target is only known at run time")
        return
    allow_rule, naming_rule = context.allow_rule, rule_naming_path(context.allow_rule, redirect.target)
    if redirect.writes and not _allows_all_commands(allow_rule):
        allow_rule = None  # a rule for specific commands allows the command, not the file that its output goes to
    yield from _decide_named_path(
        msgspec.structs.replace(context, allow_rule=allow_rule), redirect.target, redirect.writes, True, naming_rule
    )


def _decide_named_path(
    context: _CommandContext,
    path: str,
    writes: bool,
    contents: bool,
    naming_rule: PermissionRule | None = None,
    what: str = "",
) -> Iterator[PartVerdict]:
    """`contents`: for a directory, whether the access includes everything in it. `what`: the path for people."""
    policy = context.policy
    what = f"{'writes' if writes else 'reads'} {what or path}"
    full = expand_home(path, policy.workspace.home)
    normal = _normalize(full)
    if f"{normal}/".startswith(_SOCKET_PREFIXES):
        yield make_verdict("deny", what, "opens a network connection")
        return
    if _is_standard_stream(path) or (path == "-" and not writes):
        return
    if context.directory is None and not full.startswith("/"):
        yield make_verdict("ask", what, "working directory is only known at run time")
        return
    tool = "Write" if writes else "Read"
    start = context.directory or policy.workspace.root
    naming_rule = naming_rule or rule_naming_path(context.allow_rule, path)
    unrestricted_rule = context.allow_rule if not writes and _allows_all_commands(context.allow_rule) else None
    access = PathAccess(
        path=full,
        directory=start,
        tool=tool,
        writes=writes,
        what=what,
        from_command=True,
        command_rule=context.allow_rule,
        naming_rule=naming_rule,
        unrestricted_rule=unrestricted_rule,
    )
    if context.budget.remaining <= 0:
        rule = find_restricting_rule(policy, access)
        yield (
            verdict_by_rule(rule, what)
            if rule
            else make_verdict("ask", "reads or writes more files", "too many paths to check")
        )
        return
    context.budget.remaining -= 1
    yield decide_path(policy, access)
    if contents and _has_path_rules(policy, tool) and _is_directory(access):
        yield from _decide_directory_contents(policy, access)


def _is_directory(access: PathAccess) -> bool:
    try:
        return os.path.isdir(os.path.join(access.directory, access.path))
    except (ValueError, UnicodeEncodeError):
        return False


def _decide_directory_contents(policy: PermissionPolicy, access: PathAccess) -> Iterator[PartVerdict]:
    """A command that reads or changes a whole directory also touches everything in it that a rule denies."""
    facts = examine_path(access.path, policy.workspace, access.directory)
    rule = find_restricting_rule(policy, msgspec.structs.replace(access, recursive=True))
    if rule is not None:
        yield verdict_by_rule(rule, access.what)
        return
    for effect in ("deny", "ask"):
        for rule in policy.rules.for_tool(effect, access.tool):
            for start in (
                anchor_pattern(rule.specifier or "", False, rule.base, policy.workspace) if rule.specifier else ()
            ):
                if not start.only_names and _can_match_inside(start.anchor, start.pattern, facts.resolved):
                    reason = "a rule covers a path in this directory"
                    yield PartVerdict(
                        DecisionPart(what=access.what, effect="ask", reason=reason, rule=rule.text, source=rule.source)
                    )
                    return


def _can_match_inside(anchor: str, pattern: str, folder: str) -> bool:
    """Whether a pattern can match something inside a directory."""
    fixed: list[str] = []
    if "/" in pattern.rstrip("/"):
        for part in pattern.strip("/").split("/"):
            if any(char in part for char in "*?[\\"):
                break
            fixed.append(part)
    base = os.path.join(anchor, *fixed)
    return is_inside(base, folder) or is_inside(folder, base)


def _has_path_rules(policy: PermissionPolicy, tool: str) -> bool:
    return any(rule.specifier is not None for effect in ("deny", "ask") for rule in policy.rules.for_tool(effect, tool))


def _reads_contents(simple: SimpleCommand) -> bool:
    if is_git(simple):
        return "grep" in simple.words
    return not simple.words or simple.words[0] is None or os.path.basename(simple.words[0]) not in _LISTING_COMMANDS


def _program(simple: SimpleCommand) -> str:
    return os.path.basename(simple.words[0] or "") if simple.words else ""


def _is_search(simple: SimpleCommand) -> bool:
    if is_git(simple):
        return "grep" in simple.words
    return bool(simple.words) and simple.words[0] is not None and os.path.basename(simple.words[0]) in _SEARCH_COMMANDS


def _modified_paths(simple: SimpleCommand) -> tuple[str, ...]:
    if simple.writes or not simple.words or simple.words[0] is None:
        return ()
    name = os.path.basename(simple.words[0])
    if name == "dd":
        return tuple(
            word.removeprefix("of=") for word in simple.words[1:] if word and word.startswith(("of=", _UNKNOWN_WORD))
        )
    if name not in _MODIFYING_COMMANDS:
        return ()
    return tuple(word for word in simple.words[1:] if word and not word.startswith("-"))


def _decide_words(context: _CommandContext, simple: SimpleCommand) -> Iterator[PartVerdict]:
    """Each word of a command that the table does not know may be a file that it reads; the same goes for git."""
    policy = context.policy
    exposed = (
        context.allow_rule is not None and not policy.sandbox_support.supports("workspace") and simple.kind == "other"
    )
    if not exposed and not _has_path_rules(policy, "Read"):
        return
    start = context.directory or policy.workspace.root
    for text in dict.fromkeys(text for word in simple.words if word for text in _possible_paths(word)):
        if context.directory is None and not text.startswith(("/", "~")):
            continue
        access = PathAccess(
            path=expand_home(text, policy.workspace.home),
            directory=start,
            tool="Read",
            what=f"refers to {text}",
            from_command=True,
        )
        rule = find_restricting_rule(policy, access)
        if rule is not None:
            yield verdict_by_rule(rule, access.what)
            return
        if context.budget.remaining > 0 and _is_directory(access):
            context.budget.remaining -= 1
            yield from _decide_directory_contents(policy, access)
        if exposed and context.budget.remaining > 0 and not rule_naming_path(context.allow_rule, text):
            context.budget.remaining -= 1
            control = examine_path(access.path, policy.workspace, start).control_reason
            if control:
                yield make_verdict("ask", access.what, control)


def _possible_paths(word: str) -> Iterator[str]:
    """`a`, `--file=a`, `of=a`, `-fa`, `@a`, `HEAD:a`."""
    short = word[2:] if word.startswith("-") else ""
    candidates = (word, word.partition("=")[2], short, word.lstrip("@<"), word.partition(":")[2])
    return (text for text in candidates if text and text != "-")


def _decide_unknown_words(context: _CommandContext, simple: SimpleCommand) -> Iterator[PartVerdict]:
    """`cp a $X`: the file can't be checked before the command runs."""
    if None not in simple.words[1:] or simple.words[0] is None:
        return
    policy, allow_rule = context.policy, context.allow_rule
    words = tuple(_UNKNOWN_WORD if word is None else word for word in simple.words)
    classification = classify(words)
    written = (*classification.writes, *_modified_paths(msgspec.structs.replace(simple, words=words)))
    reason = "path is only known at run time"
    if any(_UNKNOWN_WORD in path for path in written):
        held = _allows_all_commands(allow_rule) and policy.sandbox_support.supports("workspace")
        if not held or _has_path_rules(policy, "Write"):
            yield make_verdict("ask", f"writes a path passed to {simple.words[0]}", reason)
    elif not is_git(simple) and any(
        _UNKNOWN_WORD in path for path in classification.reads
    ):  # for git it may be a revision
        narrow = allow_rule is not None and not _allows_all_commands(allow_rule)
        if narrow or _has_path_rules(policy, "Read"):
            yield make_verdict("ask", f"reads a path passed to {simple.words[0]}", reason)


def _allows_all_commands(allow_rule: PermissionRule | None) -> bool:
    """Whether a person allowed every command."""
    return allow_rule is not None and allow_rule.specifier is None and allow_rule.scope != "skill"
