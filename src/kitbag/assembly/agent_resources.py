"""What an agent has: session, model, permissions, skills, tools, servers, prompt; how each is made, and how all that
can become another while it is open is exchanged in one step.

Used by Agent and Subagent, which say when.
"""

import asyncio
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from kitbag.agent.ask_model import RetryPolicy
from kitbag.agent.execute import Executor
from kitbag.agent.session import Session
from kitbag.agent.undo.session_changes import SessionChanges
from kitbag.assembly.agent_setup import AgentSetup, build_system_prompt, build_tools
from kitbag.assembly.environment import AgentEnvironment, diagnostic_notice
from kitbag.assembly.inherited import ParentContext
from kitbag.assembly.mcp_servers import (
    AgentServers,
    close_servers,
    open_own_servers,
    open_servers,
    unknown_server_notices,
)
from kitbag.assembly.model_choice import choose_run_model, override_model
from kitbag.assembly.run_options import Options
from kitbag.assembly.skill_loading import build_session_skills
from kitbag.assembly.system_prompt import SystemPrompt, prompt_blocks
from kitbag.assembly.user_messages import UserMessages
from kitbag.errors import Diagnostic, UsageError
from kitbag.events import Notice
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.models.model_selection import ModelSources, SelectedModel
from kitbag.models.provider import Provider, SystemBlock
from kitbag.packing.session_skills import SessionSkills
from kitbag.permissions.approvals.approval import Approvals, Approver
from kitbag.permissions.decisions.decide import Permissions
from kitbag.store.journal import Journal
from kitbag.tools.base import Tool, ToolContext, UserAsker
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.seen_files import SeenFiles
from kitbag.tools.toolset import Toolset

if TYPE_CHECKING:
    from kitbag.tools.delegation import Delegation
    from kitbag.tools.mcp_client.servers import McpServers


