"""What a workspace file would run or allow: commands, variables, servers, hooks, modes.

Runs, resolves and connects to nothing. Finds commands with the scanner that packing uses to run them, and fields with
the library's readers, so what is shown and bound is what would happen. Used by `workspace_items`.
"""

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from kitbag.library.agent_servers import parse_servers
from kitbag.library.dialects.field_names import KNOWN_FIELDS
from kitbag.text.frontmatter import key_line, normalize_key, parse_frontmatter
from kitbag.text.frontmatter_fences import SplitDocument, split_frontmatter
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.text.plain_frontmatter import YamlValue

CapabilityKind = Literal["command", "environment", "server", "hook", "mode", "tools", "setting", "script", "link"]
CAPABILITY_KINDS: Final[tuple[CapabilityKind, ...]] = (
    "command", "server", "hook", "script", "link", "mode", "tools", "setting", "environment",
)  # fmt: skip
RESTRICTING_KINDS: Final[frozenset[CapabilityKind]] = frozenset(("mode", "tools", "setting"))
"""Kinds that can also restrict, so that removing one can allow more."""

# Patterns, compiled when a file needs them: most workspaces have few such files, and every start imports this.
_CAPABILITY_WORDS = (
    r"(?i)tools|hook|permission|server|mcp|sandbox|shell|approval|isolation|read.?only|den(?:y|ied)|auth|env|exec|(?<!de)script"
    r"|command|request|card|\\"
)
_FIELD_KINDS: Final[dict[str, CapabilityKind]] = {
    "permissionmode": "mode", "permission": "mode", "permissions": "mode", "readonly": "mode", "sandboxmode": "mode",
    "approvalpolicy": "mode", "tools": "tools", "allowedtools": "tools", "disallowedtools": "tools", "deny": "tools",
    "deniedtools": "tools", "excludetools": "tools", "restricttools": "tools", "hooks": "hook", "mcpservers": "server",
    "shell": "setting", "isolation": "setting", "auth": "setting", "env": "setting", "request": "setting",
    "agentcardurl": "server", "agentcardjson": "server",
}  # fmt: skip
_OTHER_CAPABILITY_FIELD = r"hook|server|permission|tool|sandbox|command|(?<!de)script|exec"
_BLANK = frozenset(("", "null", "~"))
_DEFAULT_MODES = frozenset(("default", "ask"))
_SERVER_MAPS = frozenset(("mcpServers", "mcp_servers", "servers", "mcp"))
# What another tool runs or starts according to its settings; its own permissions don't affect Kitbag.
_RUNNING_KEY = r"(?i)hook|server|command|helper|statusline|refresh|plugin|marketplace|notify|shell|^mcp|^env$"
_ASSIGNMENT = re.compile(r"\w+\+?=")
# They run the first argument that is a file.
_RUNS_A_FILE = (
    r"(?:ba|da|z|k|a|fi)?sh|python[\d.]*|node|deno|bun|ruby|perl|php|lua|osascript|tsx|ts-node|npx|uv|uvx|pipx|poetry|make|just"
    r"|env|sudo|doas|exec|command|nohup|setsid|time|timeout|nice|xargs|source|\."
)
_MAX_COMMAND_CHARACTERS = 20_000
_WORKSPACE_VARIABLE = r"\$\{?(?:CLAUDE_PROJECT_DIR|PWD|workspaceFolder|GEMINI_PROJECT_DIR)\}?|%CD%"


