"""Decides about files that a git command reads from history, the index or the work tree, as Read of these files.

Used by `command_paths`; uses `path` for named files and `git_index` for files that git tracks. A command that shows
changes without naming files asks if a rule denies a file that is tracked; objects by id are those of the index.
"""

import os
import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from kitbag.permissions.decisions.git_command import GitCommand, parse_git_commands
from kitbag.permissions.decisions.path import PathAccess, decide_path, rule_naming_path
from kitbag.permissions.decisions.policy import PartVerdict, PermissionPolicy, make_verdict
from kitbag.permissions.git_index import IndexEntry, read_index
from kitbag.permissions.git_repository import GitRepository, find_repository
from kitbag.permissions.model import DecisionPart
from kitbag.permissions.rules.matching import RulePath, matches_path
from kitbag.permissions.rules.rule import PermissionRule
from kitbag.shell.analysis import SimpleCommand
from kitbag.shell.expansions import is_glob, show_template
from kitbag.text.secret_paths import secret_path_reason

_READING: Final = frozenset(
    {
        "annotate", "archive", "blame", "cat-file", "checkout", "checkout-index", "diff", "diff-files", "diff-index",
        "diff-tree", "difftool", "fast-export", "format-patch", "grep", "log", "merge-file", "range-diff", "reflog",
        "restore", "rev-list", "shortlog", "show", "stash", "unpack-file", "whatchanged",
    }
)  # fmt: skip
_SHOWING_CHANGES: Final = frozenset(
    {"diff", "difftool", "show", "format-patch", "fast-export", "range-diff", "archive"}
)
_PATCH_OPTION = re.compile(
    r"-(?:p|u|c|U\d*)|--(?:patch|unified|cc|word-diff|color-words|patch-with-stat|remerge-diff)(?:=.*)?"
)
_SUMMARY_OPTION = re.compile(
    r"-(?:s|q)|--(?:no-patch|stat|numstat|shortstat|dirstat|summary|name-only|name-status|raw|quiet|list|check)(?:=.*)?"
)
_BATCH_OPTION = re.compile(r"--batch(?:-command)?(?:=.*)?|--stdin")
_STAGE = re.compile(r":[0-3]:")
_MAGIC = re.compile(r":(?:\([^)]*\)|[/!^]*:?)")
_EXCLUDING = re.compile(r":(?:[!^]|/[!^]|\([^)]*exclude)")
_LINE_RANGE = re.compile(r"-L.*?:(?=[^:]*$)")
_OBJECT_ID = re.compile(r"[0-9a-f]{4,64}")


class _GitReads(msgspec.Struct, frozen=True, kw_only=True):
    policy: PermissionPolicy
    command: GitCommand
    repository: GitRepository
    allow_rule: PermissionRule | None

    def decide(self) -> Iterator[PartVerdict]:
        command = self.command
        paths = list(self._named_paths())
        for shown, path in dict.fromkeys(paths):
            yield self._decide_path(shown, path)
        entries = self._entries()
        words = [word for word in command.arguments if word is not None]
        pathspecs = [_plain_pathspec(word) for word in self._pathspecs(words)]
        for entry in entries:
            shown = next((word for word in words if _names_object(word, entry)), "")
            if not shown and _matches(entry.path, pathspecs, exact=False) and secret_path_reason(entry.path):
                shown = entry.path
            if not shown and any(_BATCH_OPTION.fullmatch(word) for word in words) and secret_path_reason(entry.path):
                shown = entry.path
            if shown:
                yield self._decide_path(shown, os.path.join(self.repository.work_tree, entry.path))
        if self._reads_unknown_objects(words, entries):
            yield from self._verdicts(self._rules()[:1], "may show a file that `{rule}` covers, from history")
        elif _shows_changes(command.subcommand, words):
            yield from self._decide_tracked(entries, pathspecs)

    def _reads_unknown_objects(self, words: list[str], entries: tuple[IndexEntry, ...]) -> bool:
        """Objects from the input, or by an id that no tracked file has."""
        if self.command.subcommand not in ("cat-file", "unpack-file"):
            return False
        if any(_BATCH_OPTION.fullmatch(word) for word in words):
            return True
        ids = [word for word in words if _OBJECT_ID.fullmatch(word)]
        return any(not any(entry.object_id.startswith(one) for entry in entries) for one in ids) and not (
            {"-t", "-s", "-e", "commit", "tree", "tag"} & {*words}
        )

    def _rules(self) -> list[PermissionRule]:
        policy = self.policy
        return [rule for effect in ("deny", "ask") for rule in policy.rules.for_tool(effect, "Read") if rule.specifier]

    def _verdicts(self, rules: list[PermissionRule], reason: str) -> Iterator[PartVerdict]:
        for rule in rules:
            part = DecisionPart(
                what=self.command.raw,
                effect="ask",
                reason=reason.replace("{rule}", rule.text),
                rule=rule.text,
                source=rule.source,
            )
            yield PartVerdict(part)

    def _entries(self) -> tuple[IndexEntry, ...]:
        return read_index(self.repository.git_directory) or ()

    def _pathspecs(self, words: list[str]) -> list[str]:
        """Words that limit the command to some files; not those that exclude files."""
        if "--" in words:
            return [word for word in words[words.index("--") + 1 :] if not _EXCLUDING.match(word)]
        # Without `--`, git takes a word for a path if it is one.
        here = self.command.directory
        return [word for word in words if not word.startswith("-") and os.path.lexists(os.path.join(here, word))]

    def _named_paths(self) -> Iterator[tuple[str, str]]:
        """Words that name files, and the paths: `HEAD:.env`, `:0:.env`, `:/.env`, `-L1,5:.env`, `.env`."""
        top, here = self.repository.work_tree or self.repository.git_directory, self.command.directory
        for word in self.command.arguments:
            if word is None or word == "/dev/stdin":  # `<(...)`, whose command is decided on its own
                continue
            if word.startswith("-"):
                lines = _LINE_RANGE.match(word)
                if lines:
                    yield word, os.path.join(here, word[lines.end() :])
                continue
            stage, magic = _STAGE.match(word), _MAGIC.match(word)
            if stage or not magic:
                path = word[stage.end() :] if stage else word.partition(":")[2] or word
                yield word, os.path.join(here if path.startswith("./") or ":" not in word else top, path)
            if magic:
                path = word[magic.end() :]
                yield from ((word, os.path.join(base, path)) for base in (top, here))

    def _decide_path(self, shown: str, path: str) -> PartVerdict:
        access = PathAccess(
            path=path,
            directory=self.command.directory,
            tool="Read",
            what=f"reads {shown}",
            from_command=True,
            command_rule=self.allow_rule,
            naming_rule=rule_naming_path(self.allow_rule, shown),
        )
        return decide_path(self.policy, access)

    def _decide_tracked(self, entries: tuple[IndexEntry, ...], pathspecs: list[str]) -> Iterator[PartVerdict]:
        for rule in self._rules():
            for entry in entries:
                path = os.path.normpath(os.path.join(self.repository.work_tree, entry.path))
                if matches_path(rule, RulePath((path,)), self.policy.workspace) and (
                    not pathspecs or _matches(entry.path, pathspecs, exact=True)
                ):
                    yield from self._verdicts([rule], f"may show {entry.path}, which `{{rule}}` covers")
                    return


