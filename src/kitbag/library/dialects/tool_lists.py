"""Parses tool lists of every format and dialect into one canonical value, ToolAccess.

Used by agents and skills; uses tool_aliases for single names. A list that is unreadable, or has no known
tool, allows nothing; it never falls back to all tools.
"""

import re
from collections.abc import Collection
from typing import Literal, cast

import msgspec
from msgspec.structs import replace

from kitbag.library.dialects.tool_aliases import (
    CANONICAL_TOOLS,
    closest_tool,
    is_single_name,
    matches_tool,
    resolve_tool,
    split_tool_names,
)
from kitbag.text.source_files import FileProblem

AccessMode = Literal["inherit", "all", "allow", "deny", "none"]


class ToolAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The tools an agent may have, or a skill requests."""

    mode: AccessMode
    """`inherit`: the caller's tools; `all`; `allow`: only `names`; `deny`: all except `denied`; `none`."""
    names: tuple[str, ...] = ()
    """Canonical tools and `mcp__server__*` patterns, in declaration order."""
    specifiers: tuple[str, ...] = ()
    """Rules such as `Bash(git log:*)`: a tool with rules here allows only these uses, in every mode."""
    denied: tuple[str, ...] = ()
    """Applies in every mode. A rule with a specifier denies those uses, not the whole tool."""
    unknown: tuple[str, ...] = ()
    original: object = None
    denied_original: object = None

    def allows(self, tool: str) -> bool:
        """Whether a tool may be offered at all, by canonical name; rules are checked when it runs."""
        if self.mode == "none" or any(matches_tool(rule.lower(), tool.lower()) for rule in self.denied):
            return False
        return self.mode != "allow" or any(matches_tool(name, tool) for name in self.names)

    def without(self, denied: tuple[str, ...]) -> "ToolAccess":
        """A copy with these tools denied as well."""
        names = tuple(name for name in self.names if not any(matches_tool(rule, name) for rule in denied))
        mode: AccessMode = "deny" if self.mode in ("inherit", "all") and denied else self.mode
        if mode == "allow" and not names:
            mode = "none"
        combined = tuple(dict.fromkeys((*self.denied, *denied)))
        remaining = replace(self, mode=mode, names=names, denied=combined)
        return replace(
            remaining, specifiers=tuple(rule for rule in self.specifiers if remaining.allows(rule.split("(", 1)[0]))
        )

    @property
    def only_servers(self) -> tuple[str, ...]:
        """The MCP servers, if their tools are all that is allowed; empty otherwise."""
        if self.mode != "allow" or not all(name.startswith("mcp__") for name in self.names):
            return ()
        return tuple(dict.fromkeys(name[5:].partition("__")[0] for name in self.names))

    def intersect(self, limit: "ToolAccess") -> "ToolAccess":
        """A copy limited to the tools of `limit` and to the uses it allows."""
        is_open_ended = self.mode not in ("allow", "none")
        names = tuple(name for name in (limit if is_open_ended else self).names if limit.allows(name))
        mode: AccessMode = "none" if self.mode == "none" or not names else "allow"
        remaining = replace(self, mode=mode, names=names).without(self.denied)
        for tool in dict.fromkeys(rule.split("(", 1)[0] for rule in limit.specifiers):
            remaining = remaining.restrict_tool(
                tool, tuple(rule for rule in limit.specifiers if rule.startswith(f"{tool}("))
            )
        return remaining

    def restrict_tool(self, tool: str, rules: tuple[str, ...]) -> "ToolAccess":
        """A copy that allows only these uses of one tool. Existing rules and these are intersected by text; if they
        share none, the tool is denied."""
        if not self.allows(tool):
            return self
        own = [rule for rule in self.specifiers if rule.startswith(f"{tool}(")]
        kept = [rule for rule in rules if not own or rule in own]
        if not kept:
            return self.without((tool,))
        mode: AccessMode = "deny" if self.mode in ("inherit", "all") else self.mode
        return replace(self, mode=mode, specifiers=(*(rule for rule in self.specifiers if rule not in own), *kept))

    def to_json(self) -> dict[str, object]:
        return {
            "mode": self.mode,
            "names": list(self.names),
            "specifiers": list(self.specifiers),
            "denied": list(self.denied),
            "unknown": list(self.unknown),
            "original": self.original,
            "denied_original": self.denied_original,
        }


