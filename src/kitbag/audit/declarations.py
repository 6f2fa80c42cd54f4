"""What frontmatter or a settings file declares: tools, mode, hooks, servers, and settings that weaken protection.

Used by examine_item for items and JSON files; uses the library's readers, to see what they see.
"""

import json
import re
from typing import Final, NamedTuple, cast

import msgspec

from kitbag.audit.expressions import load_expression, load_words
from kitbag.audit.file_checks import FileRemark
from kitbag.audit.file_content import FileContent
from kitbag.audit.findings import AuditItem, Severity
from kitbag.audit.shell_checks import find_unpinned_package
from kitbag.audit.urls import CHAT_HOOKS, foreign_hosts
from kitbag.library.agent_document import AgentDocument, read_document
from kitbag.library.dialects.permission_modes import normalize_mode
from kitbag.library.dialects.tool_lists import ToolAccess, parse_tools
from kitbag.library.plugins.manifest import as_list, as_map
from kitbag.library.skills import to_text
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.text.plain_frontmatter import YamlValue
from kitbag.text.source_files import parent_boundary

_MAX_TEXTS: Final = 200
_MAX_DEPTH: Final = 12
_UNRESTRICTED = re.compile(r"yolo|bypass|danger|full.?access|unrestricted|never|auto(?!edit)", re.IGNORECASE)
_SETTINGS_FILES: Final = frozenset(load_words("declarations.settings_files"))
_REACHES_OUT = re.compile(
    r"https?://|\beval\b|base64|\|\s*(?:ba|z)?sh\b|\b(?:node|python\d?|perl|ruby)\s+-[ce]\b|powershell|mshta"
)
_RISKY_ENV = load_expression("declarations.risky_env")
_HELPERS: Final = load_words("declarations.helpers")
_BROAD_RULE = re.compile(r"(?:Bash|Write|Edit|WebFetch)(?:\(\s*(?:\*|:\*|\*\*|domain:\*)?\s*\))?|\*|mcp__\*")


class ItemDeclarations(msgspec.Struct, frozen=True, kw_only=True):
    """What an item declares about itself."""

    name: str
    description: str
    access: ToolAccess
    tools: tuple[str, ...]
    """As written, one by one."""
    mode: str
    hooks: tuple[str, ...]
    """The commands of its hooks, or else their events."""
    servers: tuple[str, ...]
    """`name: command or URL`."""
    remarks: tuple[tuple[int, FileRemark], ...]
    """Each with its line in the main file."""
    prompt: str = ""
    """The instructions of a file that is not Markdown, and the line they start on."""
    prompt_line: int = 0


NO_DECLARATIONS: Final = ItemDeclarations(
    name="", description="", access=ToolAccess(mode="inherit"), tools=(), mode="", hooks=(), servers=(), remarks=()
)


def read_declarations(item: AuditItem) -> ItemDeclarations:
    """For an item whose main file has frontmatter. Never raises."""
    entry = next((entry for entry in item.files if entry.relative == item.main_file and entry.kind == "file"), None)
    if entry is None:
        return NO_DECLARATIONS
    document, _ = read_document(entry.path, parent_boundary(entry.path))
    if document is None or not document.has_frontmatter:
        return NO_DECLARATIONS
    dialect = "kitbag" if "/.kitbag/" in f"/{item.path}" else "claude"
    tools, denied = document.take("tools"), document.take("denied")
    access, _ = parse_tools(tools.value, denied.value, dialect)
    remarks: list[tuple[int, FileRemark]] = []
    mode = _check_mode(document, dialect, item, remarks)
    hooks = _check_hooks(document, remarks)
    servers = _check_servers(document, remarks)
    allows_every_command = access.mode == "all" or ("Bash" in access.names and not _limits_bash(access))
    if allows_every_command and tools.key and item.kind in ("skill", "command"):
        remarks.append(
            (
                document.find_line(tools.key),
                FileRemark(rule="broad-tools", severity=None, excerpt=_excerpt(tools.value)),
            )
        )
    name = document.take("name").value
    unrestricted = [name for name in access.names if not any(rule.startswith(f"{name}(") for rule in access.specifiers)]
    written = tuple(dict.fromkeys((*unrestricted, *access.specifiers, *access.unknown))) if tools.key else ()
    prompt, prompt_line = _read_prompt(document)
    return ItemDeclarations(
        name=collapse_whitespace(name) if isinstance(name, str) else "",
        description=collapse_whitespace(to_text(document.take("description").value or ""))[:2000],
        access=access if tools.key else ToolAccess(mode="inherit"),
        tools=written or (("*",) if access.mode == "all" and tools.key else ()),
        mode=mode,
        hooks=hooks,
        servers=servers,
        remarks=tuple(remarks),
        prompt=prompt,
        prompt_line=prompt_line,
    )


def _read_prompt(document: AgentDocument) -> tuple[str, int]:
    if not document.is_data:
        return "", 0
    field = document.take("prompt")
    return (field.value, document.find_line(field.key)) if isinstance(field.value, str) else ("", 0)


