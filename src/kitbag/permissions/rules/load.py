"""Loads permissions from the user's settings, a trusted project's settings and the command line.

Used by the commands and by `assembly`; uses `settings` and `rule`. A project can restrict, never allow. An unreadable
rule is reported; if it would deny or ask, every use of its tool asks until it is fixed.
"""

import os
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, cast

import msgspec

from kitbag.errors import Diagnostic, UsageError
from kitbag.library.dialects.permission_modes import (
    MODES_STRICTEST_FIRST,
    PermissionMode,
    normalize_mode,
    strictest_mode,
)
from kitbag.library.dialects.tool_aliases import closest_tool
from kitbag.library.scopes import Places
from kitbag.permissions.model import Effect, Workspace, is_inside
from kitbag.permissions.paths import examine_path
from kitbag.permissions.rules.matching import (
    CommandRules,
    RulePath,
    allows_command,
    matches_host,
    matches_name,
    matches_parameter,
    matches_path,
    parse_host,
)
from kitbag.permissions.rules.rule import (
    PermissionRule,
    PermissionRules,
    RuleScope,
    covers_tool,
    parse_rules,
    rule_warnings,
)
from kitbag.permissions.rules.tool_use_syntax import parse_tool_use
from kitbag.settings import PermissionEntry, Settings


def matches_example(rule: PermissionRule, example: str, workspace: Workspace) -> bool:
    """`example` is the subject of the rule's tool, or a full `Tool(...)`."""
    tool, subject = parse_tool_use(example)
    if subject is not None and subject != example:
        if not covers_tool(rule, tool):
            return False
        example = subject
    if rule.tool == "Bash":
        return _matches_command(rule, example)
    if rule.tool in ("Read", "Edit"):
        facts = examine_path(example, workspace)
        return matches_path(rule, RulePath(facts.spellings), workspace)
    if rule.tool == "WebFetch":
        host = parse_host(example)[0] or example
        return matches_host(rule, (host,)) or matches_parameter(rule, {"url": example})
    if rule.tool in ("Task", "Skill"):
        name, _, arguments = example.partition(" ")
        return matches_name(rule, name, arguments)
    name, colon, value = example.partition(":")
    return (
        covers_tool(rule, example) if rule.specifier is None else bool(colon) and matches_parameter(rule, {name: value})
    )


def _matches_command(rule: PermissionRule, example: str) -> bool:
    from kitbag.shell.analysis import analyze

    analysis = analyze(example)
    if rule.effect == "allow":
        parts = analysis.parts
        return bool(parts) and all(allows_command(rule, simple.allow_form, simple.raw) for simple in parts)
    rules = CommandRules((rule,))
    return any(rules.first_match(forms) for forms in ((example,), *(simple.forms for simple in analysis.parts)))


_MODE, _RULES = "permissions.mode", "permissions."
_EFFECTS: Final[tuple[Effect, ...]] = ("deny", "ask", "allow")
NOT_TRUSTED_REASON: Final = "the workspace is not trusted"
USER_ONLY_REASON: Final = "a project can only restrict permissions, not grant them"


class PermissionFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Permission flags of the command line."""

    mode: str = ""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


NO_FLAGS: Final = PermissionFlags()


class IgnoredSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that has no effect."""

    setting: str
    value: str
    source: str
    why: str


class RuleExamples(NamedTuple):
    tried: int
    failed: str
    """What is wrong with the first failing example; empty if all pass."""


class LoadedPermissions(msgspec.Struct, frozen=True, kw_only=True):
    mode: PermissionMode
    mode_source: str
    settings_mode: PermissionMode
    """The mode of the settings alone, without the command line."""
    settings_mode_key: str
    """The same, but an unreadable mode gives a different key: compare it to see whether the settings changed."""
    rules: PermissionRules
    examples: dict[PermissionRule, RuleExamples]
    """Only rules that have examples."""
    ignored: tuple[IgnoredSetting, ...]
    diagnostics: tuple[Diagnostic, ...]


def resolve_workspace(places: Places, settings: Settings) -> tuple[Workspace, list[Diagnostic]]:
    """The workspace of an agent started here. Depends only on the user's start directory and settings."""
    home = os.path.realpath(places.user_home)
    writable: list[str] = []
    problems: list[Diagnostic] = []
    value, source = settings.get_sourced("sandbox.writable")
    for written in cast("list[str]", value):
        path = os.path.realpath(places.user_home + written[1:] if written.startswith("~/") else written)
        if not written.startswith(("/", "~/")) or is_inside(home, path):
            reason = (
                "contains your entire home directory"
                if written.startswith(("/", "~"))
                else "is not absolute and does not start with `~/`"
            )
            problem = f"`sandbox.writable`: ignored `{written}`, which {reason}"
            problems.append(
                Diagnostic(
                    severity="error",
                    code="setting",
                    file=source,
                    line=0,
                    problem=problem,
                    fix="use a directory such as `~/out`",
                )
            )
        else:
            writable.append(path)
    root = os.path.realpath(places.project)
    return Workspace(
        root=root, home=places.user_home, kitbag_home=places.kitbag_home, extra_write_roots=tuple(writable)
    ), problems