_ALL_WORDS = frozenset(("*", "all", "all tools"))
_NONE_WORDS = frozenset(("none", "no tools", "false", "no"))
_BLANK = frozenset(("", "null", "~"))
_TRUE = frozenset(("true", "yes", "on", "1", "allow", "allowed", "enabled", "ask"))
_FALSE = frozenset(("false", "no", "off", "0", "deny", "denied", "disabled", "never"))
_LIST_MODES = {"allowlist": "allow", "whitelist": "allow", "allow": "allow"} | {
    "denylist": "deny",
    "blacklist": "deny",
    "deny": "deny",
}
_EXCEPT = re.compile(r"(?:\*|all(?: tools)?),? (?:except|but|minus|without)(?: for)?:? (.+)", re.I | re.S)
_NEGATIONS = frozenset(("except", "but", "minus", "without", "not", "no", "never"))
_MAX_NAMES, _MAX_DEPTH, _MAX_LENGTH, _MAX_SHOWN = 500, 8, 100_000, 10
_NAMING_FIX = "use a list such as `Read, Grep, Bash(git log:*)`"


class _ToolNames:
    """Collects the names of a list: allowed, denied, unknown and unsupported."""

    __slots__ = (
        "allowed",
        "allows_all",
        "count",
        "denied",
        "denies_all",
        "dialect",
        "last_wins",
        "servers",
        "unknown",
        "unreadable",
        "unsupported",
    )

    def __init__(self, dialect: str, servers: Collection[str] = ()) -> None:
        self.dialect = dialect
        self.servers = {name.lower() for name in servers}
        self.allowed: dict[str, None] = {}
        self.denied: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.unsupported: dict[str, None] = {}
        self.allows_all = self.denies_all = False
        self.last_wins = False
        """The last entry wins, as in OpenCode's maps; otherwise a denial always wins."""
        self.unreadable = ""
        self.count = 0

    def add(self, text: str, allow: bool) -> None:
        """Adds one name, with or without a specifier in parentheses."""
        if text.startswith("!"):
            text, allow = text[1:].strip(), False
        self.count += 1
        if self.count > _MAX_NAMES:  # rejected, not truncated: denials may come last
            self.unreadable = f"more than {_MAX_NAMES} names"
            return
        if text == "*":
            self.add_all(allow)
            return
        name, opened, rest = text.partition("(")
        specifier = rest[:-1].strip() if rest.endswith(")") else ""
        is_plain = text.isprintable() and (specifier or not opened) and (not allow or is_single_name(text))
        tools = resolve_tool(name.strip(), self.dialect, widest=not allow) if is_plain else None
        if tools is None and text.lower() in self.servers:
            tools = resolve_tool(f"{text}/*")
        if tools is None:
            self.unknown[text[:80]] = None
            return
        if not tools:
            self.unsupported[text[:80]] = None
        for tool in tools:
            rule = tool if not specifier or specifier == "*" else f"{tool}({specifier})"
            target, other = (self.allowed, self.denied) if allow else (self.denied, self.allowed)
            target[rule] = None
            if self.last_wins:
                other.pop(rule, None)

    def take_bare_servers(self) -> list[str]:
        """Takes names that can only be MCP servers as such; returns their patterns. Copilot allows bare names."""
        if self.dialect != "copilot" or self.allows_all or self.denies_all:
            return []
        patterns: dict[str, str] = {}
        for name in self.unknown:
            tools = resolve_tool(f"{name}/*") if is_single_name(name) and not closest_tool(name) else None
            if tools and tools[0].startswith("mcp__"):
                patterns[name] = tools[0]
        self.unknown = {name: None for name in self.unknown if name not in patterns}
        self.allowed.update(dict.fromkeys(patterns.values()))
        return list(patterns)

    @property
    def has_known(self) -> bool:
        return bool(self.allowed or self.denied or self.unsupported or self.allows_all or self.denies_all)

    def add_all(self, allow: bool) -> None:
        if self.last_wins:
            self.allows_all, self.denies_all = allow, not allow
            (self.denied if allow else self.allowed).clear()
        elif allow:
            self.allows_all = True
        else:
            self.denies_all = True

    def read(self, value: object, allow: bool, depth: int = 0) -> None:
        """Reads a list in any form."""
        if (
            depth > _MAX_DEPTH
            or len(self.unknown) > _MAX_NAMES
            or (isinstance(value, str) and len(value) > _MAX_LENGTH)
        ):
            self.unreadable = "too long or nested too deeply"
        elif isinstance(value, str):
            self._read_text(value.strip(), allow, depth)
        elif isinstance(value, list | tuple):
            for item in cast("list[object]", value):
                self.read(item, allow, depth + 1)
        elif isinstance(value, dict):
            self._read_item(cast("dict[object, object]", value), allow, depth)
        else:
            self.unreadable = f"it contains `{str(value)[:40]}`"

    def _read_text(self, text: str, allow: bool, depth: int) -> None:
        lower = " ".join(text.lower().split())
        if lower in _ALL_WORDS:
            self.add_all(allow)
            return
        if lower in _NONE_WORDS or lower in _BLANK:
            return
        excepted = _EXCEPT.fullmatch(" ".join(text.split()))
        if excepted and allow:
            self.add_all(True)
            self._read_text(excepted[1].replace(" and ", ", "), False, depth)
            return
        if text.startswith("[") and text.endswith("]"):
            text, depth = text[1:-1], depth + 1
        words = [word for word in split_tool_names(text) if word not in ("-", "and")]
        if any(word.lower() in _NEGATIONS for word in words):
            self.unreadable = f"`{lower[:60]}` is prose, not a list of names"
            return
        if not depth:
            for word in words:
                self.add(word, allow)
            return
        for item in split_tool_names(text, at_spaces=False):  # `My Docs/*` is one server
            if (allow and item[0] != "!") or self._is_known(item):
                self.add(item, allow)
            else:
                for word in split_tool_names(item.replace("!", " ")):
                    self.add(word, False)

    def _is_known(self, item: str) -> bool:
        name = item.lstrip("! ").partition("(")[0].strip()
        return is_single_name(item) and resolve_tool(name, self.dialect, widest=True) is not None

    def _read_item(self, item: dict[object, object], allow: bool, depth: int) -> None:
        """A map inside a list: `{name: Read}`, `{Bash: [git *]}`, or a rule that YAML split at its colon."""
        named = item.get("name", item.get("tool"))
        if isinstance(named, str):
            off = any(_parse_boolean(item[key]) is False for key in ("enabled", "allow", "allowed") if key in item)
            self.read(named, allow and not off, depth + 1)
            return
        for key, value in list(item.items()):
            name = str(key).strip()
            if isinstance(value, str) and "(" in name and ")" not in name:
                self.read(f"{name}:{'' if value.startswith('*') else ' '}{value}", allow, depth + 1)
            elif (state := _parse_boolean(value)) is not None:
                self.read(name, allow and state, depth + 1)
            elif isinstance(value, str) and value.strip():
                self.add(f"{name}({value.strip()})", allow)
            elif isinstance(value, list):
                for rule in cast("list[object]", value):
                    self.add(f"{name}({str(rule).strip()})", allow)
            else:
                self.unknown[name[:80]] = None


