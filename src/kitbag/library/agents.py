"""An agent file of any supported tool in one normalized form.

`read_agent` reads the frontmatter; `AgentFile.body` reads the instructions on demand. Used by the registry; uses
agent_document for the file, and tool_lists, model_names and permission_modes for the values.
"""

import os
from typing import Final

import msgspec
from msgspec.structs import replace

from kitbag.errors import Diagnostic
from kitbag.library.agent_document import AgentDocument, is_data_file, read_document
from kitbag.library.agent_servers import read_agent_servers
from kitbag.library.dialects.model_names import INHERIT, ModelName, normalize_model
from kitbag.library.dialects.permission_modes import (
    PermissionMap,
    PermissionMode,
    normalize_mode,
    normalize_sandbox_mode,
    parse_permissions,
    strictest_mode,
)
from kitbag.library.dialects.tool_aliases import CANONICAL_TOOLS, resolve_tool
from kitbag.library.dialects.tool_lists import ToolAccess, parse_tools
from kitbag.library.names import sanitize_name
from kitbag.library.scopes import Root, is_tool_folder
from kitbag.library.skills import to_string_list, to_text
from kitbag.text.frontmatter import read_body
from kitbag.text.hidden_characters import collapse_whitespace, remove_hidden
from kitbag.text.plain_frontmatter import Metadata, YamlValue
from kitbag.text.source_files import FileStamp

DESCRIPTION_LIMIT = 16 * 1024
MAX_TURNS = 10_000
MAX_PRIORITY: Final = 100
_NO_AGENTS = frozenset(
    ("README.md", "Readme.md", "readme.md", "CLAUDE.md", "AGENTS.md", "GEMINI.md", "openai.yaml", "openai.yml")
)
"""Documentation, memory files, and what Codex keeps in a skill's `agents` folder."""
_SUFFIXES: Final = (".agent", ".chatmode")
_COPILOT_FILES: Final = (".agent.md", ".chatmode.md")
_OTHER_COPILOT_FILES: Final = (".prompt.md", ".instructions.md")
_OTHER_FOLDERS: Final = frozenset(
    ("command", "commands", "prompts", "instructions", "rules", "output-styles", "outputstyles", "hooks")
)
"""Folders whose files are no agents, although they have some of the same fields."""
_NAMED_BY_FILE = frozenset(("opencode", "copilot"))
_IDENTIFYING_FIELDS: Final = ("name", "description", "prompt")
_NO_NAMES = frozenset(("null", "~", ".", ".."))
_EFFORTS = frozenset(("none", "minimal", "low", "medium", "high", "xhigh", "max"))
_INHERITED_TOOLS: Final = ToolAccess(mode="inherit")
_REMOTE_DIAGNOSTIC: Final = (
    "remote-not-started",
    "kind",
    "remote agents are not supported",
    "use it in the tool it was written for",
)


class AgentFile(msgspec.Struct, frozen=True, kw_only=True):
    root: Root
    path: str
    name: str
    display_name: str
    description: str
    frontmatter_stamp: FileStamp
    model: ModelName = INHERIT
    permission_mode: PermissionMode = "default"
    permission_mode_original: YamlValue | None = None
    max_turns: int | None = None
    tools: ToolAccess = _INHERITED_TOOLS
    skills: tuple[str, ...] = ()
    background: bool = False
    color: str = ""
    isolation: str = ""
    priority: int | None = None
    """In the queue of background agents."""
    effort: str = ""
    mode: str = "all"
    """`primary`, `subagent` or `all`: where OpenCode offers the agent."""
    hidden: bool = False
    disabled: bool = False
    model_invocable: bool = True
    user_invocable: bool = True
    mcp_servers: tuple[str, ...] = ()
    """Names of all its servers: configured elsewhere or inline."""
    inline_servers: Metadata = {}
    """Definitions of servers in the agent file, by name."""
    has_hooks: bool = False
    """The file declares hooks; Kitbag does not run them."""
    file_extensions: tuple[str, ...] = ()
    argument_hint: str = ""
    inline_prompt: str = ""
    """The prompt of a data file, which has no body."""
    extra: Metadata = {}
    """Unknown fields."""
    team: str = ""
    persona: str = ""

    @property
    def full_name(self) -> str:
        if self.root.plugin:
            return f"{self.root.plugin}:{self.name}"
        return f"{self.team}/{self.name}" if self.team else self.name

    def in_team(self, team: str, persona: str) -> "AgentFile":
        return replace(self, team=team, persona=persona)

    def body(self) -> str:
        """The instructions, read from disk each time. Raises SourceError if the file is unreadable."""
        if is_data_file(self.path):
            return self.inline_prompt
        return read_body(self.path, self.root.boundary)[0].strip("\n \t") or self.inline_prompt

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "full_name": self.full_name,
            "display_name": self.display_name,
            "description": self.description,
            "scope": self.root.scope,
            "dialect": self.root.dialect,
            "plugin": self.root.plugin,
            "team": self.team,
            "persona": self.persona,
            "path": self.path,
            "model": self.model.to_json(),
            "permission_mode": self.permission_mode,
            "permission_mode_original": self.permission_mode_original,
            "max_turns": self.max_turns,
            "tools": self.tools.to_json(),
            "skills": list(self.skills),
            "background": self.background,
            "color": self.color,
            "isolation": self.isolation,
            "priority": self.priority,
            "effort": self.effort,
            "mode": self.mode,
            "hidden": self.hidden,
            "disabled": self.disabled,
            "model_invocable": self.model_invocable,
            "user_invocable": self.user_invocable,
            "mcp_servers": list(self.mcp_servers),
            "has_hooks": self.has_hooks,
            "file_extensions": list(self.file_extensions),
            "argument_hint": self.argument_hint,
            "extra": self.extra,
        }


