"""The servers of a run, where there are any: opened with it, for its own agent and for those that it starts; and the
servers that an agent's file describes, which are there for that agent alone and end with it.

Used by Agent and Subagent. Nothing of tools/mcp_client is imported where there is no server.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kitbag.agent.shield import to_its_end
from kitbag.assembly.environment import Ground
from kitbag.events import Notice
from kitbag.library.agents import Agent as AgentFile
from kitbag.library.dialects.tool_lists import ToolAccess, parse_tools
from kitbag.permissions.decisions.decide import Permissions
from kitbag.tools.base import Tool

if TYPE_CHECKING:
    from kitbag.tools.mcp_client.configured_servers import Configured
    from kitbag.tools.mcp_client.servers import Servers

SERVER_FILES = (".mcp.json", ".kitbag/mcp.json")


async def open_servers(
    ground: Ground, permissions: Permissions, agent: AgentFile | None, only_tools: Sequence[str]
) -> "Servers | None":
    """None where there are none, or where none of their tools could be used."""
    if not any_configured(ground) or permissions.mode == "plan":
        return None
    if not _may_have(agent.tools if agent is not None else None) or not _may_have(_access(only_tools)):
        return None
    servers = find_servers(ground)
    try:
        await servers.open()
    except BaseException:
        await close_servers(servers)
        raise
    return servers


async def close_servers(servers: "Servers") -> None:
    """To its end, which is bounded: nothing that was started may stay."""
    await to_its_end(servers.close())


def any_configured(ground: Ground) -> bool:
    if ground.library.settings.tables("mcp_servers"):
        return True
    return any(
        os.path.lexists(os.path.join(directory, name))
        for directory in ground.places.project_dirs
        for name in SERVER_FILES
    )


def find_servers(ground: Ground) -> "Servers":
    from kitbag.tools.mcp_client.servers import Ground as ServerGround
    from kitbag.tools.mcp_client.servers import Servers

    return Servers(ServerGround(ground.places, ground.trust, ground.library.settings))


class Offered(NamedTuple):
    """What an agent has of servers: those that it shares, and those of its own."""

    shared: "Servers | None" = None
    own: "Servers | None" = None

    @property
    def version(self) -> int:
        """Another one when `tools` would answer something else than before."""
        return sum(servers.version for servers in self if servers is not None)

    def tools(self, agent: AgentFile | None, *, is_elsewhere: bool) -> list[Tool[Any]]:
        """`is_elsewhere`: the agent works in a copy of the workspace, where programs that were started in the workspace
        itself have no business."""
        own = self.own.tools() if self.own is not None else []
        if self.shared is None:
            return own
        taken = tuple(f"mcp__{label}__" for label in (self.own.labels if self.own is not None else ()))
        shared = self.shared.tools(_only(agent), programs=not is_elsewhere)
        return [tool for tool in shared if not tool.name.startswith(taken)] + own

    def news(self) -> list[Notice]:
        return [notice for servers in self if servers is not None for notice in servers.news()]

    async def prompt(self, name: str, text: str) -> str | None:
        """Raises KitbagError."""
        for servers in (self.own, self.shared):
            found = await servers.prompt(name, text) if servers is not None else None
            if found is not None:
                return found
        return None


def _only(agent: AgentFile | None) -> tuple[str, ...] | None:
    """Naming servers limits an agent to these; describing one adds it. One of its own that does not count because the
    user has one of that name stands for that one."""
    if agent is None or all(name in agent.own_servers for name in agent.mcp_servers):
        return None
    return agent.mcp_servers


def told_unknown(servers: "Servers | None", agent: AgentFile | None) -> list[Notice]:
    """Servers that an agent names and that are not configured."""
    names = [name for name in agent.mcp_servers if name not in agent.own_servers] if agent is not None else []
    if agent is None or not names:
        return []
    missing = servers.unknown(names) if servers is not None else names
    what = f"the agent {agent.full_name} wants servers that are not configured: {', '.join(missing)}"
    return [Notice("warning", what, "see `kitbag servers list`")] if missing else []


# --- an agent's own ---------------------------------------------------------------------------------------------


async def open_own_servers(
    ground: Ground,
    permissions: Permissions,
    agent: AgentFile | None,
    only_tools: Sequence[str],
    *,
    is_elsewhere: bool,
) -> "tuple[Servers | None, list[Notice]]":
    """Those that the agent's file describes, for it alone, and why one of them is not there. Whoever asks for them
    closes them."""
    if agent is None or not agent.own_servers or permissions.mode == "plan" or not _may_have(_access(only_tools)):
        return None, []
    from kitbag.tools.mcp_client.configured_servers import configured_servers, servers_of_agent
    from kitbag.tools.mcp_client.servers import Ground as ServerGround
    from kitbag.tools.mcp_client.servers import Servers

    server_ground = ServerGround(ground.places, ground.trust, ground.library.settings)
    configured = configured_servers(*server_ground) if any_configured(ground) else []
    notices: list[Notice] = []
    ready: list[Configured] = []
    for one in servers_of_agent(agent, ground.places, ground.trust, configured):
        label, reason, fix = one.server.label, one.reason, one.fix
        if one.state == "ready" and is_elsewhere and not one.server.url:
            reason, fix = "it is a program, and the agent works in a copy of the workspace", "give it an address"
        elif one.state == "ready" and not _may_have(agent.tools, label):
            reason, fix = "its `tools` leave no room for it", f"add mcp__{label}__* to `tools` in {agent.path}"
        if reason:
            notices.append(
                Notice("warning", f"the server {label} of the agent {agent.full_name} is not used: {reason}", fix)
            )
        else:
            ready.append(one)
    if not ready:
        return None, notices
    servers = Servers(server_ground, ready)
    try:
        await servers.open()
    except BaseException:
        await close_servers(servers)
        raise
    return servers, notices


def _access(only_tools: Sequence[str]) -> ToolAccess | None:
    return parse_tools(list(only_tools))[0] if only_tools else None


def _may_have(access: ToolAccess | None, label: str = "") -> bool:
    """Whether a list of tools has room for one of a server, or of this server."""
    if access is None or access.mode in ("inherit", "all", "deny"):
        return True
    start = f"mcp__{label}__" if label else "mcp__"
    heads = [name.partition("*")[0] if "*" in name else f"{name}__" for name in access.names]
    return access.mode == "allow" and any(head.startswith(start) or start.startswith(head) for head in heads)