class Capability(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a file would run, start, read or allow."""

    kind: CapabilityKind
    text: str
    """As written; for a script, its path. May contain any character; escape it before printing."""
    line: int = 0
    digest: str = ""
    """For a script: the sha256 of its bytes."""
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "text": self.text,
            "line": self.line,
            "digest": self.digest,
            "note": self.note,
        }


def text_capabilities(text: str, first_line: int = 1) -> list[Capability]:
    """Every command and variable of a Markdown text, as packing finds them. `first_line` 0: unknown."""
    from kitbag.text.reference_syntax import find_references

    capabilities: list[Capability] = []
    for token in find_references(reveal_hidden(text)).tokens:
        if token.kind in ("command", "environment"):
            kind: CapabilityKind = "command" if token.kind == "command" else "environment"
            capabilities.append(
                Capability(kind=kind, text=token.value, line=first_line + token.line - 1 if first_line else 0)
            )
    return capabilities


def document_capabilities(text: str) -> tuple[list[Capability], SplitDocument]:
    """For a file with frontmatter: what its fields allow and its body would run."""
    parts = split_frontmatter(text)
    capabilities: list[Capability] = []
    if parts.frontmatter and re.search(_CAPABILITY_WORDS, parts.frontmatter):
        fields = parse_frontmatter(text, [], KNOWN_FIELDS).metadata
        capabilities += field_capabilities(
            fields, lambda key: key_line(parts.frontmatter or "", key, parts.frontmatter_line)
        )
    return capabilities + text_capabilities(parts.body, parts.body_line), parts


def field_capabilities(fields: Mapping[str, YamlValue], line: Callable[[str], int] | None = None) -> list[Capability]:
    capabilities: list[Capability] = []
    for key, value in fields.items():
        name = normalize_key(key)
        kind = _FIELD_KINDS.get(name) or ("setting" if re.search(_OTHER_CAPABILITY_FIELD, name) else None)
        normalized = value.strip().lower() if isinstance(value, str) else "?"
        if (
            kind is None
            or normalized in _BLANK
            or (kind == "mode" and normalized in _DEFAULT_MODES)
            or value in ([], {})
        ):
            continue
        at = line(key) if line else 0
        if kind == "server" and name == "mcpservers" and not isinstance(value, str):
            named, described = parse_servers(value)
            capabilities += (
                [Capability(kind="server", text=f"{key}: {format_value(list(named))}", line=at)] if named else []
            )
            capabilities += [
                Capability(kind="server", text=describe_server(one, what), line=at) for one, what in described.items()
            ]
        elif kind == "server" and isinstance(value, dict):
            capabilities += [
                Capability(kind="server", text=describe_server(one, what), line=at) for one, what in value.items()
            ]
        elif kind == "hook" and isinstance(value, dict):
            capabilities += [
                Capability(kind="hook", text=f"{one}: {format_value(what)}", line=at) for one, what in value.items()
            ]
        else:
            capabilities.append(Capability(kind=kind, text=f"{key}: {format_value(value)}", line=at))
    return capabilities


def collect_strings(value: object) -> list[str]:
    """Every string in a nested value: any of them may be a prompt."""
    strings: list[str] = []
    pending: list[object] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            strings.append(one)
        elif isinstance(one, dict):
            pending += cast("dict[object, object]", one).values()
        elif isinstance(one, list):
            pending += cast("list[object]", one)
    return strings


def format_value(value: object) -> str:
    """A string as it is, anything else as canonical JSON."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def describe_server(name: str, definition: object) -> str:
    """`name: npx -y server {"env": ...}`: complete, so that different servers have different texts."""
    called = name if re.fullmatch(r"[\w.@/-]+", name) else json.dumps(name)
    rest = dict(cast("dict[str, object]", definition)) if isinstance(definition, dict) else {}
    command, arguments = rest.get("command"), rest.get("args", [])
    is_list = isinstance(arguments, list) and all(isinstance(one, str) for one in cast("list[object]", arguments))
    if isinstance(command, str) and is_list:
        shown = shlex.join([command, *cast("list[str]", arguments)])
        rest = {key: value for key, value in rest.items() if key not in ("command", "args")}
    elif isinstance(rest.get("url"), str):
        shown = str(rest.pop("url"))
    else:
        return f"{called}: {format_value(cast('object', definition))}"
    return f"{called}: {shown} {format_value(rest)}" if rest else f"{called}: {shown}"


def _describe_hook(definition: object) -> str:
    """The shell command, followed by its other fields."""
    rest = dict(cast("dict[str, object]", definition)) if isinstance(definition, dict) else {}
    if not isinstance(rest.get("command"), str):
        return format_value(cast("object", definition))
    shown = str(rest.pop("command"))
    if rest.get("type") == "command":  # the default
        rest.pop("type")
    return f"{shown} {format_value(rest)}" if rest else shown


def configuration_capabilities(content: object, is_server_map: bool = False) -> list[Capability]:
    """What a settings file of another tool would run: hooks, servers, and other fields with commands."""
    if not isinstance(content, dict):
        return []
    capabilities: list[Capability] = []
    fields = cast("dict[str, object]", content)
    if is_server_map and _SERVER_MAPS.isdisjoint(fields):
        fields = {"mcpServers": fields}
    for key, value in fields.items():
        if key in _SERVER_MAPS and isinstance(value, dict):
            capabilities += [
                Capability(kind="server", text=describe_server(one, what))
                for one, what in cast("dict[str, object]", value).items()
            ]
        elif key.lower() == "hooks":
            capabilities += _hook_capabilities(value)
        elif value not in (None, False, "", [], {}) and _runs(key, value):
            capabilities.append(Capability(kind="hook", text=f"{key}: {format_value(value)}"))
    return capabilities


def _hook_capabilities(value: object) -> list[Capability]:
    if not isinstance(value, dict):
        return [Capability(kind="hook", text=format_value(value))] if value else []
    capabilities: list[Capability] = []
    for event, groups in cast("dict[str, object]", value).items():
        for group in cast("list[object]", groups) if isinstance(groups, list) else [groups]:
            capabilities += _hook_group(event, group)
    return capabilities


def _hook_group(event: str, group: object) -> list[Capability]:
    """`{"matcher": "Bash", "hooks": [{"command": ...}]}` as in Claude Code, or a plain hook."""
    fields = cast("dict[str, object]", group) if isinstance(group, dict) else {}
    inner = fields.get("hooks")
    if not isinstance(inner, list):
        return [Capability(kind="hook", text=f"{event}: {_describe_hook(cast('object', group))}")]
    around = {key: value for key, value in fields.items() if key != "hooks"}
    where = f"{event} {format_value(around)}" if around else event
    return [Capability(kind="hook", text=f"{where}: {_describe_hook(hook)}") for hook in cast("list[object]", inner)]


def _runs(key: str, value: object) -> bool:
    if re.search(_RUNNING_KEY, key):
        return True
    pending: list[object] = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            inner = cast("dict[str, object]", one)
            if any(re.search(_RUNNING_KEY, str(name)) for name in inner):
                return True
            pending += inner.values()
        elif isinstance(one, list):
            pending += cast("list[object]", one)
    return False


def setting_capabilities(content: Mapping[str, object], prefix: str = "") -> list[Capability]:
    """A project's own Kitbag settings, key by key."""
    capabilities: list[Capability] = []
    for key, value in content.items():
        if isinstance(value, dict) and value and prefix.count(".") < 10:
            capabilities += setting_capabilities(cast("dict[str, object]", value), f"{prefix}{key}.")
        else:
            capabilities.append(
                Capability(kind="setting", text=f"{prefix}{key} = {json.dumps(value, ensure_ascii=False, default=str)}")
            )
    return capabilities


def executed_files(capabilities: Iterable[Capability]) -> Iterator[tuple[str, ...]]:
    """Groups of words; the first word of a group that is a workspace file is what a command, hook or server runs."""
    seen: set[str | tuple[str, ...]] = set()
    for capability in capabilities:
        if capability.kind not in ("command", "hook", "server") or capability.text in seen:
            continue
        seen.add(capability.text)
        if capability.kind == "command":
            groups = _executed_words(capability.text)
        else:
            # Take all words of a server's command line: they are few and rarely data.
            groups = [(one,) for word in _split_words(capability.text) for one in (word, *_inner_words(word))]
        for words in groups:
            if words not in seen:
                seen.add(words)
                yield words


def _split_words(text: str) -> list[str]:
    text = re.sub(_WORKSPACE_VARIABLE, ".", text[:_MAX_COMMAND_CHARACTERS])
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&()<>\n")
    lexer.whitespace = " \t\r"
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return re.split(r"[\s;|&()<>\"']+", text)


def _inner_words(word: str) -> list[str]:
    """The words inside a quoted command or a piece of JSON."""
    return re.split(r"[\s\"',:;|&()<>{}\[\]]+", word) if re.search(r"[\s\",:{;|&]", word) else []


def _executed_words(text: str) -> list[tuple[str, ...]]:
    parts: list[list[str]] = [[]]
    redirected = False
    for word in _split_words(text):
        if word and not word.strip(";|&()<>\n"):
            redirected = ">" in word or "<<" in word
            if "(" in word or not ("<" in word or redirected):
                parts.append([])
        elif redirected:
            redirected = False
        elif parts[-1] or not _ASSIGNMENT.match(word):
            parts[-1].append(word)
    groups: list[tuple[str, ...]] = []
    for part in parts:
        if part:
            groups.append((part[0],))
            if re.fullmatch(_RUNS_A_FILE, os.path.basename(part[0])):
                groups.append(tuple(word for word in part[1:] if not word.startswith("-")))
                groups += [(inner,) for word in part[1:] for inner in _inner_words(word)]
    return groups
