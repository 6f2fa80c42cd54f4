"""The resources of an open agent (session, model, permissions, skills, tools, servers, prompt): how each is built, and
how those that can change are replaced in one step.

Base of base_agent.BaseAgent, which opens and closes them.
"""

import asyncio
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from kitbag.agent.ask_model import RetryPolicy
from kitbag.agent.execute import Executor
from kitbag.agent.inbox import Inbox
from kitbag.agent.sent_requests import read_tools
from kitbag.agent.session import Session
from kitbag.agent.undo.session_changes import SessionChanges
from kitbag.assembly.agent_checks import check_definition, check_server_tools
from kitbag.assembly.agent_setup import AgentSetup, build_system_prompt, build_tools
from kitbag.assembly.environment import AgentEnvironment, diagnostic_notice
from kitbag.assembly.mcp_servers import (
    AgentServers,
    close_servers,
    open_own_servers,
    open_servers,
    unknown_server_notices,
)
from kitbag.assembly.model_choice import choose_run_model, override_model
from kitbag.assembly.parent_context import ParentContext
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
from kitbag.tools.background_switch import BackgroundSwitch
from kitbag.tools.base import Tool, ToolContext, UserAsker
from kitbag.tools.path_skills import PathSkills
from kitbag.tools.seen_files import SeenFiles
from kitbag.tools.toolset import Toolset

