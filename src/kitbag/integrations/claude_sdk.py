"""Options for the Claude Agent SDK (`pip install 'kitbag[claude]'`): skills from a catalog, loaded when needed.

    from claude_agent_sdk import query
    from kitbag.integrations.claude_sdk import options

    async for message in query(prompt="Review my change", options=options(team="platform")):
        ...

A compact system prompt with the skill catalog, the MCP server with its skill tools allowed, and agent files as agent
definitions (seed 002). Uses mcp_server for the server, and the library for the rest.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from kitbag.assembly.environment import AgentEnvironment, load_environment
from kitbag.assembly.run_options import Options
from kitbag.errors import UsageError
from kitbag.library.agents import AgentFile
from kitbag.library.registry import Registry
from kitbag.packing.catalog import catalog_budget, render_skills
from kitbag.packing.preload import preload_skills
from kitbag.permissions.trust.workspace_trust import WorkspaceTrust
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.text.tokens import estimate_tokens

if TYPE_CHECKING:
    from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions

SERVER_NAME: Final = "kitbag"
"""The MCP server's name: its tools are `mcp__kitbag__load_skill` and so on."""
SKILL_TOOLS: Final = ("load_skill", "list_loaded_skills", "search_skills", "read_skill_file", "unload_skill")
OTHER_TOOLS: Final = ("Task", "TaskOutput", "TaskStop", "list_agents", "pack")
"""The server's other tools, which the SDK's own agents replace."""
SPAWN_TOOLS: Final = ("Task", "Agent")
"""The same tool; newer versions of the CLI call it Agent."""
_MODELS: Final = ("inherit", "sonnet", "opus", "haiku", "fable")
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_PRELOADED_TOKENS: Final = 15_000


def options(
    prompt: str = "",
    *,
    directory: str = "",
    team: str = "",
    persona: str = "",
    extra: Sequence[str] = (),
    trust_workspace: bool = False,
    in_process: bool = True,
    claude_code: bool = False,
    **more: Any,
) -> "ClaudeAgentOptions":
    """`prompt`: replaces the default introduction. `claude_code`: append to Claude Code's own system prompt.
    `in_process`: run the server here, for one query or client at a time; otherwise start `kitbag mcp`. `more`: any
    other field of ClaudeAgentOptions; tools, servers and agents given there are added.

    An untrusted workspace contributes no skills and agents, only the user's own and the built-in ones are available.
    Claude Code's settings are not read unless `setting_sources` says so: Kitbag's library counts. Raises UsageError,
    and NotFoundError for an unknown team or persona.
    """
    from claude_agent_sdk import ClaudeAgentOptions

    conflicting = [name for name in ("system_prompt", "strict_mcp_config") if name in more]
    if conflicting:
        raise UsageError(f"{conflicting[0]} is set by Kitbag", "pass your own instructions as `prompt`")
    cwd = os.path.abspath(directory or str(more.get("cwd") or "") or os.getcwd())
    run_options = Options(
        directory=cwd,
        team=team,
        persona=persona,
        extra=tuple(map(os.path.abspath, extra)),
        trust_workspace=trust_workspace,
    )
    environment = _load(run_options)
    library = environment.library
    text = system_prompt(prompt, library, environment.trust)
    definitions = agent_definitions(library)
    agents = {**definitions, **cast("Mapping[str, AgentDefinition]", more.pop("agents", None) or {})}
    allowed = [f"mcp__{SERVER_NAME}__{tool}" for tool in SKILL_TOOLS] + (list(SPAWN_TOOLS) if agents else [])
    disallowed = ["Skill", *(f"mcp__{SERVER_NAME}__{tool}" for tool in OTHER_TOOLS)]
    servers = {
        **_pop_servers(more),
        SERVER_NAME: _in_process_server(run_options) if in_process else _subprocess_server(run_options),
    }
    allowed += more.pop("allowed_tools", ())
    disallowed += more.pop("disallowed_tools", ())
    rest: dict[str, Any] = {"setting_sources": [], "cwd": cwd, **more}
    return ClaudeAgentOptions(
        system_prompt={"type": "preset", "preset": "claude_code", "append": text} if claude_code else text,
        mcp_servers=servers,
        allowed_tools=list(dict.fromkeys(allowed)),
        disallowed_tools=list(dict.fromkeys(disallowed)),
        agents=agents or None,
        strict_mcp_config=True,
        **rest,
    )


def _load(run_options: Options) -> AgentEnvironment:
    from kitbag.library.scopes import find_places
    from kitbag.permissions.rules.load import PermissionFlags

    return load_environment(
        find_places(run_options.directory),
        permission_options=PermissionFlags(),
        trust_workspace=run_options.trust_workspace,
        extra=run_options.extra,
        team=run_options.team,
        persona=run_options.persona,
    )


# --- system prompt ----------------------------------------------------------------------------------------------


def system_prompt(prompt: str, library: Registry, trust: WorkspaceTrust | None = None) -> str:
    """The introduction, the additions of team and persona, a notice about an untrusted workspace, and the skill
    catalog."""
    persona = library.persona
    parts = [
        prompt.strip() or _default_prompt(),
        reveal_hidden(library.team_prompt()).strip(),
        reveal_hidden(persona.system_prompt_additions).strip() if persona is not None else "",
        _untrusted_notice(trust) if trust is not None else "",
        render_skills(library.visible_skills(), catalog_budget(library.settings), over_mcp=True).text,
    ]
    return "\n\n".join(part for part in parts if part)