def parse_tools(
    value: object, denied: object = None, dialect: str = "", servers: Collection[str] = ()
) -> tuple[ToolAccess, list[FileProblem]]:
    """`value`: the value of `tools:`; `denied`: of `disallowedTools:`. None: the field is missing.

    `servers`: MCP servers whose bare names stand for all their tools.
    """
    names = _ToolNames(dialect, servers)
    problems: list[FileProblem] = []
    mode = _read_tools(names, value, problems)
    access = _build_access(names, mode, value, problems)
    if denied is not None:
        access = _apply_denied(access, denied, _ToolNames(dialect, servers), problems)
    return access, problems


def _apply_denied(access: ToolAccess, denied: object, names: _ToolNames, problems: list[FileProblem]) -> ToolAccess:
    names.read(denied, allow=False)
    unknown = tuple(dict.fromkeys((*access.unknown, *names.unknown)))
    nothing = ToolAccess(
        mode="none",
        names=(),
        specifiers=(),
        denied=access.denied,
        unknown=unknown,
        original=access.original,
        denied_original=denied,
    )
    if names.unreadable or (names.unknown and not names.has_known):
        reason = names.unreadable or f"unknown names {_join_names(names.unknown)}"
        problem = f"invalid list of denied tools: {reason}; no tools are allowed"
        problems.append(
            FileProblem(
                severity="error",
                code="tools-unreadable",
                line=0,
                problem=problem,
                fix=_suggest_fix(tuple(names.unknown)),
            )
        )
        return nothing
    _report_omitted(names, problems, denied=True)
    narrowed = replace(access.without(tuple(names.denied)), unknown=unknown, denied_original=denied)
    if names.denies_all or (narrowed.mode == "none" and access.mode != "none"):
        problem = "every allowed tool is also denied; no tools are allowed"
        problems.append(
            FileProblem(
                severity="warning",
                code="tools-all-denied",
                line=0,
                problem=problem,
                fix="remove a tool from the list of denied tools",
            )
        )
        return nothing
    return narrowed


