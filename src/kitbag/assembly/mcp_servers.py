"""The servers of a run, where there are any: opened with it, for its own agent and for those that it starts; and the
servers that an agent's file describes, which are there for that agent alone and end with it.

Used by Agent and Subagent. Nothing of tools/mcp_client is imported where there is no server.
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
    """None where there are none, or where none of their tools could be used."""
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
    """To its end, which is bounded: nothing that was started may stay."""
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
    """What an agent has of servers: those that it shares, and those of its own."""

    shared: "McpServers | None" = None
    own: "McpServers | None" = None

    @property
    def version(self) -> int:
        """Another one when `tools` would answer something else than before."""
        return sum(servers.version for servers in self if servers is not None)

    def tools(self, agent: AgentFile | None, *, in_worktree: bool) -> list[Tool[Any]]:
        """`is_elsewhere`: the agent works in a copy of the workspace, where programs that were started in the workspace
        itself have no business."""
        own = self.own.tools() if self.own is not None else []
        if self.shared is None:
            return own
        taken = tuple(f"mcp__{label}__" for label in (self.own.labels if self.own is not None else ()))
        shared = self.shared.tools(_allowed_servers(agent), programs=not in_worktree)
        return [tool for tool in shared if not tool.name.startswith(taken)] + own

    def take_notices(self) -> list[Notice]:
        return [notice for servers in self if servers is not None for notice in servers.take_notices()]

    async def prompt(self, name: str, text: str) -> str | None:
        """Raises KitbagError."""
        for servers in (self.own, self.shared):
            found = await servers.render_prompt(name, text) if servers is not None else None
            if found is not None:
                return found
        return None


def _allowed_servers(agent: AgentFile | None) -> tuple[str, ...] | None:
    """Naming servers limits an agent to these; describing one adds it. One of its own that does not count because the
    user has one of that name stands for that one."""
    if agent is None or all(name in agent.inline_servers for name in agent.mcp_servers):
        return None
    return agent.mcp_servers


def unknown_server_notices(servers: "McpServers | None", agent: AgentFile | None) -> list[Notice]:
    """Servers that an agent names and that are not configured."""
    names = [name for name in agent.mcp_servers if name not in agent.inline_servers] if agent is not None else []
    if agent is None or not names:
        return []
    missing = servers.unknown_names(names) if servers is not None else names
    what = f"the agent {agent.full_name} wants servers that are not configured: {', '.join(missing)}"
    return [Notice("warning", what, "see `kitbag servers list`")] if missing else []


# --- an agent's own ---------------------------------------------------------------------------------------------


async def open_own_servers(
    environment: AgentEnvironment,
    permissions: Permissions,
    agent: AgentFile | None,
    only_tools: Sequence[str],
    *,
    in_worktree: bool,
) -> "tuple[McpServers | None, list[Notice]]":
    """Those that the agent's file describes, for it alone, and why one of them is not there. Whoever asks for them
    closes them."""
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
    for one in agent_servers(agent, environment.places, environment.trust, configured):
        label, reason, fix = one.server.label, one.reason, one.fix
        if one.state == "ready" and in_worktree and not one.server.url:
            reason, fix = "it is a program, and the agent works in a copy of the workspace", "give it an address"
        elif one.state == "ready" and not _allows_server(agent.tools, label):
            reason, fix = "its `tools` leave no room for it", f"add mcp__{label}__* to `tools` in {agent.path}"
        if reason:
            notices.append(
                Notice("warning", f"the server {label} of the agent {agent.full_name} is not used: {reason}", fix)
            )
        else:
            ready.append(one)
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
    """Whether a list of tools has room for one of a server, or of this server."""
    if access is None or access.mode in ("inherit", "all", "deny"):
        return True
    start = f"mcp__{label}__" if label else "mcp__"
    heads = [name.partition("*")[0] if "*" in name else f"{name}__" for name in access.names]
    return access.mode == "allow" and any(head.startswith(start) or start.startswith(head) for head in heads)