def can_write_files(agent: "AgentFile") -> bool:
    """Whether its tools and its mode let it create a file at all."""
    return agent.permission_mode != "plan" and any(map(agent.tools.allows, ("Write", "Bash")))


def read_agent(path: str, root: Root) -> tuple[AgentFile | None, list[Diagnostic]]:
    """Never raises for content. None without an error means the file is documentation."""
    document, diagnostics = _read_agent_document(path, root)
    if document is None:
        return None, diagnostics
    is_remote = document.is_remote()
    if is_remote:
        document.add_diagnostic("info", *_REMOTE_DIAGNOSTIC)
    name, display_name = _read_names(document, root)
    mode, mode_original, permission = _read_permission_mode(document, root)
    team, persona = _team_and_persona(path, root)
    servers, own_servers = read_agent_servers(document, root)
    agent = AgentFile(
        root=root,
        path=path,
        name=name,
        display_name=display_name,
        description=_read_description(document, is_remote),
        frontmatter_stamp=document.stamp,
        model=_read_model(document, root),
        permission_mode=mode,
        permission_mode_original=mode_original,
        max_turns=_read_max_turns(document),
        tools=_read_tools(document, root, permission, servers),
        skills=_read_skills(document),
        background=document.take_flag("background", False),
        color=document.take_text("color")[:32],
        isolation=document.take_choice("isolation", frozenset(("worktree",))),
        priority=_read_priority(document),
        effort=document.take_choice("effort", _EFFORTS),
        mode=document.take_choice("mode", frozenset(("primary", "subagent", "all"))) or "all",
        hidden=document.take_flag("hidden", False),
        disabled=document.take_flag("disabled", False) or is_remote,
        model_invocable=document.take_flag("infer", True)
        and not document.take_flag("disable_model_invocation", False, if_unreadable=True),
        user_invocable=document.take_flag("user_invocable", True),
        mcp_servers=servers,
        inline_servers=own_servers,
        has_hooks=_has_hooks(document, root),
        file_extensions=_read_file_extensions(document),
        argument_hint=_read_argument_hint(document),
        inline_prompt=_read_inline_prompt(document),
        extra=document.unused_fields(),
        team=team,
        persona=persona,
    )
    return agent, diagnostics


