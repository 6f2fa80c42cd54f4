"""`/mcp`: lists the configured MCP servers with their state and tools."""

import asyncio

from kitbag.chat.commands import CommandContext
from kitbag.text.human_format import shorten_path
from kitbag.tools.mcp_client.configured_servers import configured_servers
from kitbag.views.blocks import NoticeBlock, TableBlock, text_block


async def mcp_command(chat: CommandContext, arguments: str) -> None:
    del arguments
    environment = chat.agent.environment
    servers = await asyncio.to_thread(
        configured_servers, environment.places, environment.trust, environment.library.settings
    )
    if not servers:
        fix = "add one to .mcp.json, or to your settings under mcp_servers"
        chat.show(NoticeBlock("info", "no MCP servers configured", fix))
        return
    connected = shared.labels if (shared := chat.agent.agent_servers.shared) is not None else ()
    names = [spec.name for spec in chat.agent.toolset.specs()]
    counts = [sum(name.startswith(f"mcp__{one.server.label}__") for name in names) for one in servers]
    rows = tuple(
        (
            one.server.name,
            one.state if one.state != "ready" else "connected" if one.server.label in connected else "not connected",
            f"{count:,}",
            shorten_path(one.server.source),
            one.server.display_target,
        )
        for one, count in zip(servers, counts, strict=True)
    )
    chat.show(TableBlock(headers=("NAME", "STATE", "TOOLS", "SOURCE", "COMMAND"), rows=rows, title="MCP servers"))
    chat.show(*(NoticeBlock("warning", f"{one.server.name}: {one.reason}", one.fix) for one in servers if one.reason))
    chat.show(text_block("test one with: kitbag servers test NAME", "dim"))
