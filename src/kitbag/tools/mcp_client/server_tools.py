"""The tools of MCP servers as tools of a run: `mcp__server__tool`, with the server's own schema.

Used by servers. Names are unique and valid for every provider. The total size of all descriptions and schemas is
bounded, and each server gets a share.
"""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from fnmatch import fnmatchcase
from typing import Any, Final, cast

import msgspec

from kitbag.models.provider import ToolSpec
from kitbag.tools.base import Arguments, Tool, ToolContext, ToolOutput, error_output
from kitbag.tools.mcp_client.connection import ServerConnection, ServerError
from kitbag.tools.mcp_client.server_config import ServerConfig, short_hash
from kitbag.tools.mcp_client.server_listing import OfferedTool, ServerListing

MAX_NAME_CHARS: Final = 64
PREFIX: Final = "mcp__"


class ServerTool(Tool[Any], frozen=True, kw_only=True):
    """Its schema is the server's, and the server validates the arguments."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.name, description=self.description, schema=cast(Any, self.arguments).schema)

    def parse_arguments(self, arguments: dict[str, Any]) -> Any:
        return arguments


class ServerOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A server with tools, and how to call them."""

    server: ServerConfig
    listing: ServerListing
    connection: ServerConnection
    timeout_seconds: float


def make_tool_name(label: str, name: str, taken: Iterable[str] = ()) -> str:
    """`mcp__LABEL__name`, with a hash if it is too long or taken."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    full_name = f"{PREFIX}{label}__{cleaned}"
    if len(full_name) <= MAX_NAME_CHARS and full_name not in taken:
        return full_name
    return f"{full_name[: MAX_NAME_CHARS - 9]}-{short_hash(name)}"


def build_server_tools(offers: Sequence[ServerOffer], max_chars: int) -> tuple[list[ServerTool], list[str]]:
    """`max_chars` limits names, descriptions and schemas of all servers together. Also returns notes on what was
    omitted."""
    candidates = [
        [(offer, tool) for tool in offer.listing.tools if is_tool_allowed(offer.server, tool.name)] for offer in offers
    ]
    chosen: list[list[ServerTool]] = [[] for _ in offers]
    taken: set[str] = set()
    remaining_chars, open_ones = max_chars, True
    at = 0
    while open_ones:
        open_ones = False
        for index, tools in enumerate(candidates):
            if at < len(tools):
                server_tool = _build_tool(*tools[at], taken)
                remaining_chars -= (
                    len(server_tool.name) + len(server_tool.description) + len(json.dumps(server_tool.spec.schema))
                )
                if remaining_chars < 0:
                    break
                taken.add(server_tool.name)
                chosen[index].append(server_tool)
                open_ones = True
        at += 1
    notes = [
        f"{len(tools) - len(selected):,} of {len(tools):,} tools of MCP server {offer.server.label} omitted: "
        f"descriptions of MCP tools are limited to {max_chars:,} characters in total"
        for offer, tools, selected in zip(offers, candidates, chosen, strict=True)
        if len(selected) < len(tools)
    ]
    return [tool for tools in chosen for tool in tools], notes


def is_tool_allowed(server: ServerConfig, tool: str) -> bool:
    return not server.allowed_tools or any(fnmatchcase(tool, pattern) for pattern in server.allowed_tools)


def _build_tool(offer: ServerOffer, tool: OfferedTool, taken: set[str]) -> ServerTool:
    server = offer.server
    arguments = cast("type[Arguments]", type("ServerArguments", (), {"schema": tool.arguments}))

    def facts(_: Any, context: ToolContext) -> tuple[tuple[str, str], ...]:
        del context
        return (("server", f"{server.display_target} ({server.source})"),)

    return ServerTool(
        name=make_tool_name(server.label, tool.name, taken),
        description=tool.description or f"Tool {tool.name} of MCP server {server.label}.",
        arguments=arguments,
        run=_ServerToolCall(offer.connection, tool.name, offer.timeout_seconds),
        approval_facts=facts,
    )


class _ServerToolCall:
    def __init__(self, connection: ServerConnection, tool: str, seconds: float) -> None:
        self._connection = connection
        self._tool = tool
        self._timeout_seconds = seconds

    async def __call__(self, arguments: Any, context: ToolContext, /) -> ToolOutput:
        from kitbag.tools.mcp_client.results import render_result

        server = self._connection.server
        if not self._connection.is_open:
            context.progress(f"connecting to {server.label}")
        try:
            async with _record_changes(server, context):
                result = await self._connection.call(self._tool, arguments, self._timeout_seconds, context.progress)
        except ServerError as error:
            return error_output(error.problem, error.fix)
        return render_result(server.label, self._tool, result)


def _record_changes(server: ServerConfig, context: ToolContext) -> AbstractAsyncContextManager[None]:
    """A program on this machine may change files; that can be undone like the changes of a command."""
    if server.url or context.change_recorder is None:
        return nullcontext()
    return context.change_recorder.record_command(context.call_id)