def decide_git_reads(
    policy: PermissionPolicy, simple: SimpleCommand, directory: str | None, allow_rule: PermissionRule | None
) -> Iterator[PartVerdict]:
    for command in dict.fromkeys(parse_git_commands(simple, directory, policy.workspace.home)):
        if command is None or command.subcommand not in _READING:
            continue
        repository = find_repository(command.directory) or GitRepository("", command.directory)
        if any(word is not None and is_glob(word) and ":" in word for word in command.arguments):
            yield make_verdict("ask", simple.raw, "a glob may match a file that is named like a revision")
        command = command._replace(arguments=tuple(map(_show, command.arguments)))
        reads = _GitReads(policy=policy, command=command, repository=repository, allow_rule=allow_rule)
        yield from (verdict for verdict in reads.decide() if verdict.part.effect != "allow")


def _show(word: str | None) -> str | None:
    """A glob that matches no file stays as it is, and git matches it against the files it tracks."""
    return word if word is None else show_template(word)


def _shows_changes(subcommand: str, words: list[str]) -> bool:
    options = [word for word in words if word.startswith("-")]
    if subcommand in ("cat-file", "blame", "annotate", "grep", "checkout", "restore"):
        return False
    if any(_PATCH_OPTION.fullmatch(word) or word.startswith("-L") for word in options):
        return True
    operands = [word for word in words if not word.startswith("-")]
    if subcommand == "show" and operands and all(":" in word and not word.startswith(":/") for word in operands):
        return False  # files, not commits
    return subcommand in _SHOWING_CHANGES and not any(_SUMMARY_OPTION.fullmatch(word) for word in options)


def _names_object(word: str, entry: IndexEntry) -> bool:
    return _OBJECT_ID.fullmatch(word) is not None and entry.object_id.startswith(word)


def _plain_pathspec(word: str) -> str:
    """Without magic: `:(top,icase)src` and `:/src` are `src`."""
    return os.path.normpath(_MAGIC.sub("", word, count=1) or ".").casefold()


def _matches(path: str, pathspecs: list[str], *, exact: bool) -> bool:
    """Whether a pathspec with a wildcard matches; `exact`: also one that names the path or a directory above it."""
    path = path.casefold()
    for pathspec in pathspecs:
        if any(character in pathspec for character in "*?[") and (
            fnmatchcase(path, pathspec) or fnmatchcase(path, f"*/{pathspec}")
        ):
            return True
        if exact and (pathspec == "." or path == pathspec or f"/{path}/".find(f"/{pathspec}/") >= 0):
            return True
    return False