def _read_agent_document(path: str, root: Root) -> tuple[AgentDocument | None, list[Diagnostic]]:
    """None if the file is not one local agent."""
    if os.path.basename(path) in _NO_AGENTS or path.endswith(_OTHER_COPILOT_FILES):
        return None, []
    document, diagnostics = read_document(path, root.boundary)
    if document is None:
        return None, diagnostics
    is_agent = root.scope != "extra" or _belongs_to_agents(path, root) or _is_plainly_an_agent(document, root)
    if not is_agent and (os.path.dirname(path) != root.path or _is_other_data(document)):
        return None, []  # a directory that the user names may hold documentation, commands and a tsconfig.json
    if not document.has_frontmatter:
        if not is_agent and os.path.basename(path).split(".")[0].isupper():
            return None, []  # CHANGELOG.md of a directory that the user names
        problem = "no frontmatter (`---`); treated as documentation"
        fix = "add frontmatter with `name:` and `description:` to make it an agent"
        document.add_diagnostic("info", "not-an-agent", "", problem, fix)
        return None, diagnostics
    if document.is_data and not any(document.take(field).key for field in _IDENTIFYING_FIELDS):
        if not any(diagnostic.severity == "error" for diagnostic in diagnostics):
            document.add_diagnostic("warning", "not-an-agent", "", "no name, description or prompt", "add them")
        return None, diagnostics
    if is_agent and document.is_remote_list():
        document.add_diagnostic("info", *_REMOTE_DIAGNOSTIC)
        return None, diagnostics
    return (document if is_agent else None), diagnostics


def _belongs_to_agents(path: str, root: Root) -> bool:
    """Whether its name or its folder says that this file of a directory that the user names is an agent."""
    if path == root.path or path.endswith(_COPILOT_FILES):
        return True
    parts = _folders(path, root)
    if is_tool_folder(root.path):
        return True
    if is_data_file(path):
        return parts[-1].endswith(("agent", "agents"))
    return _OTHER_FOLDERS.isdisjoint(parts[1:]) and any(part.endswith(("agent", "agents", "modes")) for part in parts)


def _is_plainly_an_agent(document: AgentDocument, root: Root) -> bool:
    """Whether its fields are those of an agent. A name or a description alone is not enough, except at the top."""
    if not document.has_frontmatter or not _OTHER_FOLDERS.isdisjoint(_folders(document.path, root)[1:]):
        return False
    if document.take("prompt").key or document.is_data:
        return bool(document.take("prompt").key)
    if not document.take("description").key:
        return False
    if document.take("name").key:
        return True
    fields = ("tools", "model", "permission_mode", "mode")
    return os.path.dirname(document.path) == root.path or any(document.take(field).key for field in fields)


def _is_other_data(document: AgentDocument) -> bool:
    """A data file that is valid or JSON, such as tsconfig.json, and has no prompt."""
    return document.is_data and (bool(document.metadata) or document.path.endswith(".json"))


def _folders(path: str, root: Root) -> list[str]:
    """The names of its folders from the root on, in lower case."""
    return os.path.relpath(os.path.dirname(path), os.path.dirname(root.path)).lower().split(os.sep)


def _read_names(document: AgentDocument, root: Root) -> tuple[str, str]:
    """The name and the display name. OpenCode and Copilot name an agent after its file.

    OpenCode calls `sub/deep.md` `sub/deep`; in Kitbag `/` follows a team, so it is `deep`. If two files share a name,
    the registry uses the shallower one and reports the other.
    """
    stem = os.path.splitext(os.path.basename(document.path))[0]
    for suffix in _SUFFIXES:
        stem = stem.removesuffix(suffix)
    key, declared = document.take("name")
    by_file = root.dialect in _NAMED_BY_FILE
    name, name_problem = sanitize_name(None if by_file else declared, stem)
    if (by_file or declared is None) and name != stem:
        name_problem = "the file name contains characters that are not allowed in names"
    if not name:
        name, name_problem = "unnamed", name_problem or "neither `name` nor the file name is a valid name"
    if name_problem:
        problem = f"{name_problem}; the name {name!r} is used"
        document.add_diagnostic("warning", "name-unusable", key, problem, "use lowercase letters, digits and `-`")
    display = document.take_text("display_name")
    if not display and isinstance(declared, str) and declared.strip() not in _NO_NAMES:
        shown = (
            document.strip_hidden(collapse_whitespace(declared), key)
            if by_file
            else remove_hidden(collapse_whitespace(declared))
        )
        display = shown[:200].strip()
    return name, display or name


