"""MCP prompts: prompts/list, prompts/get and completion/complete.

A prompt is a skill that the user may invoke; getting it returns what `/name arguments` would insert. Used by server;
uses skill_prompts and tool_calls.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp_types import (
    INVALID_PARAMS,
    CompleteRequestParams,
    CompleteResult,
    Completion,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    PromptReference,
    TextContent,
)

from kitbag.errors import KitbagError, NotFoundError
from kitbag.library.skills import Skill
from kitbag.mcp_server.client_sessions import ConnectedClient
from kitbag.mcp_server.library_requests import paginate, read_library, to_mcp_error
from kitbag.mcp_server.resources import SKILL_TEMPLATE
from kitbag.mcp_server.server_state import ServerState
from kitbag.mcp_server.skill_prompts import SkillPrompts, argument_text, clean_line
from kitbag.mcp_server.skill_tools import INVOKE
from kitbag.mcp_server.tool_calls import ToolCalls
from kitbag.messages import Text

PROMPTS_PAGE_SIZE: Final = 500
MAX_COMPLETIONS: Final = 100
"""The most that the protocol allows."""
Context = ServerRequestContext[Any, Any]


class PromptHandlers:
    def __init__(self, state: ServerState, calls: ToolCalls, find_client: Callable[[Context], ConnectedClient]) -> None:
        self._state = state
        self._calls = calls
        self._find_client = find_client

    def register(self, server: Server[Any]) -> None:
        server.add_request_handler("prompts/list", PaginatedRequestParams, self._list)
        server.add_request_handler("prompts/get", GetPromptRequestParams, self._get)
        server.add_request_handler("completion/complete", CompleteRequestParams, self._complete)

    async def _list(self, _: Context, params: PaginatedRequestParams) -> ListPromptsResult:
        def read() -> ListPromptsResult:
            prompts = self._state.skill_prompts
            shown, cursor = paginate(prompts.listed, params.cursor, PROMPTS_PAGE_SIZE)
            listed = [_prompt(prompts, name, skill) for name, skill in shown if prompts.is_allowed(skill)]
            return ListPromptsResult(prompts=listed, next_cursor=cursor)

        return await read_library(self._state, read)

    async def _get(self, context: Context, params: GetPromptRequestParams) -> GetPromptResult:
        def read() -> tuple[Skill, str]:
            prompts = self._state.skill_prompts
            skill = prompts.find(params.name)
            return skill, argument_text(prompts.parameters(skill), params.arguments or {})

        try:
            self._state.skill_prompts.find(params.name)
        except NotFoundError:  # it may have been added just now
            await self._state.refreshed(0)
        skill, arguments = await read_library(self._state, read)
        invocation = {"skill_name": skill.full_name, "arguments": arguments}
        try:
            output = await self._calls.run(INVOKE, invocation, self._find_client(context), context)
        except msgspec.ValidationError as error:
            raise MCPError(INVALID_PARAMS, f"invalid arguments: {error}") from None
        except (KitbagError, OSError) as error:
            raise to_mcp_error(error) from None
        texts = [part.text for part in output.content if isinstance(part, Text)]
        if output.is_error:
            raise MCPError(INVALID_PARAMS, "\n".join(texts))
        return GetPromptResult(
            description=clean_line(skill.description) or None,
            messages=[PromptMessage(role="user", content=TextContent(text=text)) for text in texts],
        )

    # Completion

    async def _complete(self, _: Context, params: CompleteRequestParams) -> CompleteResult:
        argument, ref = params.argument, params.ref
        given = (params.context.arguments if params.context is not None else None) or {}

        def read() -> list[str]:
            if isinstance(ref, PromptReference):
                prompts = self._state.skill_prompts
                parameters = prompts.parameters(prompts.find(ref.name))
                return [choice for one in parameters if one.name == argument.name for choice in one.choices]
            if ref.uri != SKILL_TEMPLATE:
                raise NotFoundError(f"no resource template {ref.uri[:300]}", f"the template is {SKILL_TEMPLATE}")
            return self._complete_resource(argument.name, given)

        typed = argument.value.casefold()
        found = [value for value in await read_library(self._state, read) if value.casefold().startswith(typed)]
        shown = found[:MAX_COMPLETIONS]
        return CompleteResult(completion=Completion(values=shown, total=len(found), has_more=len(found) > len(shown)))

    def _complete_resource(self, name: str, given: dict[str, str]) -> list[str]:
        uris = self._state.skill_uris
        if name == "skill":
            return [path for path, _ in uris.listed]
        if name == "path" and given.get("skill"):
            skill = uris.find(f"skill://{given['skill']}").skill
            return [file.path for file in uris.files(skill)]
        return []


def _prompt(prompts: SkillPrompts, name: str, skill: Skill) -> Prompt:
    arguments = [
        PromptArgument(name=one.name, description=one.description or None, required=one.required)
        for one in prompts.parameters(skill)
    ]
    return Prompt(
        name=name,
        title=skill.full_name,
        description=clean_line(skill.description) or None,
        arguments=arguments or None,
    )
