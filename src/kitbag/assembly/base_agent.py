"""An agent that runs requests: opens a session with its model, prompt, tools and permissions, and closes them.

Used by Agent, which can also start other agents, and by Subagent. What can change while it is open (persona, model,
mode, files) is changed by modules of their own.
"""

import asyncio
import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kitbag.agent.ask_model import Emit
from kitbag.agent.execute import Executor
from kitbag.agent.loop import Loop
from kitbag.agent.model_config import ContextWindow, ModelConfig
from kitbag.agent.resume import fork, resume
from kitbag.agent.run import Run
from kitbag.agent.session import Session, new_session_id
from kitbag.agent.session_list import newest_session
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.agent_resources import AgentResources
from kitbag.assembly.agent_setup import build_header, build_path_skills, build_user_messages
from kitbag.assembly.environment import load_run_environment, trust_lost_notices, untrusted_notices
from kitbag.assembly.mentions import MentionedContent, read_mentions
from kitbag.assembly.model_sources import load_model_sources
from kitbag.assembly.open_journal import journal_recovery_notices, open_journal
from kitbag.assembly.skill_loading import find_unusable_skills, unusable_skill_notices
from kitbag.assembly.switch_notices import list_switches
from kitbag.assembly.user_permissions import load_run_permissions
from kitbag.errors import UsageError
from kitbag.events import Notice, RunEnded, RunStarted
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.scopes import Places, find_places
from kitbag.messages import Image
from kitbag.models.model_selection import ModelSources
from kitbag.models.provider import SystemBlock
from kitbag.packing.session_skills import LoadedSkill
from kitbag.permissions.approvals.approval import Approvals
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.workspace_trust import check_trust
from kitbag.settings import load_settings
from kitbag.store.journal import Journal
from kitbag.tools.base import ToolContext

if TYPE_CHECKING:
    from kitbag.assembly.reload import Reloaded
    from kitbag.assembly.switch_persona import PersonaChange