def load_permissions(
    settings: Settings,
    workspace: Workspace,
    *,
    trusted: bool,
    flags: PermissionFlags = NO_FLAGS,
    removed_restrictions: Iterable[PermissionEntry] = (),
) -> LoadedPermissions:
    """`trusted`: whether a project's deny and ask rules apply. `removed_restrictions`: deny and ask rules that a
    project had when it was trusted and no longer has. Raises UsageError for the command line; problems in files are
    diagnostics."""
    loader = _Loader(settings, workspace, trusted)
    for entry in (*settings.permission_entries, *removed_restrictions):
        loader.add_entry(entry)
    for path in settings.unreadable_files:
        if path == settings.user_file or trusted:
            loader.ask_about_everything(path)
    for effect in _EFFECTS:
        for text in getattr(flags, effect):
            loader.rules += parse_rules(text, effect, "command line", "command line", workspace.root)
    modes: list[PermissionMode] = [loader.mode, *(mode for mode, _ in loader.project_modes)]
    settings_mode = strictest_mode(*modes)
    if flags.mode:
        loader.mode, loader.mode_source = parse_mode(flags.mode), "command line"
    loader.tighten_mode()
    return LoadedPermissions(
        mode=loader.mode,
        mode_source=loader.mode_source,
        settings_mode=settings_mode,
        settings_mode_key=settings_mode if loader.mode_is_readable else f"{settings_mode}?",
        rules=PermissionRules(loader.rules),
        examples=loader.examples,
        ignored=tuple(loader.ignored),
        diagnostics=tuple(loader.diagnostics),
    )


def parse_mode(name: str) -> PermissionMode:
    """Parse a mode as a person writes it. Raises UsageError that lists the modes."""
    mode, problems = normalize_mode(name, "kitbag")
    for problem in problems:
        if problem.severity != "info":
            raise UsageError(f"unknown permission mode `{name}`", f"use one of {', '.join(MODES_STRICTEST_FIRST)}")
    return mode


def _is_stricter(one: PermissionMode, other: PermissionMode) -> bool:
    return MODES_STRICTEST_FIRST.index(one) < MODES_STRICTEST_FIRST.index(other)


