"""A connection to one server, opened when first needed and again after it broke.

Used by servers. A task holds the connection, because the SDK must be left by the task that entered it; calls come from
any task. A request that the server may have started is never sent twice: it is retried only if it is certain that the
server did not get it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from kitbag.errors import KitbagError
from kitbag.text.hidden_characters import collapse_whitespace, reveal_hidden
from kitbag.tools.mcp_client.server_config import ServerConfig
from kitbag.tools.mcp_client.server_listing import MAX_PROMPTS, MAX_TOOLS, ServerListing, build_listing
from kitbag.version import __version__

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client.session import ClientSession

    from kitbag.tools.mcp_client.http_transport import HttpState
    from kitbag.tools.mcp_client.stdio_transport import StderrTail

CONNECT_TIMEOUT_SECONDS: Final = 30.0
LIST_TIMEOUT_SECONDS: Final = 20.0
_CLOSE_TIMEOUT_SECONDS = 5.0
_MAX_PAGES = 100
_PROGRESS_TIMEOUT_FACTOR = 10
"""A call that reports progress may take this many times its timeout."""
_REFRESH_INTERVAL_SECONDS = 1.0
"""The shortest interval between listings for a server that keeps reporting changes."""
_MAX_ERROR_CHARS = 2_000

ServerProgress = Callable[[str], None]
ServerErrorKind = Literal["connect", "undelivered", "broken", "time", "refused", "answer"]


class ServerError(KitbagError):
    """A server that can't be used, or a failed call. `kind` tells whether the call may have taken effect."""

    exit_code = 6

    def __init__(self, kind: ServerErrorKind, problem: str, fix: str = "") -> None:
        super().__init__(problem, fix)
        self.kind: ServerErrorKind = kind


class TransportSetup(NamedTuple):
    """What a connection is made of; new for each attempt."""

    transport: AbstractAsyncContextManager[Any]
    stderr: "StderrTail | None" = None
    http_state: "HttpState | None" = None


class _LiveConnection:
    """One connection, from its opening to its end."""

    def __init__(self, client: "Client", setup: TransportSetup) -> None:
        self.client = client
        self.setup = setup
        self.end_reason = ""
        """Empty while the connection is open."""

    @property
    def session(self) -> "ClientSession":
        return self.client.session


