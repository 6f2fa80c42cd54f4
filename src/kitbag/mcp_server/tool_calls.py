"""Calls of tools: found, read, run apart from the connection, reported on, and always answered with something usable.

Used by server; the tools are skill_calls and agent_calls. A call that its client cancels, or whose client is gone, is
stopped: an agent that works in front stops with it, what runs in the background goes on.
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

from kitbag.errors import KitbagError, NotFoundError
from kitbag.mcp_server import agent_tools, skill_tools
from kitbag.mcp_server.client_sessions import Client
from kitbag.mcp_server.delegation import Delegating
from kitbag.mcp_server.elicitation import eliciting
from kitbag.mcp_server.served_library import Served
from kitbag.mcp_server.server_state import House
from kitbag.messages import Text
from kitbag.text.hidden_characters import one_line
from kitbag.tools.base import Context, Outcome, Tool, failure
from kitbag.tools.task import TASK_OUTPUT, TASK_STOP

logger = logging.getLogger(__name__)

GONE: Final = "kitbag.gone"
"""In the scope of an HTTP request: an event that is set when nobody reads the answer any more."""
PULSE_SECONDS: Final = 10.0
"""At least so often, a call that takes long says that it goes on."""
ENDING_SECONDS: Final = 4.0
Tell = Callable[[str], None]
_WITH_AGENTS: Final = frozenset(("load_skill", "Task", "TaskOutput", "TaskStop"))
_BY_NAME: Final = frozenset(("load_skill", "read_skill_file", "Task", "pack"))
"""What these were asked for may have come to the library a moment ago."""


class Calls:
    def __init__(self, house: House) -> None:
        self._house = house
        tools: tuple[Tool[Any], ...] = (
            skill_tools.LOAD,
            skill_tools.LIST_LOADED,
            skill_tools.SEARCH,
            skill_tools.READ_FILE,
            skill_tools.UNLOAD,
            agent_tools.LIST_AGENTS,
            agent_tools.START,
            TASK_OUTPUT,
            TASK_STOP,
            agent_tools.pack_tool(house.options),
        )
        self._tools = {tool.name: tool for tool in tools}

    def listed(self, served: Served) -> list[ToolOverMcp]:
        """The catalog stands with the tools that need it: not every client shows the server's instructions."""
        catalogs = {"load_skill": served.skills_brief, "Task": served.agents_brief}
        return [_listed(tool, catalogs.get(tool.name, "")) for tool in self._tools.values()]

    def schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tools.get(name)
        return tool.spec.schema if tool is not None else None

    async def call(
        self, client: Client, given: ServerRequestContext[Any, Any], params: CallToolRequestParams
    ) -> CallToolResult:
        tool = self._tools.get(params.name)
        if tool is None:
            raise MCPError(INVALID_PARAMS, f"there is no tool {params.name[:80]!r}; there are {', '.join(self._tools)}")
        try:
            outcome = await self._run(tool, params.arguments or {}, client, given)
        except msgspec.ValidationError as error:
            outcome = failure(f"the arguments of {tool.name} are wrong: {error}")
        except KitbagError as error:
            outcome = failure(error.problem, error.fix)
        except Exception as error:
            logger.exception("%s failed", tool.name)
            outcome = failure(
                f"{tool.name} failed inside Kitbag ({type(error).__name__})", "Its error output says more."
            )
        return _result(outcome)

    async def _run(
        self, tool: Tool[Any], given: dict[str, Any], client: Client, context: ServerRequestContext[Any, Any]
    ) -> Outcome:
        arguments = tool.read(given)
        served = self._house.served
        try:
            return await self._attempt(tool, arguments, client, context, served)
        except NotFoundError:
            new = await self._house.fresh(0) if tool.name in _BY_NAME else served
            if new is served:
                raise
            return await self._attempt(tool, arguments, client, context, new)

    async def _attempt(
        self, tool: Tool[Any], arguments: Any, client: Client, context: ServerRequestContext[Any, Any], served: Served
    ) -> Outcome:
        ground = served.ground
        async with _reporting(context, tool) as progress:

            async def work() -> Outcome:
                async with Delegating(self._house, client, eliciting(context)) as delegation:
                    run = Context(
                        ground.workspace,
                        ground.places.cwd,
                        ground.permissions,
                        ground.library,
                        client.skills(served),
                        session_id=client.id,
                        delegation=delegation if tool.name in _WITH_AGENTS else None,
                        progress=progress,
                    )
                    with client.loading():
                        outcome = await tool.work(arguments, run)
                    return await _with_news(outcome, client, delegation)

            request = context.request
            gone = request.scope.get(GONE) if request is not None else None
            return await _apart(work(), gone, client)


