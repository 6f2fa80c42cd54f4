"""The servers of a run, where there are any: opened with it, for its own agent and for those that it starts.

Used by Agent and Subagent. Nothing of tools/mcp_client is imported where no server is configured.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kitbag.agent.shielded import to_its_end
from kitbag.events import Notice
from kitbag.library.agents import Agent as AgentFile
from kitbag.library.tool_names import ToolAccess, parse_tools
from kitbag.permissions.decide import Permissions
from kitbag.runtime.ground import Ground
from kitbag.tools.base import Tool

if TYPE_CHECKING:
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


def server_tools(servers: "Servers | None", agent: AgentFile | None, *, is_elsewhere: bool) -> list[Tool[Any]]:
    """`is_elsewhere`: the agent works in a copy of the workspace, where programs that were started in the workspace
    itself have no business."""
    if servers is None:
        return []
    only = agent.mcp_servers if agent is not None and agent.mcp_servers else None
    return servers.tools(only, programs=not is_elsewhere)


def told_unknown(servers: "Servers | None", agent: AgentFile | None) -> list[Notice]:
    """Servers that an agent names and that are not configured."""
    if agent is None or not agent.mcp_servers:
        return []
    missing = servers.unknown(agent.mcp_servers) if servers is not None else list(agent.mcp_servers)
    what = f"the agent {agent.full_name} wants servers that are not configured: {', '.join(missing)}"
    return [Notice("warning", what, "see `kitbag servers list`")] if missing else []


def _access(only_tools: Sequence[str]) -> ToolAccess | None:
    return parse_tools(list(only_tools))[0] if only_tools else None


def _may_have(access: ToolAccess | None) -> bool:
    """Whether a list of tools has room for one of a server."""
    if access is None or access.mode in ("inherit", "all", "deny"):
        return True
    return access.mode == "allow" and any(name.startswith("mcp__") or name == "*" for name in access.names)
