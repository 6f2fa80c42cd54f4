"""Turns what a user types into a message of the conversation: resolves `/name args` and appends notices and
suggestions.

Used by base_agent. Nothing before the message changes.
"""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from kitbag.agent.ask_model import Emit
from kitbag.agent.session import Session, WriteUserRecord
from kitbag.agent.skill_usage import learn_from_sessions
from kitbag.agent.touched_files import list_touched_files
from kitbag.agent.undo.plan import undo_notice
from kitbag.assembly.environment import trust_lost_notices
from kitbag.assembly.mentions import NO_MENTIONS, MentionedContent
from kitbag.assembly.switch_notices import render_switches
from kitbag.errors import Diagnostic, NotFoundError
from kitbag.events import Notice, SkillLoaded, Switched
from kitbag.messages import Image, Part, Text
from kitbag.packing.session_skills import SessionSkills, SkillDelivery, SkillFork
from kitbag.packing.suggestions import extract_suggestions, library_changes_notice, list_suggested, suggest_skills
from kitbag.text.hidden_characters import reveal_hidden

if TYPE_CHECKING:
    from kitbag.packing.routing_explanation import RoutingState

RunFork = Callable[[SkillFork, Emit], Awaitable[str]]
"""Returns the text that reports the outcome to the conversation."""
GetServerPrompt = Callable[[str, str], Awaitable[str | None]]
"""Returns the text of a server's prompt for these arguments; None if there is no such prompt."""
ReadMentions = Callable[[str, Emit], Awaitable[MentionedContent]]
"""Reads what the user mentions with `@`."""
_COMMAND = re.compile(r"/(\S+)\s*(.*)", re.DOTALL)