def _read_tools(names: _ToolNames, value: object, problems: list[FileProblem]) -> AccessMode:
    if value is None:
        return "inherit"
    if isinstance(value, str):
        if value.strip() in _BLANK:
            problem = "`tools` is empty; no tools are allowed"
            fix = "remove the line to inherit the caller's tools, or write `[]` for no tools"
            problems.append(FileProblem(severity="warning", code="tools-empty", line=0, problem=problem, fix=fix))
            return "none"
        if value.lstrip().startswith("{"):
            value = _parse_json(value)
    if not isinstance(value, dict):
        names.read(value, allow=True)
        return "all" if names.allows_all else "allow"
    fields = cast("dict[object, object]", value)
    if any(key in fields for key in ("mode", "allow", "deny", "allowlist", "denylist")):
        return _read_lists(names, fields, problems)
    return _read_boolean_map(names, fields, problems)


def _read_lists(names: _ToolNames, fields: dict[object, object], problems: list[FileProblem]) -> AccessMode:
    """`{mode: allowlist | denylist, allow: [...], deny: [...]}`"""
    allow = fields.get("allow", fields.get("allowlist"))
    deny = fields.get("deny", fields.get("denylist"))
    declared_mode = fields.get("mode", "allow" if allow is not None else "deny")
    mode = (
        _LIST_MODES.get(declared_mode.strip().lower().replace("-", "").replace("_", ""))
        if isinstance(declared_mode, str)
        else None
    )
    selected = allow if mode == "allow" else deny
    if mode is None:
        names.unreadable = f"`mode` must be allowlist or denylist, not `{str(declared_mode)[:40]}`"
    elif selected is None or selected == "":
        names.unreadable = f"{mode}list without `{mode}:`"
    elif mode == "allow":
        names.read(allow, allow=True)
        if deny is not None:
            names.read(deny, allow=False)
        return "all" if names.allows_all else "allow"
    else:
        names.read(deny, allow=False)
        if allow:
            problem = "`allow` has no effect in a denylist"
            problems.append(
                FileProblem(
                    severity="warning",
                    code="tools-allow-ignored",
                    line=0,
                    problem=problem,
                    fix="remove it, or use `mode: allowlist`",
                )
            )
    return "deny"


def _read_boolean_map(names: _ToolNames, fields: dict[object, object], problems: list[FileProblem]) -> AccessMode:
    """A map of names to booleans; the last entry wins. Unnamed tools are on in OpenCode, off elsewhere."""
    has_allowed = False
    names.last_wins = True
    for key, state in fields.items():
        is_allowed = _parse_boolean(state)
        if is_allowed is None:
            problem = f"`{str(key)[:40]}` must be true or false; false is used"
            fix = "set each tool to `true` or `false`"
            problems.append(FileProblem(severity="warning", code="tools-not-boolean", line=0, problem=problem, fix=fix))
        has_allowed = has_allowed or is_allowed is True
        names.add(str(key).strip(), is_allowed is True)
    if names.allows_all:
        return "all"
    if names.denies_all or not fields or (has_allowed and names.dialect != "opencode"):
        return "allow"
    return "deny" if names.denied or not has_allowed else "inherit"


