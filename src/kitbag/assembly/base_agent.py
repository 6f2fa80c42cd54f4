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
from kitbag.agent.model_config import Brain, Room
from kitbag.agent.resume import fork, resume
from kitbag.agent.run import Run
from kitbag.agent.session import Session, new_id
from kitbag.agent.session_list import newest_session
from kitbag.agent.shield import to_its_end
from kitbag.assembly.agent_resources import Equipped
from kitbag.assembly.agent_setup import header_of, path_skills_of_run, requests_of_run
from kitbag.assembly.environment import ground_for, told_left_out, told_trust_is_lost
from kitbag.assembly.mentions import Mentioned, named_by_person
from kitbag.assembly.model_sources import model_sources
from kitbag.assembly.open_journal import open_journal, told_saved
from kitbag.assembly.skill_loading import told_unusable, unusable
from kitbag.assembly.switch_notices import switches_between
from kitbag.assembly.user_permissions import run_permissions
from kitbag.errors import UsageError
from kitbag.events import Notice, RunEnded, RunStarted
from kitbag.library.dialects.permission_modes import Mode
from kitbag.library.scopes import Places, find_places
from kitbag.messages import Image
from kitbag.models.model_selection import Sources
from kitbag.models.provider import Block
from kitbag.packing.session_skills import Loaded
from kitbag.permissions.approvals.approval import Approvals
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.workspace_trust import workspace_trust
from kitbag.settings import load_settings
from kitbag.store.journal import Journal
from kitbag.tools.base import Context

if TYPE_CHECKING:
    from kitbag.assembly.reload import Reloaded
    from kitbag.assembly.switch_persona import PersonaChange


