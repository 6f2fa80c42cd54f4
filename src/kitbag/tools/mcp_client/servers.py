"""The servers of a run: connected side by side when the run begins, or, where it is known what they offer, when one of
their tools is first called.

Used by Agent, which asks for `tools` and closes them. A server that fails or is slow is a notice and nothing more: one
that needs longer goes on connecting, and its tools are there from the next request on.
"""

import asyncio
import os
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple

from kitbag.errors import UsageError
from kitbag.events import Notice
from kitbag.library.scopes import Places
from kitbag.permissions.trust.workspace_trust import Trust
from kitbag.settings import Settings
from kitbag.store.secret_names import holds_secret
from kitbag.tools.base import Tool
from kitbag.tools.mcp_client.configured_servers import (
    Configured,
    check_still_trusted,
    configured_servers,
    environment_of,
    with_values,
)
from kitbag.tools.mcp_client.connection import Connection, Opening, ServerError
from kitbag.tools.mcp_client.listing_cache import recall, remember, write_log
from kitbag.tools.mcp_client.server_config import Server, secret_values
from kitbag.tools.mcp_client.server_listing import Listing, OfferedPrompt
from kitbag.tools.mcp_client.server_tools import Offer, ServerTool, call_name, offered_tools

_SILENT_SECONDS: Final = 900.0
"""How long a server that is reached by HTTP may say nothing on a connection that is held."""


class Ground(NamedTuple):
    """What decides which servers there are."""

    places: Places
    trust: Trust
    settings: Settings
    """Of the user and, where it counts, of the project."""


class _Known:
    """A server of this run."""

    def __init__(self, server: Server, seconds: float) -> None:
        self.server = server
        self.seconds = seconds
        self.listing: Listing | None = None
        self.connection: Connection | None = None
        self.opening: asyncio.Task[None] | None = None
        self.problem: ServerError | None = None


class Servers:
    def __init__(self, ground: Ground, configured: Iterable[Configured] | None = None) -> None:
        self._ground = ground
        self.configured = list(
            configured_servers(ground.places, ground.trust, ground.settings) if configured is None else configured
        )
        usual = float(ground.settings.get("mcp.timeout") or 60)
        self._known = {
            one.server.label: _Known(one.server, one.server.seconds or usual)
            for one in self.configured
            if one.state == "ready"
        }
        self._notices: list[Notice] = []
        self.version = 1
        """Another one when `tools` would answer something else than before."""
        self._made_for = 0
        self._tools: list[ServerTool] = []

    def __bool__(self) -> bool:
        return bool(self._known)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self._known)

    # --- a run begins and ends ----------------------------------------------------------------------

    async def open(self, wait: float | None = None) -> None:
        """Returns when it is known what all offer, or after `wait` seconds. Raises nothing."""
        for one in self.configured:
            if one.state == "wrong":
                what = f"the server {one.server.label} is not used: {one.reason}"
                self._notices.append(Notice("warning", what, one.fix))
        if not self._known:
            return
        home = self._ground.places.kitbag_home
        unknown: list[_Known] = []
        for known in self._known.values():
            known.connection = self._connection(known)
            known.listing, is_fresh = await asyncio.to_thread(recall, home, known.server)
            if known.listing is None:
                unknown.append(known)
            elif not is_fresh:
                self._begin(known)
        if not unknown or not await self._has_sdk():
            return
        tasks = [self._begin(known) for known in unknown]
        wait = float(self._ground.settings.get("mcp.wait")) if wait is None else wait
        if wait:
            await asyncio.wait(tasks, timeout=wait)
        for known in unknown:
            if known.opening is not None and not known.opening.done():
                what = f"the server {known.server.label} has not answered in {wait:g} s; it goes on connecting"
                fix = "its tools are there from the next request on; a longer wait: kitbag config set mcp.wait 30"
                self._notices.append(Notice("warning", what, fix))

    async def _has_sdk(self) -> bool:
        from importlib.util import find_spec

        if find_spec("mcp") is None:
            names = ", ".join(self._known)
            what = f"servers are not used, because the `mcp` package is missing: {names}"
            self._notices.append(Notice("warning", what, "pip install 'kitbag[mcp]'"))
            return False
        await asyncio.to_thread(_import_sdk)  # it takes its time, which is not the servers'
        return True

    def _begin(self, known: _Known) -> "asyncio.Task[None]":
        async def opening() -> None:
            assert known.connection is not None
            try:
                await known.connection.open()
            except ServerError as error:
                known.problem = error
                self._notices.append(Notice("warning", error.problem, error.fix))

        known.opening = asyncio.create_task(opening())
        return known.opening

    async def ask(self, label: str) -> Listing:
        """What this one offers, by its own word. Raises ServerError."""
        known = self._known[label]
        known.connection = known.connection or self._connection(known)
        if not await self._has_sdk():
            raise ServerError("connect", "the `mcp` package is missing", "pip install 'kitbag[mcp]'")
        await known.connection.open()
        assert known.listing is not None
        return known.listing

    async def close(self) -> None:
        """Ends all of them. May be called twice."""
        opening = [known.opening for known in self._known.values() if known.opening is not None]
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening)
        connections = [known.connection for known in self._known.values() if known.connection is not None]
        await asyncio.gather(*(connection.close() for connection in connections))

    def secrets(self) -> list[str]:
        """What stands in their descriptions, written out, and must not be written down."""
        servers = [known.server for known in self._known.values()]
        return [value for one in servers for value in secret_values(dict(one.environment), dict(one.headers))]

    # --- what they offer ----------------------------------------------------------------------------

    def tools(self, only: Collection[str] | None = None, *, programs: bool = True) -> list[Tool[Any]]:
        """`only`: names of servers; None: all. `programs`: also of those that are programs of this machine."""
        if self._made_for != self.version:
            self._made_for = self.version
            offers = [
                Offer(known.server, known.listing, known.connection, known.seconds)
                for known in self._known.values()
                if known.listing is not None and known.connection is not None
            ]
            self._tools, remarks = offered_tools(offers, int(self._ground.settings.get("mcp.characters")))
            fix = 'choose some with `tools = ["name", "list_*"]` in its description'
            self._notices += [Notice("warning", remark, fix) for remark in remarks]
        chosen = [
            known.server
            for known in self._known.values()
            if (only is None or _is_named(known.server, only)) and (programs or known.server.url)
        ]
        starts = tuple(f"mcp__{server.label}__" for server in chosen)
        return [tool for tool in self._tools if tool.name.startswith(starts)]

    def unknown(self, names: Collection[str]) -> list[str]:
        """Those of these that are no servers here."""
        servers = [one.server for one in self.configured]
        return [name for name in names if not any(_is_named(server, (name,)) for server in servers)]

    def prompts(self) -> dict[str, tuple[str, OfferedPrompt]]:
        """By the name that a person types, without the slash: the server's label, and what it is."""
        found: dict[str, tuple[str, OfferedPrompt]] = {}
        for label, known in self._known.items():
            for prompt in known.listing.prompts if known.listing is not None else ():
                found[call_name(label, prompt.name, found)] = (label, prompt)
        return found

    async def prompt(self, name: str, text: str) -> str | None:
        """What the prompt says, or None where there is no such. `text`: its arguments as a person types them. Raises
        KitbagError."""
        found = self.prompts().get(name)
        if found is None:
            return None
        from kitbag.tools.mcp_client.results import prompt_text

        label, prompt = found
        known = self._known[label]
        assert known.connection is not None
        answer = await known.connection.prompt(prompt.name, _arguments(name, prompt, text), known.seconds)
        return prompt_text(label, prompt.name, answer)

    def news(self) -> list[Notice]:
        """What the person has to know, each once."""
        found, self._notices = self._notices, []
        return found

    # --- connecting ---------------------------------------------------------------------------------

    def _connection(self, known: _Known) -> Connection:
        home = self._ground.places.kitbag_home

        def listed(listing: Listing) -> None:
            if listing != known.listing:
                known.listing = listing
                self.version += 1
                self._notices += [
                    Notice("warning", f"the server {known.server.label}: {problem}") for problem in listing.problems[:3]
                ]
            remember(home, known.server, listing)

        def said(text: str) -> None:
            write_log(home, known.server, _redacted(text, known.server))

        return Connection(known.server, lambda ended: self._opens(known.server, ended), listed, said)

    async def _opens(self, server: Server, ended: Callable[[str], None]) -> Opening:
        ground = self._ground
        if not await self._has_sdk():
            raise UsageError("the `mcp` package is missing", "pip install 'kitbag[mcp]'")
        await asyncio.to_thread(check_still_trusted, server, ground.places, ground.trust)
        return opening_of(with_values(server, ground.places, ground.settings), ended)