async def _with_news(outcome: Outcome, client: Client, delegation: Delegating) -> Outcome:
    """Nobody else tells a client of background work that has ended."""
    news = await delegation.news() if client.has_background else ""
    return outcome._replace(content=(*outcome.content, Text(news))) if news else outcome


async def _apart(work: Coroutine[Any, Any, Outcome], gone: asyncio.Event | None, client: Client) -> Outcome:
    """In a task of its own, which is cancelled once and then left to end its business."""
    running = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone.wait()) if gone is not None else None
    try:
        await asyncio.wait([task for task in (running, leaving) if task is not None], return_when="FIRST_COMPLETED")
        if not running.done():
            await _end(running, client)
            return failure("nobody waits for the answer any more")
        return running.result()
    except asyncio.CancelledError:
        await _end(running, client)
        raise
    finally:
        if leaving is not None:
            leaving.cancel()


async def _end(running: "asyncio.Future[Outcome]", client: Client) -> None:
    client.stop_loading()
    running.cancel()
    with anyio.move_on_after(ENDING_SECONDS, shield=True):
        await asyncio.wait([running])
    if running.done() and not running.cancelled():
        running.exception()  # looked at, or asyncio complains about it


class _Progress:
    """The latest word of a call, told when it is new, and again when nothing is new for long."""

    def __init__(self, context: ServerRequestContext[Any, Any]) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._text = ""
        self._begun = time.monotonic()

    def tell(self, text: str) -> None:
        self._text = one_line(text)[:300]
        self._loop.call_soon_threadsafe(self._news.set)

    async def report(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), PULSE_SECONDS)
            self._news.clear()
            seconds = time.monotonic() - self._begun
            await self._context.session.report_progress(seconds, message=self._text or f"working, {seconds:.0f} s")


@contextlib.asynccontextmanager
async def _reporting(context: ServerRequestContext[Any, Any], tool: Tool[Any]) -> "AsyncGenerator[Tell, None]":
    if tool.name not in _WITH_AGENTS:
        yield lambda _: None
        return
    progress = _Progress(context)
    reporter = asyncio.ensure_future(progress.report())
    try:
        yield progress.tell
    finally:
        reporter.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([reporter])
        if not reporter.cancelled() and (error := reporter.exception()) is not None:
            logger.debug("progress could not be told: %r", error)


def _listed(tool: Tool[Any], catalog: str) -> ToolOverMcp:
    spec = tool.spec
    described = f"{spec.description}\n\n{catalog}" if catalog else spec.description
    hints = ToolAnnotations(
        read_only_hint=tool.reads_only or tool.name in ("unload_skill", "pack"),
        destructive_hint=tool.name == "Task",
        open_world_hint=tool.name == "Task",
    )
    return ToolOverMcp(name=tool.name, description=described, input_schema=spec.schema, annotations=hints)


def _result(outcome: Outcome) -> CallToolResult:
    content = [
        TextContent(text=part.text)
        if isinstance(part, Text)
        else ImageContent(data=part.data, mime_type=part.media_type)
        for part in outcome.content
    ]
    return CallToolResult(content=[*content], is_error=outcome.is_error)
