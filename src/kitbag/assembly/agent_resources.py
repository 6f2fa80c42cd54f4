"""What an agent has: session, model, permissions, skills, tools, servers, prompt; how each is made, and how all that
can become another while it is open is exchanged in one step.

Used by Agent and Subagent, which say when.
"""

import asyncio
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kitbag.agent.ask_model import Patience
from kitbag.agent.execute import Executor
from kitbag.agent.session import Session
from kitbag.agent.undo.session_changes import SessionChanges
from kitbag.assembly.agent_setup import Standing, prompt_of_run, tools_of_run
from kitbag.assembly.environment import Ground, notice_of
from kitbag.assembly.inherited import Inherited
from kitbag.assembly.mcp_servers import Offered, close_servers, open_own_servers, open_servers, told_unknown
from kitbag.assembly.model_choice import given_model, model_of_run
from kitbag.assembly.run_options import Options
from kitbag.assembly.skill_loading import skills_of_run
from kitbag.assembly.system_prompt import SystemPrompt, blocks_of
from kitbag.assembly.user_messages import Requests
from kitbag.errors import Diagnostic, UsageError
from kitbag.events import Notice
from kitbag.library.agents import Agent as AgentFile
from kitbag.models.model_selection import Chosen, Sources
from kitbag.models.provider import Block, Provider
from kitbag.packing.session_skills import SessionSkills
from kitbag.permissions.approvals.approval import Approvals, Approver
from kitbag.permissions.decisions.decide import Permissions
from kitbag.store.journal import Journal
from kitbag.tools.base import Context, PersonAsker, Tool
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.seen_files import SeenFiles
from kitbag.tools.toolset import Toolset

if TYPE_CHECKING:
    from kitbag.tools.delegation import Delegation
    from kitbag.tools.mcp_client.servers import Servers


class Equipped:
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
    prompt: SystemPrompt
    requests: Requests
    path_skills: PathSkills
    changes: SessionChanges
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
        self.person_is_there = False
        """Somebody types the requests now: a file that they name with `@` needs no answer of theirs besides."""
        self.ran_by_person: list[str] = []
        """Commands of theirs, as they go with the next message (person_commands)."""
        self.task_id = ""
        """Of an agent that another one started."""
        self._is_elsewhere = False
        """In a copy of the workspace."""
        self._task = ""
        self._goes_on = bool(given.resume)
        self._begins_at_once = False
        """A request follows, with which what was made before it is written."""
        self.stop_loading = threading.Event()
        """Ends the commands of a skill that is being loaded."""
        self.busy = ""
        """With what, in words; one thing at a time."""
        self.changing = asyncio.Lock()
        """Held while persona, model, mode or files become others."""
        self._executor: Executor | None = None
        """Of the request that runs."""
        self._offered_version = 0
        """What the servers offered when the tools were put together."""

    async def close(self) -> None:
        """May be called twice."""
        await self._opened.aclose()

    # The pieces

    def _make_skills(self) -> SessionSkills:
        return skills_of_run(self.ground, self.options, lambda: self.rights_now().mode, self.stop_loading)

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

    def keep_changes(self) -> None:
        """What tools change is kept from here on, for `kitbag undo`."""
        self.changes = SessionChanges(
            self.session, self.ground.workspace, self.notices.append, record_in=self.changes_of
        )
        self.context = self.context._replace(changes=self.changes)

    def rights_now(self) -> Permissions:
        """They may become others while a request runs."""
        return self.permissions

    def inherited(self) -> Inherited:
        """What an agent gets that this one starts."""
        return Inherited(
            self.ground,
            self.journal,
            self.sources,
            self.approvals,
            self.given_permissions,
            self.rights_now().mode,
            self.options,
            self.chosen,
            self.provider,
            self._patience,
            self.servers,
            self.environment,
            lambda: self.rights_now().mode,
        )

    async def open_servers(self) -> None:
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

    async def reopen_servers(self) -> None:
        """By what is configured now. Their tools are there from the next request on."""
        for servers in self.offered:
            if servers is not None:
                await close_servers(servers)
        self.servers, self.offered = None, Offered()
        self._offered_version = -1
        await self.open_servers()

    def make_toolset(self, permissions: Permissions | None = None) -> Toolset:
        """By these, or by those there are."""
        self._offered_version = self.offered.version
        return Toolset(self._tools(), permissions or self.permissions)

    def _hear_servers(self) -> None:
        """What they tell, and what they offer since the last request."""
        if self._offered_version != self.offered.version:
            self.toolset = self.make_toolset()
        self.notices += self.offered.news()

    async def server_prompt(self, name: str, text: str) -> str | None:
        return await self.offered.prompt(name, text)

    def make_delegation(self) -> "Delegation | None":
        """For starting other agents; None: it can't."""
        return None

    def _note(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.notices += map(notice_of, diagnostics)

    def _choose_model(self) -> None:
        options, given = self.options, self._given_provider
        if given is not None:
            self.chosen, self.provider = given_model(given, options.model, self.sources), given
        else:
            self.chosen, self.provider = model_of_run(
                self.sources,
                options.model,
                self.session.header,
                self.ground.library,
                self.definition,
                self.notices.append,
            )
        self._opened.push_async_callback(lambda: self.let_go(self.provider))

    async def let_go(self, provider: Provider) -> None:
        """Closes it, unless it is somebody else's."""
        if provider is not self._given_provider:
            await provider.close()

    @property
    def has_given_model(self) -> bool:
        """Somebody else's, which no choice of ours has replaced."""
        return self.provider is self._given_provider

    def _tools(self) -> list[Tool[Any]]:
        return tools_of_run(
            self.ground.library,
            has_person=self._person is not None,
            delegation=self.delegation,
            offered=self.offered,
            definition=self.definition,
            is_elsewhere=self._is_elsewhere,
        )

    def describe(self) -> SystemPrompt:
        return prompt_of_run(
            self.ground,
            self.chosen,
            self.permissions,
            self.toolset,
            self.definition,
            self.options.append,
            self._task,
        )

    def use_prompt(self) -> None:
        entries = self.session.prompt
        self.system = blocks_of(entries)
        self.skills.stand_in_prompt("".join(str(entry["text"]) for entry in entries if entry["kind"] == "preload"))

    async def _make_prompt(self, *, later: bool = False) -> None:
        ledger, warnings = self.prompt.ledger()
        self._note(warnings)
        await self.session.set_prompt(ledger, self.prompt.made_for(), later=later)

    # What can become another

    def stand_on(self, new: Standing) -> None:
        """In one step."""
        for name, value in new._asdict().items():
            setattr(self, name, value)
        if self._executor is not None:
            self._executor.offer(self.toolset)
        self.use_prompt()

    def standing(self) -> Standing:
        return Standing(*(getattr(self, name) for name in Standing._fields))

    @contextmanager
    def alone(self, doing: str) -> Generator[None]:
        """Raises UsageError while something else goes on."""
        if self.busy:
            raise UsageError(f"this agent is busy with {self.busy}", "wait for it, or cancel it")
        self.busy = doing
        try:
            yield
        finally:
            self.busy = ""