def _build_access(names: _ToolNames, mode: AccessMode, value: object, problems: list[FileProblem]) -> ToolAccess:
    unknown = (*names.unknown, *names.unsupported)
    access = ToolAccess(mode="none", denied=tuple(names.denied), unknown=unknown, original=value)
    if names.unreadable:
        problem = f"invalid tool list: {names.unreadable}; no tools are allowed"
        problems.append(
            FileProblem(severity="error", code="tools-unreadable", line=0, problem=problem, fix=_NAMING_FIX)
        )
        return access
    if mode == "allow" and (servers := names.take_bare_servers()):
        unknown = (*names.unknown, *names.unsupported)
        access = replace(access, unknown=unknown)
        problem = f"no tools named {_join_names(servers)}; taken as MCP servers with all their tools"
        fix = "configure the servers, or list tools such as `read` or `server/tool`"
        problems.append(FileProblem(severity="info", code="tools-servers", line=0, problem=problem, fix=fix))
    rules = [rule for rule in names.allowed if not any(matches_tool(denial, rule) for denial in names.denied)]
    tools = dict.fromkeys(rule.split("(", 1)[0] for rule in rules)
    tools = tuple(tool for tool in tools if not any(matches_tool(denial, tool) for denial in names.denied))
    is_empty = mode == "allow" and not tools
    if unknown and (not names.has_known or (is_empty and not names.allowed)):
        problem = f"no known tools in the list ({_join_names(unknown)}); the agent cannot start"
        problems.append(
            FileProblem(severity="error", code="tools-none-known", line=0, problem=problem, fix=_suggest_fix(unknown))
        )
        return access
    _report_omitted(names, problems)
    if is_empty and names.allowed:
        problem = "every allowed tool is also denied; no tools are allowed"
        problems.append(
            FileProblem(
                severity="warning",
                code="tools-all-denied",
                line=0,
                problem=problem,
                fix="remove a tool from the list of denied tools",
            )
        )
    if mode == "all" and names.denied:
        mode = "deny"
    if is_empty or mode == "none" or (names.denies_all and (mode == "deny" or not names.last_wins)):
        return access
    specifiers = tuple(
        rule for rule in rules if "(" in rule and (tool := rule.split("(", 1)[0]) in tools and tool not in rules
    )
    if names.allows_all:
        return replace(access, mode=mode)
    return replace(access, mode=mode, names=tools, specifiers=specifiers)


def _report_omitted(names: _ToolNames, problems: list[FileProblem], denied: bool = False) -> None:
    """In Copilot's lists, which contain bare server names, and in denials, where an unknown name is harmless, only a
    name similar to a tool gets a warning."""
    unknown = [name for name in names.unknown if not (denied or names.dialect == "copilot") or closest_tool(name)]
    if unknown:
        outcome = "not denied" if denied else "ignored"
        problem = f"unknown tools ({outcome}): {_join_names(unknown)}"
        problems.append(
            FileProblem(
                severity="warning", code="tools-unknown", line=0, problem=problem, fix=_suggest_fix(tuple(unknown))
            )
        )
    absent = [*names.unsupported, *(name for name in names.unknown if name not in unknown)]
    if absent and not denied:
        problem = f"tools that Kitbag does not have (ignored): {_join_names(absent)}"
        problems.append(
            FileProblem(
                severity="info",
                code="tools-no-counterpart",
                line=0,
                problem=problem,
                fix="no action needed if it works without them",
            )
        )


def _join_names(names: Collection[str]) -> str:
    shown = list(names)[:_MAX_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def _suggest_fix(unknown: tuple[str, ...]) -> str:
    for name in unknown[:10]:
        tool = closest_tool(name, 0.6)
        if tool:
            return f"did you mean `{tool}` for `{name}`?"
    return f"use {', '.join(CANONICAL_TOOLS)}, `mcp__server__tool` or `server/tool`"


def _parse_boolean(value: object) -> bool | None:
    word = str(value).strip().lower() if isinstance(value, str | bool | int) else ""
    return True if word in _TRUE else False if word in _FALSE else None


def _parse_json(text: str) -> object:
    import json

    try:
        return json.loads(text[:_MAX_LENGTH])
    except (ValueError, RecursionError):
        return 0  # not None: that means the field is missing