class BaseAgent(Equipped):
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
        self.sources, problems = model_sources(load_settings(places.kitbag_home, ()))
        self._note(problems)
        self.journal = self._given_journal or self._open_journal(places, self.sources)
        self.session = self._find_session(places)
        if self.options.resume:
            self.options = self.options.completed_by(self.session.header)
        options = self.options
        self.ground = ground_for(places, options)
        library = self.ground.library
        self._note(self.ground.diagnostics)
        self.notices += told_left_out(self.ground)
        if options.agent:
            self.definition = library.find_agent(options.agent)
        self._choose_model()
        before = self.session.header.mode if options.resume else ""
        known = [tool.name for tool in self._tools()]
        self.given_permissions, self.permissions, notices = run_permissions(
            self.ground, options, self.definition, known, before
        )
        self.notices += notices
        self.skills = self._make_skills()
        self.approvals = Approvals(self._approver, library.settings.user_file)
        self.delegation = self.make_delegation() if library.visible_agents() else None
        await self.open_servers()
        self.toolset = self.make_toolset()
        self.context = self._make_context()
        await self._begin_session()
        self.requests = requests_of_run(self.session, self.skills, self.toolset, self.delegation, self.server_prompt)

    def _open_journal(self, places: Places, sources: Sources) -> Journal:
        journal = open_journal(places.kitbag_home, sources)
        self._opened.callback(journal.close)
        self.notices += told_saved(journal)
        return journal

    def _find_session(self, places: Places) -> Session:
        wanted = self.options.resume
        if not wanted:
            return Session(self.journal, new_id())
        session = resume(self.journal, newest_session(self.journal, places.cwd) if wanted == "last" else wanted)
        self.notices += [Notice("warning", warning) for warning in session.warnings]
        return session

    # The session

    async def _begin_session(self) -> None:
        before = self.session.header
        header = header_of(before, self.options, self.ground, self.chosen, self.permissions.mode, self.task_id)
        if self.options.resume and self.options.fork:
            self.session = await fork(self.journal, self.session, header._replace(started=""))
        elif not self._goes_on:
            await self.session.start(header, later=self._begins_at_once)
        self.skills.session_id = self.session.id
        self.path_skills = path_skills_of_run(self.session, self.skills)
        self.keep_changes()
        dropped = unusable(self.session, self.skills)
        self.notices += told_unusable(dropped)
        self.prompt = self.describe()
        if self.options.resume and not self.task_id:
            # What is otherwise than it was counts from here on, and the model hears of it.
            made = switches_between(before, header, self.ground.library, dropped, is_heard=bool(self.session.lines()))
            if made:
                await self.session.switch(made, header, dropped)
        for name, why in dropped:
            if name in self.session.skills:
                await self.session.drop_skill(name, why)
        if self.session.made_for != self.prompt.made_for():
            await self._make_prompt(later=self._begins_at_once)
        self.use_prompt()

    async def _renew(self) -> tuple[Block, ...]:
        """After a compaction nothing is cached any more, so the prompt may tell what has changed: files, and the mode,
        with the tools that it leaves."""
        await asyncio.to_thread(self.ground.library.refresh)
        await self._check_trust()
        self.toolset = self.make_toolset()
        if self._executor is not None:
            self._executor.offer(self.toolset)
        self.prompt = self.describe()
        await self._make_prompt()
        self.use_prompt()
        return self.system

    async def _check_trust(self) -> None:
        """Memory files are read anew with the prompt, and one may have come since the workspace was trusted."""
        ground = self.ground
        trust = await asyncio.to_thread(workspace_trust, ground.places, self.options.trust_workspace)
        if ground.trust.is_open and not trust.is_open:
            if not ground.library.leave_out_project:
                await asyncio.to_thread(ground.library.leave_project_out)
            self.notices += told_trust_is_lost(ground.library)
            self.ground = ground._replace(trust=trust)

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

    async def use_mode(self, mode: str) -> Mode:
        """Also while a request runs: it counts from the next call on. Raises KitbagError."""
        from kitbag.assembly.switch_model import use_mode

        return await use_mode(self, mode)

    async def reload(self) -> "Reloaded":
        """Settings, trust, skills, agents, personas and memory files are read anew. Raises KitbagError."""
        from kitbag.assembly.reload import reload

        return await reload(self)

    async def compact(self, emit: Emit, wish: str = "") -> bool:
        """Now; `wish`: what to keep, in the person's words. False: there is nothing that could be made shorter."""
        with self.alone("making the conversation shorter"):
            self._restore_skills()
            return await self._loop(emit).compact(wish)

    # A request

    def run(self, request: str, images: Sequence[Image] = ()) -> Run:
        """Use it as a context manager; it begins when it is entered. One at a time."""
        self._hear_servers()
        library = self.ground.library
        started = RunStarted(
            self.session.id,
            self.chosen.name,
            self.permissions.mode,
            self.ground.places.cwd,
            len(library.skills),
            len(library.agents),
            self.toolset.names(),
        )

        async def work(emit: Emit) -> RunEnded:
            with self.alone("another request"):
                self.stop_loading.clear()
                try:
                    return await self._work(request, images, emit)
                except asyncio.CancelledError:
                    self.stop_loading.set()
                    raise
                finally:
                    self._executor = None

        return Run(self.session, started, work)

    def _here(self) -> Context:
        """The directory of the last command, as long as it is one of the workspace."""
        found = self.session.directory
        resolved = os.path.realpath(found) if found else ""
        inside = any(is_inside(resolved, root) for root in self.context.workspace.write_roots)
        return self.context._replace(directory=resolved) if inside and os.path.isdir(resolved) else self.context

    async def _work(self, request: str, images: Sequence[Image], emit: Emit) -> RunEnded:
        for notice in self.notices:
            emit(notice)
        self.notices = []
        self.changes.tell = emit
        self._restore_skills()
        loop = self._loop(emit)
        self._executor = loop.executor
        await self._take(request, images, emit, loop.executor)
        return await loop.run()

    async def _take(self, request: str, images: Sequence[Image], emit: Emit, executor: Executor) -> None:
        """What the person says becomes a message. Without one it goes on, when there is news."""
        news = await to_its_end(self._hear_news())
        if not request and not images:
            if not news:
                raise UsageError("there is no request", "say something")
            return

        ran: list[str] = []

        async def named(text: str, emit: Emit) -> Mentioned:
            ran.extend(self.ran_by_person)
            here, window = self.context.directory, self.chosen.known.window
            found = await named_by_person(text, emit, executor, here, self.person_is_there, window)
            return found._replace(blocks=(*ran, *found.blocks))

        await self.requests.add(request, images, self.system[0].text if self.system else "", emit, named)
        del self.ran_by_person[: len(ran)]

    def _restore_skills(self) -> None:
        """What the conversation holds, whatever became of an earlier call that was cancelled while it loaded."""
        self.skills.restore(
            Loaded(use.name, use.tokens, use.at, use.by, use.digest, arguments=use.arguments, text=use.text)
            for use in self.session.skills.values()
        )

    async def _hear_news(self) -> str:
        """Wholly or not at all: it is given only once."""
        news = await self._news()
        if news:
            await self.session.add_note(news)
        return news

    async def _news(self) -> str:
        """Background work that has ended since."""
        return await self.delegation.news() if self.delegation is not None else ""

    def _spent(self) -> tuple[int, float]:
        return self.delegation.spent() if self.delegation is not None else (0, 0.0)

    def _asked_by(self) -> str:
        """As a person reads it, in a question."""
        return self.options.agent

    def _loop(self, emit: Emit) -> Loop:
        options, known, agent = self.options, self.chosen.known, self.definition
        limits = options.limits
        if agent is not None:
            limits = limits._replace(turns=limits.turns or agent.max_turns or 0)
        effort = options.effort or (agent.effort if agent is not None and agent.effort in _EFFORTS else "")
        brain = Brain(self.provider, self.chosen.model, Room(known.window, known.max_output), known.price, effort)
        self.path_skills.look_again()
        executor = Executor(
            self.session,
            self.toolset,
            self._here(),
            self.approvals,
            emit,
            self._asked_by(),
            self.path_skills,
            self.rights_now,
            tells_news=not self.task_id,
        )
        return Loop(
            self.session,
            brain,
            executor,
            self.system,
            limits,
            emit,
            self._patience,
            self._renew,
            self._news,
            self._spent,
        )


_EFFORTS = frozenset(("low", "medium", "high"))