def _default_prompt() -> str:
    with open(os.path.join(os.path.dirname(__file__), "claude_sdk.md"), encoding="utf-8") as file:
        return file.read().strip()


def _untrusted_notice(trust: WorkspaceTrust) -> str:
    if trust.can_load_items:
        return ""
    why = "has changed since it was trusted" if trust.state == "changed" else "is not trusted"
    return (
        f"The workspace {why}, so its skills and agents are not available. Run `kitbag trust` to review and trust it."
    )


# --- server -----------------------------------------------------------------------------------------------------


def _in_process_server(run_options: Options) -> Any:
    from kitbag.mcp_server.server import KitbagServer
    from kitbag.mcp_server.server_state import ServerState

    server = KitbagServer(ServerState(run_options))
    server.instructions = ""  # the catalog is in the system prompt
    return {"type": "sdk", "name": SERVER_NAME, "instance": server, "alwaysLoad": True}


def _subprocess_server(run_options: Options) -> Any:
    arguments = ["-m", "kitbag", "mcp", "--cwd", run_options.directory]
    arguments += [word for one in run_options.extra for word in ("--dir", one)]
    arguments += ["--team", run_options.team] if run_options.team else []
    arguments += ["--persona", run_options.persona] if run_options.persona else []
    arguments += ["--trust-workspace"] if run_options.trust_workspace else []
    # Without `alwaysLoad` the CLI hides the tools behind a search.
    return {"type": "stdio", "command": sys.executable, "args": arguments, "alwaysLoad": True}


def _pop_servers(more: dict[str, Any]) -> dict[str, Any]:
    servers: object = more.pop("mcp_servers", None) or {}
    if not isinstance(servers, Mapping):
        raise UsageError("`mcp_servers` must be a dictionary", "load your file and pass its content")
    if SERVER_NAME in servers:
        raise UsageError(f"the server name {SERVER_NAME} is reserved", "rename your server")
    return dict(cast("Mapping[str, Any]", servers))


# --- agents -----------------------------------------------------------------------------------------------------


def agent_definitions(library: Registry) -> "dict[str, AgentDefinition]":
    """Definitions of agent files, including those next to skills (`_subagents/`), but not of the built-in agents, which
    the CLI has itself. An agent without tools is omitted, as Kitbag would refuse to start it."""
    definitions: dict[str, AgentDefinition] = {}
    for agent, _ in library.visible_agents():
        if agent.root.scope == "built-in" or agent.disabled or agent.tools.mode == "none":
            continue
        definition = agent_definition(agent, library)
        if definition.tools is None or definition.tools:
            name = re.sub(r"[^A-Za-z0-9_-]", "-", agent.name if agent.name not in definitions else agent.full_name)
            definitions[name] = definition
    return definitions


def agent_definition(agent: AgentFile, library: Registry) -> "AgentDefinition":
    """Never grants more than Kitbag does: a tool that the file allows only for some uses is omitted, because a
    definition can't express that, and a mode applies only if it is stricter than the default."""
    from claude_agent_sdk import AgentDefinition

    access = agent.tools
    tools: list[str] | None = None
    if access.mode == "allow":
        limited = {rule.split("(", 1)[0] for rule in access.specifiers}
        tools = [_sdk_tool_name(name) for name in access.names if name not in limited and name != "Skill"]
        if access.allows("Skill"):
            tools += [f"mcp__{SERVER_NAME}__{tool}" for tool in SKILL_TOOLS]
    denied = [_sdk_tool_name(rule) for rule in access.denied if "(" not in rule]
    denied += list({rule.split("(", 1)[0] for rule in (*access.denied, *access.specifiers) if "(" in rule})
    mode = {"plan": "plan", "locked": "dontAsk"}.get(agent.permission_mode)
    return AgentDefinition(
        description=collapse_whitespace(reveal_hidden(agent.description)),
        prompt=_agent_prompt(agent, library),
        tools=tools,
        disallowedTools=sorted(set(denied)) or None,
        model=_sdk_model(agent),
        maxTurns=agent.max_turns,
        effort=cast(Any, agent.effort) if agent.effort in _EFFORTS else None,
        background=True if agent.background else None,
        permissionMode=cast(Any, mode),
    )


def _sdk_tool_name(name: str) -> str:
    return "AskUserQuestion" if name == "AskUser" else name


def _sdk_model(agent: AgentFile) -> str | None:
    """A model that the CLI supports; None: the session's model."""
    for name in (agent.model.name, *agent.model.alternatives):
        last = name.rpartition("/")[2]
        if name in _MODELS:
            return name
        if last.startswith("claude-") and name.partition("/")[0] in ("anthropic", last):
            return last
    return None


def _agent_prompt(agent: AgentFile, library: Registry) -> str:
    """The preloaded skills, the agent's instructions, and the catalog if it may load more."""
    loaded = preload_skills(agent, library, _PRELOADED_TOKENS, estimate_tokens)
    parts = [entry.text.strip() for entry in loaded.entries]
    parts.append(reveal_hidden(agent.body()).strip())
    if agent.tools.allows("Skill"):
        already = {skill.full_name for skill in loaded.skills}
        pairs = [pair for pair in library.visible_skills(agent) if pair[0].full_name not in already]
        parts.append(render_skills(pairs, catalog_budget(library.settings), over_mcp=True).text)
    return "\n\n".join(part for part in parts if part) or collapse_whitespace(agent.description)
