"""The MCP servers of a run: connected concurrently when the run starts or, if their listing is cached, when one of
their tools is first called.

Used by assembly, which takes `tools` and closes them. A server that fails or is slow only causes a notice: a slow one
keeps connecting, and its tools are available from the next request on.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple

from kitbag.errors import UsageError
from kitbag.events import Notice
from kitbag.library.scopes import Places
from kitbag.permissions.trust.workspace_trust import WorkspaceTrust
from kitbag.settings import Settings
from kitbag.store.secret_names import has_secret_value
from kitbag.text.unicode_forms import compose
from kitbag.tools.base import Tool
from kitbag.tools.mcp_client.configured_servers import (
    ConfiguredServer,
    check_still_trusted,
    configured_servers,
    resolve_variables,
    server_environment,
)
from kitbag.tools.mcp_client.connection import ServerConnection, ServerError, TransportSetup
from kitbag.tools.mcp_client.listing_cache import load_listing, save_listing, write_log
from kitbag.tools.mcp_client.server_config import ServerConfig, secret_values
from kitbag.tools.mcp_client.server_listing import OfferedPrompt, ServerListing
from kitbag.tools.mcp_client.server_tools import ServerOffer, ServerTool, build_server_tools, make_tool_name
from kitbag.tools.on_demand_tools import MAX_DESCRIBED_TOOLS, MAX_LISTED_CHARACTERS

_READ_TIMEOUT_SECONDS: Final = 900.0
"""How long an HTTP server may be silent on an open connection."""


class ServerEnvironment(NamedTuple):
    """What decides which servers there are."""

    places: Places
    trust: WorkspaceTrust
    settings: Settings
    """The user's and, if trusted, the project's."""


class _RunServer:
    """A server of this run."""

    def __init__(self, server: ServerConfig, seconds: float) -> None:
        self.server = server
        self.timeout_seconds = seconds
        self.listing: ServerListing | None = None
        self.connection: ServerConnection | None = None
        self.connecting: asyncio.Task[None] | None = None
        self.problem: ServerError | None = None


class McpServers:
    def __init__(self, environment: ServerEnvironment, configured: Iterable[ConfiguredServer] | None = None) -> None:
        self._environment = environment
        self.configured = list(
            configured_servers(environment.places, environment.trust, environment.settings)
            if configured is None
            else configured
        )
        usual = float(environment.settings.get("mcp.timeout") or 60)
        self._servers = {
            one.server.label: _RunServer(one.server, one.server.timeout_seconds or usual)
            for one in self.configured
            if one.state == "ready"
        }
        self._notices: list[Notice] = []
        self.version = 1
        """Changes when `tools` would return something else."""
        self._tools_version = 0
        self._tools: list[ServerTool] = []

    def __bool__(self) -> bool:
        return bool(self._servers)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self._servers)

    # --- start and end of a run ---------------------------------------------------------------------

    async def open(self, timeout_seconds: float | None = None) -> None:
        """Returns when all listings are known, or after the timeout. Raises nothing."""
        for one in self.configured:
            if one.state == "wrong":
                what = f"MCP server {one.server.label} is not used: {one.reason}"
                self._notices.append(Notice(severity="warning", text=what, fix=one.fix))
        if not self._servers:
            return
        home = self._environment.places.kitbag_home
        unlisted: list[_RunServer] = []
        for server in self._servers.values():
            server.connection = self._make_connection(server)
            server.listing, is_fresh = await asyncio.to_thread(load_listing, home, server.server)
            if server.listing is None:
                unlisted.append(server)
            elif not is_fresh:
                self._start_connecting(server)
        if not unlisted or not await self._load_sdk():
            return
        tasks = [self._start_connecting(server) for server in unlisted]
        timeout_seconds = (
            float(self._environment.settings.get("mcp.wait")) if timeout_seconds is None else timeout_seconds
        )
        if timeout_seconds:
            await asyncio.wait(tasks, timeout=timeout_seconds)
        for server in unlisted:
            if server.connecting is not None and not server.connecting.done():
                what = (
                    f"MCP server {server.server.label} did not respond within {timeout_seconds:g} s; still connecting"
                )
                fix = "its tools become available once it connects; to wait longer: kitbag config set mcp.wait 30"
                self._notices.append(Notice(severity="warning", text=what, fix=fix))

    async def _load_sdk(self) -> bool:
        from importlib.util import find_spec

        if find_spec("mcp") is None:
            names = ", ".join(self._servers)
            what = f"MCP servers are not used because the `mcp` package is not installed: {names}"
            self._notices.append(Notice(severity="warning", text=what, fix="run `pip install 'kitbag[mcp]'`"))
            return False
        await asyncio.to_thread(_import_sdk)  # slow, which is not the servers' fault
        return True

    def _start_connecting(self, server: _RunServer) -> "asyncio.Task[None]":
        async def connect() -> None:
            assert server.connection is not None
            try:
                await server.connection.open()
            except ServerError as error:
                server.problem = error
                self._notices.append(Notice(severity="warning", text=error.problem, fix=error.fix))

        server.connecting = asyncio.create_task(connect())
        return server.connecting

    async def fetch_listing(self, label: str) -> ServerListing:
        """The server's current listing. Raises ServerError."""
        server = self._servers[label]
        server.connection = server.connection or self._make_connection(server)
        if not await self._load_sdk():
            raise ServerError("connect", "the `mcp` package is not installed", "run `pip install 'kitbag[mcp]'`")
        await server.connection.open()
        assert server.listing is not None
        return server.listing

    async def close(self) -> None:
        """Closes all connections. May be called twice."""
        connecting = [server.connecting for server in self._servers.values() if server.connecting is not None]
        for task in connecting:
            task.cancel()
        if connecting:
            await asyncio.wait(connecting)
        connections = [server.connection for server in self._servers.values() if server.connection is not None]
        await asyncio.gather(*(connection.close() for connection in connections))

    def secrets(self) -> list[str]:
        """Secrets in their definitions, which must not be logged."""
        servers = [known.server for known in self._servers.values()]
        return [value for one in servers for value in secret_values(dict(one.environment), dict(one.headers))]

    # --- tools and prompts --------------------------------------------------------------------------

    def tools(self, only: Collection[str] | None = None, *, programs: bool = True) -> list[Tool[Any]]:
        """`only`: names of servers; None: all. `programs`: include servers that are programs on this machine."""
        if self._tools_version != self.version:
            self._tools_version = self.version
            offers = [
                ServerOffer(
                    server=server.server,
                    listing=server.listing,
                    connection=server.connection,
                    timeout_seconds=server.timeout_seconds,
                )
                for server in self._servers.values()
                if server.listing is not None and server.connection is not None
            ]
            limit = int(self._environment.settings.get("mcp.characters"))
            if sum(len(offer.listing.tools) for offer in offers) > MAX_DESCRIBED_TOOLS:
                limit = max(limit, MAX_LISTED_CHARACTERS)
            self._tools, notes = build_server_tools(offers, limit)
            fix = 'select tools with `tools = ["name", "list_*"]` in the definition of the server'
            self._notices += [Notice(severity="warning", text=remark, fix=fix) for remark in notes]
        chosen = [
            server.server
            for server in self._servers.values()
            if (only is None or _is_named(server.server, only)) and (programs or server.server.url)
        ]
        starts = tuple(f"mcp__{config.label}__" for config in chosen)
        return [tool for tool in self._tools if tool.name.startswith(starts)]

    def unknown_names(self, names: Collection[str]) -> list[str]:
        """The names that are no servers here."""
        servers = [one.server for one in self.configured]
        return [name for name in names if not any(_is_named(server, (name,)) for server in servers)]

    def prompts(self) -> dict[str, tuple[str, OfferedPrompt]]:
        """By slash command without the slash: the server's label and the prompt."""
        found: dict[str, tuple[str, OfferedPrompt]] = {}
        for label, server in self._servers.items():
            for prompt in server.listing.prompts if server.listing is not None else ():
                found[make_tool_name(label, prompt.name, found)] = (label, prompt)
        return found

    async def render_prompt(self, name: str, text: str) -> str | None:
        """The prompt's text, or None if there is no such prompt. `text`: its arguments as typed. Raises KitbagError."""
        found = self.prompts().get(name)
        if found is None:
            return None
        from kitbag.tools.mcp_client.results import render_prompt

        label, prompt = found
        server = self._servers[label]
        assert server.connection is not None
        answer = await server.connection.get_prompt(
            prompt.name, _parse_prompt_arguments(name, prompt, text), server.timeout_seconds
        )
        return render_prompt(label, prompt.name, answer)

    def take_notices(self) -> list[Notice]:
        """Returns each notice once."""
        found, self._notices = self._notices, []
        return found

    # --- connecting ---------------------------------------------------------------------------------

    def _make_connection(self, server: _RunServer) -> ServerConnection:
        home = self._environment.places.kitbag_home

        def on_listing(listing: ServerListing) -> None:
            if listing != server.listing:
                server.listing = listing
                self.version += 1
                self._notices += [
                    Notice(severity="warning", text=f"MCP server {server.server.label}: {problem}")
                    for problem in listing.problems[:3]
                ]
            save_listing(home, server.server, listing)

        def on_stderr(text: str) -> None:
            write_log(home, server.server, _redact(text, server.server))

        return ServerConnection(
            server.server, lambda ended: self._open_transport(server.server, ended), on_listing, on_stderr
        )

    async def _open_transport(self, server: ServerConfig, on_end: Callable[[str], None]) -> TransportSetup:
        environment = self._environment
        if not await self._load_sdk():
            raise UsageError("the `mcp` package is not installed", "run `pip install 'kitbag[mcp]'`")
        await asyncio.to_thread(check_still_trusted, server, environment.places, environment.trust)
        return create_transport(resolve_variables(server, environment.places, environment.settings), on_end)