class _Loader:
    __slots__ = (
        "_settings",
        "_trusted",
        "_workspace",
        "diagnostics",
        "examples",
        "ignored",
        "mode",
        "mode_is_readable",
        "mode_source",
        "project_modes",
        "rules",
    )

    def __init__(self, settings: Settings, workspace: Workspace, trusted: bool) -> None:
        self._settings = settings
        self._trusted = trusted
        self._workspace = workspace
        self.mode: PermissionMode = "default"
        self.mode_source = "default"
        self.mode_is_readable = True
        self.project_modes: list[tuple[PermissionMode, PermissionEntry]] = []
        self.rules: list[PermissionRule] = []
        self.examples: dict[PermissionRule, RuleExamples] = {}
        self.ignored: list[IgnoredSetting] = []
        self.diagnostics: list[Diagnostic] = []

    def add_entry(self, entry: PermissionEntry) -> None:
        if not entry.is_user and not self._trusted:
            self._ignore(entry, NOT_TRUSTED_REASON)
        elif entry.key == _MODE:
            self._add_mode(entry)
        elif entry.key == "permissions.allow" and not entry.is_user:
            self._ignore(entry, USER_ONLY_REASON)
        else:
            self._add_rule(entry, cast(Effect, entry.key.removeprefix(_RULES)))

    def _add_mode(self, entry: PermissionEntry) -> None:
        mode, problems = normalize_mode(entry.value, "kitbag")
        for problem in problems:
            self._add_diagnostic(entry, problem.severity, problem.code, problem.problem, problem.fix)
        is_readable = all(problem.severity == "info" for problem in problems)
        if entry.is_user:
            self.mode, self.mode_source, self.mode_is_readable = mode, _source_of(entry), is_readable
        elif is_readable:  # an unreadable mode in a project's file neither restricts nor allows
            self.project_modes.append((mode, entry))

    def tighten_mode(self) -> None:
        own, source = self.mode, self.mode_source
        for mode, entry in self.project_modes:
            if not _is_stricter(mode, own):
                self._ignore(entry, f"not stricter than your own mode, {own} ({source})")
            elif _is_stricter(mode, self.mode):
                self.mode, self.mode_source = mode, _source_of(entry)

    def _add_rule(self, entry: PermissionEntry, effect: Effect) -> None:
        text, matching, missing, problem_text = _parse_entry(entry.value)
        if problem_text:
            fix = 'write "Tool(...)" or {rule = "Tool(...)", matches = ["..."], misses = ["..."]}'
            self._add_diagnostic(entry, "error", "rule-unreadable", f"`{entry.key}`: {problem_text}", fix)
            if not text:
                if effect != "allow":
                    self.ask_about_everything(entry)
                return
        folder = os.path.dirname(entry.file)
        base = self._workspace.kitbag_home if entry.is_user else os.path.dirname(folder)
        scope: RuleScope = "user" if entry.is_user else "project"
        try:
            rules = parse_rules(text, effect, _source_of(entry), scope, base)
        except UsageError as error:
            self._report_unreadable(entry, effect, text, scope, base, error)
            return
        for rule in rules:
            failed = problem_text or self._failed_example(rule, matching, missing)
            if failed and not problem_text:
                message = f"`{text}`: {failed}{_example_effect(rule)}"
                self._add_diagnostic(entry, "error", "rule-example", message, "fix the rule or the example")
            if failed and effect == "allow":
                self._ignore(entry, failed)
                continue
            self.rules.append(rule)
            if matching or missing:
                self.examples[rule] = RuleExamples(len(matching) + len(missing), failed)
            for problem, fix in rule_warnings(rule):
                self._add_diagnostic(entry, "warning", "rule", problem, fix)

    def _failed_example(self, rule: PermissionRule, matching: Iterable[str], missing: Iterable[str]) -> str:

        for example in matching:
            if not matches_example(rule, example, self._workspace):
                return f"does not match its example `{example}`"
        for example in missing:
            if matches_example(rule, example, self._workspace):
                return f"matches `{example}`, which is listed under `misses`"
        return ""

    def _report_unreadable(
        self, entry: PermissionEntry, effect: Effect, text: str, scope: RuleScope, base: str, error: UsageError
    ) -> None:
        """A deny rule lost to a typo would allow what it was meant to deny."""
        problem = error.problem
        if effect != "allow":
            name = text.partition("(")[0].strip()
            replacements = next(
                (rules for rules in (_rules_for_tool(name, base), _rules_for_tool(closest_tool(name), base)) if rules),
                (),
            )
            for rule in replacements:
                self.rules.append(msgspec.structs.replace(rule, text=text, source=_source_of(entry), scope=scope))
            if replacements:
                tools = " and ".join(rule.tool for rule in replacements)
                problem += f"; until it is fixed, every use of {tools} needs approval"
            else:
                self.ask_about_everything(entry)
        self._add_diagnostic(entry, "error", "rule-unreadable", problem, error.fix)

    def ask_about_everything(self, place: PermissionEntry | str) -> None:
        """`place`: the unreadable entry or file."""
        path, line = (place, 0) if isinstance(place, str) else (place.file, place.line)
        scope: RuleScope = "user" if path == self._settings.user_file else "project"
        source = path if isinstance(place, str) else _source_of(place)
        self.rules.append(
            PermissionRule(
                effect="ask",
                tool="*",
                specifier=None,
                text="*",
                source=source,
                scope=scope,
                base=self._workspace.root,
                is_stand_in=True,
            )
        )
        problem = "cannot be read and may contain deny rules; until it is fixed, every tool call needs approval"
        self.diagnostics.append(
            Diagnostic(
                severity="error", code="rule-unreadable", file=path, line=line, problem=problem, fix="fix the file"
            )
        )

    def _ignore(self, entry: PermissionEntry, reason: str) -> None:
        value = _parse_entry(entry.value)[0] or str(entry.value)
        self.ignored.append(IgnoredSetting(setting=entry.key, value=value, source=_source_of(entry), why=reason))

    def _add_diagnostic(self, entry: PermissionEntry, severity: Any, code: str, problem: str, fix: str) -> None:
        self.diagnostics.append(
            Diagnostic(severity=severity, code=code, file=entry.file, line=entry.line, problem=problem, fix=fix)
        )


def _rules_for_tool(name: str, base: str) -> tuple[PermissionRule, ...]:
    try:
        return parse_rules(name, "ask", "", "session", base)
    except UsageError:
        return ()


def _example_effect(rule: PermissionRule) -> str:
    return "; ignored" if rule.effect == "allow" else "; still applied"


def _source_of(entry: PermissionEntry) -> str:
    return f"{entry.file}:{entry.line}" if entry.line else entry.file


def _parse_entry(value: object) -> tuple[str, list[str], list[str], str]:
    """The rule, the examples it must match, those it must not match, and what is wrong with the entry."""
    if isinstance(value, str):
        return value, [], [], ""
    if not isinstance(value, dict):
        return "", [], [], f"a rule must be a string, not `{str(value)[:40]}`"
    table = cast("dict[str, object]", value)
    rule = table.get("rule")
    if not isinstance(rule, str):
        return "", [], [], "`rule` is missing"
    lists: list[list[str]] = []
    for key in ("matches", "misses"):
        written = table.get(key, [])
        items = cast("list[object]", written) if isinstance(written, list) else [written]
        if not all(isinstance(one, str) for one in items):
            return rule, [], [], f"`{key}` of `{rule}` must be a list of strings"
        lists.append([str(one) for one in items])
    unknown = [key for key in table if key not in ("rule", "matches", "misses")]
    problem = f"`{rule}` has an unknown key `{unknown[0]}`" if unknown else ""
    return rule, lists[0], lists[1], problem
