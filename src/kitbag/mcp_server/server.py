"""The MCP server: assigns requests to clients, declares capabilities and sends notifications.

Used by stdio and http; uses tool_calls, resources, prompts and resource_subscriptions. Over stdio there is one client,
over HTTP one per session. The newest protocol has no sessions over HTTP: such clients are asked to use the previous
one, and otherwise served statelessly.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

import anyio
from mcp import MCPError
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    DiscoverResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    RequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from kitbag.mcp_server.client_sessions import ConnectedClient
from kitbag.mcp_server.prompts import PromptHandlers
from kitbag.mcp_server.resource_subscriptions import ResourceSubscriptions
from kitbag.mcp_server.resources import SkillResourceHandlers
from kitbag.mcp_server.served_library import ServedLibrary
from kitbag.mcp_server.server_state import MIN_REFRESH_SECONDS, ServerState
from kitbag.mcp_server.skills_extension import EXTENSION, SETTINGS
from kitbag.mcp_server.tool_calls import ToolCalls
from kitbag.version import __version__

logger = logging.getLogger(__name__)

NOTIFY_TIMEOUT: Final = 2.0
"""Don't wait for a client that does not read."""
_SDK_NOT_INITIALIZED: Final = "Invalid request parameters"
SESSION_HEADER: Final = "mcp-session-id"
_NOTIFICATIONS: Final = NotificationOptions(tools_changed=True, resources_changed=True, prompts_changed=True)
Context = ServerRequestContext[Any, Any]


class KitbagServer(Server[Any]):
    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._calls = ToolCalls(state)
        super().__init__(
            "kitbag",
            version=__version__,
            title="Kitbag",
            description="Skills and agents, loaded on demand.",
            instructions=state.served.instructions,
            lifespan=self._lifespan,
            get_tool_input_schema=self._calls.input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus)
        self.extensions = {EXTENSION: SETTINGS}
        # Replaces the SDK's telemetry, which has no exporter here.
        self.middleware[:] = [_explain_errors, _declare_extension]
        SkillResourceHandlers(state).register(self)
        PromptHandlers(state, self._calls, self._find_client).register(self)
        self._subscriptions = ResourceSubscriptions(state, self._find_client)
        self._subscriptions.register(self)
        self.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, self._listen)
        self.add_request_handler("server/discover", RequestParams, self._discover)
        self.add_notification_handler("notifications/initialized", NotificationParams, self._initialized)
        state.on_change = self._notify_clients

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        return super().create_initialization_options(_NOTIFICATIONS)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Server[Any]) -> AsyncGenerator[ServerState, None]:
        watching = asyncio.ensure_future(self._state.watch(self._notify_of_files))
        try:
            yield self._state
        finally:
            self._streams.close()
            watching.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([watching])
                await self._state.close()

    def _find_client(self, context: Context) -> ConnectedClient:
        if context.request is None:
            return self._state.clients.get("")
        session_id = context.request.headers.get(SESSION_HEADER)
        if not session_id or context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return self._state.clients.create_anonymous()
        return self._state.clients.get(session_id)

    async def _discover(self, context: Context, params: RequestParams) -> DiscoverResult:
        sessions = context.request is not None
        return DiscoverResult(
            supported_versions=list(HANDSHAKE_PROTOCOL_VERSIONS if sessions else MODERN_PROTOCOL_VERSIONS),
            capabilities=self.get_capabilities(protocol_version=context.protocol_version),
            instructions=self.instructions,
        )

    async def _initialized(self, context: Context, params: NotificationParams) -> None:
        self._find_client(context).session = context.session

    async def _list_tools(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=self._calls.list_tools(await self._state.refreshed(MIN_REFRESH_SECONDS)))

    async def _call_tool(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        return await self._calls.call(self._find_client(context), context, params)

    # Notifications

    async def _notify_clients(self, old: ServedLibrary, new: ServedLibrary) -> None:
        """Notifies all connected clients of a changed library."""
        self.instructions = new.instructions

        async def send(session: ServerSession) -> None:
            await session.send_tool_list_changed()
            await session.send_resource_list_changed()
            await session.send_prompt_list_changed()

        await asyncio.gather(*(_notify(client, send) for client in self._state.clients.all()))
        for event in (ToolsListChanged(), ResourcesListChanged(), PromptsListChanged()):
            await self._bus.publish(event)

    async def _notify_of_files(self) -> float:
        """Notifies subscribers of changed files. Returns the seconds it took to read them."""
        by_client, streamed, seconds = await self._subscriptions.take_changes()

        def sending(uris: list[str]) -> Callable[[ServerSession], Awaitable[None]]:
            async def send(session: ServerSession) -> None:
                for uri in uris:
                    await session.send_resource_updated(uri)

            return send

        await asyncio.gather(*(_notify(client, sending(uris)) for client, uris in by_client))
        for uri in sorted(streamed):
            await self._bus.publish(ResourceUpdated(uri))
        return seconds

    async def _listen(self, context: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        async with self._subscriptions.listening(params.notifications.resource_subscriptions or ()):
            return await self._streams(context, params)


async def _notify(client: ConnectedClient, send: "Callable[[ServerSession], Awaitable[None]]") -> None:
    if client.session is None:
        return
    if_connected = contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError)
    with if_connected, anyio.move_on_after(NOTIFY_TIMEOUT):
        await send(client.session)


async def _explain_errors(ctx: Context, call_next: CallNext) -> HandlerResult:
    """The SDK's errors don't say what is wrong with the parameters."""
    method = str(ctx.method)[:100]
    try:
        return await call_next(ctx)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "params"
        raise MCPError(INVALID_PARAMS, f"invalid parameters for {method}: {place}: {first['msg']}"[:500]) from None
    except MCPError as error:
        if error.code == INVALID_PARAMS and error.message == _SDK_NOT_INITIALIZED:
            raise MCPError(INVALID_PARAMS, f"send initialize before {method}") from None
        raise
    except Exception as error:
        logger.exception("%s failed", method)
        problem = f"{method} failed inside Kitbag ({type(error).__name__}). See Kitbag's error output for details"
        raise MCPError(INTERNAL_ERROR, problem) from None


async def _declare_extension(ctx: Context, call_next: CallNext) -> HandlerResult:
    """The SDK omits extensions from the handshake of older protocols, where clients look for them."""
    result = await call_next(ctx)
    if ctx.method == "initialize" and isinstance(result, dict):
        result = {**result, "capabilities": {**result["capabilities"], "extensions": {EXTENSION: SETTINGS}}}
    return result