def create_transport(server: ServerConfig, on_end: Callable[[str], None]) -> TransportSetup:
    """`server` has its variables substituted."""
    if server.url:
        from kitbag.tools.mcp_client.http_transport import HttpState, connect_http

        if not server.url.startswith(("http://", "https://")):
            raise UsageError("`url` must start with http:// or https://", "fix the URL")
        http_state = HttpState()
        return TransportSetup(
            connect_http(server.url, dict(server.headers), _READ_TIMEOUT_SECONDS, http_state), http_state=http_state
        )
    from kitbag.tools.mcp_client.stdio_transport import ServerProgram, StderrTail, connect_stdio

    stderr = StderrTail()
    start = ServerProgram((server.command, *server.arguments), server.directory, server_environment(server))
    return TransportSetup(connect_stdio(start, stderr, on_end), stderr)


def _import_sdk() -> None:
    """The SDK logs what servers do wrong; without a handler that would go to the terminal."""
    import logging

    import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]

    for name in ("mcp", "client"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _is_named(server: ServerConfig, names: Collection[str]) -> bool:
    return compose(server.name) in map(compose, names) or server.label in names


def _parse_prompt_arguments(name: str, prompt: OfferedPrompt, text: str) -> dict[str, str]:
    """Splits as a shell does; the last argument gets the rest."""
    import shlex

    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    limit = len(prompt.arguments)
    if len(words) > limit > 0:
        words = [*words[: limit - 1], " ".join(words[limit - 1 :])]
    arguments = dict(zip(prompt.arguments, words, strict=False))
    missing = [one for one in prompt.needed if one not in arguments]
    if missing:
        usage = " ".join(f"<{one}>" if one in prompt.needed else f"[{one}]" for one in prompt.arguments)
        raise UsageError(f"/{name}: missing {', '.join(missing)}", f"usage: /{name} {usage}")
    return arguments


def _redact(text: str, server: ServerConfig) -> str:
    from kitbag.store.redaction import Redactor

    secrets = [value for name, value in os.environ.items() if has_secret_value(name)]
    return Redactor([*secrets, *secret_values(dict(server.environment), dict(server.headers))]).redact_text(text)
