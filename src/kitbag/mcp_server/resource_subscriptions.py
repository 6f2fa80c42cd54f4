"""Subscriptions to resources: resources/subscribe, resources/unsubscribe and the URIs of subscriptions/listen.

Used by server, which checks the files periodically; uses skill_uris. A file that is deleted, hidden or restored counts
as changed.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any, Final

from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp_types import INVALID_REQUEST, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from kitbag.errors import KitbagError
from kitbag.mcp_server.client_sessions import ConnectedClient, SubscribedResources
from kitbag.mcp_server.library_requests import read_library
from kitbag.mcp_server.server_state import ServerState
from kitbag.mcp_server.skill_uris import ResourceStamp, SkillUris

MAX_CLIENT_SUBSCRIPTIONS: Final = 100
MAX_SUBSCRIPTIONS: Final = 1_000
Context = ServerRequestContext[Any, Any]


class ResourceSubscriptions:
    def __init__(self, state: ServerState, find_client: Callable[[Context], ConnectedClient]) -> None:
        self._state = state
        self._find_client = find_client
        self._streams: list[SubscribedResources] = []
        """Of open subscriptions/listen requests."""

    def register(self, server: Server[Any]) -> None:
        server.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    async def _subscribe(self, context: Context, params: SubscribeRequestParams) -> EmptyResult:
        uri = str(params.uri)
        subscribed = self._find_client(context).subscriptions
        if uri not in subscribed:
            self._check_limits(len(subscribed) + 1, 1)

        def read() -> ResourceStamp:
            uris = self._state.skill_uris
            location = uris.find(uri)
            return uris.file(location.skill, location.path).stamp

        subscribed[uri] = await read_library(self._state, read, uri)
        return EmptyResult()

    async def _unsubscribe(self, context: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        self._find_client(context).subscriptions.pop(str(params.uri), None)
        return EmptyResult()

    @contextlib.asynccontextmanager
    async def listening(self, requested: Iterable[str]) -> AsyncGenerator[None, None]:
        """Watches these URIs for an open stream; one that names nothing yet is watched until it does."""
        uris = list(dict.fromkeys(requested))
        self._check_limits(len(uris), len(uris))
        stream: SubscribedResources = dict.fromkeys(uris)
        self._streams.append(stream)
        try:
            if uris:
                stream.update(await read_library(self._state, lambda: read_stamps(self._state.skill_uris, uris)))
            yield
        finally:
            self._streams = [other for other in self._streams if other is not stream]

    def _check_limits(self, of_client: int, added: int) -> None:
        watched = [*self._streams, *(client.subscriptions for client in self._state.clients.all())]
        limit = MAX_CLIENT_SUBSCRIPTIONS if of_client > MAX_CLIENT_SUBSCRIPTIONS else MAX_SUBSCRIPTIONS
        if of_client > MAX_CLIENT_SUBSCRIPTIONS or sum(map(len, watched)) + added > MAX_SUBSCRIPTIONS:
            scope = "client" if limit == MAX_CLIENT_SUBSCRIPTIONS else "server"
            raise MCPError(
                INVALID_REQUEST,
                f"more than {limit:,} resource subscriptions for one {scope}; unsubscribe from others, or use "
                "resources/list_changed",
            )

    async def take_changes(self) -> "tuple[list[tuple[ConnectedClient, list[str]]], set[str], float]":
        """The changed URIs of each client, those of open streams, and the seconds it took to read the files."""
        clients = [client for client in self._state.clients.all() if client.subscriptions]
        wanted = {uri for subscribed in (*self._streams, *(c.subscriptions for c in clients)) for uri in subscribed}
        if not wanted:
            return [], set(), 0.0
        started = time.monotonic()
        stamps = await asyncio.to_thread(read_stamps, self._state.skill_uris, sorted(wanted))
        seconds = time.monotonic() - started
        by_client = [(client, _update(client.subscriptions, stamps)) for client in clients]
        streamed = {uri for stream in self._streams for uri in _update(stream, stamps)}
        return [(client, uris) for client, uris in by_client if uris], streamed, seconds


def read_stamps(uris: SkillUris, wanted: list[str]) -> dict[str, ResourceStamp | None]:
    """None for a resource that is not served."""
    stamps: dict[str, ResourceStamp | None] = {}
    for uri in wanted:
        try:
            location = uris.find(uri)
            stamps[uri] = uris.file(location.skill, location.path).stamp
        except (KitbagError, OSError):
            stamps[uri] = None
    return stamps


def _update(subscribed: SubscribedResources, stamps: dict[str, ResourceStamp | None]) -> list[str]:
    """The changed URIs. One that was subscribed to while the files were read is checked the next time."""
    changed = [uri for uri, stamp in subscribed.items() if uri in stamps and stamps[uri] != stamp]
    for uri in changed:
        subscribed[uri] = stamps[uri]
    return changed
