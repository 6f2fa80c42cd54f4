"""The paths that a command names: where it runs, what it reads and writes, and where its output goes.

Used by decide_command; uses decide_path, which judges each of them as it judges a file tool's. Rules that deny a path
are held against every word of a command that the table does not know.
"""

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from kitbag.permissions.decisions.path import Use, forbidding_rule, judge_path
from kitbag.permissions.decisions.policy import Policy, Verdict, by_rule, verdict
from kitbag.permissions.model import Part, is_inside
from kitbag.permissions.paths import examine
from kitbag.permissions.rules.path_patterns import anchored
from kitbag.permissions.rules.rule import Rule
from kitbag.shell.analysis import Redirect, Simple
from kitbag.shell.command_table import classify

_NO_FILE: Final = frozenset(
    ("/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2")
)
_SOCKETS: Final = ("/dev/tcp/", "/dev/udp/")
# They tell the names of files and not what is in them.
_NAMES_ONLY: Final = frozenset(
    ("ls", "find", "fd", "tree", "du", "stat", "test", "[", "cd", "mkdir", "rmdir", "realpath")
)
# They change what they name in ways that are never approved without a question, so the table has no paths of theirs.
_CHANGES: Final = frozenset(
    (
        *("rm", "rmdir", "unlink", "shred", "truncate", "chmod", "chown", "chgrp", "ln", "install", "setfacl"),
        *("chattr", "patch", "sponge"),
    )
)
# They read all that is in a folder, also where an option is not known to the table.
_SEARCHES: Final = frozenset(("rg", "grep", "egrep", "fgrep", "rgrep", "zgrep", "ugrep", "ag", "ack"))
_UNKNOWN: Final = "\ufffc"
"""Stands for a word that is known only when the command runs."""


_MOST_FOLDERS: Final = 40


class Looks:
    """How many paths of one command line are looked at; the rest is held against the rules and asked for."""

    __slots__ = ("folders", "left")

    def __init__(self) -> None:
        self.left = 300
        self.folders: set[str] = set()

    def may_enter(self, folder: str) -> bool:
        """Whether one more folder that a command runs in is looked at."""
        if len(self.folders) < _MOST_FOLDERS:
            self.folders.add(folder)
        return folder in self.folders


class _Place(NamedTuple):
    """Where a command runs, and the rule that allows it."""

    policy: Policy
    directory: str | None
    grant: Rule | None
    looks: Looks


def judge_paths(policy: Policy, simple: Simple, start: str, grant: Rule | None, looks: Looks) -> Iterator[Verdict]:
    directory = None if simple.directory is None else os.path.normpath(os.path.join(start, simple.directory))
    if directory is not None and not looks.may_enter(directory):
        yield verdict("ask", simple.raw, "the command line goes through more folders than are looked at")
        directory = None
    place = _Place(policy, directory, grant, looks)
    if directory is not None and directory != policy.workspace.root:
        spelled = _spelled(grant, simple.directory or "")
        use = Use(directory, start, "Read", what=f"runs in {directory}", command=True, grant=grant, spelled=spelled)
        judged = judge_path(policy, use)
        if judged.part.effect != "allow":
            yield judged
    for redirect in dict.fromkeys(simple.redirects):
        yield from _judge_redirect(place, redirect)
    for path in dict.fromkeys(simple.reads):
        yield from _judge_named(place, path, writes=False, contents=_reads_contents(simple))
    for path in dict.fromkeys((*simple.writes, *_changed(simple))):
        yield from _judge_named(place, path, writes=True, contents=True)
    if simple.kind == "other" or _is_git(simple):
        yield from _judge_words(place, simple)
    if simple.kind == "other" and _searches(simple) and _has_path_rules(policy, "Read"):
        yield from _judge_named(place, ".", writes=False, contents=True)
    yield from _judge_unknown(place, simple)


def writes_a_file(redirect: Redirect) -> bool:
    return redirect.writes and (redirect.target is None or not _is_no_file(redirect.target))


