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
from kitbag.agent.shield import to_its_end
from kitbag.agent.turn_permissions import TurnRights
from kitbag.errors import KitbagError
from kitbag.events import Notice, SkillLoaded, SkillUnloaded, ToolFinished, ToolProgress, ToolStarted
from kitbag.messages import Image, Text, ToolCall, ToolResult
from kitbag.permissions.approvals.approval import Approvals, Permit, Refusal
from kitbag.permissions.decisions.decide import Permissions
from kitbag.text.hidden_characters import one_line
from kitbag.tools.base import Context, Outcome, Tool, failure
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.toolset import ForNow, Tools

LONGEST_RESULT: Final = 60_000
"""Characters of text that a result may bring; a tool that knows better cuts before."""
_LONGEST_PROBLEM: Final = 600
"""Of what is wrong with arguments, which may quote them."""
SIDE_BY_SIDE: Final = 20
CANCELLED: Final = "Cancelled by the user while it ran. It may have taken effect, wholly or in part."
NOT_BEGUN: Final = "The user cancelled before this was done; nothing was changed by it."


class Executor:
    def __init__(
        self,
        session: Session,
        toolset: Tools,
        context: Context,
        approvals: Approvals,
        emit: Emit,
        asked_by: str = "",
        path_skills: PathSkills | None = None,
        permissions: Callable[[], Permissions] | None = None,
        tells_news: bool = True,
    ) -> None:
        """`path_skills`: tells of skills for the files that are used, where a model can load them. `permissions`: as
        they are at the moment, where they may become others while it runs. `tells_news`: whether a person hears what
        it says; else what has changed in the settings is left to the one who started this."""
        self.session = session
        self.rights = TurnRights(context.skills)
        self.offer(toolset)
        self._permissions = permissions or (lambda: self.context.permissions)
        self.path_skills = path_skills
        self._tells_news = tells_news
        self.context = context
        self.approvals = approvals
        self.emit = emit
        self.asked_by = asked_by
        self._started: dict[str, float] = {}
        """When each call was told of: time.monotonic(). How long a person thought before is not its time."""

    def offer(self, toolset: Tools) -> None:
        """These tools, from the next call on."""
        self.toolset: Tools = ForNow(toolset, self.rights.closed)

    async def run(self, calls: Sequence[ToolCall]) -> tuple[bool, ...]:
        """For each call whether it was one that could be run at all: known tool, readable arguments."""
        sound: list[bool] = []
        group: list[ToolCall] = []
        for call in calls:
            tool = self.toolset.get(call.name)
            if tool is not None and (tool.reads_only or tool.side_by_side):
                group.append(call)
                continue
            sound += await self._side_by_side(group)
            group = []
            sound.append(await self._one(call))
        sound += await self._side_by_side(group)
        return tuple(sound)

    async def _side_by_side(self, calls: list[ToolCall]) -> list[bool]:
        slots = asyncio.Semaphore(SIDE_BY_SIDE)

        async def one(call: ToolCall) -> bool:
            async with slots:
                return await self._one(call)

        if len(calls) == 1:
            return [await self._one(calls[0])]
        try:
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(one(call)) for call in calls]
        except BaseExceptionGroup as errors:  # what can't be written down ends the run, whichever call met it first
            raise errors.exceptions[0] from errors
        return [task.result() for task in running]

    async def _one(self, call: ToolCall) -> bool:
        tool = self._prepare(call)
        if isinstance(tool, Outcome):
            await self._finish(call, tool)
            return not call.problem and bool(self.rights.closed(call.name))  # then it is refused, as by a rule
        outcome = bounded(await self._authorized(tool, call))
        await self._finish(call, self._with_suggestions(call, outcome))
        return True

    def _with_suggestions(self, call: ToolCall, outcome: Outcome) -> Outcome:
        """Once in a session for each skill, behind all that the tool itself says."""
        if outcome.is_error or self.path_skills is None or self.toolset.get("Skill") is None:
            return outcome
        told = self.path_skills.told_for(call.name, call.arguments, self.context.directory)
        return outcome._replace(content=(*outcome.content, Text(told))) if told else outcome

    def _prepare(self, call: ToolCall) -> Tool[Any] | Outcome:
        """What runs it, or why nothing does."""
        if call.problem:
            return failure(f"{call.name} was not run: {call.problem}")
        tool = self.toolset.get(call.name)
        if tool is None:
            return failure(*self.toolset.why_not(call.name))
        try:
            tool.read(call.arguments)
        except (msgspec.ValidationError, ValueError, RecursionError) as error:
            problem = one_line(str(error))[:_LONGEST_PROBLEM]
            taken = ", ".join(field.encode_name for field in msgspec.structs.fields(tool.arguments))
            fix = f"It takes {taken}. Correct the arguments and call it again." if taken else "It takes no arguments."
            return failure(f"{call.name} was not run: {problem}", fix)
        return tool

    async def _authorized(self, tool: Tool[Any], call: ToolCall) -> Outcome:
        context = self.context
        try:
            facts = tool.facts(tool.read(call.arguments), context) if tool.facts is not None else ()
        except KitbagError as error:
            return failure(error.problem, error.fix)
        permissions = self.rights.permissions(self._permissions())
        permit = await self.approvals.authorize(
            permissions, tool.name, call.arguments, context.directory, self.asked_by, facts
        )
        self._tell_news(permissions)
        if isinstance(permit, Refusal):
            return failure(f"{tool.name} is not allowed: {permit.reason}")
        if permit.remark:
            self.emit(Notice("warning", permit.remark))
        if not tool.reads_only:
            await self.session.begin(call)
        self._tell_start(call)
        try:
            return await self._used(permit, tool, call)
        except KitbagError as error:
            return failure(error.problem, error.fix)
        except OSError as error:
            return failure(f"{tool.name} failed: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 - a fault in a tool must not end the session
            return failure(f"{tool.name} failed inside Kitbag: {type(error).__name__}: {error}", "Try another way.")
        finally:
            self._tell_news(permissions)

    async def _used(self, permit: Permit, tool: Tool[Any], call: ToolCall) -> Outcome:
        """What was allowed is what runs: these arguments, in what the last look at the rules says."""
        current = self.approvals.permissions(self.rights.permissions(self._permissions()))
        judgement = permit.use(tool.name, call.arguments, self.context.directory, current)
        context = self.context._replace(
            workspace=current.workspace_now,
            permissions=current,
            judgement=judgement,
            call_id=call.id,
            session_id=self.session.id,
            progress=partial(self._tell_progress, call.id),
        )
        return await tool.work(tool.read(permit.arguments), context)

    def _tell_news(self, permissions: Permissions) -> None:
        for news in permissions.take_news() if self._tells_news else ():
            self.emit(Notice("warning", news))

    def _tell_start(self, call: ToolCall) -> None:
        """Once for each call, however it goes on."""
        if call.id not in self._started:
            self._started[call.id] = time.monotonic()
            self.emit(ToolStarted(call.id, call.name, call.arguments, title(call.name, call.arguments)))

    def _tell_progress(self, call_id: str, text: str) -> None:
        self.emit(ToolProgress(call_id, one_line(text)))

    async def _finish(self, call: ToolCall, outcome: Outcome) -> None:
        self._tell_start(call)
        await to_its_end(self._write(call, outcome))

    async def _write(self, call: ToolCall, outcome: Outcome) -> None:
        result = ToolResult(call.id, outcome.content, outcome.is_error)
        await self.session.finish(result, outcome.summary, outcome.cut, outcome.details)
        if outcome.directory and outcome.directory != self.context.directory:
            await self.session.move(outcome.directory)
            self.context = self.context._replace(directory=outcome.directory)
        if outcome.dropped:
            await self.session.drop_skill(outcome.dropped, "unloaded")
        if outcome.loaded is not None:
            await self.session.add_skill(SkillUse(*outcome.loaded, call_id=call.id))
        seconds = time.monotonic() - self._started[call.id]
        self.emit(
            ToolFinished(
                call.id,
                call.name,
                outcome.is_error,
                one_line(outcome.summary),
                seconds,
                outcome.details,
                "".join(part.text for part in outcome.content if isinstance(part, Text)),
            )
        )
        if outcome.dropped:
            self.emit(SkillUnloaded(outcome.dropped, "unloaded"))
        news = {rights.skill: rights.for_person() for rights in self.rights.news()}
        if (loaded := outcome.loaded) is not None:
            self.emit(SkillLoaded(loaded.name, loaded.tokens, loaded.by, news.pop(loaded.name, "")))
        for skill, rights in news.items():
            self.emit(Notice("info", f"the skill {one_line(skill)}, {rights}"))

    async def answer_open_calls(self) -> None:
        """After a cancellation, wherever it came: each call has its result."""
        for call in self.session.open_calls:
            text = CANCELLED if call.id in self.session.began else NOT_BEGUN
            await self.session.finish(ToolResult(call.id, (Text(text),), is_error=True), "cancelled")
            if call.id in self._started:
                self.emit(ToolFinished(call.id, call.name, True, "cancelled", 0.0))


def title(tool: str, arguments: dict[str, Any]) -> str:
    """One line for a person: the tool and what it is about."""
    for name in ("file_path", "pattern", "command", "skill", "query", "url", "subagent_type", "task_id", "path"):
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return f"{tool}({one_line(value[:500])[:120]})"
    return tool


def bounded(outcome: Outcome) -> Outcome:
    """No result is longer than a model can bear; what is cut is said, to model and person. A skill is whole."""
    if outcome.loaded is not None:
        return outcome
    left = LONGEST_RESULT
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
    return outcome._replace(content=(*kept, Text(note)), cut=outcome.cut or note)