def opening_of(server: Server, ended: Callable[[str], None]) -> Opening:
    """`server` with its variables filled in."""
    if server.url:
        from kitbag.tools.mcp_client.http_transport import Fate, address

        if not server.url.startswith(("http://", "https://")):
            raise UsageError("its `url` is no address", "write http://… or https://…")
        fate = Fate()
        return Opening(address(server.url, dict(server.headers), _SILENT_SECONDS, fate), fate=fate)
    from kitbag.tools.mcp_client.stdio_transport import Said, Start, program

    said = Said()
    start = Start((server.command, *server.arguments), server.directory, environment_of(server))
    return Opening(program(start, said, ended), said)


def _import_sdk() -> None:
    """It logs what servers do wrong; where nobody wants to know, that must not end up on the terminal."""
    import logging

    import mcp  # noqa: F401  # pyright: ignore[reportUnusedImport]

    for name in ("mcp", "client"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _is_named(server: Server, names: Collection[str]) -> bool:
    return server.name in names or server.label in names


def _arguments(name: str, prompt: OfferedPrompt, text: str) -> dict[str, str]:
    """Word by word, as in a shell; the last one takes all that is left."""
    import shlex

    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    most = len(prompt.arguments)
    if len(words) > most > 0:
        words = [*words[: most - 1], " ".join(words[most - 1 :])]
    given = dict(zip(prompt.arguments, words, strict=False))
    missing = [one for one in prompt.needed if one not in given]
    if missing:
        usage = " ".join(f"<{one}>" if one in prompt.needed else f"[{one}]" for one in prompt.arguments)
        raise UsageError(f"/{name} needs {', '.join(missing)}", f"write /{name} {usage}")
    return given


def _redacted(text: str, server: Server) -> str:
    from kitbag.store.redaction import Redactor

    secrets = [value for name, value in os.environ.items() if holds_secret(name)]
    return Redactor([*secrets, *secret_values(dict(server.environment), dict(server.headers))]).text(text)
