"""An agent that another agent started: a fresh history and its own tools, mode and model, in the parent's environment.

Used by runner, in the foreground and in the worker. Starting one reads only the agent's own body and its preloaded
skills; everything else comes from ParentContext.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import structs

from kitbag.agent.execute import Executor
from kitbag.agent.loop import CUT_OFF_MARKER
from kitbag.agent.resume import resume
from kitbag.agent.session import STREAM_PREFIX, Session
from kitbag.assembly.agent_checks import check_persona
from kitbag.assembly.base_agent import BaseAgent
from kitbag.assembly.mcp_servers import unknown_server_notices
from kitbag.assembly.model_choice import ModelPreferences, choose_model
from kitbag.assembly.parent_context import ParentContext
from kitbag.assembly.user_messages import UserMessages
from kitbag.errors import InvalidError
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.messages import Image, Text
from kitbag.permissions.decisions.decide import Permissions, child_mode
from kitbag.tasks.agent_permissions import no_tools_error
from kitbag.tasks.approval_asker import ApprovalAsker
from kitbag.tasks.interrupted import only_reads
from kitbag.tasks.task import FINISHED, TaskRequest, TaskResult, requester_label
from kitbag.telemetry.trace_context import SpanReference, parse_traceparent
from kitbag.text.hidden_characters import reveal_hidden
from kitbag.tools.base import Tool, ToolContext, ToolOutput, error_output
from kitbag.tools.toolset import Toolset

DEFAULT_MAX_TURNS: Final = 50
"""If neither the call nor the agent file sets a limit."""
START_MESSAGE: Final = "Start your task."


def _render_task(request: TaskRequest) -> str:
    prompt = reveal_hidden(request.prompt)
    if not request.output_schema:
        return prompt
    from kitbag.packing.output_schema import render_output_schema

    return f"{prompt}\n\n{render_output_schema(request.output_schema)}"


class Subagent(BaseAgent):
    def __init__(
        self,
        inherited: ParentContext,
        definition: AgentFile,
        request: TaskRequest,
        task_id: str,
        session_id: str,
    ) -> None:
        parent_options = inherited.options
        turns = request.previous_turns + (request.max_turns or definition.max_turns or DEFAULT_MAX_TURNS)
        limits = msgspec.structs.replace(parent_options.limits, turns=turns)
        self.user_permissions = inherited.permissions
        options = msgspec.structs.replace(
            parent_options, agent=definition.full_name, limits=limits, resume="", fork=False, append=""
        )
        asked_by, directory = requester_label(definition.full_name, task_id), inherited.environment.places.cwd
        asker = ApprovalAsker(inherited.approvals, asked_by, directory) if inherited.can_ask_user else None
        super().__init__(options=options, journal=inherited.journal, retry_policy=inherited.retry_policy, person=asker)
        self.children_can_ask_user = inherited.can_ask_user
        self._inherited = inherited
        self.command_env = inherited.command_env
        self._request = request
        self.task_id = task_id
        self._session_id = session_id
        self.definition = msgspec.structs.replace(
            definition, skills=tuple(dict.fromkeys((*definition.skills, *request.skills)))
        )
        self._task_prompt = _render_task(request)
        self._is_resumed = False
        self._in_worktree = definition.isolation == "worktree"
        self.may_continue: Callable[[], bool] = lambda: True
        """Checked before each side effect, when its intent is written."""

    async def _open(self) -> None:
        inherited, definition = self._inherited, self.definition
        assert definition is not None
        self.environment, self.journal, self.sources = inherited.environment, inherited.journal, inherited.sources
        await self.journal.fetch_async(STREAM_PREFIX + self._session_id)
        self._is_resumed = self.journal.last(STREAM_PREFIX + self._session_id) is not None
        self.session = (
            resume(self.journal, self._session_id) if self._is_resumed else Session(self.journal, self._session_id)
        )
        self._choose_own_model(inherited, definition)
        mode = child_mode(inherited.mode, definition.permission_mode)
        self.permissions = inherited.permissions.restricted_to(definition.tools, definition.path).with_mode(mode)
        self.skills = self._make_skills()
        self.approvals = inherited.approvals
        await self.open_servers()
        self.toolset = self.make_toolset()
        # Without its servers, an agent that has only their tools can still answer; a notice names them.
        if not self.toolset.names() and not definition.tools.only_servers:
            raise no_tools_error(definition, self._inherited.permissions, mode)
        self.check_definition(definition)
        self.notices += check_persona(self.environment.library)
        self.context = self._make_context()
        await self._start_session()
        self.user_messages = UserMessages(self.session, self.skills, self.toolset.get("SearchSkills") is not None)

    def current_permissions(self) -> Permissions:
        """A child of a plan-mode agent is in plan mode, even if the parent switched after the start."""
        is_plan = self._inherited.mode_now is not None and self._inherited.mode_now() == "plan"
        return self.permissions.with_mode("plan") if is_plan and self.permissions.mode != "plan" else self.permissions

    async def open_servers(self) -> None:
        if self._inherited.servers is None:
            await super().open_servers()
        else:
            self.servers = self._inherited.servers
            self.notices += unknown_server_notices(self.servers, self.definition)
            await self._open_own_servers()

    def make_toolset(self, permissions: Permissions | None = None) -> Toolset:
        tools = [self._guard_tool(tool) for tool in self._build_tools()]
        return self.describe_again(
            Toolset(tools, permissions or self.permissions, self.approvals.can_ask, self.environment.library)
        )

    def _refresh_server_tools(self) -> None:
        """A subagent keeps its initial tools; the parent handles news of shared servers."""
        if self.agent_servers.own is not None:
            self.notices += self.agent_servers.own.take_notices()

    def _choose_own_model(self, inherited: ParentContext, definition: AgentFile) -> None:
        """The call's model, else the agent's own, else the parent's."""
        file_models = () if self._request.model else (definition.model.name, *definition.model.alternatives)
        wanted = [name for name in (self._request.model, *file_models) if name not in ("", "inherit")]
        self.chosen, self.provider = inherited.chosen, inherited.provider
        if not wanted:
            return
        call_model = self._request.model if self._request.model != "inherit" else ""
        if call_model == inherited.chosen.reference:
            return
        if call_model.startswith("scripted"):
            raise InvalidError("a model can't select a script", "name a model, or omit it")
        preferences = ModelPreferences(flag=call_model, files=file_models, usual=inherited.chosen)
        self.chosen, self.provider = choose_model(inherited.sources, preferences, self.notices.append)
        self._exit_stack.push_async_callback(self.provider.close)
        if call_model and self.chosen.provider != inherited.chosen.provider:
            # Workspace content goes only to providers that the user or the user's files have chosen.
            problem = f"{self.chosen.name} belongs to another provider, which only the user can choose"
            raise InvalidError(problem, f"name a model of {inherited.chosen.provider}, or omit it")
        if self.chosen.name == inherited.chosen.name:
            self.chosen, self.provider = inherited.chosen, inherited.provider

    async def _add_user_message(
        self, request: str, images: Sequence[Image], first_later: int, executor: Executor
    ) -> None:
        """The first run has the task in its prompt; later input is a message. Without a message it continues."""
        if not self.session.messages():
            more = f"\n\n{reveal_hidden(request)}" if request else ""
            await self.session.add_user((Text(START_MESSAGE + more),))
            await self._deliver_pending(executor)
            return
        # Calls that never started may run now. The outcome of the others is unknown, so only those that only read are
        # repeated.
        may_run = [
            call
            for call in self.session.open_calls
            if (only_reads(call) if call.id in self.session.started_calls else not request)
        ]
        if may_run:
            await executor.run(may_run)
        await self._deliver_pending(executor)
        if request:
            await self.session.add_user((Text(reveal_hidden(request)),))

    def _guard_tool(self, tool: Tool[Any]) -> Tool[Any]:
        """A task that another process ended has no further side effects, however late this process learns of it: either
        the intent or the result was written first."""
        if tool.read_only:
            return tool

        async def work(arguments: Any, context: ToolContext) -> ToolOutput:
            if not self.may_continue():
                return error_output("not run: the task was stopped")
            return await tool.run(arguments, context)

        return structs.replace(tool, run=work)

    def _parent_span(self) -> SpanReference | None:
        """Of the request: a worker may have been started by anything."""
        return parse_traceparent(self._request.traceparent)

    def _requester_name(self) -> str:
        return requester_label(self.options.agent, self.task_id)

    def previous_result(self) -> TaskResult | None:
        """The result of a session that had ended before its process died: then the model is not asked again."""
        session, lines = self.session, self.session.recorded_messages()
        last = self.journal.last(session.stream)
        message = lines[-1][1] if lines else None
        totals = session.totals
        tokens = totals.usage.total_input + totals.usage.output
        cost = None if totals.unpriced else totals.cost
        text = next((one.text for _, one in reversed(lines) if one.role == "assistant" and one.text), "")
        if last is not None and last.kind == "ended" and last.body["status"] in FINISHED:
            return TaskResult(
                status=last.body["status"],
                text=text,
                error=str(last.body["error"]),
                turns=totals.turns,
                tokens=tokens,
                cost=cost,
            )
        if message is None or message.role != "assistant" or message.calls:
            return None
        if message.text.endswith(CUT_OFF_MARKER):
            return TaskResult(
                status="interrupted",
                text=text,
                error="its process ended while the model was answering",
                turns=totals.turns,
                tokens=tokens,
                cost=cost,
            )
        return TaskResult(
            status="completed" if message.text.strip() else "empty",
            text=text,
            error="",
            turns=totals.turns,
            tokens=tokens,
            cost=cost,
        )
