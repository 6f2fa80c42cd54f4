"""An agent that can be asked: a session with its model, prompt, tools and permissions, tied together.

    async with Agent("anthropic/claude-sonnet-4-5") as agent:
        async with agent.run("What does this project do?") as run:
            async for event in run: ...

Used by every interface. Opens the journal and chooses the model when it is entered; closes both when it is left.
"""

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kitbag.agent.ask_model import Emit, Patience
from kitbag.agent.brain import Brain, Room
from kitbag.agent.changes import SessionChanges
from kitbag.agent.execute import Executor
from kitbag.agent.loop import Loop
from kitbag.agent.records import Header
from kitbag.agent.run import Run
from kitbag.agent.session import Session, fork, new_id, resume
from kitbag.agent.sessions import newest_session
from kitbag.agent.shielded import to_its_end
from kitbag.errors import Diagnostic, UsageError
from kitbag.events import Notice, RunEnded, RunStarted
from kitbag.library.agents import Agent as AgentFile
from kitbag.library.scopes import Places, find_places
from kitbag.messages import Image, Text
from kitbag.models.choice import Chosen, Sources
from kitbag.models.provider import Block, Provider
from kitbag.packing.session_skills import Loaded, SessionSkills
from kitbag.packing.skill_rights import by_trust
from kitbag.permissions.approvals import Approvals, Approver
from kitbag.permissions.decide import Permissions
from kitbag.permissions.model import is_inside
from kitbag.permissions.rule_files import Given
from kitbag.runtime.forked_skills import runs_forks
from kitbag.runtime.ground import Ground, lay_ground, told_left_out
from kitbag.runtime.journals import open_journal, told_saved
from kitbag.runtime.later_delegation import LaterDelegation
from kitbag.runtime.model_choice import Wishes, choose_model, given_model
from kitbag.runtime.options import Options
from kitbag.runtime.person_permissions import mode_of_run, person_permissions
from kitbag.runtime.requests import Requests
from kitbag.runtime.servers import Offered, close_servers, open_own_servers, open_servers, told_unknown
from kitbag.runtime.skill_texts import drop_unusable, prepares_skills
from kitbag.runtime.sources import model_sources
from kitbag.runtime.system_prompt import SystemPrompt, blocks_of
from kitbag.runtime.tools import every_tool, skill_tools, task_tools
from kitbag.settings import load_settings
from kitbag.store.journal import Journal
from kitbag.tools.base import Context, PersonAsker, Tool
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.seen_files import SeenFiles
from kitbag.tools.toolset import Toolset

if TYPE_CHECKING:
    from kitbag.runtime.subagent import Inherited
    from kitbag.tools.delegation import Delegation
    from kitbag.tools.mcp_client.servers import Servers

__all__ = ["Agent", "Options", "newest_session"]