class UserMessages:
    def __init__(
        self,
        session: Session,
        skills: SessionSkills,
        can_suggest: bool,
        run_fork: RunFork | None = None,
        server_prompt: GetServerPrompt | None = None,
    ) -> None:
        """`can_suggest`: whether the model has the tools to use a suggestion. `run_fork`: runs a skill that needs its
        own agent. `server_prompt`: for the prompts of MCP servers."""
        self._run_fork = run_fork
        self._server_prompt = server_prompt
        self.session = session
        self.skills = skills
        self.can_suggest = can_suggest
        self._suggested = ""
        self._reported_indexes: set[str] = set()

    async def add(
        self,
        request: str,
        images: Sequence[Image],
        catalog: str,
        emit: Emit,
        read_mentions: ReadMentions | None = None,
        *,
        is_steering: bool = False,
        write: WriteUserRecord | None = None,
    ) -> bool:
        """`read_mentions`: for `@` mentions. `is_steering`: the turn goes on, and `/name` is text. `write`: see
        Session.add_user, as for the result. Raises UntrustedItemError for a skill of an untrusted workspace, and what a
        skill's commands raise."""
        delivered, text = None, request
        if not is_steering:
            self.skills.begin_turn()
            delivered, text = await self._resolve_command(request, emit)
        # The report of a fork replaces the request, and its mentions were for that agent.
        is_report = delivered is None and text != request and not request.startswith("/mcp__")
        mentions = await read_mentions(request, emit) if read_mentions is not None and not is_report else NO_MENTIONS
        carried = [*mentions.suggested, *([delivered.name] if delivered is not None else [])]
        tail = [*mentions.blocks, *await asyncio.to_thread(self._build_tail, text, catalog, carried)]
        for problem in self._new_index_problems():
            emit(Notice(severity="warning", text=f"{problem.problem} ({problem.file})", fix=problem.fix))
        for notice in trust_lost_notices(self.skills.library):
            emit(notice)
        parts: list[Part] = list(images)
        one_turn = [(len(parts), delivered.name)] if delivered is not None else []
        permissions = delivered.permissions if delivered is not None else None
        if delivered is not None:
            parts.append(Text(delivered.text_with_limits))
        parts.append(Text("\n\n".join(text_part for text_part in (reveal_hidden(text), *tail) if text_part)))
        parts += mentions.images
        switches = self.session.pending_switches
        suggested = [*mentions.suggested, *(list_suggested(tail[-1]) if self.can_suggest else ())]
        if not await self.session.add_user(parts, one_turn, suggested=suggested, is_steering=is_steering, write=write):
            return False
        for switch in switches:
            emit(Switched(what=switch.what, before=switch.before, after=switch.after, model_notice=switch.model_notice))
        if delivered is not None:
            skill_notice = permissions.user_notice() if permissions is not None else ""
            emit(SkillLoaded(name=delivered.name, tokens=delivered.tokens, by="user", rights=skill_notice))
        return True

    async def _resolve_command(self, request: str, emit: Emit) -> tuple[SkillDelivery | None, str]:
        """The skill that is invoked by name, for one turn, and the remaining text."""
        command = _COMMAND.match(request)
        if command is None:
            return None, request
        name, arguments = command[1], command[2].strip()
        if self._server_prompt is not None and name.startswith("mcp__"):
            prompt_text = await self._server_prompt(name, arguments)
            if prompt_text is not None:
                return None, prompt_text
        try:
            fork = await asyncio.to_thread(self.skills.fork, name, arguments, "user") if self._run_fork else None
            if fork is not None and self._run_fork is not None:
                return None, await self._run_fork(fork, emit)
            delivered = await asyncio.to_thread(self.skills.load, name, arguments, "user")
        except NotFoundError as error:
            if "/" not in name:  # else it is a path
                emit(Notice(severity="warning", text=f"{error.problem}; the message is sent unchanged", fix=error.fix))
            return None, request
        for problem in delivered.problems:
            if problem.severity != "info":
                emit(Notice(severity=problem.severity, text=f"{problem.place}: {problem.problem}", fix=problem.fix))
        return delivered, delivered.request_text(arguments)

    def _build_tail(self, text: str, catalog: str, carried: Sequence[str]) -> list[str]:
        """Notices that only this message carries. `carried`: skills that it invokes or suggests already."""
        library = self.skills.library
        # The first message follows the prompt directly, unless the user has switched something in between.
        changes = (
            library_changes_notice(library.refresh())
            if self.session.totals.turns or library.has_unreported_changes
            else ""
        )
        switches = render_switches(self.session.pending_switches, undo_notice(self.session))
        changes = "\n\n".join(notice for notice in (switches, changes) if notice)
        if not self.can_suggest:
            return [changes]
        suggested = self.suggest(text, catalog, carried)
        self._suggested += f"\n{suggested}"
        self.skills.note_found(list_suggested(suggested), "suggestion")
        return [changes, suggested]

    def suggest(self, text: str, catalog: str, carried: Sequence[str] = ()) -> str:
        """The block of suggestions for a message, or an empty string. `carried`: skills that it has already."""
        learn_from_sessions(self.skills.library, self.session.journal)
        loaded = [*carried, *(skill.name for skill in self.skills.loaded())]
        if not self.can_suggest:
            return ""
        touched = list_touched_files(self.session)
        return suggest_skills(self.skills.library, text, catalog + self._list_suggested(), loaded, touched)

    def _new_index_problems(self) -> list[Diagnostic]:
        """Each once in a conversation."""
        if "kitbag.library.routing.skill_search" not in sys.modules:  # nothing was ranked, and importing it is slow
            return []
        from kitbag.library.routing.skill_search import list_index_problems

        problems = list_index_problems(self.skills.library) if self.can_suggest else []
        new = [one for one in problems if one.file not in self._reported_indexes]
        self._reported_indexes.update(one.file for one in new)
        return new

    def _list_suggested(self) -> str:
        """What earlier messages and results of tools suggest."""
        texts = (
            part.text
            for message in self.session.messages()
            for result in message.results
            for part in result.content
            if isinstance(part, Text)
        )
        return "\n".join((self._suggested, *(line for text in texts for line in extract_suggestions(text))))

    def routing_state(self, catalog: str) -> "RoutingState":
        """What the model knows before the next message."""
        loaded = frozenset(skill.name for skill in self.skills.loaded())
        from kitbag.packing.routing_explanation import RoutingState

        return RoutingState(
            catalog=catalog,
            known=loaded,
            suggested_before=self._list_suggested(),
            touched=list_touched_files(self.session),
        )
