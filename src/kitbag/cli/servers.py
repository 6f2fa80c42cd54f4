"""`kitbag servers`: lists configured MCP servers with their source and state, and tests them.

`list` only reads files; `test` alone starts or connects to a server, and only to a trusted one.
"""

import asyncio
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from kitbag.cli import output
from kitbag.cli.command_group import CommandGroup
from kitbag.cli.error_output import install_log
from kitbag.cli.library_options import json_option
from kitbag.errors import InvalidError, NotFoundError
from kitbag.library.untrusted_items import UntrustedItemError
from kitbag.text.unicode_forms import compose

if TYPE_CHECKING:
    from kitbag.tools.mcp_client.configured_servers import ConfiguredServer
    from kitbag.tools.mcp_client.server_listing import ServerListing
    from kitbag.tools.mcp_client.servers import ServerEnvironment

_trust_option = click.option("--trust-workspace", is_flag=True, help="Trust this workspace for this run.")
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
    """List and test the MCP servers that agents can use."""


def _load_environment(trust_workspace: bool) -> "ServerEnvironment":
    from kitbag.library.scopes import find_places
    from kitbag.permissions.trust.workspace_trust import check_trust
    from kitbag.settings import load_settings
    from kitbag.tools.mcp_client.servers import ServerEnvironment

    places = find_places()
    trust = check_trust(places, trusted_for_run=trust_workspace)
    return ServerEnvironment(places, trust, load_settings(places.kitbag_home, ()))


def _cached_listing(configured: "ConfiguredServer", environment: "ServerEnvironment") -> "ServerListing | None":
    from kitbag.tools.mcp_client.listing_cache import load_listing

    return load_listing(environment.places.kitbag_home, configured.server)[0] if configured.state == "ready" else None


class _ListedServer(NamedTuple):
    name: str
    """Its label, prefixed with the agent for an agent's own server."""
    agent: str
    configured: "ConfiguredServer"


def _all_servers(environment: "ServerEnvironment") -> list[_ListedServer]:
    """Configured servers, and those that agent files describe."""
    from kitbag.library.registry import Registry
    from kitbag.tools.mcp_client.configured_servers import agent_servers, configured_servers

    configured = configured_servers(*environment)
    servers = [_ListedServer(one.server.label, "", one) for one in configured]
    for agent in Registry(environment.places).agents:
        if agent.inline_servers:
            own = agent_servers(agent, environment.places, environment.trust, configured)
            servers += [_ListedServer(f"{agent.full_name}:{one.server.label}", agent.full_name, one) for one in own]
    return servers


def server_json(listed: _ListedServer, listing: "ServerListing | None") -> dict[str, Any]:
    """Names of variables and headers, never their values."""
    configured = listed.configured
    server = configured.server
    return {
        "name": server.name,
        "label": server.label,
        "agent": listed.agent,
        "scope": server.scope,
        "source": server.source,
        "transport": "http" if server.url else "stdio",
        "command": server.display_target,
        "environment": [name for name, _ in server.environment],
        "headers": [name for name, _ in server.headers],
        "state": configured.state,
        "reason": configured.reason,
        "fix": configured.fix,
        "tools": None if listing is None else [tool.name for tool in listing.tools],
        "prompts": None if listing is None else [prompt.name for prompt in listing.prompts],
    }


@command.command("list")
@_trust_option
@json_option
def list_(trust_workspace: bool, as_json: bool) -> None:
    """List MCP servers from your settings, this project and its agents, without starting them."""
    environment = _load_environment(trust_workspace)
    rows = [(listed, _cached_listing(listed.configured, environment)) for listed in _all_servers(environment)]
    if as_json:
        return output.as_json([server_json(listed, listing) for listed, listing in rows])
    output.table(
        ("NAME", "STATE", "TOOLS", "FROM", "STARTS"),
        [
            (
                listed.name,
                _STATES[listed.configured.state],
                "?" if listing is None else str(len(listing.tools)),
                output.shorten_path(listed.configured.server.source),
                listed.configured.server.display_target,
            )
            for listed, listing in rows
        ],
    )
    for (name, _, configured), _ in rows:
        if configured.reason:
            output.remark(output.clean(f"{name}: {configured.reason}{f'; {configured.fix}' if configured.fix else ''}"))
    output.footer("server", len(rows), 0, 0)
    return None


@command.command()
@click.argument("name")
@_trust_option
@json_option
def test(name: str, trust_workspace: bool, as_json: bool) -> None:
    """Connect to a server and show what it offers. AGENT:NAME is a server defined in an agent file."""
    environment = _load_environment(trust_workspace)
    servers = _all_servers(environment)
    matches = [
        listed
        for listed in servers
        if compose(name) in map(compose, (listed.name, "" if listed.agent else listed.configured.server.name))
        and listed.configured.state != "hidden"
    ]
    if not matches:
        names = ", ".join(listed.name for listed in servers)
        raise NotFoundError(
            f"no server named {name!r}", f"available: {names}" if names else "no servers are configured"
        )
    configured = matches[0].configured
    if configured.state in ("untrusted", "changed"):
        raise UntrustedItemError(
            f"the server {configured.server.label} was not started: {configured.reason}", configured.fix
        )
    if configured.state != "ready":
        raise InvalidError(f"the server {configured.server.label} can't be used: {configured.reason}", configured.fix)
    install_log()
    listing, seconds = asyncio.run(_test_server(configured, environment))
    if as_json:
        return output.as_json({**server_json(matches[0], listing), "seconds": round(seconds, 3)})
    output.echo(f"{output.clean(configured.server.label)} answered in {seconds:.1f} s.")
    output.table(("TOOL", "DESCRIPTION"), [(tool.name, tool.description.partition("\n")[0]) for tool in listing.tools])
    for prompt in listing.prompts:
        words = " ".join(f"<{word}>" if word in prompt.needed else f"[{word}]" for word in prompt.arguments)
        output.echo(output.clean(f"/mcp__{configured.server.label}__{prompt.name} {words}".rstrip()))
    for problem in listing.problems:
        output.remark(output.clean(problem))
    return None


async def _test_server(
    configured: "ConfiguredServer", environment: "ServerEnvironment"
) -> "tuple[ServerListing, float]":
    """Ignores the cached listing. Raises ServerError."""
    from kitbag.tools.mcp_client.servers import McpServers

    servers = McpServers(environment, [configured])
    started = time.monotonic()
    try:
        listing = await servers.fetch_listing(configured.server.label)
    finally:
        await servers.close()
    return listing, time.monotonic() - started
