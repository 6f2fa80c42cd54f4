"""Runs the tool calls of one reply, each in this order: prepare, authorize, record the intent, run, record the result.

Used by loop. Read-only calls run in parallel, all others one at a time in the model's order; results keep that order.
Each call gets exactly one result, whatever happens.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.agent.call_limit import is_over_limit
from kitbag.agent.session import Session
from kitbag.agent.session_records import make_skill_use
from kitbag.agent.shield import run_to_completion
from kitbag.agent.turn_permissions import TurnPermissions
from kitbag.errors import KitbagError
from kitbag.events import Notice, SkillLoaded, SkillUnloaded, ToolFinished, ToolProgress, ToolStarted
from kitbag.messages import Image, Text, ToolCall, ToolResult
from kitbag.packing.suggestions import list_suggested
from kitbag.permissions.approvals.approval import Approvals, Denial, Permit
from kitbag.permissions.decisions.decide import Permissions
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import Tool, ToolContext, ToolOutput, error_output
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.toolset import AbstractToolset, RestrictedToolset

MAX_RESULT_CHARS: Final = 60_000
"""Upper limit for the text of a result; most tools truncate earlier."""
_MAX_PROBLEM_CHARS: Final = 600
"""Limits the message about invalid arguments, which may quote them."""
MAX_PARALLEL_CALLS: Final = 20
CANCELLED: Final = "Interrupted by the user while running. It may have taken effect in full or in part."
NOT_STARTED: Final = "Interrupted by the user before it ran; it changed nothing."


class Executor:
    def __init__(
        self,
        session: Session,
        toolset: AbstractToolset,
        context: ToolContext,
        approvals: Approvals,
        emit: Emit,
        asked_by: str = "",
        path_skills: PathSkills | None = None,
        permissions: Callable[[], Permissions] | None = None,
        emits_settings_changes: bool = True,
    ) -> None:
        """`path_skills`: suggests skills for the files that calls use. `permissions`: returns the current permissions
        if they can change during the run. `emits_settings_changes`: whether to report changed settings; a subagent
        leaves that to the agent that started it."""
        self.session = session
        self.turn_permissions = TurnPermissions(context.skills)
        self.set_toolset(toolset)
        self._permissions = permissions or (lambda: self.context.permissions)
        self.path_skills = path_skills
        self._emits_settings_changes = emits_settings_changes
        self.context = context
        self.approvals = approvals
        self.emit = emit
        self.asked_by = asked_by
        self._started_at: dict[str, float] = {}
        """time.monotonic() when each call was announced; excludes the time that the user took to approve it."""

    def set_toolset(self, toolset: AbstractToolset) -> None:
        """Takes effect with the next call."""
        self.toolset: AbstractToolset = RestrictedToolset(toolset, self.turn_permissions.blocked_reason)

    async def run(self, calls: Sequence[ToolCall]) -> tuple[bool, ...]:
        """For each call, whether it was valid: a known tool with readable arguments."""
        valid: list[bool] = []
        parallel: list[ToolCall] = []
        for call in calls:
            if is_over_limit(call):
                await self._skip(call)
                continue
            tool = self.toolset.get(call.name)
            if tool is not None and (tool.read_only or tool.concurrent):
                parallel.append(call)
                continue
            valid += await self._run_in_parallel(parallel)
            parallel = []
            valid.append(await self._run_call(call))
        valid += await self._run_in_parallel(parallel)
        return tuple(valid)

    async def _skip(self, call: ToolCall) -> None:
        """Without events: the loop has sent one notice for all calls beyond the limit."""
        result = ToolResult(call_id=call.id, content=error_output(call.problem).content, is_error=True)
        await run_to_completion(self.session.record_result(result, "not run"))

    async def _run_in_parallel(self, calls: list[ToolCall]) -> list[bool]:
        slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)

        async def run_one(call: ToolCall) -> bool:
            async with slots:
                return await self._run_call(call)

        if len(calls) == 1:
            return [await self._run_call(calls[0])]
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(run_one(call)) for call in calls]
        except BaseExceptionGroup as errors:  # a result that can't be recorded ends the run
            raise errors.exceptions[0] from errors
        return [task.result() for task in running]

    async def _run_call(self, call: ToolCall) -> bool:
        tool = self._prepare(call)
        if isinstance(tool, ToolOutput):
            await self._finish(call, tool)
            return not call.problem and bool(
                self.turn_permissions.blocked_reason(call.name)
            )  # a blocked tool counts as denied, not as invalid
        outcome = truncate_outcome(await self._authorize_and_run(tool, call))
        if outcome.is_error:
            self.toolset.describe((call.name,))  # it may have guessed the arguments
        await self._finish(call, self._with_suggestions(call, outcome))
        return True

    def _with_suggestions(self, call: ToolCall, outcome: ToolOutput) -> ToolOutput:
        """Appends the suggestions after the tool's own output; each skill once per session."""
        if outcome.is_error or self.path_skills is None or self.toolset.get("Skill") is None:
            return outcome
        notice = self.path_skills.notice_for(call.name, call.arguments, self.context.directory)
        if not notice:
            return outcome
        content = (*outcome.content, Text(notice))
        return msgspec.structs.replace(outcome, content=content, suggested=tuple(list_suggested(notice)))

    def _prepare(self, call: ToolCall) -> Tool[Any] | ToolOutput:
        """The tool, or an error output that says why the call can't run."""
        if call.problem:
            return error_output(f"{call.name} was not run: {call.problem}")
        tool = self.toolset.get(call.name)
        if tool is None:
            return error_output(*self.toolset.explain_unavailable(call.name))
        try:
            tool.parse_arguments(call.arguments)
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            problem = collapse_whitespace(str(error))[:_MAX_PROBLEM_CHARS]
            known = ", ".join(field.encode_name for field in msgspec.structs.fields(tool.arguments))
            fix = f"It takes {known}. Correct the arguments and call it again." if known else "It takes no arguments."
            return error_output(f"{call.name} was not run: {problem}", fix)
        return tool

    async def _authorize_and_run(self, tool: Tool[Any], call: ToolCall) -> ToolOutput:
        context = self.context
        try:
            facts = (
                tool.approval_facts(tool.parse_arguments(call.arguments), context)
                if tool.approval_facts is not None
                else ()
            )
        except KitbagError as error:
            return error_output(error.problem, error.fix)
        permissions = self._current_permissions()
        permit = await self.approvals.authorize(
            permissions, tool.name, call.arguments, context.directory, self.asked_by, facts
        )
        self._emit_settings_changes(permissions)
        if isinstance(permit, Denial):
            return error_output(f"{tool.name} is not allowed: {permit.reason}")
        if permit.notice:
            self.emit(Notice(severity="warning", text=permit.notice))
        if not tool.read_only:
            await self.session.record_intent(call)
        self._emit_started(call)
        try:
            return await self._run_permitted(permit, tool, call)
        except KitbagError as error:
            return error_output(error.problem, error.fix)
        except OSError as error:
            return error_output(f"{tool.name} failed: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 - a bug in a tool must not end the session
            return error_output(
                f"{tool.name} failed with an internal error: {type(error).__name__}: {error}", "Try another approach."
            )
        finally:
            self._emit_settings_changes(permissions)

    def _current_permissions(self) -> Permissions:
        """Of this turn. The journal knows the user's secrets, which may grow during a run."""
        permissions = self.turn_permissions.apply_to(self._permissions())
        return permissions.with_secret_check(self.session.journal.redactor.reveals_secret)

    async def _run_permitted(self, permit: Permit, tool: Tool[Any], call: ToolCall) -> ToolOutput:
        """Runs exactly what was approved: these arguments, decided once more under the current rules."""
        current = self.approvals.with_session_rules(self._current_permissions())
        decision = permit.use(tool.name, call.arguments, self.context.directory, current)
        context = msgspec.structs.replace(
            self.context,
            workspace=current.current_workspace,
            permissions=current,
            decision=decision,
            call_id=call.id,
            session_id=self.session.id,
            progress=partial(self._emit_progress, call.id),
            authorize_write=partial(self._authorize_write, call),
        )
        return await tool.run(tool.parse_arguments(permit.arguments), context)

    async def _authorize_write(self, call: ToolCall, path: str) -> str:
        """Decides about a protected path that a running command wants to write, as about an edit of it."""
        permissions = self._current_permissions()
        arguments, facts = {"file_path": path}, (("requested by", describe_call(call.name, call.arguments)),)
        directory = self.context.directory
        if self.approvals.with_session_rules(permissions).allows_writing(path, directory):
            return ""
        permit = await self.approvals.authorize(permissions, "Edit", arguments, directory, self.asked_by, facts)
        if isinstance(permit, Denial):
            return permit.reason
        permit.use("Edit", arguments, directory, self.approvals.with_session_rules(permissions))
        return ""

    def _emit_settings_changes(self, permissions: Permissions) -> None:
        for change in permissions.take_notices() if self._emits_settings_changes else ():
            self.emit(Notice(severity="warning", text=change))

    def _emit_started(self, call: ToolCall) -> None:
        """Once per call."""
        if call.id not in self._started_at:
            self._started_at[call.id] = time.monotonic()
            self.emit(
                ToolStarted(
                    call_id=call.id,
                    name=call.name,
                    arguments=call.arguments,
                    title=describe_call(call.name, call.arguments),
                )
            )

    def _emit_progress(self, call_id: str, text: str) -> None:
        self.emit(ToolProgress(call_id=call_id, text=collapse_whitespace(text)))

    async def _finish(self, call: ToolCall, outcome: ToolOutput) -> None:
        self._emit_started(call)
        await run_to_completion(self._record_result(call, outcome))

    async def _record_result(self, call: ToolCall, outcome: ToolOutput) -> None:
        result = ToolResult(call_id=call.id, content=outcome.content, is_error=outcome.is_error)
        await self.session.record_result(
            result, outcome.summary, outcome.truncation, outcome.details, suggested=outcome.suggested
        )
        if outcome.new_directory and outcome.new_directory != self.context.directory:
            await self.session.record_directory(outcome.new_directory)
            self.context = msgspec.structs.replace(self.context, directory=outcome.new_directory)
        if outcome.unloaded_skill:
            await self.session.drop_skill(outcome.unloaded_skill, "unloaded")
        if outcome.loaded_skill is not None:
            await self.session.add_skill(make_skill_use(outcome.loaded_skill, call.id))
        seconds = time.monotonic() - self._started_at[call.id]
        self.emit(
            ToolFinished(
                call_id=call.id,
                name=call.name,
                is_error=outcome.is_error,
                summary=collapse_whitespace(outcome.summary),
                seconds=seconds,
                details=outcome.details,
                result="".join(part.text for part in outcome.content if isinstance(part, Text)),
            )
        )
        for notice in outcome.notices:
            self.emit(Notice(severity="warning", text=notice))
        if outcome.unloaded_skill:
            self.emit(SkillUnloaded(name=outcome.unloaded_skill, reason="unloaded"))
        notices = {permissions.skill: permissions.user_notice() for permissions in self.turn_permissions.take_new()}
        if (loaded := outcome.loaded_skill) is not None:
            self.emit(
                SkillLoaded(
                    name=loaded.name, tokens=loaded.tokens, by=loaded.loaded_by, rights=notices.pop(loaded.name, "")
                )
            )
        for skill, permissions in notices.items():
            self.emit(Notice(severity="info", text=f"the skill {collapse_whitespace(skill)}, {permissions}"))

    async def answer_open_calls(self) -> None:
        """After a cancellation: gives every open call a result."""
        for call in self.session.open_calls:
            text = CANCELLED if call.id in self.session.started_calls else NOT_STARTED
            await self.session.record_result(
                ToolResult(call_id=call.id, content=(Text(text),), is_error=True), "cancelled"
            )
            if call.id in self._started_at:
                self.emit(
                    ToolFinished(call_id=call.id, name=call.name, is_error=True, summary="cancelled", seconds=0.0)
                )


def describe_call(tool: str, arguments: dict[str, Any]) -> str:
    """One line for the user: the tool and its main argument."""
    for name in ("file_path", "pattern", "command", "skill", "query", "url", "subagent_type", "task_id", "path"):
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return f"{tool}({collapse_whitespace(value[:500])[:120]})"
    return tool


def truncate_outcome(outcome: ToolOutput) -> ToolOutput:
    """Truncates a long result and tells the model and the user. A loaded skill is never truncated."""
    if outcome.loaded_skill is not None:
        return outcome
    chars_left = MAX_RESULT_CHARS
    content: list[Text | Image] = []
    chars_cut = 0
    for part in outcome.content:
        if isinstance(part, Image):
            content.append(part)
            continue
        text = part.text[:chars_left]
        chars_cut += len(part.text) - len(text)
        chars_left -= len(text)
        content.append(Text(text))
    if not chars_cut:
        return outcome
    note = f"[{chars_cut:,} characters truncated: the result is too long. Request less.]"
    return msgspec.structs.replace(outcome, content=(*content, Text(note)), truncation=outcome.truncation or note)
