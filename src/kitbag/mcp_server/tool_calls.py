"""Tool calls: parses arguments, runs the tool apart from the connection, reports progress, and always returns a result.

Used by server; the tools are in skill_tools and agent_tools. A call is stopped when its client cancels it or
disconnects: foreground agents stop with it, background tasks continue.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final

import anyio
import msgspec
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as ToolOverMcp
from msgspec import structs

from kitbag.errors import KitbagError, NotFoundError
from kitbag.mcp_server import agent_tools, skill_tools
from kitbag.mcp_server.client_sessions import ConnectedClient
from kitbag.mcp_server.delegation import CallDelegation
from kitbag.mcp_server.elicitation import create_approver
from kitbag.mcp_server.served_library import ServedLibrary
from kitbag.mcp_server.server_state import ServerState
from kitbag.messages import Text
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import Tool, ToolContext, ToolOutput, error_output
from kitbag.tools.task import TASK_OUTPUT, TASK_STOP

logger = logging.getLogger(__name__)

DISCONNECTED_KEY: Final = "kitbag.gone"
"""In an HTTP request's scope: an event that is set when the client disconnects."""
PROGRESS_SECONDS: Final = 10.0
"""The longest time without a progress notification during a call."""
CANCEL_SECONDS: Final = 4.0
ProgressCallback = Callable[[str], None]
_DELEGATING_TOOLS: Final = frozenset(("load_skill", "invoke_skill", "Task", "TaskOutput", "TaskStop"))
_RELOADING_TOOLS: Final = frozenset(("load_skill", "read_skill_file", "Task", "pack"))
"""Their argument may name an item that was added to the library just now."""


