"""The tools of servers as tools of a run: `mcp__server__tool`, with the server's own schema.

Used by `servers`. Names are what every provider takes and are different from each other; how much a model is told of
all of them together is bounded, and each server gets its share.
"""

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple, cast

from kitbag.models.provider import ToolSpec
from kitbag.tools.base import Arguments, Context, Outcome, Tool, failure
from kitbag.tools.mcp_client.connection import Connection, ServerError
from kitbag.tools.mcp_client.server_config import Server, short_hash
from kitbag.tools.mcp_client.server_listing import Listing, OfferedTool

LONGEST_NAME: Final = 64
PREFIX: Final = "mcp__"


class ServerTool(Tool[Any]):
    """Its arguments are told as the server tells them, and checked by the server."""

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, cast(Any, self.arguments).schema)

    def read(self, arguments: dict[str, Any]) -> Any:
        return arguments


class Offer(NamedTuple):
    """A server that has tools, and how to use them."""

    server: Server
    listing: Listing
    connection: Connection
    seconds: float


def call_name(label: str, name: str, taken: Iterable[str] = ()) -> str:
    """`mcp__LABEL__name`; where two would be alike or one is too long, with something of a hash."""
    cleaned = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    whole = f"{PREFIX}{label}__{cleaned}"
    if len(whole) <= LONGEST_NAME and whole not in taken:
        return whole
    return f"{whole[: LONGEST_NAME - 9]}-{short_hash(name)}"


def offered_tools(offers: Sequence[Offer], most: int) -> tuple[list[ServerTool], list[str]]:
    """`most` characters of names, descriptions and schemas, over all servers. And what was left out, in words."""
    waiting = [[(offer, tool) for tool in offer.listing.tools if wanted(offer.server, tool.name)] for offer in offers]
    chosen: list[list[ServerTool]] = [[] for _ in offers]
    taken: set[str] = set()
    left, open_ones = most, True
    at = 0
    while open_ones:
        open_ones = False
        for place, tools in enumerate(waiting):
            if at < len(tools):
                made = _tool(*tools[at], taken)
                left -= len(made.name) + len(made.description) + len(json.dumps(made.spec.schema))
                if left < 0:
                    break
                taken.add(made.name)
                chosen[place].append(made)
                open_ones = True
        at += 1
    remarks = [
        f"{len(tools) - len(kept):,} of the {len(tools):,} tools of the server {offer.server.label} are left out: "
        f"a model is told at most {most:,} characters about such tools"
        for offer, tools, kept in zip(offers, waiting, chosen, strict=True)
        if len(kept) < len(tools)
    ]
    return [tool for tools in chosen for tool in tools], remarks


def wanted(server: Server, tool: str) -> bool:
    return not server.only or any(fnmatchcase(tool, pattern) for pattern in server.only)


def _tool(offer: Offer, tool: OfferedTool, taken: set[str]) -> ServerTool:
    server = offer.server
    arguments = cast("type[Arguments]", type("ServerArguments", (), {"schema": tool.arguments}))

    def facts(_: Any, context: Context) -> tuple[tuple[str, str], ...]:
        del context
        return (("server", f"{server.shown} ({server.source})"),)

    return ServerTool(
        call_name(server.label, tool.name, taken),
        tool.description or f"The tool {tool.name} of the server {server.label}.",
        arguments,
        _Call(offer.connection, tool.name, offer.seconds),
        facts=facts,
    )


class _Call:
    def __init__(self, connection: Connection, tool: str, seconds: float) -> None:
        self._connection = connection
        self._tool = tool
        self._seconds = seconds

    async def __call__(self, arguments: Any, context: Context, /) -> Outcome:
        from kitbag.tools.mcp_client.results import outcome_of

        server = self._connection.server
        if not self._connection.is_open:
            context.progress(f"connecting to {server.label}")
        try:
            async with _kept(server, context):
                found = await self._connection.call(self._tool, arguments, self._seconds, context.progress)
        except ServerError as error:
            return failure(error.problem, error.fix)
        return outcome_of(server.label, self._tool, found)


def _kept(server: Server, context: Context) -> AbstractAsyncContextManager[None]:
    """A program of this machine may change files, which is to be taken back like what a command changes."""
    if server.url or context.changes is None:
        return nullcontext()
    return context.changes.around_command(context.call_id)
