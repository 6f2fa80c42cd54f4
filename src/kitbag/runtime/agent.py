"""An agent that can be asked: a session with its model, prompt, tools and permissions, tied together.

    async with Agent("anthropic/claude-sonnet-4-5") as agent:
        async with agent.run("What does this project do?") as run:
            async for event in run: ...

Used by every interface. Opens the journal and chooses the model when it is entered; closes both when it is left.
"""

import asyncio
import os
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kitbag.agent.ask_model import Emit, Patience
from kitbag.agent.compact import Room
from kitbag.agent.execute import Executor
from kitbag.agent.loop import Brain, Limits, Loop
from kitbag.agent.run import Run
from kitbag.agent.session import Header, Session, fork, new_id, resume
from kitbag.errors import Diagnostic, KitbagError, NotFoundError
from kitbag.events import Notice, RunEnded, RunStarted, SkillLoaded
from kitbag.ledger import Ledger
from kitbag.library.left_out import left_out
from kitbag.library.scopes import find_places
from kitbag.library.tool_names import parse_tools
from kitbag.messages import Image, Part, Text
from kitbag.models.choice import Chosen, choose
from kitbag.models.provider import Block, Provider
from kitbag.packing.compose import compose_prompt, environment_here
from kitbag.packing.main_prompt import Wanted, main_prompt
from kitbag.packing.session_skills import Loaded, Prepare, SessionSkills
from kitbag.packing.suggestions import suggested_skills, told_changes
from kitbag.permissions.approvals import Approvals, Approver
from kitbag.permissions.rule_files import Given
from kitbag.runtime.ground import Ground, lay_ground
from kitbag.runtime.sources import model_sources
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.text.hidden import reveal_hidden
from kitbag.text.tokens import estimate_tokens
from kitbag.tools.base import Context, Tool
from kitbag.tools.toolset import Toolset

if TYPE_CHECKING:
    from kitbag.library.skills import Skill
    from kitbag.packing.substitutions import Given as Values


class Options(NamedTuple):
    """What a person may say about a run; everything has a default."""

    directory: str = ""
    model: str = ""
    mode: str = ""
    agent: str = ""
    """Be this agent at top level."""
    team: str = ""
    persona: str = ""
    only_tools: tuple[str, ...] = ()
    """Only these are there, and they need no answer where the mode would ask."""
    no_tools: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    trust_workspace: bool = False
    append: str = ""
    effort: str = ""
    extra: tuple[str, ...] = ()
    limits: Limits = Limits()
    resume: str = ""
    """The session to go on with; `last` is the newest one of this directory."""
    fork: bool = False
    """Go on in a copy."""


