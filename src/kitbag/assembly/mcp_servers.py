"""MCP servers of a run: the configured ones, shared with the agents that it starts, and those that an agent's
definition declares, which only that agent uses.

Used by agent_resources and tasks/subagent. Nothing of tools/mcp_client is imported if there is no server.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kitbag.agent.shield import run_to_completion
from kitbag.assembly.environment import AgentEnvironment
from kitbag.events import Notice
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.dialects.tool_lists import ToolAccess, parse_tools
from kitbag.permissions.decisions.decide import Permissions
from kitbag.tools.base import Tool

if TYPE_CHECKING:
    from kitbag.tools.mcp_client.configured_servers import ConfiguredServer
    from kitbag.tools.mcp_client.servers import McpServers

SERVER_FILES = (".mcp.json", ".kitbag/mcp.json")


async def open_servers(
    environment: AgentEnvironment, permissions: Permissions, agent: AgentFile | None, only_tools: Sequence[str]
) -> "McpServers | None":
    """None if there are none, or if none of their tools could be used."""
    if not has_configured_servers(environment) or permissions.mode == "plan":
        return None
    if not _allows_server(agent.tools if agent is not None else None) or not _allows_server(_parse_access(only_tools)):
        return None
    servers = load_servers(environment)
    try:
        await servers.open()
    except BaseException:
        await close_servers(servers)
        raise
    return servers


async def close_servers(servers: "McpServers") -> None:
    """Runs to completion, which is bounded: no process may stay behind."""
    await run_to_completion(servers.close())


def has_configured_servers(environment: AgentEnvironment) -> bool:
    if environment.library.settings.tables("mcp_servers"):
        return True
    return any(
        os.path.lexists(os.path.join(directory, name))
        for directory in environment.places.project_dirs
        for name in SERVER_FILES
    )


def load_servers(environment: AgentEnvironment) -> "McpServers":
    from kitbag.tools.mcp_client.servers import McpServers
    from kitbag.tools.mcp_client.servers import ServerEnvironment as ServerGround

    return McpServers(ServerGround(environment.places, environment.trust, environment.library.settings))


class AgentServers(NamedTuple):
    """The servers of an agent: shared ones and its own."""

    shared: "McpServers | None" = None
    own: "McpServers | None" = None

    @property
    def version(self) -> int:
        """Changes whenever `tools` would return something else."""
        return sum(servers.version for servers in self if servers is not None)

    def tools(self, agent: AgentFile | None, *, in_worktree: bool) -> list[Tool[Any]]:
        """`in_worktree`: the agent works in a copy of the workspace, so programs started in the workspace are left
        out."""
        own = self.own.tools() if self.own is not None else []
        if self.shared is None:
            return own
        shadowed_prefixes = tuple(f"mcp__{label}__" for label in (self.own.labels if self.own is not None else ()))
        shared = self.shared.tools(_allowed_servers(agent), programs=not in_worktree)
        return [tool for tool in shared if not tool.name.startswith(shadowed_prefixes)] + own

    def take_notices(self) -> list[Notice]:
        return [notice for servers in self if servers is not None for notice in servers.take_notices()]

    async def prompt(self, name: str, text: str) -> str | None:
        """Raises KitbagError."""
        for servers in (self.own, self.shared):
            prompt_text = await servers.render_prompt(name, text) if servers is not None else None
            if prompt_text is not None:
                return prompt_text
        return None


def _allowed_servers(agent: AgentFile | None) -> tuple[str, ...] | None:
    """Naming servers limits an agent to them; declaring one adds it. A declared server that a configured one of the
    same name shadows counts as that one."""
    if agent is None or all(name in agent.inline_servers for name in agent.mcp_servers):
        return None
    return agent.mcp_servers


def unknown_server_notices(servers: "McpServers | None", agent: AgentFile | None) -> list[Notice]:
    """Servers that an agent names, or whose tools are all it has, but that are not configured."""
    if agent is None:
        return []
    named = dict.fromkeys((*agent.mcp_servers, *agent.tools.only_servers))
    names = [name for name in named if name not in agent.inline_servers and name != "*"]
    if not names:
        return []
    missing = servers.unknown_names(names) if servers is not None else names
    problem = f"the agent {agent.full_name} uses servers that are not configured: {', '.join(missing)}"
    return (
        [Notice(severity="warning", text=problem, fix="run `kitbag servers list` to see configured servers")]
        if missing
        else []
    )


# --- declared by an agent's definition --------------------------------------------------------------------------


async def open_own_servers(
    environment: AgentEnvironment,
    permissions: Permissions,
    agent: AgentFile | None,
    only_tools: Sequence[str],
    *,
    in_worktree: bool,
) -> "tuple[McpServers | None, list[Notice]]":
    """Servers that the agent's definition declares, and notices about those that can't be used. The caller closes
    them."""
    if (
        agent is None
        or not agent.inline_servers
        or permissions.mode == "plan"
        or not _allows_server(_parse_access(only_tools))
    ):
        return None, []
    from kitbag.tools.mcp_client.configured_servers import agent_servers, configured_servers
    from kitbag.tools.mcp_client.servers import McpServers
    from kitbag.tools.mcp_client.servers import ServerEnvironment as ServerGround

    server_ground = ServerGround(environment.places, environment.trust, environment.library.settings)
    configured = configured_servers(*server_ground) if has_configured_servers(environment) else []
    notices: list[Notice] = []
    ready: list[ConfiguredServer] = []
    for server in agent_servers(agent, environment.places, environment.trust, configured):
        label, reason, fix = server.server.label, server.reason, server.fix
        if server.state == "ready" and in_worktree and not server.server.url:
            reason, fix = "local servers cannot run for an agent in a worktree", "use a server with a URL"
        elif server.state == "ready" and not _allows_server(agent.tools, label):
            reason, fix = "the agent's `tools` do not include it", f"add mcp__{label}__* to `tools` in {agent.path}"
        if reason:
            notices.append(
                Notice(
                    severity="warning",
                    text=f"the server {label} of the agent {agent.full_name} is not used: {reason}",
                    fix=fix,
                )
            )
        else:
            ready.append(server)
    if not ready:
        return None, notices
    servers = McpServers(server_ground, ready)
    try:
        await servers.open()
    except BaseException:
        await close_servers(servers)
        raise
    return servers, notices


def _parse_access(only_tools: Sequence[str]) -> ToolAccess | None:
    return parse_tools(list(only_tools))[0] if only_tools else None


def _allows_server(access: ToolAccess | None, label: str = "") -> bool:
    """Whether a tool list allows any server tool, or one of this server."""
    if access is None or access.mode in ("inherit", "all", "deny"):
        return True
    prefix = f"mcp__{label}__" if label else "mcp__"
    allowed = [name.partition("*")[0] if "*" in name else f"{name}__" for name in access.names]
    return access.mode == "allow" and any(
        name_start.startswith(prefix) or prefix.startswith(name_start) for name_start in allowed
    )
