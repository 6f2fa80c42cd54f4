"""`kitbag servers ...`: which MCP servers there are here, from where, and whether they can be used.

`list` reads files and nothing more; only `test` starts or connects to something, and only to what is trusted.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.library_options import json_option
from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.untrusted_items import LeftOutError

if TYPE_CHECKING:
    from kitbag.tools.mcp_client.configured_servers import Configured
    from kitbag.tools.mcp_client.server_listing import Listing
    from kitbag.tools.mcp_client.servers import Ground

_TRUST = click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")
_STATES = {
    "ready": "ready",
    "off": "off",
    "untrusted": "not trusted",
    "changed": "changed, not trusted",
    "wrong": "wrong",
    "hidden": "hidden",
}


@click.group(cls=CommandGroup)
def command() -> None:
    """List and try the MCP servers whose tools agents can use."""


def _ground(trust_workspace: bool) -> "Ground":
    from kitbag.library.scopes import find_places
    from kitbag.permissions.trust.workspace_trust import workspace_trust
    from kitbag.settings import load_settings
    from kitbag.tools.mcp_client.servers import Ground

    places = find_places()
    trust = workspace_trust(places, trusted_for_now=trust_workspace)
    return Ground(places, trust, load_settings(places.kitbag_home, ()))


def _known(one: "Configured", ground: "Ground") -> "Listing | None":
    from kitbag.tools.mcp_client.listing_cache import recall

    return recall(ground.places.kitbag_home, one.server)[0] if one.state == "ready" else None


class _Listed(NamedTuple):
    name: str
    """To call it by: its label, behind that of an agent where it is the agent's own."""
    agent: str
    one: "Configured"


def _every(ground: "Ground") -> list[_Listed]:
    """The configured ones, and those that agents describe in their files."""
    from kitbag.library.registry import Registry
    from kitbag.tools.mcp_client.configured_servers import configured_servers, servers_of_agent

    configured = configured_servers(*ground)
    found = [_Listed(one.server.label, "", one) for one in configured]
    for agent in Registry(ground.places).agents:
        if agent.own_servers:
            own = servers_of_agent(agent, ground.places, ground.trust, configured)
            found += [_Listed(f"{agent.full_name}:{one.server.label}", agent.full_name, one) for one in own]
    return found


def server_json(listed: _Listed, listing: "Listing | None") -> dict[str, Any]:
    """Names of variables and headers; never what is in them."""
    one = listed.one
    server = one.server
    return {
        "name": server.name,
        "label": server.label,
        "agent": listed.agent,
        "scope": server.scope,
        "source": server.source,
        "transport": "http" if server.url else "stdio",
        "command": server.shown,
        "environment": [name for name, _ in server.environment],
        "headers": [name for name, _ in server.headers],
        "state": one.state,
        "reason": one.reason,
        "fix": one.fix,
        "tools": None if listing is None else [tool.name for tool in listing.tools],
        "prompts": None if listing is None else [prompt.name for prompt in listing.prompts],
    }


@command.command("list")
@_TRUST
@json_option
def list_(trust_workspace: bool, as_json: bool) -> None:
    """Servers of your settings, of this project and of agents. Nothing is started."""
    ground = _ground(trust_workspace)
    found = [(listed, _known(listed.one, ground)) for listed in _every(ground)]
    if as_json:
        return output.as_json([server_json(listed, listing) for listed, listing in found])
    output.table(
        ("NAME", "STATE", "TOOLS", "FROM", "STARTS"),
        [
            (
                listed.name,
                _STATES[listed.one.state],
                "?" if listing is None else str(len(listing.tools)),
                output.short_path(listed.one.server.source),
                listed.one.server.shown,
            )
            for listed, listing in found
        ],
    )
    for (name, _, one), _ in found:
        if one.reason:
            output.remark(output.clean(f"{name}: {one.reason}{f'; {one.fix}' if one.fix else ''}"))
    output.footer("server", len(found), 0, 0)
    return None


@command.command()
@click.argument("name")
@_TRUST
@json_option
def test(name: str, trust_workspace: bool, as_json: bool) -> None:
    """Start or connect to one, and show what it offers. AGENT:NAME is one that an agent's file describes."""
    ground = _ground(trust_workspace)
    every = _every(ground)
    found = [
        listed
        for listed in every
        if name in (listed.name, "" if listed.agent else listed.one.server.name) and listed.one.state != "hidden"
    ]
    if not found:
        names = ", ".join(listed.name for listed in every)
        raise NotFoundError(f"there is no server {name!r}", f"there are {names}" if names else "there are none")
    one = found[0].one
    if one.state in ("untrusted", "changed"):
        raise LeftOutError(f"the server {one.server.label} is not started: {one.reason}", one.fix)
    if one.state != "ready":
        raise InvalidError(f"the server {one.server.label} can't be used: {one.reason}", one.fix)
    listing, seconds = asyncio.run(_try(one, ground))
    if as_json:
        return output.as_json({**server_json(found[0], listing), "seconds": round(seconds, 3)})
    output.echo(f"{output.clean(one.server.label)} answered after {seconds:.1f} s.")
    output.table(("TOOL", "DESCRIPTION"), [(tool.name, tool.description.partition("\n")[0]) for tool in listing.tools])
    for prompt in listing.prompts:
        words = " ".join(f"<{word}>" if word in prompt.needed else f"[{word}]" for word in prompt.arguments)
        output.echo(output.clean(f"/mcp__{one.server.label}__{prompt.name} {words}".rstrip()))
    for problem in listing.problems:
        output.remark(output.clean(problem))
    return None


async def _try(one: "Configured", ground: "Ground") -> "tuple[Listing, float]":
    """Whatever is remembered of it. Raises ServerError."""
    from kitbag.tools.mcp_client.servers import Servers

    servers = Servers(ground, [one])
    begun = time.monotonic()
    try:
        listing = await servers.ask(one.server.label)
    finally:
        await servers.close()
    return listing, time.monotonic() - begun
