"""Runs the calls of one reply: prepare, ask for permission, write the intent, run, write the result. In that order.

Used by the loop. Calls that only read run side by side; the others one after another, in the order in which the
model wrote them; results are given in that order too. Each call gets exactly one result, whatever happens.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.agent.session import Session
from kitbag.agent.session_records import SkillUse
from kitbag.agent.shield import run_to_completion
from kitbag.agent.turn_permissions import TurnPermissions
from kitbag.errors import KitbagError
from kitbag.events import Notice, SkillLoaded, SkillUnloaded, ToolFinished, ToolProgress, ToolStarted
from kitbag.messages import Image, Text, ToolCall, ToolResult
from kitbag.permissions.approvals.approval import Approvals, Denial, Permit
from kitbag.permissions.decisions.decide import Permissions
from kitbag.text.hidden_characters import collapse_whitespace
from kitbag.tools.base import Tool, ToolContext, ToolOutput, error_output
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.toolset import AbstractToolset, RestrictedToolset

MAX_RESULT_CHARS: Final = 60_000
"""Characters of text that a result may bring; a tool that knows better cuts before."""
_MAX_PROBLEM_CHARS: Final = 600
"""Of what is wrong with arguments, which may quote them."""
MAX_PARALLEL_CALLS: Final = 20
CANCELLED: Final = "Cancelled by the user while it ran. It may have taken effect, wholly or in part."
NOT_STARTED: Final = "The user cancelled before this was done; nothing was changed by it."


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
        """`path_skills`: tells of skills for the files that are used, where a model can load them. `permissions`: as
        they are at the moment, where they may become others while it runs. `tells_news`: whether a person hears what
        it says; else what has changed in the settings is left to the one who started this."""
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
        """When each call was told of: time.monotonic(). How long a person thought before is not its time."""

    def set_toolset(self, toolset: AbstractToolset) -> None:
        """These tools, from the next call on."""
        self.toolset: AbstractToolset = RestrictedToolset(toolset, self.turn_permissions.blocked_reason)

    async def run(self, calls: Sequence[ToolCall]) -> tuple[bool, ...]:
        """For each call whether it was one that could be run at all: known tool, readable arguments."""
        sound: list[bool] = []
        group: list[ToolCall] = []
        for call in calls:
            tool = self.toolset.get(call.name)
            if tool is not None and (tool.read_only or tool.concurrent):
                group.append(call)
                continue
            sound += await self._run_in_parallel(group)
            group = []
            sound.append(await self._run_call(call))
        sound += await self._run_in_parallel(group)
        return tuple(sound)

    async def _run_in_parallel(self, calls: list[ToolCall]) -> list[bool]:
        slots = asyncio.Semaphore(MAX_PARALLEL_CALLS)

        async def one(call: ToolCall) -> bool:
            async with slots:
                return await self._run_call(call)

        if len(calls) == 1:
            return [await self._run_call(calls[0])]
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(one(call)) for call in calls]
        except BaseExceptionGroup as errors:  # what can't be written down ends the run, whichever call met it first
            raise errors.exceptions[0] from errors
        return [task.result() for task in running]

    async def _run_call(self, call: ToolCall) -> bool:
        tool = self._prepare(call)
        if isinstance(tool, ToolOutput):
            await self._finish(call, tool)
            return not call.problem and bool(
                self.turn_permissions.blocked_reason(call.name)
            )  # then it is refused, as by a rule
        outcome = truncate_outcome(await self._authorize_and_run(tool, call))
        await self._finish(call, self._with_suggestions(call, outcome))
        return True

    def _with_suggestions(self, call: ToolCall, outcome: ToolOutput) -> ToolOutput:
        """Once in a session for each skill, behind all that the tool itself says."""
        if outcome.is_error or self.path_skills is None or self.toolset.get("Skill") is None:
            return outcome
        told = self.path_skills.notice_for(call.name, call.arguments, self.context.directory)
        return outcome._replace(content=(*outcome.content, Text(told))) if told else outcome

    def _prepare(self, call: ToolCall) -> Tool[Any] | ToolOutput:
        """What runs it, or why nothing does."""
        if call.problem:
            return error_output(f"{call.name} was not run: {call.problem}")
        tool = self.toolset.get(call.name)
        if tool is None:
            return error_output(*self.toolset.explain_unavailable(call.name))
        try:
            tool.parse_arguments(call.arguments)
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            problem = collapse_whitespace(str(error))[:_MAX_PROBLEM_CHARS]
            taken = ", ".join(field.encode_name for field in msgspec.structs.fields(tool.arguments))
            fix = f"It takes {taken}. Correct the arguments and call it again." if taken else "It takes no arguments."
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
        permissions = self.turn_permissions.apply_to(self._permissions())
        permit = await self.approvals.authorize(
            permissions, tool.name, call.arguments, context.directory, self.asked_by, facts
        )
        self._emit_settings_changes(permissions)
        if isinstance(permit, Denial):
            return error_output(f"{tool.name} is not allowed: {permit.reason}")
        if permit.remark:
            self.emit(Notice("warning", permit.remark))
        if not tool.read_only:
            await self.session.record_intent(call)
        self._emit_started(call)
        try:
            return await self._run_permitted(permit, tool, call)
        except KitbagError as error:
            return error_output(error.problem, error.fix)
        except OSError as error:
            return error_output(f"{tool.name} failed: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 - a fault in a tool must not end the session
            return error_output(
                f"{tool.name} failed inside Kitbag: {type(error).__name__}: {error}", "Try another way."
            )
        finally:
            self._emit_settings_changes(permissions)

    async def _run_permitted(self, permit: Permit, tool: Tool[Any], call: ToolCall) -> ToolOutput:
        """What was allowed is what runs: these arguments, in what the last look at the rules says."""
        current = self.approvals.with_session_rules(self.turn_permissions.apply_to(self._permissions()))
        judgement = permit.use(tool.name, call.arguments, self.context.directory, current)
        context = self.context._replace(
            workspace=current.current_workspace,
            permissions=current,
            decision=judgement,
            call_id=call.id,
            session_id=self.session.id,
            progress=partial(self._emit_progress, call.id),
        )
        return await tool.run(tool.parse_arguments(permit.arguments), context)

    def _emit_settings_changes(self, permissions: Permissions) -> None:
        for news in permissions.take_notices() if self._emits_settings_changes else ():
            self.emit(Notice("warning", news))

    def _emit_started(self, call: ToolCall) -> None:
        """Once for each call, however it goes on."""
        if call.id not in self._started_at:
            self._started_at[call.id] = time.monotonic()
            self.emit(ToolStarted(call.id, call.name, call.arguments, describe_call(call.name, call.arguments)))

    def _emit_progress(self, call_id: str, text: str) -> None:
        self.emit(ToolProgress(call_id, collapse_whitespace(text)))

    async def _finish(self, call: ToolCall, outcome: ToolOutput) -> None:
        self._emit_started(call)
        await run_to_completion(self._record_result(call, outcome))

    async def _record_result(self, call: ToolCall, outcome: ToolOutput) -> None:
        result = ToolResult(call.id, outcome.content, outcome.is_error)
        await self.session.record_result(result, outcome.summary, outcome.truncation, outcome.details)
        if outcome.new_directory and outcome.new_directory != self.context.directory:
            await self.session.record_directory(outcome.new_directory)
            self.context = self.context._replace(directory=outcome.new_directory)
        if outcome.unloaded_skill:
            await self.session.drop_skill(outcome.unloaded_skill, "unloaded")
        if outcome.loaded_skill is not None:
            await self.session.add_skill(SkillUse(*outcome.loaded_skill, call_id=call.id))
        seconds = time.monotonic() - self._started_at[call.id]
        self.emit(
            ToolFinished(
                call.id,
                call.name,
                outcome.is_error,
                collapse_whitespace(outcome.summary),
                seconds,
                outcome.details,
                "".join(part.text for part in outcome.content if isinstance(part, Text)),
            )
        )
        if outcome.unloaded_skill:
            self.emit(SkillUnloaded(outcome.unloaded_skill, "unloaded"))
        news = {rights.skill: rights.user_notice() for rights in self.turn_permissions.take_new()}
        if (loaded := outcome.loaded_skill) is not None:
            self.emit(SkillLoaded(loaded.name, loaded.tokens, loaded.loaded_by, news.pop(loaded.name, "")))
        for skill, rights in news.items():
            self.emit(Notice("info", f"the skill {collapse_whitespace(skill)}, {rights}"))

    async def answer_open_calls(self) -> None:
        """After a cancellation, wherever it came: each call has its result."""
        for call in self.session.open_calls:
            text = CANCELLED if call.id in self.session.started_calls else NOT_STARTED
            await self.session.record_result(ToolResult(call.id, (Text(text),), is_error=True), "cancelled")
            if call.id in self._started_at:
                self.emit(ToolFinished(call.id, call.name, True, "cancelled", 0.0))


def describe_call(tool: str, arguments: dict[str, Any]) -> str:
    """One line for a person: the tool and what it is about."""
    for name in ("file_path", "pattern", "command", "skill", "query", "url", "subagent_type", "task_id", "path"):
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return f"{tool}({collapse_whitespace(value[:500])[:120]})"
    return tool


def truncate_outcome(outcome: ToolOutput) -> ToolOutput:
    """No result is longer than a model can bear; what is cut is said, to model and person. A skill is whole."""
    if outcome.loaded_skill is not None:
        return outcome
    left = MAX_RESULT_CHARS
    kept: list[Text | Image] = []
    cut = 0
    for part in outcome.content:
        if isinstance(part, Image):
            kept.append(part)
            continue
        text = part.text[:left]
        cut += len(part.text) - len(text)
        left -= len(text)
        kept.append(Text(text))
    if not cut:
        return outcome
    note = f"[{cut:,} characters were cut here: the result is too long. Ask for less.]"
    return outcome._replace(content=(*kept, Text(note)), truncation=outcome.truncation or note)
