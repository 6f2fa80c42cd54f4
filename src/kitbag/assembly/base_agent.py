"""An agent that runs requests: opens a session with its model, prompt, tools and permissions, and closes them.

Used by runtime/agent, whose agent can also start others, and by tasks/subagent. switch_persona, switch_model and
reload change an open agent.
"""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from kitbag.agent.ask_model import Emit
from kitbag.agent.budget import Budget
from kitbag.agent.execute import Executor
from kitbag.agent.inbox import Inbox, InboxMessage
from kitbag.agent.loop import Loop
from kitbag.agent.model_config import ContextWindow, ModelConfig
from kitbag.agent.rate_limit import RateLimiter
from kitbag.agent.resume import fork, resume
from kitbag.agent.run import Run
from kitbag.agent.session import Session, WriteUserRecord, new_session_id
from kitbag.agent.session_list import find_session, named_sessions, newest_session
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.agent_resources import AgentResources
from kitbag.assembly.agent_setup import build_header, build_path_skills, build_user_messages
from kitbag.assembly.budget_accounts import open_budget
from kitbag.assembly.environment import load_run_environment, trust_lost_notices, untrusted_notices
from kitbag.assembly.mentions import MentionedContent, read_mentions
from kitbag.assembly.model_sources import load_model_sources
from kitbag.assembly.open_journal import journal_damage_notices, open_journal
from kitbag.assembly.open_store import database_url
from kitbag.assembly.skill_loading import find_unusable_skills, unusable_skill_notices
from kitbag.assembly.switch_notices import list_switches, restored_tool_notices
from kitbag.assembly.user_permissions import load_run_permissions
from kitbag.errors import KitbagError, NotFoundError, UsageError
from kitbag.events import MessageDelivered, Notice, RunEnded, RunStarted
from kitbag.library.dialects.permission_modes import PermissionMode
from kitbag.library.scopes import Places, find_places
from kitbag.messages import Image
from kitbag.models.model_selection import ModelSources
from kitbag.models.provider import SystemBlock
from kitbag.permissions.approvals.approval import Approvals
from kitbag.permissions.model import is_inside
from kitbag.permissions.trust.workspace_trust import check_trust
from kitbag.settings import load_settings
from kitbag.store.journal import Journal, JournalEntry
from kitbag.store.private_files import StoreError
from kitbag.store.token_bucket import RateLimit
from kitbag.telemetry.switch import ENDPOINT_SETTING, header_secrets, includes_content, open_telemetry
from kitbag.telemetry.trace_context import SpanReference, current_span
from kitbag.tools.base import ToolContext