def _is_no_file(path: str) -> bool:
    return _normal(path) in _NO_FILE and ".." not in path  # what `..` leads to depends on links


def in_home(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _normal(path: str) -> str:
    normal = os.path.normpath(path) if path else path
    return normal[1:] if normal.startswith("//") else normal


def _judge_redirect(place: _Place, redirect: Redirect) -> Iterator[Verdict]:
    verb = "writes" if redirect.writes else "reads"
    if redirect.target is None:
        yield verdict("ask", f"{verb} by {redirect.operator}", "where it is redirected to is known only when it runs")
        return
    grant, spelled = place.grant, _spelled(place.grant, redirect.target)
    if redirect.writes and not _is_for_everything(grant):
        grant = None  # what a rule for some commands allows is the command, not the file that its output goes to
    yield from _judge_named(place._replace(grant=grant), redirect.target, redirect.writes, True, spelled)


def _judge_named(
    place: _Place, path: str, writes: bool, contents: bool, spelled: Rule | None = None
) -> Iterator[Verdict]:
    """`contents`: whether it is about all that is in a folder, when it is one."""
    policy = place.policy
    what = f"{'writes' if writes else 'reads'} {path}"
    full = in_home(path, policy.workspace.home)
    normal = _normal(full)
    if f"{normal}/".startswith(_SOCKETS):
        yield verdict("deny", what, "it would open a connection")
        return
    if _is_no_file(path) or (path == "-" and not writes):
        return
    if place.directory is None and not full.startswith("/"):
        yield verdict("ask", what, "where the command runs is known only when it runs")
        return
    tool = "Write" if writes else "Read"
    start = place.directory or policy.workspace.root
    spelled = spelled or _spelled(place.grant, path)
    reach = place.grant if not writes and _is_for_everything(place.grant) else None
    use = Use(full, start, tool, writes, what=what, command=True, grant=place.grant, spelled=spelled, reach=reach)
    if place.looks.left <= 0:
        rule = forbidding_rule(policy, use)
        yield by_rule(rule, what) if rule else verdict("ask", "reads or writes more", "it names too many files")
        return
    place.looks.left -= 1
    yield judge_path(policy, use)
    if contents and _has_path_rules(policy, tool) and _is_folder(use):
        yield from _judge_beneath(policy, use)


def _is_folder(use: Use) -> bool:
    try:
        return os.path.isdir(os.path.join(use.directory, use.path))
    except (ValueError, UnicodeEncodeError):
        return False


def _judge_beneath(policy: Policy, use: Use) -> Iterator[Verdict]:
    """A command that reads or changes a whole folder does so with everything in it that a rule denies."""
    facts = examine(use.path, policy.workspace, use.directory)
    rule = forbidding_rule(policy, use._replace(folder=True))
    if rule is not None:
        yield by_rule(rule, use.what)
        return
    for effect in ("deny", "ask"):
        for rule in policy.rules.matching(effect, use.tool):
            for start in anchored(rule.specifier or "", False, rule.base, policy.workspace) if rule.specifier else ():
                if not start.only_names and _may_reach(start.anchor, start.pattern, facts.resolved):
                    why = "a rule speaks of something in that folder"
                    yield Verdict(Part(use.what, "ask", why, rule.text, rule.source))
                    return


def _may_reach(anchor: str, pattern: str, folder: str) -> bool:
    """Whether a pattern can match something in a folder."""
    fixed: list[str] = []
    if "/" in pattern.rstrip("/"):
        for part in pattern.strip("/").split("/"):
            if any(char in part for char in "*?[\\"):
                break
            fixed.append(part)
    base = os.path.join(anchor, *fixed)
    return is_inside(base, folder) or is_inside(folder, base)


def _has_path_rules(policy: Policy, tool: str) -> bool:
    return any(rule.specifier is not None for effect in ("deny", "ask") for rule in policy.rules.matching(effect, tool))


def _reads_contents(simple: Simple) -> bool:
    if _is_git(simple):
        return "grep" in simple.words
    return not simple.words or simple.words[0] is None or os.path.basename(simple.words[0]) not in _NAMES_ONLY


def _searches(simple: Simple) -> bool:
    if _is_git(simple):
        return "grep" in simple.words
    return bool(simple.words) and simple.words[0] is not None and os.path.basename(simple.words[0]) in _SEARCHES


def _is_git(simple: Simple) -> bool:
    return bool(simple.words) and simple.words[0] is not None and os.path.basename(simple.words[0]) == "git"


def _changed(simple: Simple) -> tuple[str, ...]:
    if simple.writes or not simple.words or simple.words[0] is None:
        return ()
    name = os.path.basename(simple.words[0])
    if name == "dd":
        return tuple(
            word.removeprefix("of=") for word in simple.words[1:] if word and word.startswith(("of=", _UNKNOWN))
        )
    if name not in _CHANGES:
        return ()
    return tuple(word for word in simple.words[1:] if word and not word.startswith("-"))


def _judge_words(place: _Place, simple: Simple) -> Iterator[Verdict]:
    """Of a command that the table does not know, each word may be a file that it reads; so may git's."""
    policy = place.policy
    exposed = place.grant is not None and not policy.protection.holds("workspace") and simple.kind == "other"
    if not exposed and not _has_path_rules(policy, "Read"):
        return
    start = place.directory or policy.workspace.root
    for text in dict.fromkeys(text for word in simple.words if word for text in _possible_paths(word)):
        if place.directory is None and not text.startswith(("/", "~")):
            continue
        use = Use(in_home(text, policy.workspace.home), start, "Read", what=f"names {text}", command=True)
        rule = forbidding_rule(policy, use)
        if rule is not None:
            yield by_rule(rule, use.what)
            return
        if place.looks.left > 0 and _is_folder(use):
            place.looks.left -= 1
            yield from _judge_beneath(policy, use)
        if exposed and place.looks.left > 0 and not _spelled(place.grant, text):
            place.looks.left -= 1
            control = examine(use.path, policy.workspace, start).control
            if control:
                yield verdict("ask", use.what, control)


def _possible_paths(word: str) -> Iterator[str]:
    """`a`, `--file=a`, `of=a`, `-fa`, `@a`, `HEAD:a`."""
    short = word[2:] if word.startswith("-") else ""
    found = (word, word.partition("=")[2], short, word.lstrip("@<"), word.partition(":")[2])
    return (text for text in found if text and text != "-")


def _judge_unknown(place: _Place, simple: Simple) -> Iterator[Verdict]:
    """`cp a $X`: which file it is can't be held against rules and places before it runs."""
    if None not in simple.words[1:] or simple.words[0] is None:
        return
    policy, grant = place.policy, place.grant
    words = tuple(_UNKNOWN if word is None else word for word in simple.words)
    found = classify(words)
    written = (*found.writes, *_changed(simple._replace(words=words)))
    why = "which file it is can be told only when it runs"
    if any(_UNKNOWN in path for path in written):
        held = _is_for_everything(grant) and policy.protection.holds("workspace")
        if not held or _has_path_rules(policy, "Write"):
            yield verdict("ask", f"writes a file that {simple.words[0]} is given", why)
    elif not _is_git(simple) and any(_UNKNOWN in path for path in found.reads):  # git's may be a revision
        narrow = grant is not None and not _is_for_everything(grant)
        if narrow or _has_path_rules(policy, "Read"):
            yield verdict("ask", f"reads a file that {simple.words[0]} is given", why)


def _is_for_everything(grant: Rule | None) -> bool:
    """Whether a person allowed every command."""
    return grant is not None and grant.specifier is None and grant.scope != "skill"


def _spelled(grant: Rule | None, path: str) -> Rule | None:
    """The rule, if a person wrote the path into it as it stands in the command."""
    if grant is None or not grant.specifier or not path or grant.scope == "skill":
        return None
    return grant if path in grant.specifier.removesuffix(":*").split() else None