if TYPE_CHECKING:
    from kitbag.telemetry.run_spans import RunSpans
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
    """What the user allows, before the agent's definition restricts it."""
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
    """Shared with the agents that this one starts."""
    agent_servers: AgentServers = AgentServers()
    """Includes the servers that the agent's definition declares."""

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
        retry_policy: RetryPolicy = RetryPolicy(),  # noqa: B008 - a NamedTuple is immutable
    ) -> None:
        """`provider` overrides the provider of `model`. Without `approver`, everything that needs approval is denied;
        without `person`, the model has no tool to ask the user."""
        base_options = options or Options()
        self.options = msgspec.structs.replace(
            base_options, model=model or base_options.model, directory=directory or base_options.directory
        )
        self.notices: list[Notice] = []
        self.undo_session_id = ""
        """The session in which `kitbag undo` finds this agent's changes; empty: its own."""
        self.definition: AgentFile | None = None
        self._provider_override = provider
        self._journal_override = journal
        self._approver = approver
        self._person = person
        self._retry_policy = retry_policy
        self._exit_stack = AsyncExitStack()
        self.command_env: Mapping[str, str] | None = None
        """Environment variables of commands; None: those of this process."""
        self.children_can_ask_user = False
        self.is_interactive = False
        """A user is typing the messages, so a file that they mention with `@` needs no approval."""
        self.user_command_blocks: list[str] = []
        """Output of the user's `!` commands for the next message (runtime/user_commands)."""
        self.task_id = ""
        """Set if another agent started this one."""
        self._in_worktree = False
        """Works in a copy of the workspace."""
        self._task_prompt = ""
        self._is_resumed = bool(base_options.resume)
        self._inbox: Inbox | None = None
        self._background_switch = BackgroundSwitch()
        self.stop_loading = threading.Event()
        """Stops the commands of a skill that is being loaded."""
        self.busy = ""
        """Describes the activity that runs now; empty: idle."""
        self.change_lock = asyncio.Lock()
        """Held while persona, model, mode or loaded files change."""
        self._executor: Executor | None = None
        self._spans: RunSpans | None = None
        """Of the current or last run, if telemetry is on."""
        """Of the request that runs now."""
        self._server_tools_version = 0
        """Version of the server tools in the current toolset."""

    async def close(self) -> None:
        """Safe to call twice."""
        await self._exit_stack.aclose()

    # Building the parts

    def _make_skills(self) -> SessionSkills:
        return build_session_skills(self.environment, lambda: self.current_permissions().mode, self.stop_loading)

    def _make_context(self) -> ToolContext:
        return ToolContext(
            workspace=self.environment.workspace,
            directory=self.environment.places.cwd,
            permissions=self.permissions,
            library=self.environment.library,
            skills=self.skills,
            environment=self.command_env,
            asker=self._person,
            delegation=self.delegation,
            background_switch=None if self.task_id else self._background_switch,
            seen_files=SeenFiles(),
        )

    def start_recording_changes(self) -> None:
        """From now on changes by tools are recorded for `kitbag undo`."""
        self.changes = SessionChanges(
            self.session, self.environment.workspace, self.notices.append, record_in=self.undo_session_id
        )
        self.context = msgspec.structs.replace(self.context, change_recorder=self.changes)

    def current_permissions(self) -> Permissions:
        """Can change while a request runs."""
        return self.permissions

    def budget_account(self) -> str:
        """Whose session limits this agent's spending counts against."""
        return self.options.budget_account or self.task_id or self.session.id

    def parent_context(self) -> ParentContext:
        """What an agent that this one starts inherits."""
        return ParentContext(
            environment=self.environment,
            journal=self.journal,
            sources=self.sources,
            approvals=self.approvals,
            permissions=self.user_permissions,
            mode=self.current_permissions().mode,
            options=msgspec.structs.replace(self.options, budget_account=self.budget_account()),
            chosen=self.chosen,
            provider=self.provider,
            retry_policy=self._retry_policy,
            servers=self.servers,
            command_env=self.command_env,
            can_ask_user=self.children_can_ask_user,
            mode_now=lambda: self.current_permissions().mode,
        )

    async def open_servers(self) -> None:
        self.servers = await open_servers(self.environment, self.permissions, self.definition, self.options.tool_limit)
        if self.servers is not None:
            self._exit_stack.push_async_callback(close_servers, self.servers)
        self.notices += unknown_server_notices(self.servers, self.definition)
        await self._open_own_servers()

    async def _open_own_servers(self) -> None:
        own, notices = await open_own_servers(
            self.environment, self.permissions, self.definition, self.options.tool_limit, in_worktree=self._in_worktree
        )
        self.notices += notices
        if own is not None:
            self._exit_stack.push_async_callback(close_servers, own)
            self.journal.add_secrets(own.secrets())
        self.agent_servers = AgentServers(self.servers, own)

    async def reopen_servers(self) -> None:
        """Applies the current configuration. New tools are available from the next request on."""
        for servers in self.agent_servers:
            if servers is not None:
                await close_servers(servers)
        self.servers, self.agent_servers = None, AgentServers()
        self._server_tools_version = -1
        await self.open_servers()

    def make_toolset(self, permissions: Permissions | None = None) -> Toolset:
        """Under `permissions`, or under the agent's own."""
        self._server_tools_version = self.agent_servers.version
        return self.describe_again(
            Toolset(
                self._build_tools(), permissions or self.permissions, self.approvals.can_ask, self.environment.library
            )
        )

    def describe_again(self, toolset: Toolset) -> Toolset:
        """Describes the tools of servers that the last request described: the conversation refers to them, and the
        provider has cached them."""
        current: Toolset | None = getattr(self, "toolset", None)
        before = current.specs() if current is not None else read_tools(self.journal, self.session.sent_tools)
        toolset.describe(spec.name for spec in before or ())
        return toolset

    def _refresh_server_tools(self) -> None:
        """Takes the servers' notices and rebuilds the toolset if their tools changed."""
        if self._server_tools_version != self.agent_servers.version:
            self.toolset = self.make_toolset()
        self.notices += self.agent_servers.take_notices()

    async def server_prompt(self, name: str, text: str) -> str | None:
        return await self.agent_servers.prompt(name, text)

    def make_delegation(self) -> "Delegation | None":
        """For starting other agents; None: not possible."""
        return None

    def _add_diagnostics(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.notices += map(diagnostic_notice, diagnostics)

    def check_definition(self, definition: AgentFile) -> None:
        """Adds notices about what the definition names and does not get. The servers must be open."""
        self.notices += check_definition(definition, self.environment.library)
        server_tools = self.agent_servers.tools(definition, in_worktree=self._in_worktree)
        self.notices += check_server_tools(definition, [tool.name for tool in server_tools], self.permissions.mode)

    def _choose_model(self) -> None:
        options, override = self.options, self._provider_override
        if override is not None:
            self.chosen, self.provider = override_model(override, options.model, self.sources), override
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
        """Does nothing for a provider that the caller passed in."""
        if provider is not self._provider_override:
            await provider.close()

    @property
    def uses_provider_override(self) -> bool:
        """The caller's provider is still in use."""
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
        preloads = self.definition is not None and bool(self.definition.skills)
        build = self.prompt.build_ledger
        ledger, warnings = await asyncio.to_thread(build) if preloads else build()  # preloads may run commands
        self._add_diagnostics(warnings)
        await self.session.set_prompt(ledger, self.prompt.inputs(), deferred=deferred)

    # Replacing the setup

    def apply_setup(self, setup: AgentSetup) -> None:
        """Replaces everything in one step."""
        self.options = setup.options
        self.environment = setup.environment
        self.definition = setup.definition
        self.chosen = setup.chosen
        self.provider = setup.provider
        self.user_permissions = setup.user_permissions
        self.permissions = setup.permissions
        self.delegation = setup.delegation
        self.skills = setup.skills
        self.toolset = setup.toolset
        self.context = setup.context
        self.prompt = setup.prompt
        self.user_messages = setup.user_messages
        self.path_skills = setup.path_skills
        if self._executor is not None:
            self._executor.set_toolset(self.toolset)
        self.apply_prompt()

    def current_setup(self) -> AgentSetup:
        return AgentSetup(
            options=self.options,
            environment=self.environment,
            definition=self.definition,
            chosen=self.chosen,
            provider=self.provider,
            user_permissions=self.user_permissions,
            permissions=self.permissions,
            delegation=self.delegation,
            skills=self.skills,
            toolset=self.toolset,
            context=self.context,
            prompt=self.prompt,
            user_messages=self.user_messages,
            path_skills=self.path_skills,
        )

    @contextmanager
    def exclusive(self, activity: str) -> Generator[None]:
        """Raises UsageError while another activity runs."""
        if self.busy:
            raise UsageError(f"the agent is busy: {self.busy}", "wait for it, or cancel it")
        self.busy = activity
        try:
            yield
        finally:
            self.busy = ""