if TYPE_CHECKING:
    from kitbag.assembly.reload import Reloaded
    from kitbag.assembly.switch_persona import PersonaChange
    from kitbag.telemetry.run_spans import RunSpans


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
            raise UsageError(f"{self.options.directory} is not a directory", "use an existing directory")
        places = find_places(self.options.directory or None)
        # Only the user's own settings decide where a model is.
        self.sources, problems = load_model_sources(load_settings(places.kitbag_home, ()))
        self._add_diagnostics(problems)
        self.journal = self._journal_override or await self._open_journal(places, self.sources)
        # In a thread: reading a long session must not stall the chat.
        self.session = await asyncio.to_thread(self._find_session, places)
        if not (self.options.resume and self.options.fork):
            last = self.journal.last(self.session.stream)
            await self.claim_session(places.kitbag_home)
            if self.journal.last(self.session.stream) != last:  # another machine had it open until now
                self.session = await asyncio.to_thread(resume, self.journal, self.session.id)
        if self.options.resume:
            self.options = self.options.with_session_defaults(self.session.header)
            self.notices += restored_tool_notices(self.options)
        options = self.options
        self.environment = load_run_environment(places, options)
        # Whatever is opened or read again later for this user is for the same directory.
        self.options = options = msgspec.structs.replace(options, workspace=self.environment.workspace.identity)
        library = self.environment.library
        self._add_diagnostics(self.environment.diagnostics)
        if self.session.prompt_inputs.get("trusted") is not False:  # otherwise a resumed session has shown it
            self.notices += untrusted_notices(self.environment, is_brief=self._person is not None)
        if options.agent:
            self.definition = library.find_agent(options.agent)
        self._choose_model()
        session_mode = self.session.header.mode if options.resume else ""
        known_tools = [tool.name for tool in self._build_tools()]
        self.user_permissions, self.permissions, notices = load_run_permissions(
            self.environment, options, self.definition, known_tools, session_mode
        )
        self.notices += notices
        self.skills = self._make_skills()
        self.approvals = Approvals(self._approver, library.settings.user_file)
        self.delegation = self.make_delegation() if library.visible_agents() else None
        self._add_diagnostics(library.incomplete_searches())
        await self.open_servers()
        self.toolset = self.make_toolset()
        if self.definition is not None:
            self.check_definition(self.definition)
        self.context = self._make_context()
        await self._start_session()
        self.user_messages = build_user_messages(
            self.session, self.skills, self.toolset, self.delegation, self.server_prompt
        )

    async def _open_journal(self, places: Places, sources: ModelSources) -> Journal:
        if database_url(places.kitbag_home):  # connects
            journal = await asyncio.to_thread(open_journal, places.kitbag_home, sources)
        else:
            journal = open_journal(places.kitbag_home, sources)
        self._exit_stack.callback(journal.close)
        self.notices += journal_damage_notices(places.kitbag_home)
        return journal

    def _find_session(self, places: Places) -> Session:
        session_id = self.options.resume
        if not session_id:
            return Session(self.journal, new_session_id())
        if session_id == "last":
            session_id = newest_session(self.journal, places.cwd)
        try:
            session = resume(self.journal, session_id)
        except NotFoundError:  # may be the start of an ID
            session = resume(self.journal, find_session(named_sessions(self.journal, session_id), session_id).id)
        self.notices += [Notice(severity="warning", text=warning) for warning in session.warnings]
        return session

    # The session

    async def claim_session(self, kitbag_home: str) -> None:
        """Raises InvalidError if another process has it open. A task's session belongs to the process that claimed
        the task."""

    async def _start_session(self) -> None:
        previous = self.session.header
        header = build_header(
            previous, self.options, self.environment, self.chosen, self.permissions.mode, self.task_id
        )
        if self.options.resume and self.options.fork:
            self.session = await fork(self.journal, self.session, msgspec.structs.replace(header, started=""))
            await self.claim_session(self.environment.places.kitbag_home)
        elif not self._is_resumed:
            await self.session.start(header, deferred=True)  # no message, no session
        self.skills.session_id = self.session.id
        self.path_skills = build_path_skills(self.session, self.skills)
        self.start_recording_changes()
        dropped = find_unusable_skills(self.session, self.skills)
        self.notices += unusable_skill_notices(dropped)
        self.prompt = self.build_system_prompt()
        if self.options.resume and not self.task_id:
            # Changed options apply from now on, and the model is notified.
            switches = list_switches(
                previous, header, self.environment.library, dropped, has_history=bool(self.session.recorded_messages())
            )
            if switches:
                await self.session.switch(switches, header, dropped)
        for name, reason in dropped:
            if name in self.session.skills:
                await self.session.drop_skill(name, reason)
        if self.session.prompt_inputs != self.prompt.inputs():
            await self._record_prompt(deferred=True)
        self.apply_prompt()

    async def _renew_prompt(self) -> tuple[SystemBlock, ...]:
        """A compaction invalidates the provider's cache anyway, so the prompt can include changed files, the current
        mode and its tools."""
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
        """Memory files are read again with the prompt, and one may be newer than the trust decision."""
        environment = self.environment
        trust = await asyncio.to_thread(check_trust, environment.places, self.options.trust_workspace)
        if environment.trust.can_load_items and not trust.can_load_items:
            if not environment.library.omit_project:
                await asyncio.to_thread(environment.library.omit_project_items)
            self.notices += trust_lost_notices(environment.library)
            self.environment = msgspec.structs.replace(environment, trust=trust)

    # Changes while the agent is open

    async def preview_persona(self, name: str, team: str = "") -> "PersonaChange":
        """What `use_persona` would change; changes nothing."""
        from kitbag.assembly.switch_persona import preview_persona

        return await preview_persona(self, name, team)

    async def use_persona(self, name: str, team: str = "") -> "PersonaChange":
        """`name`: `persona` or `team/persona`; empty: no persona. Completely or not at all. Raises KitbagError."""
        from kitbag.assembly.switch_persona import use_persona

        return await use_persona(self, name, team)

    async def use_model(self, name: str, effort: str | None = None) -> str:
        """Returns its full name. `effort`: low, medium or high; empty: the provider's default; None: as before. Raises
        KitbagError as at the start."""
        from kitbag.assembly.switch_model import use_model

        return await use_model(self, name, effort)

    async def use_mode(self, mode: str) -> PermissionMode:
        """Also while a request runs; takes effect with the next call. Raises KitbagError."""
        from kitbag.assembly.switch_model import use_mode

        return await use_mode(self, mode)

    async def reload(self) -> "Reloaded":
        """Reads settings, trust, skills, agents, personas and memory files again. Raises KitbagError."""
        from kitbag.assembly.reload import reload

        return await reload(self)

    async def compact(self, emit: Emit, instructions: str = "") -> bool:
        """`instructions`: what to keep, in the user's words. Returns False if nothing can be compacted."""
        with self.exclusive("compacting the session"):
            self._restore_skills()
            return await self._make_loop(emit).compact(instructions)

    # Requests

    @property
    def inbox(self) -> Inbox:
        """Messages that wait for this agent. A task keeps its inbox when it restarts with a new session."""
        owner = self.task_id or self.session.id
        if self._inbox is None or self._inbox.owner != owner:
            self._inbox = Inbox(self.journal, owner)
        return self._inbox

    def run(self, request: str, images: Sequence[Image] = (), message: InboxMessage | None = None) -> Run:
        """Use it as a context manager; it starts when entered. One at a time. Messages that wait in the inbox come
        first. `message`: one of those, instead of a request. With neither, only those that steer are delivered."""
        self._refresh_server_tools()
        first_later = self.journal.last_seq() + 1  # what is sent from here on is later than the request
        library = self.environment.library
        started = RunStarted(
            session=self.session.id,
            model=self.chosen.name,
            mode=self.permissions.mode,
            directory=self.environment.places.cwd,
            skills=len(library.skills),
            agents=len(library.agents),
            tools=self.toolset.names(),
        )

        spans = self._make_spans(request)

        async def work(emit: Emit) -> RunEnded:
            if spans is not None:
                spans.make_current()
            with self.exclusive("answering another message"):
                self.stop_loading.clear()
                try:
                    return await self._run_request(request, images, message, first_later, emit)
                except asyncio.CancelledError:
                    self.stop_loading.set()
                    raise
                finally:
                    self._executor = None

        return Run(self.session, started, work, self.inbox, spans.observe if spans is not None else None)

    def _make_spans(self, request: str) -> "RunSpans | None":
        """For telemetry; None: it is off."""
        self._spans = None
        telemetry = open_telemetry(str(self.environment.library.settings.get(ENDPOINT_SETTING)))
        if telemetry is not None:
            from kitbag.telemetry.run_spans import RunSpans

            self.journal.add_secrets(header_secrets())
            self._spans = RunSpans(
                telemetry.send,
                agent=self.options.agent or "kitbag",
                task_id=self.task_id,
                provider=self.chosen.provider,
                parent=self._parent_span(),
                redact=self._redact if includes_content() else None,
                message=request,
            )
        return self._spans

    def _redact(self, text: str) -> str:
        return self.journal.redactor.redact_text(text)  # which may know more secrets each time

    def _parent_span(self) -> SpanReference | None:
        return current_span()

    def _current_context(self) -> ToolContext:
        """Starts in the last command's directory while that is in the workspace."""
        directory = self.session.directory
        resolved = os.path.realpath(directory) if directory else ""
        inside = any(is_inside(resolved, root) for root in self.context.workspace.write_roots)
        return (
            msgspec.structs.replace(self.context, directory=resolved)
            if inside and os.path.isdir(resolved)
            else self.context
        )

    async def _run_request(
        self, request: str, images: Sequence[Image], message: InboxMessage | None, first_later: int, emit: Emit
    ) -> RunEnded:
        """`first_later`: messages of the inbox from this number on come after the request."""
        for notice in self.notices:
            emit(notice)
        self.notices = []
        self.changes.emit_notice = emit
        self._restore_skills()
        used = [call.name for call in self.session.calls.values()]
        self.toolset.describe_for(f"{self._task_prompt}\n{request}", used)
        loop = self._make_loop(emit)
        self._executor = loop.executor
        if message is not None:
            await run_to_completion(self._add_notifications(emit))
            await self._deliver_pending(loop.executor, before=message.id)
            if not await self._deliver(message, loop.executor):
                raise UsageError("the message was taken back", "send it again")
        else:
            await self._add_user_message(request, images, first_later, loop.executor)
        return await loop.run()

    async def _add_user_message(
        self, request: str, images: Sequence[Image], first_later: int, executor: Executor
    ) -> None:
        """Without a request the agent continues if there are notifications or messages that steer."""
        notifications = await run_to_completion(self._add_notifications(executor.emit))
        is_empty = not request and not images
        is_steered = await self._deliver_pending(executor, before=first_later, only_steering=is_empty)
        if not is_empty:
            await self._add_message(request, images, executor)
        is_steered |= await self._deliver_pending(executor, only_steering=True)
        if is_empty and not notifications and not is_steered:
            raise UsageError("the message is empty", "type a message")

    async def _add_message(
        self,
        text: str,
        images: Sequence[Image],
        executor: Executor,
        *,
        is_steering: bool = False,
        write: WriteUserRecord | None = None,
    ) -> bool:
        command_blocks: list[str] = []

        async def read_all_mentions(text: str, emit: Emit) -> MentionedContent:
            command_blocks.extend(self.user_command_blocks)
            directory, window = self.context.directory, self.chosen.info.window
            content = await read_mentions(text, emit, executor, directory, self.is_interactive, window)
            if not self.task_id:  # a task's messages may come from the model that started it
                executor.turn_permissions.mention_agents(content.agents)
            return msgspec.structs.replace(content, blocks=(*command_blocks, *content.blocks))

        catalog = self.system_blocks[0].text if self.system_blocks else ""
        is_added = await self.user_messages.add(
            text, images, catalog, executor.emit, read_all_mentions, is_steering=is_steering, write=write
        )
        del self.user_command_blocks[: len(command_blocks)]
        return is_added

    # The inbox

    async def _receive(self, executor: Executor, with_notifications: bool) -> bool:
        """What the loop adds between two turns."""
        if with_notifications:
            await run_to_completion(self._add_notifications(executor.emit))
        return await self._deliver_pending(executor, only_steering=True)

    async def _deliver_pending(
        self, executor: Executor, *, before: int | None = None, only_steering: bool = False
    ) -> bool:
        """In the order of sending. `before`: only messages sent before that one. Whether any was delivered."""
        is_delivered = False
        for message in self.inbox.pending():
            if (before is None or message.id < before) and (message.timing == "steer" or not only_steering):
                is_delivered |= await self._deliver(message, executor)
        return is_delivered

    async def _deliver(self, message: InboxMessage, executor: Executor) -> bool:
        """False if it was taken back meanwhile. What a skill raises must not keep the message in the inbox forever:
        then it is delivered as text."""

        def write(entry: JournalEntry) -> Awaitable[int]:
            return self.inbox.deliver(message, entry)

        text, images, is_steering = message.text, message.images, message.timing == "steer"
        try:
            is_added = await self._add_message(text, images, executor, is_steering=is_steering, write=write)
        except StoreError:
            raise
        except KitbagError as error:
            executor.emit(Notice(severity="warning", text=error.problem, fix=error.fix))
            is_added = await self._add_message(text, images, executor, is_steering=True, write=write)
        if is_added:
            executor.emit(MessageDelivered(id=message.id, text=message.typed or text, images=len(images)))
        return is_added

    def _restore_skills(self) -> None:
        """Loads what the conversation contains, even if an earlier call was cancelled while loading."""
        self.skills.restore(use.as_loaded() for use in self.session.skills.values())

    async def _add_notifications(self, emit: Emit) -> str:
        """Background tasks that have ended since the last call. Taking and recording happen together: notifications are
        delivered only once. The user gets the warnings of all tasks that were reported to the model."""
        if self.delegation is None:
            return ""
        text = await self.delegation.take_notifications()
        for warning in self.delegation.take_warnings():
            emit(Notice(severity="warning", text=warning))
        if text:
            await self.session.add_note(text)
        return text

    def _open_budget(self) -> Budget:
        return open_budget(
            self.session,
            self.environment.library.settings,
            self.options.limits,
            task=self.task_id,
            account=self.budget_account(),
            delegated=self.delegation.spent if self.delegation is not None else lambda: (0, 0.0),
        )

    def _on_request(self) -> None:
        """Called when a request is about to be sent to the model."""
        if self._spans is not None:
            self._spans.request_model(self.chosen.model)

    def _make_rate_limiter(self) -> RateLimiter | None:
        name = self.chosen.provider
        settings = self.sources.providers.get(name)
        if settings is None or not (settings.requests_per_minute or settings.tokens_per_minute):
            return None
        limit = RateLimit(requests=settings.requests_per_minute, tokens=settings.tokens_per_minute)
        return RateLimiter(self.journal, name, limit)

    def _requester_name(self) -> str:
        """As shown in an approval question."""
        return self.options.agent

    def _make_loop(self, emit: Emit) -> Loop:
        options, model_info, agent = self.options, self.chosen.info, self.definition
        limits = options.limits
        settings = self.environment.library.settings
        limits = msgspec.structs.replace(
            limits,
            turns=limits.turns or (agent.max_turns if agent is not None else 0) or 0,
            turns_per_run=0 if self.is_interactive else int(settings.get("limits.turns")),
            calls=int(settings.get("limits.calls")),
        )
        effort = options.effort or (agent.effort if agent is not None and agent.effort in _EFFORTS else "")
        model_config = ModelConfig(
            provider=self.provider,
            model=self.chosen.model,
            context_window=ContextWindow(size=model_info.window, max_output=model_info.max_output),
            price=model_info.cost,
            effort=effort,
            on_request=self._on_request,
            rate_limiter=self._make_rate_limiter(),
        )
        self.path_skills.refresh()
        executor = Executor(
            session=self.session,
            toolset=self.toolset,
            context=self._current_context(),
            approvals=self.approvals,
            emit=emit,
            asked_by=self._requester_name(),
            path_skills=self.path_skills,
            permissions=self.current_permissions,
            emits_settings_changes=not self.task_id,
        )
        return Loop(
            session=self.session,
            model_config=model_config,
            executor=executor,
            system=self.system_blocks,
            limits=limits,
            emit=emit,
            retry_policy=msgspec.structs.replace(self._retry_policy, max_wait=settings.get("timeouts.retry")),
            renew_prompt=self._renew_prompt,
            receive=partial(self._receive, executor),
            budget=self._open_budget(),
        )


_EFFORTS = frozenset(("low", "medium", "high"))