class ServerConnection:
    def __init__(
        self,
        server: ServerConfig,
        open_transport: "Callable[[Callable[[str], None]], Awaitable[TransportSetup]]",
        on_listing: Callable[[ServerListing], None] = lambda _: None,
        on_stderr: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`open_transport` creates the transport, is given a callback for its end, and raises KitbagError. `on_listing`
        gets each listing of the server, `on_stderr` what its program printed on standard error."""
        self.server = server
        self._open_transport = open_transport
        self._on_listing = on_listing
        self._on_stderr = on_stderr
        self._live: _LiveConnection | None = None
        self._holder: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._connecting = asyncio.Lock()
        self._refresh: asyncio.Task[None] | None = None
        self._refresh_pending = False
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._live is not None and not self._live.end_reason

    # --- opening and closing ------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect and request the listing. Raises ServerError."""
        await self._ensure_open()

    async def _ensure_open(self) -> _LiveConnection:
        async with self._connecting:
            if self._closed:
                raise ServerError("connect", f"MCP server {self.server.label} is closed")
            if self._live is not None and not self._live.end_reason:
                return self._live
            await self._shut_down()
            ready: asyncio.Future[_LiveConnection] = asyncio.get_running_loop().create_future()
            self._ending = asyncio.Event()
            holder = asyncio.create_task(self._hold_connection(ready, self._ending))
            self._holder = holder
            try:
                live = await asyncio.shield(ready)
            except asyncio.CancelledError:
                holder.cancel()
                await asyncio.wait([holder], timeout=_CLOSE_TIMEOUT_SECONDS)
                if ready.done() and not ready.cancelled():
                    ready.exception()
                raise
            self._live = live
            return live

    async def _hold_connection(self, ready: "asyncio.Future[_LiveConnection]", ending: asyncio.Event) -> None:
        """The task that enters and leaves the connection."""
        live: _LiveConnection | None = None
        end_reasons: list[str] = []
        setup: TransportSetup | None = None

        def ended(reason: str) -> None:
            end_reasons.append(reason)
            if live is not None:
                live.end_reason = live.end_reason or reason
            ending.set()

        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                    setup = await self._open_transport(ended)
                    client = await stack.enter_async_context(self._make_client(setup))
                    live = _LiveConnection(client, setup)
                    await self._request_listing(live)
                ready.set_result(live)
                await self._wait_until_ended(ending, client)
        except Exception as error:  # noqa: BLE001 - whatever the SDK or the server does ends only this connection
            if not ready.done():
                ready.set_exception(self._connect_error(error, end_reasons, setup))
            elif live is not None:
                live.end_reason = live.end_reason or _describe_error(error)
        finally:
            if live is not None:
                live.end_reason = live.end_reason or "connection closed"
            if not ready.done():
                ready.cancel()
            if setup is not None and setup.stderr is not None and setup.stderr.total:
                self._on_stderr(setup.stderr.text)

    async def _wait_until_ended(self, ending: asyncio.Event, client: "Client") -> None:
        """Meanwhile, a server of the newer protocol reports changes only to subscribers."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        tools = client.server_capabilities.tools
        if client.protocol_version not in MODERN_PROTOCOL_VERSIONS or tools is None or not tools.list_changed:
            await ending.wait()
            return

        async def listen() -> None:
            with contextlib.suppress(Exception):
                async with client.listen(tools_list_changed=True, prompts_list_changed=True) as changes:
                    async for _ in changes:
                        self._on_tools_changed()

        listening = asyncio.create_task(listen())
        try:
            await ending.wait()
        finally:
            listening.cancel()
            await asyncio.wait([listening], timeout=1.0)

    def _make_client(self, setup: TransportSetup) -> "Client":
        import mcp_types as types
        from mcp import Client

        async def on_message(message: Any) -> None:
            if isinstance(message, types.ToolListChangedNotification | types.PromptListChangedNotification):
                self._on_tools_changed()

        info = types.Implementation(name="kitbag", version=__version__)
        return Client(setup.transport, client_info=info, message_handler=on_message, cache=None)

    def _connect_error(self, error: Exception, end_reasons: list[str], setup: TransportSetup | None) -> ServerError:
        if isinstance(error, ServerError):
            return error
        label = self.server.label
        if isinstance(error, KitbagError):
            return ServerError("connect", f"cannot use MCP server {label}: {error.problem}", error.fix)
        if isinstance(error, TimeoutError):
            reason = f"no response within {CONNECT_TIMEOUT_SECONDS:g} s"
        else:
            reason = (end_reasons[0] if end_reasons and end_reasons[0] else "") or _describe_error(error)
        if setup is not None and setup.http_state is not None and setup.http_state.status in (401, 403):
            reason = f"HTTP {setup.http_state.status}: authentication required"
        last_line = (
            setup.stderr.text.strip().rpartition("\n")[2] if setup is not None and setup.stderr is not None else ""
        )
        stderr_note = f'; stderr: "{bounded_line(last_line, 200)}"' if last_line else ""
        fix = f"diagnose it with `kitbag servers test {label}`"
        return ServerError("connect", f"cannot connect to MCP server {label}: {reason}{stderr_note}", fix)

    async def close(self) -> None:
        """Ends the connection and its program. May be called twice."""
        self._closed = True
        await self._shut_down()

    async def _shut_down(self) -> None:
        self._ending.set()
        for task in (self._refresh, self._holder):
            if task is None or task.done():
                continue
            if task is self._refresh:
                task.cancel()
            await asyncio.wait([task], timeout=_CLOSE_TIMEOUT_SECONDS)
            if not task.done():
                task.cancel()
                await asyncio.wait([task], timeout=_CLOSE_TIMEOUT_SECONDS)
        self._refresh = self._holder = None

    # --- listing ------------------------------------------------------------------------------------

    async def _request_listing(self, live: _LiveConnection) -> None:
        import mcp_types as types

        async with asyncio.timeout(LIST_TIMEOUT_SECONDS):
            tools = await _fetch_pages(live.session.list_tools, "tools", MAX_TOOLS, types.PaginatedRequestParams)
            prompts: list[Any] = []
            if live.client.server_capabilities.prompts is not None:
                with contextlib.suppress(Exception):  # its tools are useful without them
                    prompts = await _fetch_pages(
                        live.session.list_prompts, "prompts", MAX_PROMPTS, types.PaginatedRequestParams
                    )
        self._on_listing(await asyncio.to_thread(build_listing, tools, prompts))

    def _on_tools_changed(self) -> None:
        """Its tools have changed. Repeated reports cause one request."""
        self._refresh_pending = True
        if (self._refresh is None or self._refresh.done()) and not self._closed:
            self._refresh = asyncio.create_task(self._refresh_listing())

    async def _refresh_listing(self) -> None:
        while self._refresh_pending and self.is_open:
            self._refresh_pending = False
            assert self._live is not None
            with contextlib.suppress(Exception):
                await self._request_listing(self._live)
            await asyncio.sleep(_REFRESH_INTERVAL_SECONDS)

    # --- calls --------------------------------------------------------------------------------------

    async def call(self, tool: str, arguments: dict[str, Any], seconds: float, progress: ServerProgress) -> Any:
        """The server's answer, as the SDK's CallToolResult. Raises ServerError."""
        import mcp_types as types
        from pydantic import TypeAdapter

        result_type: TypeAdapter[Any] = TypeAdapter(types.CallToolResult | types.InputRequiredResult)
        request = types.CallToolRequest(params=types.CallToolRequestParams(name=tool, arguments=arguments))
        result = await self._send(request, result_type, f"tool {tool!r}", seconds, progress)
        if isinstance(result, types.InputRequiredResult):
            fix = "Retry with all required information in the arguments."
            raise ServerError("refused", f"tool {tool!r} requests user input, which is not supported", fix)
        return result

    async def get_prompt(self, name: str, arguments: dict[str, str], seconds: float) -> Any:
        import mcp_types as types

        request = types.GetPromptRequest(params=types.GetPromptRequestParams(name=name, arguments=arguments))
        return await self._send(request, types.GetPromptResult, f"prompt {name!r}", seconds, lambda _: None)

    async def _send(self, request: Any, result_type: Any, what: str, seconds: float, progress: ServerProgress) -> Any:
        """Not with the SDK's `call_tool`, which runs a server's patterns over its answer."""
        try:
            return await self._send_once(request, result_type, what, seconds, progress)
        except ServerError as error:
            if error.kind != "undelivered":
                raise
        progress(f"reconnecting to {self.server.label}")
        return await self._send_once(request, result_type, what, seconds, progress)

    async def _send_once(
        self, request: Any, result_type: Any, what: str, seconds: float, show_progress: ServerProgress
    ) -> Any:
        live = await self._ensure_open()
        async with self._translate_errors(live, what, seconds), asyncio.timeout(seconds) as limit:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + _PROGRESS_TIMEOUT_FACTOR * seconds

            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                with contextlib.suppress(RuntimeError):  # the call is over
                    limit.reschedule(min(loop.time() + seconds, deadline))
                show_progress(_format_progress(progress, total, message))

            return await live.session.send_request(request, result_type, progress_callback=on_progress)

    @asynccontextmanager
    async def _translate_errors(self, live: _LiveConnection, what: str, seconds: float) -> AsyncGenerator[None, None]:
        """Converts the SDK's exceptions."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED
        from pydantic import ValidationError

        server = f"MCP server {self.server.label}"
        try:
            yield
        except TimeoutError:
            problem = f"{what} of {server} timed out after {seconds:g} s and was canceled"
            raise ServerError("time", problem, "It may have taken effect, fully or partially.") from None
        except MCPError as error:
            http_state = live.setup.http_state
            if http_state is not None and http_state.session_lost:
                live.end_reason = live.end_reason or "session lost"
                self._ending.set()
                raise ServerError("undelivered", f"{server} lost the session") from None
            if error.code != CONNECTION_CLOSED:
                raise ServerError(
                    "refused", f"{server} returned an error: {bounded_line(error.message, _MAX_ERROR_CHARS)}"
                ) from None
            raise await self._broken_error(live, what, server) from None
        except ValidationError:
            raise ServerError("answer", f"{server} sent an invalid response") from None

    async def _broken_error(self, live: _LiveConnection, what: str, server: str) -> ServerError:
        holder = self._holder
        self._ending.set()
        if holder is not None:
            await asyncio.wait([holder], timeout=_CLOSE_TIMEOUT_SECONDS)
        reason = live.end_reason or "connection lost"
        live.end_reason = reason
        if reason.startswith("ConnectError"):
            return ServerError("undelivered", f"cannot reach {server}")
        problem = f"lost the connection to {server} while {what} was running: {reason}"
        return ServerError("broken", problem, "It may have taken effect, fully or partially. The next call reconnects.")


async def _fetch_pages(ask: Callable[..., Awaitable[Any]], kind: str, limit: int, params: Any) -> list[Any]:
    items: list[Any] = []
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        page = await ask(params=params(cursor=cursor) if cursor else None)
        items += getattr(page, kind)
        cursor = page.next_cursor
        if not cursor or len(items) > limit:
            break
    return items


def _format_progress(done: float, total: float | None, message: str | None) -> str:
    share = f"{done:g} of {total:g}" if total else f"{done:g}"
    return f"{share}: {bounded_line(message, 200)}" if message else share


def bounded_line(text: str, max_chars: int) -> str:
    """On one line, for users and models."""
    text = collapse_whitespace(reveal_hidden(text[: 2 * max_chars]))
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def _describe_error(error: BaseException) -> str:
    """The first error of a group: the others follow from it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    text = getattr(error, "strerror", None) or str(error)
    return bounded_line(f"{type(error).__name__}: {text}" if text else type(error).__name__, 300)