def _read_description(document: AgentDocument, optional: bool) -> str:
    key, value = document.take("description")
    text = document.strip_hidden(to_text(value).strip(), key) if isinstance(value, str | list) else ""
    if not text and optional:
        return ""
    if not text:
        paragraph = document.first_paragraph()
        instead = "the first paragraph is used" if paragraph else "models cannot tell when to use it"
        problem = "`description` is not a string" if value else "no `description`"
        fix = "add a `description:` that says what it does and when to use it"
        document.add_diagnostic("warning", "no-description", key, f"{problem}; {instead}", fix)
        return document.strip_hidden(paragraph, "description")
    if isinstance(value, list):
        document.add_diagnostic(
            "warning", "description-list", key, "`description` is a list; its items are joined", "write a single string"
        )
    if len(text) > DESCRIPTION_LIMIT:
        problem = f"`description` is too long ({len(text)} characters); truncated to {DESCRIPTION_LIMIT}"
        document.add_diagnostic("warning", "description-long", key, problem, "move the details to the body")
        text = text[: DESCRIPTION_LIMIT - 1] + "…"
    return text


def _read_model(document: AgentDocument, root: Root) -> ModelName:
    key, value = document.take("model")
    model, problems = normalize_model(value, root.dialect)
    document.add_problems(problems, key)
    variant = document.metadata.get("variant")
    if not model.variant and isinstance(variant, str) and root.dialect == "opencode":
        model = replace(model, variant=variant.strip()[:64])
    return model


def _read_permission_mode(
    document: AgentDocument, root: Root
) -> tuple[PermissionMode, YamlValue | None, PermissionMap | None]:
    """The strictest declared mode, the mode as written, and the parsed `permission` field."""
    modes: list[PermissionMode] = []
    key, declared = document.take("permission_mode")
    if key and root.plugin:
        problem = f"`{key}` is ignored: a plugin cannot set its agents' permission mode"
        document.add_diagnostic("info", "plugin-mode-ignored", key, problem, "set it in your own agent")
    elif key:
        mode, problems = normalize_mode(declared, root.dialect)
        document.add_problems(problems, key)
        modes.append(mode)
    if document.take_flag("readonly", False, if_unreadable=True):
        modes.append("plan")
    sandbox = document.take("sandbox_mode")
    if sandbox.key:
        mode, problems = normalize_sandbox_mode(sandbox.value)
        document.add_problems(problems, sandbox.key)
        modes.append(mode)
    permissions: PermissionMap | None = None
    permission = document.take("permission")
    if permission.key:
        permissions, problems = parse_permissions(permission.value)
        document.add_problems(problems, permission.key)
        modes.append(strictest_mode(permissions.mode, "default") if root.plugin else permissions.mode)
    return strictest_mode(*modes) if modes else "default", declared, permissions


def _read_tools(
    document: AgentDocument, root: Root, permission: PermissionMap | None, servers: tuple[str, ...]
) -> ToolAccess:
    tools = document.take("tools")
    denied_fields = document.take_all("denied")
    denied_values: list[YamlValue] = [field.value for field in denied_fields if field.value is not None]
    if not tools.key and document.has_unreadable_tools():
        problem = "the tool fields cannot be parsed; the agent gets no tools"
        document.add_diagnostic(
            "error", "tools-unreadable", "tools", problem, "fix the YAML error reported for this file"
        )
        return ToolAccess(mode="none")
    denied: object = denied_values[0] if len(denied_values) == 1 else denied_values or None
    is_copilot = document.path.lower().endswith(_COPILOT_FILES)
    access, problems = parse_tools(tools.value, denied, "copilot" if is_copilot else root.dialect, servers)
    document.add_problems(problems, tools.key or (denied_fields[0].key if denied_fields else ""))
    return access if permission is None else _apply_permissions(document, access, permission)


def _apply_permissions(document: AgentDocument, access: ToolAccess, permission: PermissionMap) -> ToolAccess:
    if permission.denied:
        denied, problems = parse_tools(None, list(permission.denied), "opencode")
        document.add_problems(
            [parse_problem for parse_problem in problems if parse_problem.severity == "error"], "permission"
        )
        access = (
            access.without(denied.denied)
            if denied.mode != "none"
            else ToolAccess(mode="none", original=access.original)
        )
    if permission.allowed_only is not None:
        allowed, _ = parse_tools(list(permission.allowed_only), None, "opencode")
        access = access.intersect(allowed)
    key = document.take("permission").key
    for action, patterns in permission.exceptions:
        for tool in resolve_tool(action, "opencode", widest=True) or ():
            if tool not in CANONICAL_TOOLS:  # the meaning of a pattern is unknown for MCP tools
                access = access.without((tool,))
                continue
            before, access = access, access.restrict_tool(tool, tuple(f"{tool}({pattern})" for pattern in patterns))
            if before.allows(tool) and not access.allows(tool):
                problem = f"`tools` and `permission` allow different uses of {tool}; the agent cannot use it"
                document.add_diagnostic("warning", "permission-exceptions", key, problem, "use the same rules in both")
    return access