class AgentResources:
    environment: AgentEnvironment
    journal: Journal
    session: Session
    chosen: SelectedModel
    provider: Provider
    permissions: Permissions
    user_permissions: Permissions
    """The person's, before an agent's file takes something away."""
    skills: SessionSkills
    toolset: Toolset
    context: ToolContext
    prompt: SystemPrompt
    user_messages: UserMessages
    path_skills: PathSkills
    changes: SessionChanges
    approvals: Approvals
    system_blocks: tuple[SystemBlock, ...]
    sources: ModelSources
    delegation: "Delegation | None" = None
    servers: "McpServers | None" = None
    """Also of those that this one starts."""
    agent_servers: AgentServers = AgentServers()
    """With those that its file describes."""

    def __init__(
        self,
        model: str = "",
        *,
        directory: str = "",
        options: Options | None = None,
        provider: Provider | None = None,
        approver: Approver | None = None,
        person: UserAsker | None = None,
        journal: Journal | None = None,
        patience: RetryPolicy = RetryPolicy(),  # noqa: B008 - a NamedTuple can't be changed
    ) -> None:
        """`provider` takes the place of what `model` would lead to; without `approver`, what asks is refused, and
        without `person` the model has no tool to ask them."""
        given = options or Options()
        self.options = given._replace(model=model or given.model, directory=directory or given.directory)
        self.notices: list[Notice] = []
        self.undo_session_id = ""
        """The session that `kitbag undo` takes back for what this one changes; empty: this one."""
        self.definition: AgentFile | None = None
        self._provider_override = provider
        self._journal_override = journal
        self._approver = approver
        self._person = person
        self._retry_policy = patience
        self._exit_stack = AsyncExitStack()
        self.command_env: Mapping[str, str] | None = None
        """What commands see; None: what this process has."""
        self.is_interactive = False
        """Somebody types the requests now: a file that they name with `@` needs no answer of theirs besides."""
        self.user_command_blocks: list[str] = []
        """Commands of theirs, as they go with the next message (person_commands)."""
        self.task_id = ""
        """Of an agent that another one started."""
        self._in_worktree = False
        """In a copy of the workspace."""
        self._task_prompt = ""
        self._is_resumed = bool(given.resume)
        self._defers_first_write = False
        """A request follows, with which what was made before it is written."""
        self.stop_loading = threading.Event()
        """Ends the commands of a skill that is being loaded."""
        self.busy = ""
        """With what, in words; one thing at a time."""
        self.change_lock = asyncio.Lock()
        """Held while persona, model, mode or files become others."""
        self._executor: Executor | None = None
        """Of the request that runs."""
        self._server_tools_version = 0
        """What the servers offered when the tools were put together."""

    async def close(self) -> None:
        """May be called twice."""
        await self._exit_stack.aclose()

    # The pieces

    def _make_skills(self) -> SessionSkills:
        return build_session_skills(
            self.environment, self.options, lambda: self.current_permissions().mode, self.stop_loading
        )

    def _make_context(self) -> ToolContext:
        return ToolContext(
            self.environment.workspace,
            self.environment.places.cwd,
            self.permissions,
            self.environment.library,
            self.skills,
            environment=self.command_env,
            asker=self._person,
            delegation=self.delegation,
            seen_files=SeenFiles(),
        )

    def start_recording_changes(self) -> None:
        """What tools change is kept from here on, for `kitbag undo`."""
        self.changes = SessionChanges(
            self.session, self.environment.workspace, self.notices.append, record_in=self.undo_session_id
        )
        self.context = self.context._replace(change_recorder=self.changes)

    def current_permissions(self) -> Permissions:
        """They may become others while a request runs."""
        return self.permissions

    def parent_context(self) -> ParentContext:
        """What an agent gets that this one starts."""
        return ParentContext(
            self.environment,
            self.journal,
            self.sources,
            self.approvals,
            self.user_permissions,
            self.current_permissions().mode,
            self.options,
            self.chosen,
            self.provider,
            self._retry_policy,
            self.servers,
            self.command_env,
            lambda: self.current_permissions().mode,
        )

    async def open_servers(self) -> None:
        self.servers = await open_servers(self.environment, self.permissions, self.definition, self.options.only_tools)
        if self.servers is not None:
            self._exit_stack.push_async_callback(close_servers, self.servers)
        self.notices += unknown_server_notices(self.servers, self.definition)
        await self._open_own_servers()

    async def _open_own_servers(self) -> None:
        own, notices = await open_own_servers(
            self.environment, self.permissions, self.definition, self.options.only_tools, in_worktree=self._in_worktree
        )
        self.notices += notices
        if own is not None:
            self._exit_stack.push_async_callback(close_servers, own)
            self.journal.add_secrets(own.secrets())
        self.agent_servers = AgentServers(self.servers, own)

    async def reopen_servers(self) -> None:
        """By what is configured now. Their tools are there from the next request on."""
        for servers in self.agent_servers:
            if servers is not None:
                await close_servers(servers)
        self.servers, self.agent_servers = None, AgentServers()
        self._server_tools_version = -1
        await self.open_servers()

    def make_toolset(self, permissions: Permissions | None = None) -> Toolset:
        """By these, or by those there are."""
        self._server_tools_version = self.agent_servers.version
        return Toolset(self._build_tools(), permissions or self.permissions)

    def _refresh_server_tools(self) -> None:
        """What they tell, and what they offer since the last request."""
        if self._server_tools_version != self.agent_servers.version:
            self.toolset = self.make_toolset()
        self.notices += self.agent_servers.take_notices()

    async def server_prompt(self, name: str, text: str) -> str | None:
        return await self.agent_servers.prompt(name, text)

    def make_delegation(self) -> "Delegation | None":
        """For starting other agents; None: it can't."""
        return None

    def _add_diagnostics(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.notices += map(diagnostic_notice, diagnostics)

    def _choose_model(self) -> None:
        options, given = self.options, self._provider_override
        if given is not None:
            self.chosen, self.provider = override_model(given, options.model, self.sources), given
        else:
            self.chosen, self.provider = choose_run_model(
                self.sources,
                options.model,
                self.session.header,
                self.environment.library,
                self.definition,
                self.notices.append,
            )
        self._exit_stack.push_async_callback(lambda: self.close_provider(self.provider))

    async def close_provider(self, provider: Provider) -> None:
        """Closes it, unless it is somebody else's."""
        if provider is not self._provider_override:
            await provider.close()

    @property
    def uses_provider_override(self) -> bool:
        """Somebody else's, which no choice of ours has replaced."""
        return self.provider is self._provider_override

    def _build_tools(self) -> list[Tool[Any]]:
        return build_tools(
            self.environment.library,
            can_ask_user=self._person is not None,
            delegation=self.delegation,
            agent_servers=self.agent_servers,
            definition=self.definition,
            in_worktree=self._in_worktree,
        )

    def build_system_prompt(self) -> SystemPrompt:
        return build_system_prompt(
            self.environment,
            self.chosen,
            self.permissions,
            self.toolset,
            self.definition,
            self.options.append,
            self._task_prompt,
        )

    def apply_prompt(self) -> None:
        entries = self.session.prompt
        self.system_blocks = prompt_blocks(entries)
        self.skills.set_preloaded_text("".join(str(entry["text"]) for entry in entries if entry["kind"] == "preload"))

    async def _record_prompt(self, *, deferred: bool = False) -> None:
        ledger, warnings = self.prompt.build_ledger()
        self._add_diagnostics(warnings)
        await self.session.set_prompt(ledger, self.prompt.inputs(), deferred=deferred)

    # What can become another

    def apply_setup(self, setup: AgentSetup) -> None:
        """In one step."""
        for name, value in setup._asdict().items():
            setattr(self, name, value)
        if self._executor is not None:
            self._executor.set_toolset(self.toolset)
        self.apply_prompt()

    def current_setup(self) -> AgentSetup:
        return AgentSetup(*(getattr(self, name) for name in AgentSetup._fields))

    @contextmanager
    def exclusive(self, activity: str) -> Generator[None]:
        """Raises UsageError while something else goes on."""
        if self.busy:
            raise UsageError(f"this agent is busy with {self.busy}", "wait for it, or cancel it")
        self.busy = activity
        try:
            yield
        finally:
            self.busy = ""