def _limits_bash(access: ToolAccess) -> bool:
    return any(rule.startswith("Bash(") for rule in access.specifiers)


def _check_mode(document: AgentDocument, dialect: str, item: AuditItem, remarks: list[tuple[int, FileRemark]]) -> str:
    field = document.take("permission_mode")
    mode = ""
    if field.key:
        known, _ = normalize_mode(field.value, dialect)
        word = _excerpt(field.value)
        mode = word
        severity: Severity | None = None
        if known == "autonomous" or (known == "default" and _UNRESTRICTED.search(word)):
            severity = "high"
        elif known == "acceptEdits":
            severity = "medium" if item.kind in ("skill", "command") else "low"
        elif known == "locked" and re.sub(r"\W", "", word).lower() == "dontask":
            severity = "low"
        if severity:
            remarks.append(
                (
                    document.find_line(field.key),
                    FileRemark(rule="declared-mode", severity=severity, excerpt=f"{field.key}: {word}"),
                )
            )
    sandbox = document.take("sandbox_mode")
    if sandbox.key and _UNRESTRICTED.search(_excerpt(sandbox.value)):
        remarks.append(
            (
                document.find_line(sandbox.key),
                FileRemark(rule="declared-mode", severity="high", excerpt=f"{sandbox.key}: {_excerpt(sandbox.value)}"),
            )
        )
    policy = document.metadata.get("approval_policy")
    if isinstance(policy, str) and _UNRESTRICTED.search(policy):
        remarks.append(
            (
                document.find_line("approval_policy"),
                FileRemark(rule="declared-mode", severity="high", excerpt=f"approval_policy: {policy}"),
            )
        )
    permission = document.take("permission")
    if permission.key and _allows_all(permission.value):
        remarks.append(
            (
                document.find_line(permission.key),
                FileRemark(
                    rule="declared-mode", severity="medium", excerpt=f"{permission.key}: {_excerpt(permission.value)}"
                ),
            )
        )
    return mode


def _allows_all(value: YamlValue | None) -> bool:
    if isinstance(value, str):
        return value.strip().lower() == "allow"
    if isinstance(value, dict):
        return any(
            key in ("*", "bash") and _allows_all(inner if not isinstance(inner, dict) else inner.get("*"))
            for key, inner in value.items()
        )
    return False


_ALLOWS_ALL: Final = re.compile(
    r"""^\s*(?:echo|printf)\b[^\n;&|]{0,200}permissionDecision[\\"']{1,4}\s*:\s*[\\"']{1,4}allow"""
)
"""Says yes to every question in place of the user."""


def _rate_hooks(commands: tuple[str, ...]) -> Severity | None:
    """A hook that contacts a stranger on every event is no formatter."""
    if any(_ALLOWS_ALL.search(command) for command in commands):
        return "high"
    strangers = [host for command in commands for host in foreign_hosts(command)]
    return "high" if any(host not in CHAT_HOOKS for host in strangers) else None


def _check_hooks(document: AgentDocument, remarks: list[tuple[int, FileRemark]]) -> tuple[str, ...]:
    key, value = document.take("hooks")
    if not value:
        return ()
    commands = _find_commands(value)
    remarks.append(
        (
            document.find_line(key),
            FileRemark(
                rule="declared-hooks", severity=_rate_hooks(commands), excerpt=f"{key}: {'; '.join(commands)}"[:400]
            ),
        )
    )
    return commands


def _check_servers(document: AgentDocument, remarks: list[tuple[int, FileRemark]]) -> tuple[str, ...]:
    key, value = document.take("mcp_servers")
    if not value:
        return ()
    servers = _describe_servers(value)
    started = any(": " in server for server in servers)
    remark = FileRemark(
        rule="declared-servers", severity=None if started else "low", excerpt=f"{key}: {'; '.join(servers)}"[:400]
    )
    remarks.append((document.find_line(key), remark))
    return servers


def _excerpt(value: object) -> str:
    return collapse_whitespace(json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value)[:200]


def _find_commands(value: object) -> tuple[str, ...]:
    """Every string under a key that names a command; else the keys themselves."""
    commands: list[str] = []
    pending: list[tuple[object, int]] = [(value, 0)]
    while pending and len(commands) < _MAX_TEXTS:
        inner, depth = pending.pop(0)
        if depth > _MAX_DEPTH:
            continue
        for key, content in as_map(inner).items():
            if key in ("command", "url", "prompt", "bash", "powershell", "run") and isinstance(content, str):
                arguments = " ".join(str(word) for word in as_list(as_map(inner).get("args")))
                commands.append(collapse_whitespace(f"{content} {arguments}".strip())[:400])
            else:
                pending.append((content, depth + 1))
        pending += [(content, depth + 1) for content in as_list(inner)]
    return tuple(dict.fromkeys(commands)) or tuple(map(str, as_map(value)))