class BaseAgent(AgentResources):
    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self) -> None:
        if self.options.directory and not os.path.isdir(self.options.directory):
            raise UsageError(f"{self.options.directory} is no directory", "give one that exists")
        places = find_places(self.options.directory or None)
        # The user's own settings, and no others, say where a model is.
        self.sources, problems = load_model_sources(load_settings(places.kitbag_home, ()))
        self._add_diagnostics(problems)
        self.journal = self._journal_override or self._open_journal(places, self.sources)
        self.session = self._find_session(places)
        if self.options.resume:
            self.options = self.options.with_session_defaults(self.session.header)
        options = self.options
        self.environment = load_run_environment(places, options)
        library = self.environment.library
        self._add_diagnostics(self.environment.diagnostics)
        self.notices += untrusted_notices(self.environment)
        if options.agent:
            self.definition = library.find_agent(options.agent)
        self._choose_model()
        before = self.session.header.mode if options.resume else ""
        known = [tool.name for tool in self._build_tools()]
        self.user_permissions, self.permissions, notices = load_run_permissions(
            self.environment, options, self.definition, known, before
        )
        self.notices += notices
        self.skills = self._make_skills()
        self.approvals = Approvals(self._approver, library.settings.user_file)
        self.delegation = self.make_delegation() if library.visible_agents() else None
        await self.open_servers()
        self.toolset = self.make_toolset()
        self.context = self._make_context()
        await self._start_session()
        self.user_messages = build_user_messages(
            self.session, self.skills, self.toolset, self.delegation, self.server_prompt
        )

    def _open_journal(self, places: Places, sources: ModelSources) -> Journal:
        journal = open_journal(places.kitbag_home, sources)
        self._exit_stack.callback(journal.close)
        self.notices += journal_recovery_notices(journal)
        return journal

    def _find_session(self, places: Places) -> Session:
        wanted = self.options.resume
        if not wanted:
            return Session(self.journal, new_session_id())
        session = resume(self.journal, newest_session(self.journal, places.cwd) if wanted == "last" else wanted)
        self.notices += [Notice("warning", warning) for warning in session.warnings]
        return session

    # The session

    async def _start_session(self) -> None:
        before = self.session.header
        header = build_header(before, self.options, self.environment, self.chosen, self.permissions.mode, self.task_id)
        if self.options.resume and self.options.fork:
            self.session = await fork(self.journal, self.session, header._replace(started=""))
        elif not self._is_resumed:
            await self.session.start(header, deferred=self._defers_first_write)
        self.skills.session_id = self.session.id
        self.path_skills = build_path_skills(self.session, self.skills)
        self.start_recording_changes()
        dropped = find_unusable_skills(self.session, self.skills)
        self.notices += unusable_skill_notices(dropped)
        self.prompt = self.build_system_prompt()
        if self.options.resume and not self.task_id:
            # What is otherwise than it was counts from here on, and the model hears of it.
            made = list_switches(
                before, header, self.environment.library, dropped, has_history=bool(self.session.recorded_messages())
            )
            if made:
                await self.session.switch(made, header, dropped)
        for name, why in dropped:
            if name in self.session.skills:
                await self.session.drop_skill(name, why)
        if self.session.prompt_inputs != self.prompt.inputs():
            await self._record_prompt(deferred=self._defers_first_write)
        self.apply_prompt()

    async def _renew_prompt(self) -> tuple[SystemBlock, ...]:
        """After a compaction nothing is cached any more, so the prompt may tell what has changed: files, and the mode,
        with the tools that it leaves."""
        await asyncio.to_thread(self.environment.library.refresh)
        await self._check_trust()
        self.toolset = self.make_toolset()
        if self._executor is not None:
            self._executor.set_toolset(self.toolset)
        self.prompt = self.build_system_prompt()
        await self._record_prompt()
        self.apply_prompt()
        return self.system_blocks

    async def _check_trust(self) -> None:
        """Memory files are read anew with the prompt, and one may have come since the workspace was trusted."""
        ground = self.environment
        trust = await asyncio.to_thread(check_trust, ground.places, self.options.trust_workspace)
        if ground.trust.can_load_items and not trust.can_load_items:
            if not ground.library.omit_project:
                await asyncio.to_thread(ground.library.omit_project_items)
            self.notices += trust_lost_notices(ground.library)
            self.environment = ground._replace(trust=trust)

    # Changes while it is open

    async def preview_persona(self, name: str, team: str = "") -> "PersonaChange":
        """What `use_persona` would change; nothing is."""
        from kitbag.assembly.switch_persona import preview_persona

        return await preview_persona(self, name, team)

    async def use_persona(self, name: str, team: str = "") -> "PersonaChange":
        """`name`: `persona` or `team/persona`; empty: none any more. Wholly or not at all. Raises KitbagError."""
        from kitbag.assembly.switch_persona import use_persona

        return await use_persona(self, name, team)

    async def use_model(self, name: str) -> str:
        """Its full name. Raises KitbagError as at the start."""
        from kitbag.assembly.switch_model import use_model

        return await use_model(self, name)

    async def use_mode(self, mode: str) -> PermissionMode:
        """Also while a request runs: it counts from the next call on. Raises KitbagError."""
        from kitbag.assembly.switch_model import use_mode

        return await use_mode(self, mode)

    async def reload(self) -> "Reloaded":
        """Settings, trust, skills, agents, personas and memory files are read anew. Raises KitbagError."""
        from kitbag.assembly.reload import reload

        return await reload(self)

    async def compact(self, emit: Emit, instructions: str = "") -> bool:
        """Now; `wish`: what to keep, in the person's words. False: there is nothing that could be made shorter."""
        with self.exclusive("making the conversation shorter"):
            self._restore_skills()
            return await self._make_loop(emit).compact(instructions)

    # A request

    def run(self, request: str, images: Sequence[Image] = ()) -> Run:
        """Use it as a context manager; it begins when it is entered. One at a time."""
        self._refresh_server_tools()
        library = self.environment.library
        started = RunStarted(
            self.session.id,
            self.chosen.name,
            self.permissions.mode,
            self.environment.places.cwd,
            len(library.skills),
            len(library.agents),
            self.toolset.names(),
        )

        async def work(emit: Emit) -> RunEnded:
            with self.exclusive("another request"):
                self.stop_loading.clear()
                try:
                    return await self._run_request(request, images, emit)
                except asyncio.CancelledError:
                    self.stop_loading.set()
                    raise
                finally:
                    self._executor = None

        return Run(self.session, started, work)

    def _current_context(self) -> ToolContext:
        """The directory of the last command, as long as it is one of the workspace."""
        found = self.session.directory
        resolved = os.path.realpath(found) if found else ""
        inside = any(is_inside(resolved, root) for root in self.context.workspace.write_roots)
        return self.context._replace(directory=resolved) if inside and os.path.isdir(resolved) else self.context

    async def _run_request(self, request: str, images: Sequence[Image], emit: Emit) -> RunEnded:
        for notice in self.notices:
            emit(notice)
        self.notices = []
        self.changes.emit_notice = emit
        self._restore_skills()
        loop = self._make_loop(emit)
        self._executor = loop.executor
        await self._add_user_message(request, images, emit, loop.executor)
        return await loop.run()

    async def _add_user_message(self, request: str, images: Sequence[Image], emit: Emit, executor: Executor) -> None:
        """What the person says becomes a message. Without one it goes on, when there is news."""
        news = await run_to_completion(self._add_notifications())
        if not request and not images:
            if not news:
                raise UsageError("there is no request", "say something")
            return

        ran: list[str] = []

        async def named(text: str, emit: Emit) -> MentionedContent:
            ran.extend(self.user_command_blocks)
            here, window = self.context.directory, self.chosen.info.window
            found = await read_mentions(text, emit, executor, here, self.is_interactive, window)
            return found._replace(blocks=(*ran, *found.blocks))

        await self.user_messages.add(
            request, images, self.system_blocks[0].text if self.system_blocks else "", emit, named
        )
        del self.user_command_blocks[: len(ran)]

    def _restore_skills(self) -> None:
        """What the conversation holds, whatever became of an earlier call that was cancelled while it loaded."""
        self.skills.restore(
            LoadedSkill(use.name, use.tokens, use.at, use.by, use.digest, arguments=use.arguments, text=use.text)
            for use in self.session.skills.values()
        )

    async def _add_notifications(self) -> str:
        """Wholly or not at all: it is given only once."""
        news = await self._take_notifications()
        if news:
            await self.session.add_note(news)
        return news

    async def _take_notifications(self) -> str:
        """Background work that has ended since."""
        return await self.delegation.take_notifications() if self.delegation is not None else ""

    def _delegated_usage(self) -> tuple[int, float]:
        return self.delegation.spent() if self.delegation is not None else (0, 0.0)

    def _requester_name(self) -> str:
        """As a person reads it, in a question."""
        return self.options.agent

    def _make_loop(self, emit: Emit) -> Loop:
        options, known, agent = self.options, self.chosen.info, self.definition
        limits = options.limits
        if agent is not None:
            limits = limits._replace(turns=limits.turns or agent.max_turns or 0)
        effort = options.effort or (agent.effort if agent is not None and agent.effort in _EFFORTS else "")
        brain = ModelConfig(
            self.provider, self.chosen.model, ContextWindow(known.window, known.max_output), known.cost, effort
        )
        self.path_skills.refresh()
        executor = Executor(
            self.session,
            self.toolset,
            self._current_context(),
            self.approvals,
            emit,
            self._requester_name(),
            self.path_skills,
            self.current_permissions,
            emits_settings_changes=not self.task_id,
        )
        return Loop(
            self.session,
            brain,
            executor,
            self.system_blocks,
            limits,
            emit,
            self._retry_policy,
            self._renew_prompt,
            self._take_notifications,
            self._delegated_usage,
        )


_EFFORTS = frozenset(("low", "medium", "high"))