class Agent:
    ground: Ground
    journal: Journal
    session: Session
    chosen: Chosen
    provider: Provider
    permissions: Permissions
    given_permissions: Permissions
    """The person's, before an agent's file takes something away."""
    skills: SessionSkills
    toolset: Toolset
    context: Context
    approvals: Approvals
    system: tuple[Block, ...]
    sources: Sources
    delegation: "Delegation | None" = None
    servers: "Servers | None" = None
    """Also of those that this one starts."""
    offered: Offered = Offered()
    """With those that its file describes."""

    def __init__(
        self,
        model: str = "",
        *,
        directory: str = "",
        options: Options | None = None,
        provider: Provider | None = None,
        approver: Approver | None = None,
        person: PersonAsker | None = None,
        journal: Journal | None = None,
        patience: Patience = Patience(),  # noqa: B008 - a NamedTuple can't be changed
    ) -> None:
        """`provider` takes the place of what `model` would lead to; without `approver`, what asks is refused, and
        without `person` the model has no tool to ask them."""
        given = options or Options()
        self.options = given._replace(model=model or given.model, directory=directory or given.directory)
        self.notices: list[Notice] = []
        self.changes_of = ""
        """The session that `kitbag undo` takes back for what this one changes; empty: this one."""
        self.definition: AgentFile | None = None
        self._given_provider = provider
        self._given_journal = journal
        self._approver = approver
        self._person = person
        self._patience = patience
        self._opened = AsyncExitStack()
        self.environment: Mapping[str, str] | None = None
        """What commands see; None: what this process has."""
        self.task_id = ""
        """Of an agent that another one started."""
        self._is_elsewhere = False
        """In a copy of the workspace."""
        self._task = ""
        self._goes_on = bool(given.resume)
        self._begins_at_once = False
        """A request follows, with which what was made before it is written."""
        self._stop = threading.Event()
        """Ends the commands of a skill that is being loaded."""
        self._running: Run | None = None
        self._offered_version = 0
        """What the servers offered when the tools were put together."""

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

    async def close(self) -> None:
        """May be called twice."""
        await self._opened.aclose()

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
        given = Given(options.mode, options.only_tools, options.ask, options.no_tools)
        self.ground = lay_ground(
            places,
            given=given,
            trust_workspace=options.trust_workspace,
            extra=options.extra,
            team=options.team,
            persona=options.persona,
        )
        library = self.ground.library
        self._note(self.ground.diagnostics)
        self.notices += told_left_out(self.ground)
        if options.agent:
            self.definition = library.find_agent(options.agent)
        self._choose_model(self.sources)
        self._narrow()
        self.skills = self._make_skills(given._replace(mode=self.permissions.mode))
        self.approvals = Approvals(self._approver, library.settings.user_file)
        self.delegation = self._make_delegation()
        await self._open_servers()
        self.toolset = self._make_toolset()
        self.context = self._make_context()
        await self._begin_session()
        self._requests = Requests(
            self.session,
            self.skills,
            self.toolset.get("SearchSkills") is not None,
            runs_forks(self.delegation) if self.delegation is not None else None,
            self.offered.prompt,
        )

    # The pieces

    def _make_skills(self, given: Given) -> SessionSkills:
        withhold = by_trust(self.ground.trust, self.ground.places)
        prepare = prepares_skills(self.ground, self.options, given, self._stop)
        return SessionSkills(self.ground.library, prepare, withhold=withhold)

    def _make_context(self) -> Context:
        return Context(
            self.ground.workspace,
            self.ground.places.cwd,
            self.permissions,
            self.ground.library,
            self.skills,
            environment=self.environment,
            person=self._person,
            delegation=self.delegation,
            seen=SeenFiles(),
        )

    def inherited(self) -> "Inherited":
        """What an agent gets that this one starts."""
        from kitbag.runtime.subagent import Inherited

        return Inherited(
            self.ground,
            self.journal,
            self.sources,
            self.approvals,
            self.given_permissions,
            self.permissions.mode,
            self.options,
            self.chosen,
            self.provider,
            self._patience,
            self.servers,
            self.environment,
        )

    async def _open_servers(self) -> None:
        self.servers = await open_servers(self.ground, self.permissions, self.definition, self.options.only_tools)
        if self.servers is not None:
            self._opened.push_async_callback(close_servers, self.servers)
        self.notices += told_unknown(self.servers, self.definition)
        await self._open_own_servers()

    async def _open_own_servers(self) -> None:
        own, notices = await open_own_servers(
            self.ground, self.permissions, self.definition, self.options.only_tools, is_elsewhere=self._is_elsewhere
        )
        self.notices += notices
        if own is not None:
            self._opened.push_async_callback(close_servers, own)
            self.journal.hide(own.secrets())
        self.offered = Offered(self.servers, own)

    def _make_toolset(self) -> Toolset:
        self._offered_version = self.offered.version
        return Toolset(self._tools(), self.permissions)

    def _hear_servers(self) -> None:
        """What they tell, and what they offer since the last request."""
        if self._offered_version != self.offered.version:
            self.toolset = self._make_toolset()
        self.notices += self.offered.news()

    def _make_delegation(self) -> "Delegation | None":
        """Other agents, where there are any."""
        if not self.ground.library.visible_agents():
            return None

        def make() -> "Delegation":
            from kitbag.runtime.delegation import Delegated

            return Delegated(self.inherited, self.session.id)

        return LaterDelegation(make, has_past=bool(self.options.resume))

    def _note(self, diagnostics: Iterable[Diagnostic]) -> None:
        for found in diagnostics:
            self.notices.append(Notice(found.severity, f"{found.place}: {found.problem}", found.fix))

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

    def _choose_model(self, sources: Sources) -> None:
        options = self.options
        if self._given_provider is not None:
            self.chosen, self.provider = given_model(self._given_provider, options.model, sources), self._given_provider
            return
        files: tuple[str, ...] = ()
        if self.definition is not None:
            files = (self.definition.model.name, *self.definition.model.alternatives)
        elif self.ground.library.persona is not None:
            files = (self.ground.library.persona.default_model,)
        wishes = Wishes(options.model, self.session.header.model, files)
        self.chosen, self.provider = choose_model(sources, wishes, self.notices.append)
        self._opened.push_async_callback(self.provider.close)

    def _narrow(self) -> None:
        permissions, notices = person_permissions(self.ground, self.options, [tool.name for tool in self._tools()])
        self.notices += notices
        self.given_permissions = permissions
        if self.definition is not None:
            permissions = permissions.narrowed(self.definition.tools, self.definition.path)
        if not self.options.mode:
            before = self.session.header.mode if self.options.resume else ""
            permissions = permissions.in_mode(mode_of_run(permissions.mode, self.definition, before))
        self.permissions = permissions

    def _tools(self) -> list[Tool[Any]]:
        """No skills, no agents: no word about them, and no tools for them."""
        missing: set[str] = set()
        if not self.ground.library.visible_skills():
            missing |= {tool.name for tool in skill_tools()}
        if self._person is None:
            missing.add("AskUser")
        if self.delegation is None:
            missing |= {tool.name for tool in task_tools()}
        own = [tool for tool in every_tool() if tool.name not in missing]
        return own + self.offered.tools(self.definition, is_elsewhere=self._is_elsewhere)

    # The session

    async def _begin_session(self) -> None:
        options, library = self.options, self.ground.library
        header = Header(
            self.ground.places.cwd,
            self.chosen.again,
            self.permissions.mode,
            options.agent,
            library.team,
            library.persona.full_name if library.persona else "",
            task=self.task_id,
        )
        if options.resume and options.fork:
            self.session = await fork(self.journal, self.session, header)
        elif not self._goes_on:
            await self.session.start(header, later=self._begins_at_once)
        self.skills.session_id = self.session.id
        self._path_skills = PathSkills(self.skills, self._result_texts)
        # What tools change is kept from here on, for `kitbag undo`.
        self.changes = SessionChanges(
            self.session, self.ground.workspace, self.notices.append, record_in=self.changes_of
        )
        self.context = self.context._replace(changes=self.changes)
        self.notices += await drop_unusable(self.session, self.skills)
        self._prompt = SystemPrompt(
            self.ground,
            self.chosen,
            self.permissions.mode,
            # Those of servers come and go, and the prompt does not speak of them.
            tuple(name for name in self.toolset.names() if not name.startswith("mcp__")),
            self.definition,
            options.append,
            self._task,
        )
        if self.session.made_for != self._prompt.made_for():
            await self._make_prompt(later=self._begins_at_once)
        self._use_prompt()

    def _use_prompt(self) -> None:
        entries = self.session.prompt
        self.system = blocks_of(entries)
        self.skills.stand_in_prompt("".join(str(entry["text"]) for entry in entries if entry["kind"] == "preload"))

    async def _make_prompt(self, *, later: bool = False) -> None:
        ledger, warnings = self._prompt.ledger()
        self._note(warnings)
        await self.session.set_prompt(ledger, self._prompt.made_for(), later=later)

    async def _renew(self) -> tuple[Block, ...]:
        """After a compaction nothing is cached any more, so the prompt may tell what has changed."""
        await asyncio.to_thread(self.ground.library.refresh)
        await self._make_prompt()
        self._use_prompt()
        return self.system

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
            if self._running is not None:
                raise UsageError("this agent is busy with another request", "wait for it, or use another agent")
            self._running = run
            self._stop.clear()
            try:
                return await self._work(request, images, emit)
            except asyncio.CancelledError:
                self._stop.set()
                raise
            finally:
                self._running = None

        run = Run(self.session, started, work)
        return run

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
        # What the conversation holds, whatever became of an earlier call that was cancelled while it loaded.
        self.skills.restore(Loaded(*use[:7]) for use in self.session.skills.values())
        loop = self._loop(emit)
        await self._take(request, images, emit, loop.executor)
        return await loop.run()

    async def _take(self, request: str, images: Sequence[Image], emit: Emit, executor: Executor) -> None:
        """What the person says becomes a message. Without one it goes on, when there is news."""
        news = await to_its_end(self._hear_news())
        if not request and not images:
            if not news:
                raise UsageError("there is no request", "say something")
            return
        await self._requests.add(request, images, self.system[0].text if self.system else "", emit)

    def _result_texts(self) -> Iterator[str]:
        for message in self.session.messages():
            for result in message.results:
                yield from (part.text for part in result.content if isinstance(part, Text))

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
        self._path_skills.look_again()
        executor = Executor(
            self.session, self.toolset, self._here(), self.approvals, emit, self._asked_by(), self._path_skills
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