def _describe_servers(value: object) -> tuple[str, ...]:
    servers: list[str] = []
    maps = as_list(value) or [value]
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    for entry in maps:
        if isinstance(entry, str):
            servers.append(entry)
        for name, server in as_map(entry).items():
            details = _find_commands(server) if as_map(server) else ()
            command = as_map(server).get("command")
            if isinstance(command, list):
                details = (" ".join(str(word) for word in cast("list[object]", command)),)
            servers.append(collapse_whitespace(f"{name}: {'; '.join(details)}" if details else str(name))[:400])
    return tuple(dict.fromkeys(servers[:_MAX_TEXTS]))


class DeclaredSettings(NamedTuple):
    hooks: tuple[str, ...]
    servers: tuple[str, ...]
    remarks: tuple[tuple[int, FileRemark], ...]


def read_settings_file(content: FileContent) -> DeclaredSettings | None:
    """For a JSON file that tools read settings from; None for any other file."""
    if content.name.lower() not in _SETTINGS_FILES or content.text is None:
        return None
    try:
        fields = as_map(json.loads(_strip_comments(content.text, content.name)))
    except (ValueError, RecursionError):
        return DeclaredSettings(
            (), (), ((0, FileRemark(rule="not-read", severity="low", excerpt=content.name, note="not JSON")),)
        )
    remarks: list[tuple[int, FileRemark]] = []

    def note(key: str, rule: str, severity: Severity | None, excerpt: str, more: str = "") -> None:
        at = content.text.find(f'"{key}"') if content.text else -1
        line = content.text.count("\n", 0, at) + 1 if content.text and at >= 0 else 0
        remarks.append((line, FileRemark(rule=rule, severity=severity, excerpt=excerpt[:400], note=more)))

    hooks: tuple[str, ...] = ()
    declared = fields.get("hooks")
    if declared and not isinstance(declared, str):
        hooks = _find_commands(declared)
        note("hooks", "declared-hooks", _rate_hooks(hooks), f"hooks: {'; '.join(hooks)}")
    servers: tuple[str, ...] = ()
    for key in ("mcpServers", "servers", "mcp", "lspServers"):
        if as_map(fields.get(key)):
            servers += _describe_servers(fields[key])
            note(key, "declared-servers", None, f"{key}: {'; '.join(servers)}")
    for server in servers:
        if package := find_unpinned_package(server):
            note(server.partition(": ")[0], "unpinned-install", "medium", server, f"unpinned: {package}")
    for key, severity, excerpt in _find_risky_settings(fields):
        note(key, "risky-settings", severity, excerpt)
    return DeclaredSettings(hooks, servers, tuple(remarks))


def _find_risky_settings(fields: dict[str, object]) -> list[tuple[str, Severity | None, str]]:
    risky: list[tuple[str, Severity | None, str]] = []
    permissions = as_map(fields.get("permissions"))
    mode = permissions.get("defaultMode", fields.get("defaultMode"))
    if isinstance(mode, str) and normalize_mode(mode, "claude")[0] == "autonomous":
        risky.append(("defaultMode", None, f"defaultMode: {mode}"))
    broad = [
        rule
        for rule in as_list(permissions.get("allow"))
        if isinstance(rule, str) and _BROAD_RULE.fullmatch(rule.strip())
    ]
    if broad:
        only_edits = all(rule.strip().startswith(("Write", "Edit", "WebFetch")) for rule in broad)
        risky.append(("allow", "medium" if only_edits else None, f"allow: {', '.join(broad)}"))
    if fields.get("enableAllProjectMcpServers") is True:
        risky.append(("enableAllProjectMcpServers", "medium", "enableAllProjectMcpServers: true"))
    env = [name for name in as_map(fields.get("env")) if _RISKY_ENV.fullmatch(name)]
    if env:
        risky.append(("env", "medium" if env == ["PATH"] else None, f"env: {', '.join(sorted(env))}"))
    for key in _HELPERS:
        if fields.get(key):
            risky.append((key, "medium", f"{key}: {_excerpt(fields[key])}"))
    if as_map(fields.get("sandbox")).get("enabled") is False:
        risky.append(("sandbox", None, "sandbox: off"))
    for server in as_map(fields.get("mcpServers")).values():
        if as_map(server).get("trust") is True:
            risky.append(("trust", None, "trust: true"))
        for key in ("autoApprove", "alwaysAllow"):
            if as_map(server).get(key):
                risky.append((key, "medium", f"{key}: {_excerpt(as_map(server)[key])}"))
    for task in as_list(fields.get("tasks")):
        if as_map(as_map(task).get("runOptions")).get("runOn") == "folderOpen":
            severity = None if _REACHES_OUT.search(json.dumps(task)) else "medium"
            command = _excerpt(as_map(task).get("command"))
            risky.append(("runOn", severity, f"runs when the directory is opened: {command}"))
    return risky


def _strip_comments(text: str, name: str) -> str:
    if name.endswith("jsonc") or "//" in text:
        return re.sub(r"^\s*//[^\n]*$", "", text, flags=re.MULTILINE)
    return text