class ToolCalls:
    def __init__(self, state: ServerState) -> None:
        self._state = state
        tools: tuple[Tool[Any], ...] = (
            skill_tools.LOAD,
            skill_tools.LIST_LOADED,
            skill_tools.SEARCH,
            skill_tools.READ_FILE,
            skill_tools.UNLOAD,
            agent_tools.LIST_AGENTS,
            agent_tools.START_AGENT,
            TASK_OUTPUT,
            TASK_STOP,
            agent_tools.pack_tool(state.options),
        )
        self._tools = {tool.name: tool for tool in tools}
        self._listed: tuple[ServedLibrary, list[ToolOverMcp]] | None = None

    def list_tools(self, served: ServedLibrary) -> list[ToolOverMcp]:
        """Tools that need the catalog carry it: not every client shows the server's instructions."""
        if self._listed is None or self._listed[0] is not served:
            catalogs = {"load_skill": served.skills_brief, "Task": served.agents_brief}
            listed = [_tool_listing(tool, catalogs.get(tool.name, "")) for tool in self._tools.values()]
            self._listed = served, listed
        return self._listed[1]

    def input_schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tools.get(name)
        return tool.spec.schema if tool is not None else None

    async def call(
        self, client: ConnectedClient, context: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(
                INVALID_PARAMS, f"no tool named {params.name[:80]!r}; available tools: {', '.join(self._tools)}"
            )
        try:
            output = await self.run(tool, params.arguments or {}, client, context)
        except msgspec.ValidationError as error:
            output = error_output(f"invalid arguments for {tool.name}: {error}")
        except KitbagError as error:
            output = error_output(error.problem, error.fix)
        except Exception as error:
            logger.exception("%s failed", tool.name)
            output = error_output(
                f"{tool.name} failed inside Kitbag ({type(error).__name__})", "See Kitbag's error output for details."
            )
        return _call_result(output)

    async def run(
        self,
        tool: Tool[Any],
        raw_arguments: dict[str, Any],
        client: ConnectedClient,
        context: ServerRequestContext[Any, Any],
    ) -> ToolOutput:
        """Raises KitbagError, and msgspec.ValidationError for invalid arguments."""
        arguments = tool.parse_arguments(raw_arguments)
        served = self._state.served
        try:
            return await self._attempt(tool, arguments, client, context, served)
        except NotFoundError:
            new = await self._state.refreshed(0) if tool.name in _RELOADING_TOOLS else served
            if new is served:
                raise
            return await self._attempt(tool, arguments, client, context, new)

    async def _attempt(
        self,
        tool: Tool[Any],
        arguments: Any,
        client: ConnectedClient,
        context: ServerRequestContext[Any, Any],
        served: ServedLibrary,
    ) -> ToolOutput:
        environment = served.environment
        # A prompt may begin another conversation: it never refers to loaded skills.
        skills = client.create_skills(served) if tool is skill_tools.INVOKE else client.session_skills(served)
        async with _report_progress(context, tool) as progress:

            async def work() -> ToolOutput:
                async with CallDelegation(self._state, client, create_approver(context)) as delegation:
                    run = ToolContext(
                        workspace=environment.workspace,
                        directory=environment.places.cwd,
                        permissions=environment.permissions,
                        library=environment.library,
                        skills=skills,
                        session_id=client.id,
                        delegation=delegation if tool.name in _DELEGATING_TOOLS else None,
                        progress=progress,
                    )
                    with client.loading():
                        output = await tool.run(arguments, run)
                    return await _with_notifications(output, client, delegation)

            request = context.request
            disconnected = request.scope.get(DISCONNECTED_KEY) if request is not None else None
            return await _run_detached(work(), disconnected, client)


async def _with_notifications(output: ToolOutput, client: ConnectedClient, delegation: CallDelegation) -> ToolOutput:
    """The only way a client learns that a background task has ended."""
    notifications = await delegation.take_notifications() if client.has_background_tasks else ""
    return structs.replace(output, content=(*output.content, Text(notifications))) if notifications else output


async def _run_detached(
    work: Coroutine[Any, Any, ToolOutput], disconnected: asyncio.Event | None, client: ConnectedClient
) -> ToolOutput:
    """In a task of its own, which is cancelled once and then given time to clean up."""
    running = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(disconnected.wait()) if disconnected is not None else None
    try:
        await asyncio.wait([task for task in (running, leaving) if task is not None], return_when="FIRST_COMPLETED")
        if not running.done():
            await _cancel_call(running, client)
            return error_output("the client has disconnected")
        return running.result()
    except asyncio.CancelledError:
        await _cancel_call(running, client)
        raise
    finally:
        if leaving is not None:
            leaving.cancel()


async def _cancel_call(running: "asyncio.Future[ToolOutput]", client: ConnectedClient) -> None:
    client.stop_loading()
    running.cancel()
    with anyio.move_on_after(CANCEL_SECONDS, shield=True):
        await asyncio.wait([running])
    if running.done() and not running.cancelled():
        running.exception()  # retrieved, or asyncio logs it


class _ProgressReporter:
    """Sends the latest text of a call when it changes, and periodically."""

    def __init__(self, context: ServerRequestContext[Any, Any]) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._text = ""
        self._started_at = time.monotonic()

    def update(self, text: str) -> None:
        self._text = collapse_whitespace(text)[:300]
        self._loop.call_soon_threadsafe(self._changed.set)

    async def report(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), PROGRESS_SECONDS)
            self._changed.clear()
            seconds = time.monotonic() - self._started_at
            await self._context.session.report_progress(seconds, message=self._text or f"working, {seconds:.0f} s")


@contextlib.asynccontextmanager
async def _report_progress(
    context: ServerRequestContext[Any, Any], tool: Tool[Any]
) -> "AsyncGenerator[ProgressCallback, None]":
    if tool.name not in _DELEGATING_TOOLS:
        yield lambda _: None
        return
    progress = _ProgressReporter(context)
    reporter = asyncio.ensure_future(progress.report())
    try:
        yield progress.update
    finally:
        reporter.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([reporter])
        if not reporter.cancelled() and (error := reporter.exception()) is not None:
            logger.debug("progress could not be reported: %r", error)


def _tool_listing(tool: Tool[Any], catalog: str) -> ToolOverMcp:
    spec = tool.spec
    described = f"{spec.description}\n\n{catalog}" if catalog else spec.description
    hints = ToolAnnotations(
        read_only_hint=tool.read_only or tool.name in ("unload_skill", "pack"),
        destructive_hint=tool.name == "Task",
        open_world_hint=tool.name == "Task",
    )
    return ToolOverMcp(name=tool.name, description=described, input_schema=spec.schema, annotations=hints)


def _call_result(output: ToolOutput) -> CallToolResult:
    content = [
        TextContent(text=part.text)
        if isinstance(part, Text)
        else ImageContent(data=part.data, mime_type=part.media_type)
        for part in output.content
    ]
    return CallToolResult(content=[*content], is_error=output.is_error)