class Agent:
    ground: Ground
    journal: Journal
    session: Session
    chosen: Chosen
    provider: Provider

    def __init__(
        self,
        model: str = "",
        *,
        directory: str = "",
        options: Options | None = None,
        provider: Provider | None = None,
        approver: Approver | None = None,
        journal: Journal | None = None,
        patience: Patience = Patience(),  # noqa: B008 - a NamedTuple can't be changed
    ) -> None:
        """`provider` takes the place of what `model` would lead to; without `approver`, what asks is refused."""
        given = options or Options()
        self.options = given._replace(model=model or given.model, directory=directory or given.directory)
        self.notices: list[Notice] = []
        self._given_provider = provider
        self._given_journal = journal
        self._approver = approver
        self._patience = patience
        self._opened: list[Any] = []

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
        for opened in reversed(self._opened):
            if isinstance(opened, Journal):
                opened.close()
            else:
                await opened.close()
        self._opened = []

    async def _open(self) -> None:
        options = self.options
        places = find_places(options.directory or None)
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
        self._tell_left_out()
        self.definition = library.find_agent(options.agent) if options.agent else None
        if self._given_journal is None:
            self.journal = Journal.open(journal_path(places.kitbag_home), Redactor.of_environment(os.environ))
            self._opened.append(self.journal)
        else:
            self.journal = self._given_journal
        self.session = self._find_session()
        self._choose_model()
        self._narrow()
        self.skills = SessionSkills(library, self._prepare_of(given))
        self.skills.restore(Loaded(*use[:7]) for use in self.session.skills.values())
        self.toolset = Toolset(self._tools(), self.permissions)
        self.context = Context(self.ground.workspace, places.cwd, self.permissions, library, self.skills)
        self.approvals = Approvals(self._approver, library.settings.user_file)
        await self._begin_session()

    # The pieces

    def _prepare_of(self, given: Given) -> Prepare:
        """How a skill's text is made ready; what that takes is imported with the first skill that is loaded."""
        made: list[Prepare] = []

        def prepare(skill: "Skill", body: str, line: int, values: "Values") -> tuple[str, tuple[Diagnostic, ...]]:
            if not made:
                from kitbag.packing.prepare import RunsCommands
                from kitbag.packing.rights import Rights

                places, settings = self.ground.places, self.ground.library.settings
                rights = Rights(places, settings, given=given, trust_workspace=self.options.trust_workspace)
                made.append(RunsCommands(rights, places.cwd))
            return made[0](skill, body, line, values)

        return prepare

    def _note(self, diagnostics: Sequence[Diagnostic]) -> None:
        for found in diagnostics:
            self.notices.append(Notice(found.severity, f"{found.place}: {found.problem}", found.fix))

    def _tell_left_out(self) -> None:
        if self.ground.trust.is_open:
            return
        items = left_out(self.ground.library)
        named = ", ".join(f"{item.kind} {item.full_name}" for item in items[:10])
        more = f" and {len(items) - 10} more" if len(items) > 10 else ""
        why = "has changed since it was trusted" if self.ground.trust.state == "changed" else "is not trusted"
        others = [
            item.kind for item in self.ground.trust.items if item.kind in ("memory", "settings", "server", "hook")
        ]
        what = named + more if items else f"its {' and '.join(sorted(set(others))) or 'files'}"
        fix = "`kitbag trust` shows what it would run, and asks; --trust-workspace trusts it for one run"
        self.notices.append(Notice("warning", f"the workspace {why}; left out: {what}", fix))

    def _find_session(self) -> Session:
        options = self.options
        if not options.resume:
            return Session(self.journal, new_id())
        name = newest_session(self.journal, self.ground.places.cwd) if options.resume == "last" else options.resume
        session = resume(self.journal, name)
        for warning in session.warnings:
            self.notices.append(Notice("warning", warning))
        return session

    def _choose_model(self) -> None:
        sources, problems = model_sources(self.ground.library.settings)
        self._note(problems)
        wanted = self.options.model or self.session.header.model
        own = self.definition.model.name if self.definition is not None else ""
        persona = self.ground.library.persona
        if self._given_provider is not None:
            sources = sources._replace(probe=False, environment={}, setting="")
            self.chosen = choose(sources, "offline")._replace(
                provider=self._given_provider.name, model=wanted.rpartition("/")[2] or self._given_provider.name
            )
            self.provider = self._given_provider
            return
        if not wanted and (asked := own if own not in ("", "inherit") else persona.default_model if persona else ""):
            try:
                self.chosen = choose(sources, asked)
                self.provider = self.chosen.connect()
                self._opened.append(self.provider)
                return
            except KitbagError as error:
                self.notices.append(Notice("warning", f"the model {asked!r} can't be had: {error.problem}", error.fix))
        self.chosen = choose(sources, wanted)
        self.provider = self.chosen.connect()
        self._opened.append(self.provider)

    def _narrow(self) -> None:
        permissions = self.ground.permissions
        if self.definition is not None:
            permissions = permissions.narrowed(self.definition.tools, self.definition.path)
        if self.options.only_tools:
            access, problems = parse_tools(list(self.options.only_tools))
            for problem in problems:
                self.notices.append(Notice("warning", f"--allowed-tools: {problem.problem}", problem.fix))
            permissions = permissions.narrowed(access, "--allowed-tools")
        self.permissions = permissions

    def _tools(self) -> list[Tool[Any]]:
        from kitbag.tools.glob import GLOB
        from kitbag.tools.grep import GREP
        from kitbag.tools.read import READ
        from kitbag.tools.skill import LIST_LOADED_SKILLS, SEARCH_SKILLS, SKILL, UNLOAD_SKILL

        tools: list[Tool[Any]] = [READ, GLOB, GREP]
        if self.ground.library.visible_skills():
            tools += [SKILL, SEARCH_SKILLS, LIST_LOADED_SKILLS, UNLOAD_SKILL]
        return tools

    async def _begin_session(self) -> None:
        options, session = self.options, self.session
        header = Header(
            self.ground.places.cwd,
            self.chosen.name,
            self.permissions.mode,
            options.agent,
            self.ground.library.team,
            self.ground.library.persona.full_name if self.ground.library.persona else "",
        )
        if options.resume and options.fork:
            self.session = session = await fork(self.journal, session, header)
        elif not options.resume:
            await session.start(header)
        if not session.prompt:
            await session.set_prompt(self._ledger())
        stable = "".join(str(entry["text"]) for entry in session.prompt if entry["kind"] != "environment")
        last = "".join(str(entry["text"]) for entry in session.prompt if entry["kind"] == "environment")
        self.system = tuple(block for block in (Block(stable, cache=True), Block(last)) if block.text)

    def _ledger(self) -> Ledger:
        library = self.ground.library
        environment = environment_here(self.ground.places.cwd, self.ground.workspace.root)
        if self.definition is not None:
            prompt = compose_prompt(self.definition, library, estimate_tokens, environment)
            self._note(prompt.warnings)
            # The environment of an agent stands in the middle; all of it is stable within a session.
            return prompt.ledger
        wanted = Wanted(
            self.chosen.provider,
            self.chosen.known.window,
            self.permissions.mode,
            environment,
            self.toolset.names(),
            self.ground.trust.is_open,
            self.options.append,
        )
        prompt = main_prompt(library, wanted)
        self._note(prompt.warnings)
        return prompt.ledger

    # A request

    def run(self, request: str, images: Sequence[Image] = ()) -> Run:
        """Use it as a context manager; it begins when it is entered."""
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
            for notice in self.notices:
                emit(notice)
            self.notices = []
            await self._add_request(request, images, emit)
            executor = Executor(self.session, self.toolset, self.context, self.approvals, emit, self.options.agent)
            known = self.chosen.known
            room = Room(known.window, known.max_output)
            brain = Brain(self.provider, self.chosen.model, room, known.price, self.options.effort)
            loop = Loop(self.session, brain, executor, self.system, self.options.limits, emit, self._patience)
            return await loop.run()

        return Run(self.session, started, work)

    async def _add_request(self, request: str, images: Sequence[Image], emit: Emit) -> None:
        parts: list[Part] = list(images)
        one_turn: list[tuple[int, str]] = []
        text = request
        if request.startswith("/"):
            name, _, arguments = request[1:].partition(" ")
            try:
                delivered = await asyncio.to_thread(self.skills.load, name, arguments.strip(), "user")
            except NotFoundError:
                pass  # a path, say
            else:
                one_turn.append((len(parts), delivered.name))
                parts.append(Text(delivered.text))
                emit(SkillLoaded(delivered.name, delivered.tokens, "user"))
                text = arguments.strip() or f"Do what the skill {delivered.name} says."
        tail = await asyncio.to_thread(self._tail, text)
        parts.append(Text("\n\n".join(piece for piece in (reveal_hidden(text), *tail) if piece)))
        await self.session.add_user(parts, one_turn)

    def _tail(self, text: str) -> list[str]:
        """What only this message is told, so that nothing before it changes."""
        library = self.ground.library
        pieces: list[str] = []
        if self.session.totals.turns:
            pieces.append(told_changes(library.refresh()))
        if self.toolset.get("SearchSkills") is not None:
            pieces.append(suggested_skills(library, text, self.system[0].text))
        return pieces


def newest_session(journal: Journal, directory: str) -> str:
    """The id of the last session that was begun in this directory. Raises NotFoundError."""
    from kitbag.agent.session import PREFIX

    newest, found = 0, ""
    for stream in journal.streams(PREFIX):
        record = next(iter(journal.read(stream)), None)
        if record is not None and record.kind == "session" and record.body.get("directory") == directory:
            last = journal.last(stream)
            if last is not None and last.seq > newest:
                newest, found = last.seq, stream.removeprefix(PREFIX)
    if not found:
        raise NotFoundError("there is no session in this directory yet", "start one without --continue")
    return found
