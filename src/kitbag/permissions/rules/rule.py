"""Permission rules, `Tool` or `Tool(specifier)`: parsing and storage.

Used by `load` for settings and the command line, and by the decision modules through `matching`. Rules with other
systems' tool names become rules with Kitbag's. An unreadable rule is an error, never a looser rule.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from kitbag.errors import UsageError
from kitbag.library.dialects.tool_aliases import (
    CANONICAL_TOOLS,
    COMPANION_TOOLS,
    closest_tool,
    is_single_name,
    matches_tool,
    resolve_tool,
)
from kitbag.permissions.model import Effect
from kitbag.text.unicode_forms import fold

RuleScope = Literal["user", "project", "command line", "session", "agent", "skill"]


class PermissionRule(msgspec.Struct, frozen=True, kw_only=True):
    effect: Effect
    tool: str
    """A tool or `mcp__server__*`; in deny and ask rules any pattern with `*`."""
    specifier: str | None
    """None: every use of the tool."""
    text: str
    """As written."""
    source: str
    """The file with its line, `command line`, `session`, or the file of an agent or a skill."""
    scope: RuleScope
    base: str
    """The directory where patterns such as `/x` start."""
    is_stand_in: bool = False
    """Whether it replaces rules that can't be read."""

    def to_json(self) -> dict[str, Any]:
        return {
            "effect": self.effect,
            "tool": self.tool,
            "specifier": self.specifier,
            "text": self.text,
            "source": self.source,
            "scope": self.scope,
            "base": self.base,
            "is_stand_in": self.is_stand_in,
        }


READ_TOOLS: Final = ("Read", "Glob", "Grep")
EDIT_TOOLS: Final = ("Edit", "Write", "NotebookEdit")
_FAMILIES: Final = {"Read": READ_TOOLS, "Edit": EDIT_TOOLS}
"""A rule for the first tool of a family covers the whole family, as in Claude Code."""
_FAMILY_OF: Final = {"Write": "Edit", "NotebookEdit": "Edit", "Glob": "Read", "Grep": "Read"}
_SUBJECTS: Final = {
    "Bash": ("command",),
    "Read": ("file_path", "path"),
    "Edit": ("file_path", "path", "notebook_path"),
    "WebFetch": ("url",),
    "Task": ("subagent_type",),
    "Skill": ("skill", "skill_name", "name"),
}
PARAMETER: Final = re.compile(r"([A-Za-z_][\w-]*):(.+)", re.S)
_TOOL_NAME: Final = re.compile(r"[A-Za-z_*][\w*.-]*")
_JOINS_COMMANDS: Final = re.compile(r"&&|\|\||[;|\n]| & ")
_DOMAIN: Final = re.compile(r"\*|(?:\*\.)?[^\s/:@?#\\*]*(?:\*[^\s/:@?#\\*]*)*")
_MAX_CHARACTERS: Final = 2000
SYNTAX_FIX: Final = (
    "use a form such as `Bash(git log:*)`, `Read(./docs/**)`, `WebFetch(domain:example.com)` or `mcp__server__*`"
)


class PermissionRules:
    """Rules by effect, each in the given order. Immutable."""

    __slots__ = ("_by_tool", "allow", "ask", "compiled", "deny")

    def __init__(self, rules: Iterable[PermissionRule] = ()) -> None:
        unique = tuple(dict.fromkeys(rules))
        self.deny = tuple(rule for rule in unique if rule.effect == "deny")
        self.ask = tuple(rule for rule in unique if rule.effect == "ask")
        self.allow = tuple(rule for rule in unique if rule.effect == "allow")
        self._by_tool: dict[tuple[Effect, str], tuple[PermissionRule, ...]] = {}
        self.compiled: dict[Effect, object] = {}
        """Cache of `matching.compiled_command_rules`."""

    @property
    def all(self) -> tuple[PermissionRule, ...]:
        return (*self.deny, *self.ask, *self.allow)

    def with_rules(self, more: Iterable[PermissionRule]) -> "PermissionRules":
        return PermissionRules((*self.all, *more))

    def for_tool(self, effect: Effect, tool: str) -> tuple[PermissionRule, ...]:
        """Rules that cover a tool; `matching` checks whether they match this use of it."""
        key = (effect, tool)
        matching = self._by_tool.get(key)
        if matching is None:
            rules = self.deny if effect == "deny" else self.ask if effect == "ask" else self.allow
            matching = tuple(rule for rule in rules if covers_tool(rule, tool))
            if len(self._by_tool) < 500:  # a model may invent names
                self._by_tool[key] = matching
        return matching