def _read_max_turns(document: AgentDocument) -> int | None:
    key, value = document.take("max_turns")
    if value is None:
        return None
    text = value.strip().removesuffix(".0") if isinstance(value, str) else ""
    turns = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if 0 < turns <= MAX_TURNS:
        return turns
    problem = f"`{key}` must be a number from 1 to {MAX_TURNS}; the default is used"
    document.add_diagnostic("warning", "turns-unreadable", key, problem, f"write `{key}: 30`")
    return None


def _read_priority(document: AgentDocument) -> int | None:
    key, value = document.take("priority")
    if value is None:
        return None
    text = value.strip() if isinstance(value, str) else ""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 4 and int(digits) <= MAX_PRIORITY:
        return int(text)
    problem = f"`{key}` must be a number from -{MAX_PRIORITY} to {MAX_PRIORITY}; the default is used"
    document.add_diagnostic("warning", "priority-unreadable", key, problem, f"write `{key}: 10`")
    return None


def _read_skills(document: AgentDocument) -> tuple[str, ...]:
    key, value = document.take("skills")
    if isinstance(value, dict) and isinstance(value.get("config"), list):
        problem = (
            "the Codex skill configuration is ignored; no skills are preloaded"  # paths of skill files, each on or off
        )
        document.add_diagnostic("info", "skills-config", key, problem, "enable or disable skills in your settings")
        return ()
    if isinstance(value, dict):
        problem = "`skills` is a mapping; no skills are preloaded"
        document.add_diagnostic("warning", "skills-unreadable", key, problem, "write a list of skill names")
        return ()
    return tuple(dict.fromkeys(document.strip_hidden(name, key) for name in to_string_list(value)))


def _has_hooks(document: AgentDocument, root: Root) -> bool:
    key, value = document.take("hooks")
    if not value:
        return False
    if root.plugin:
        problem = f"`{key}` is ignored: a plugin's agents cannot define hooks"
        document.add_diagnostic("info", "plugin-hooks-ignored", key, problem, "remove it")
        return False
    document.add_diagnostic(
        "info", "hooks-not-run", key, "agent hooks are not run", "remove them, or use a tool that runs them"
    )
    return True


def _read_file_extensions(document: AgentDocument) -> tuple[str, ...]:
    """`py`, `.py` and `*.py` are the same."""
    key, value = document.take("file_extensions")
    extensions = [document.strip_hidden(extension, key).lower().lstrip("*") for extension in to_string_list(value)]
    return tuple(
        dict.fromkeys(
            extension if extension.startswith(".") else f".{extension}"
            for extension in extensions
            if extension.strip(".")
        )
    )


def _read_argument_hint(document: AgentDocument) -> str:
    """`[file]` is a list in YAML, but meant as text."""
    key, value = document.take("argument_hint")
    if isinstance(value, list):
        return document.strip_hidden("[" + ", ".join(to_text(item) for item in value) + "]", key)
    return document.take_text("argument_hint")


def _read_inline_prompt(document: AgentDocument) -> str:
    key, value = document.take("prompt")
    text = value.strip("\n \t") if isinstance(value, str) else ""
    if text.startswith("{file:"):
        problem = f"`{key}` refers to a file, which is not supported"
        document.add_diagnostic("warning", "prompt-file", key, problem, "write the prompt inline")
        return ""
    if not text and document.is_data:
        problem = f"`{key}` is not a string" if value else "no prompt"
        document.add_diagnostic("warning", "no-prompt", key, problem, "add `prompt:` with the agent's instructions")
    return text


def _team_and_persona(path: str, root: Root) -> tuple[str, str]:
    """`<team>/_subagents/x.yaml` and `<team>/<persona>/_subagents/x.yaml` below a root."""
    folders = os.path.dirname(os.path.relpath(path, root.path)).split(os.sep)
    if "_subagents" not in folders:
        return "", ""
    parents = [*folders[: folders.index("_subagents")], "", ""]
    return parents[0], "" if parents[1] == "core" else parents[1]