def covers_tool(rule: PermissionRule, tool: str) -> bool:
    """Allow rules match strictly, deny and ask rules loosely."""
    if rule.effect == "allow":
        return matches_tool(rule.tool, tool) or tool in _FAMILIES.get(rule.tool, ())
    names = {tool, *(resolve_tool(tool, widest=True) or ())}
    if any(name in EDIT_TOOLS for name in names):
        names.add("Edit")
        names.add("Read")  # what can't be read can't be changed
    elif any(name in READ_TOOLS for name in names):
        names.add("Read")
    return any(_covers_loosely(fold(rule.tool), fold(name)) for name in names)


def _covers_loosely(pattern: str, tool: str) -> bool:
    if pattern == tool:
        return True
    if pattern.startswith("mcp__") and tool.startswith(f"{pattern}__"):
        return True  # the name of a server may contain `__`
    return "*" in pattern and glob_matches(pattern, tool)


def glob_matches(pattern: str, text: str) -> bool:
    """`*` matches any number of characters. Linear in both lengths."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    last = rest.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in rest:
        found = text.find(piece, at, end)
        if found < 0:
            return False
        at = found + len(piece)
    return True


def parse_rule(
    text: str, effect: Effect, source: str = "session", scope: RuleScope = "session", base: str = "/"
) -> PermissionRule:
    """Parse a rule that covers one tool. Raises UsageError."""
    rule, *more = parse_rules(text, effect, source, scope, base)
    if more:
        names = " and ".join(one.tool for one in (rule, *more))
        raise UsageError(f"rule `{_truncate(text)}` covers several tools: {names}", "write one rule per tool")
    return rule


def parse_rules(text: str, effect: Effect, source: str, scope: RuleScope, base: str) -> tuple[PermissionRule, ...]:
    """Parse a rule; a tool name of another system may mean several tools. Raises UsageError."""
    name, specifier = split_rule(text)
    tools = _tools_of(name, effect, text)
    if specifier is not None:
        tools = tuple(dict.fromkeys(_FAMILY_OF.get(tool, tool) for tool in tools))
    for tool, family in _FAMILIES.items():
        if tool in tools:
            tools = tuple(other for other in tools if other == tool or other not in family)
    rules: list[PermissionRule] = []
    for tool in tools:
        if specifier is not None:
            _check_specifier(tool, specifier, effect, text)
        rules.append(
            PermissionRule(
                effect=effect, tool=tool, specifier=specifier, text=text.strip(), source=source, scope=scope, base=base
            )
        )
    return tuple(rules)


def split_rule(text: str) -> tuple[str, str | None]:
    """The tool name and the specifier in parentheses; the specifier `*` counts as none. Raises UsageError."""
    written = text.strip()
    if not written:
        raise UsageError("empty rule", SYNTAX_FIX)
    if not written.isprintable() or len(written) > _MAX_CHARACTERS:
        why = "is too long" if len(written) > _MAX_CHARACTERS else "contains invisible characters"
        raise UsageError(f"rule `{_truncate(written)}` {why}", SYNTAX_FIX)
    name, opened, rest = written.partition("(")
    if not opened and ")" not in written:
        return name.strip(), None
    if not rest.endswith(")") or ")" in name or written.count("(") != written.count(")"):
        raise UsageError(f"unbalanced parentheses in rule `{_truncate(written)}`", SYNTAX_FIX)
    if not is_single_name(written):
        raise UsageError(f"`{_truncate(written)}` contains several rules", "write each rule separately")
    specifier = rest[:-1].strip()
    if not specifier:
        raise UsageError(f"empty parentheses in rule `{_truncate(written)}`", f"write `{name}` to match every use")
    return name.strip(), None if specifier == "*" else specifier


def _tools_of(name: str, effect: Effect, text: str) -> tuple[str, ...]:
    if "*" in name and not re.fullmatch(r"mcp__[^*]+", name):
        return (_tool_pattern(name, effect, text),)
    known = {tool.lower(): tool for tool in COMPANION_TOOLS}.get(name.lower())
    tools = (known,) if known else resolve_tool(name, widest=effect != "allow")
    if tools:
        return tools
    if tools is None and (close := closest_tool(name)):
        raise UsageError(f"unknown tool `{_truncate(name)}` in rule `{_truncate(text)}`", f"did you mean `{close}`?")
    if not _TOOL_NAME.fullmatch(name):
        raise UsageError(f"rule `{_truncate(text)}` does not start with a tool name", SYNTAX_FIX)
    return (name,)


def _tool_pattern(name: str, effect: Effect, text: str) -> str:
    if not _TOOL_NAME.fullmatch(name):
        raise UsageError(f"rule `{_truncate(text)}` does not start with a tool name", SYNTAX_FIX)
    server, separator, _ = name[5:].partition("*")[0].partition("__")
    if effect == "allow" and not (name.startswith("mcp__") and server and separator):
        what = f"`{_truncate(text)}` would allow tools that it does not name"
        raise UsageError(what, "name the tool; in allow rules, `*` is only allowed after `mcp__server__`")
    return name


def _check_specifier(tool: str, specifier: str, effect: Effect, text: str) -> None:
    """Whether the specifier is valid for the tool. Raises UsageError."""
    parameter = PARAMETER.fullmatch(specifier)
    if parameter and parameter[1] in _SUBJECTS.get(tool, ()):
        fix = "domain:example.com" if tool == "WebFetch" else parameter[2]
        raise UsageError(f"`{parameter[1]}:` is redundant in rule `{_truncate(text)}`", f"write `{tool}({fix})`")
    if tool == "Bash":
        if ":*" in specifier[:-2] or specifier == ":*":
            raise UsageError(f"`:*` is only allowed at the end of a command: `{_truncate(text)}`", SYNTAX_FIX)
    elif tool in ("Read", "Edit"):
        from kitbag.permissions.rules.path_patterns import check_pattern

        check_pattern(specifier, text)
    elif tool == "WebFetch" and specifier.startswith("domain:"):
        domain = specifier[7:].strip()
        if not domain.strip(".") or not _DOMAIN.fullmatch(domain):
            what = f"`{_truncate(domain)}` in rule `{_truncate(text)}` is not a valid hostname"
            raise UsageError(what, "write `WebFetch(domain:docs.example.com)` or `WebFetch(domain:*.example.com)`")
    elif tool in ("Task", "Skill"):
        return
    elif effect == "allow":
        fix = "write `WebFetch(domain:example.com)`" if tool == "WebFetch" else f"write `{tool}`"
        raise UsageError(f"allow rules for {tool} do not support `{_truncate(specifier)}`", fix)
    elif not parameter:
        what = f"rules for {tool} match a parameter, not `{_truncate(specifier)}`"
        raise UsageError(what, f"write `{tool}(parameter:value)`, or `{tool}` to match every use")


def rule_warnings(rule: PermissionRule) -> list[tuple[str, str]]:
    """(problem, fix) of a valid rule that may not do what its author expects."""
    warnings: list[tuple[str, str]] = []
    name, specifier = split_rule(rule.text)
    plain = next((tool for tool in _FAMILY_OF if tool.lower() == name.lower()), "")
    if specifier is not None and plain:
        what = (
            f"path rules apply to all tools that {'edit' if rule.tool == 'Edit' else 'read'} files, not only to {plain}"
        )
        warnings.append((f"`{rule.text}`: {what}; treated as `{rule.tool}({specifier})`", f"write `{rule.tool}(...)`"))
    known = (*CANONICAL_TOOLS, *COMPANION_TOOLS)
    if rule.tool not in known and "*" not in rule.tool and not rule.tool.startswith("mcp__"):
        what = f"`{rule.text}`: unknown tool `{rule.tool}`; the rule only applies to a tool with exactly this name"
        warnings.append((what, f"known tools: {', '.join(CANONICAL_TOOLS)} and `mcp__server__tool`"))
    if rule.tool == "Bash" and rule.effect == "allow" and specifier and _JOINS_COMMANDS.search(specifier):
        what = f"`{rule.text}`: each command of a compound command is matched separately, so this rule may never match"
        warnings.append((what, "write one rule per command"))
    if rule.tool in ("Read", "Edit") and specifier:
        from kitbag.permissions.rules.path_patterns import pattern_warnings

        warnings += pattern_warnings(rule.text, rule.tool, specifier, rule.base)
    return warnings


def _truncate(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"
