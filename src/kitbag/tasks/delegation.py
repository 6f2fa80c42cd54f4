"""Starts other agents and background commands for a run's tools, and reports on them.

Implements tools/delegation for Agent and Subagent. A foreground agent runs in this process, a background task in a
worker; the board records both.
"""

import asyncio
import contextlib
import importlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from kitbag.agent.resume import read_totals
from kitbag.agent.session import new_session_id
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.agent_checks import check_definition, check_persona, check_preloads
from kitbag.assembly.base_agent import BaseAgent
from kitbag.assembly.parent_context import ParentContext
from kitbag.errors import InvalidError, KitbagError
from kitbag.library.agents import AgentFile as AgentFile
from kitbag.library.names import normalize_name
from kitbag.models.model_selection import can_connect, resolve_model
from kitbag.permissions.approvals.approval import Denial
from kitbag.permissions.decisions.decide import Permissions, child_mode
from kitbag.permissions.model import PermissionDecision, is_inside
from kitbag.tasks.task_host import MAX_DEPTH, TaskHost
from kitbag.telemetry.switch import ENDPOINT_SETTING, begin_task_trace
from kitbag.telemetry.trace_context import current_span
from kitbag.tools.background_switch import BackgroundSwitch
from kitbag.tools.delegation import (
    Delegation,
    DelegationRequest,
    QueueOptions,
    RunningCommand,
    TaskReport,
    TaskStopResult,
)

if TYPE_CHECKING:  # most runs start no agent; imported when one does
    from kitbag.tasks.board import Board
    from kitbag.tasks.task import Task, TaskKind, TaskRequest

_MAX_DESCRIPTION = 60


def import_for_start() -> None:
    """What starting an agent imports, which takes longer than all the rest of it."""
    for name in (
        "ctypes",
        *(f"kitbag.tasks.{module}" for module in ("agent_permissions", "board", "notifications", "reports", "runner")),
    ):
        importlib.import_module(name)


class TaskDelegation:
    """For one agent. `parent` and `depth` are those of its task; empty and 0 for the user's own agent."""

    def __init__(
        self,
        inherited: Callable[[], ParentContext],
        root: str,
        parent: str = "",
        depth: int = 0,
        host: TaskHost | None = None,
        *,
        may_have_tasks: bool = True,
    ) -> None:
        """`inherited`: returns what child agents inherit, evaluated when one starts. `may_have_tasks`: the board may
        hold earlier tasks, e.g. of a resumed session."""
        self._may_have_tasks = may_have_tasks
        self._inherited = inherited
        self._root = root
        self._parent = parent
        self._depth = depth
        self._host = host
        self._reported_warnings: dict[str, str] = {}
        """As the user sees them, with the agent and the task ID, and as recorded."""
        self._seen_warnings: set[str] = set()
        """Those that the user has seen."""

    @property
    def host(self) -> TaskHost:
        """Created on first use: most runs start no agent."""
        if self._host is None:
            from kitbag.tasks.board import Board

            self._host = TaskHost(Board(self._inherited().journal))
        return self._host

    @property
    def end_notice(self) -> str:
        return "You will be notified when it ends."

    @property
    def has_started_tasks(self) -> bool:
        return self._host is not None or self._may_have_tasks

    @property
    def board(self) -> "Board":
        return self.host.board

    # Permissions

    def approval_facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        from kitbag.tasks.agent_permissions import describe_agent_tools

        definition = self._find_usable_agent(agent)
        mode = child_mode(self._inherited().mode, definition.permission_mode)
        return (("mode", mode), ("tools", describe_agent_tools(definition)), ("from", definition.path))

    def _find_usable_agent(self, name: str) -> AgentFile:
        from kitbag.tasks.agent_permissions import check_has_tools, check_not_denied

        library = self._inherited().environment.library
        definition = library.find_agent(name)
        if not library.evaluate(definition, library.visibility_context("agents")).model:
            raise InvalidError(f"the agent {definition.full_name} is not available to you", "choose another agent")
        if self._depth >= MAX_DEPTH:
            raise InvalidError(f"agents can be nested only {MAX_DEPTH} levels deep", "do the work yourself")
        check_not_denied(definition, self._inherited().permissions)
        check_has_tools(definition, self._inherited())
        return definition

    async def request_permission(self, request: DelegationRequest, permissions: Permissions, directory: str) -> str:
        arguments = {"subagent_type": request.agent, "prompt": request.prompt, "description": request.description}
        facts = self.approval_facts(request.agent, "")
        approvals = self._inherited().approvals
        permit = await approvals.authorize(permissions, "Task", arguments, directory, "", facts)
        if isinstance(permit, Denial):
            return permit.reason
        permit.use("Task", arguments, directory, approvals.with_session_rules(permissions))
        return ""

    # Starting

    async def close(self) -> None:
        """Before the journal is closed."""
        if self._host is not None and not self._parent:
            await self._host.close(self._inherited().environment.places.kitbag_home)

    async def start(
        self,
        request: DelegationRequest,
        progress: Callable[[str], None],
        background_switch: BackgroundSwitch | None = None,
    ) -> TaskReport:
        definition = self._find_usable_agent(request.agent)
        background = request.background or definition.background
        task_request = self._make_request(request, definition)
        if background:
            from kitbag.tasks.command_task import storable_environment

            environment = self._inherited().command_env or storable_environment(self.board.journal.redactor)
            task_request = msgspec.structs.replace(
                task_request, options={**task_request.options, "environment": dict(environment)}
            )
        if request.resume:
            return await self._resume(request, task_request, background, progress, background_switch)
        warnings: list[str] = []
        if task_request.pack:
            from kitbag.tasks.packed_task import pack_request

            task_request, warnings = await asyncio.to_thread(
                pack_request, task_request, self._inherited(), definition, request.pack_selection
            )
        if background:
            warnings += await asyncio.to_thread(self._check_definition, definition)
        if background:
            task_id, queueing = request.task_id or new_session_id(), self._queue_options(request, definition)
            task = await self._create_task("agent", task_request, background, warnings, task_id, queueing)
            report = msgspec.structs.replace(self._report(task), is_existing=task.id != task_id)
            return self._note_warnings(report)
        task = await self._create_task("agent", task_request, background, warnings, request.task_id)
        return self._note_warnings(await self._run_movable(task, task_request, "", progress, background_switch))

    def _check_definition(self, definition: AgentFile) -> list[str]:
        """What the caller of a background task can know at once; the worker finds the rest."""
        library = self._inherited().environment.library
        notices = [
            *check_definition(definition, library),
            *check_preloads(definition, library),
            *check_persona(library),
        ]
        return [notice.line() for notice in notices]

    def _queue_options(self, request: DelegationRequest, definition: AgentFile) -> QueueOptions:
        """With the priority of the agent's file, and the providers of its own and of the parent's model: a worker needs
        both, as here."""
        inherited = self._inherited()
        providers = [inherited.chosen.provider]
        if not request.model and definition.model.name not in ("", "inherit"):
            with contextlib.suppress(KitbagError):  # the run reports it and uses the parent's
                own = resolve_model(definition.model.name, inherited.sources, "", inherited.chosen).provider
                providers += [own] if can_connect(own, inherited.sources) else []
        given = request.queueing
        priority = definition.priority if given.priority is None else given.priority
        return msgspec.structs.replace(given, priority=priority, providers=tuple(dict.fromkeys(providers)))

    async def _create_task(
        self,
        kind: "TaskKind",
        request: "TaskRequest",
        background: bool,
        warnings: Sequence[str] = (),
        task_id: str = "",
        queueing: QueueOptions | None = None,
    ) -> "Task":
        """Puts a task on the board and, if it is a background task, starts a worker. On cancellation the task is
        stopped. Returns the unfinished task with the same key, if there is one."""
        task_id, root, parent = task_id or new_session_id(), self._root, self._parent

        async def put() -> "Task":
            depth = self._depth + 1
            max_queued = int(self._inherited().environment.library.settings.get("tasks.max_queued"))
            task = await self.board.create(
                task_id,
                kind,
                request,
                root=root,
                parent=parent,
                depth=depth,
                background=background,
                queueing=queueing,
                max_queued=max_queued if kind == "agent" else 0,
            )
            for warning in warnings if task.id == task_id else ():
                await self.board.warn(task_id, warning)
            if background and not await self._hand_to_worker(task.id) and kind == "command":
                self.host.run_locally(task, request)
            return self.board.find(task.id)

        try:
            return await run_to_completion(put())
        except asyncio.CancelledError:
            await run_to_completion(self._stop_unreported(task_id))
            raise

    async def _stop_unreported(self, task_id: str) -> None:
        """Stops a task whose caller was cancelled before it got the task's id."""
        from kitbag.tasks.stop import stop_task

        with contextlib.suppress(KitbagError):
            await stop_task(self.board, self.board.find(task_id), "cancelled")

    def _make_request(self, delegated: DelegationRequest, definition: AgentFile) -> "TaskRequest":
        from kitbag.tasks.agent_permissions import FINGERPRINT_KEY, agent_fingerprint, with_rules_digest
        from kitbag.tasks.stored_options import worker_options
        from kitbag.tasks.task import TaskRequest

        inherited = self._inherited()
        request = TaskRequest(
            agent=definition.full_name,
            prompt=delegated.prompt,
            description=delegated.description or _shorten(delegated.prompt),
            model=delegated.model,
            parent_model=inherited.chosen.reference,
            parent_mode=inherited.mode,
            max_turns=delegated.max_turns,
            pack=delegated.pack,
            output_schema=delegated.output_schema,
            traceparent=self._traceparent(),
            directory=inherited.environment.places.cwd,
            options={**worker_options(inherited), FINGERPRINT_KEY: agent_fingerprint(definition)},
        )
        return with_rules_digest(request, inherited.permissions)

    def _traceparent(self) -> str:
        endpoint = str(self._inherited().environment.library.settings.get(ENDPOINT_SETTING))
        span = current_span() or begin_task_trace(endpoint)
        return span.traceparent if span is not None else ""

    async def _resume(
        self,
        delegated: DelegationRequest,
        request: "TaskRequest",
        background: bool,
        progress: Callable[[str], None],
        background_switch: BackgroundSwitch | None,
    ) -> TaskReport:
        task = self.board.find(delegated.resume, self._visibility_filter())
        if task.kind != "agent":
            raise InvalidError(f"task {task.id} is a command, which can't be resumed", "run it again")
        if task.directory != request.directory:
            raise InvalidError(f"task {task.id} runs in {task.directory}", "resume it from there, or start a new task")
        if background and self._root and task.root != self._root:
            problem = f"task {task.id} belongs to another session, which receives its result"
            raise InvalidError(problem, "resume it in the foreground, or start a new task")
        if task.depth <= self._depth:
            raise InvalidError(f"task {task.id} is a parent or sibling of your own task", "do the work yourself")
        if normalize_name(task.agent) != normalize_name(request.agent):
            raise InvalidError(f"task {task.id} belongs to the agent {task.agent}", f"resume it with {task.agent}")
        if not task.is_finished:
            raise InvalidError(f"task {task.id} is {task.status}", "wait for it with TaskOutput, or stop it")
        previous = self.board.request(task.id)
        request = msgspec.structs.replace(
            request,
            prompt=previous.prompt,
            description=previous.description,
            skills=previous.skills,
            pack=previous.pack,
            contract=previous.contract,
            output_schema=previous.output_schema,
            message=delegated.prompt,
            previous_turns=read_totals(self.board.journal, task.session).turns,
        )
        if background:
            if not await self.board.requeue(task, request):
                raise InvalidError(f"task {task.id} was resumed by another process", "read its output with TaskOutput")
            await self._hand_to_worker(task.id)
            return self._note_warnings(self._report(self.board.find(task.id)))
        await self.board.update_request(task, request)
        report = await self._run_movable(task, request, delegated.prompt, progress, background_switch)
        return self._note_warnings(report)

    async def _run_movable(
        self,
        task: "Task",
        request: "TaskRequest",
        message: str,
        progress: Callable[[str], None],
        background_switch: BackgroundSwitch | None,
    ) -> TaskReport:
        """Runs it in the foreground until it ends or the user moves it to the background."""
        if background_switch is None:
            return await self._run_foreground(task, request, message, progress)
        is_moved = False

        def show(text: str) -> None:
            if not is_moved:
                progress(text)

        running = asyncio.create_task(self._run_foreground(task, request, message, show))
        while await background_switch.run(running):
            is_moved = await self.board.move_to_background(task.id)
            if is_moved:
                self.host.keep_agent(task.id, running)
                return msgspec.structs.replace(self._report(self.board.find(task.id)), is_moved=True)
        return await running

    async def _run_foreground(
        self, task: "Task", request: "TaskRequest", message: str, progress: Callable[[str], None]
    ) -> TaskReport:
        from kitbag.tasks.runner import TaskRunner, request_for_messages

        claimed, is_restart = False, bool(message)
        try:
            async with self.host.slot(task):
                while True:
                    claiming = asyncio.ensure_future(self.board.claim(task, restart=is_restart, foreground=True))
                    try:
                        await run_to_completion(asyncio.wait([claiming]))
                    finally:  # also on cancellation: we must know whether we claimed it
                        claimed = not claiming.cancelled() and not claiming.exception() and claiming.result()
                    claiming.result()  # raises what prevented the claim
                    task = self.board.find(task.id)
                    if not claimed:
                        break
                    runner = TaskRunner(
                        board=self.board,
                        task=task,
                        inherited=self._inherited(),
                        signals=self.host.signals,
                        make_delegation=self._child_delegation,
                        progress=progress,
                    )
                    result = await runner.run(request, message)
                    next_request = request_for_messages(self.board, task, result)
                    if next_request is None:
                        break
                    task, request, message, is_restart = self.board.find(task.id), next_request, "", True
        except BaseException as error:
            if claimed or not message:  # then it is ours and must not stay unfinished
                await run_to_completion(self._finish_after_error(task, error))
            raise
        task = self.board.find(task.id)
        if not claimed and not task.is_finished:
            raise InvalidError(f"task {task.id} was started by another process", "read its output with TaskOutput")
        return self._report(task)

    async def _finish_after_error(self, task: "Task", error: BaseException) -> None:
        """The first result counts."""
        from kitbag.tasks.owner import this_process
        from kitbag.tasks.task import TaskResult

        with contextlib.suppress(KitbagError):
            task = self.board.find(task.id)
            if not task.is_finished and task.owner == this_process():
                why = "" if isinstance(error, asyncio.CancelledError) else f"{type(error).__name__}: {error}"
                await self.board.finish(
                    task.id, task.run, TaskResult(status="failed" if why else "cancelled", error=why)
                )

    def _child_delegation(self, agent: BaseAgent, task: "Task") -> Delegation | None:
        if task.depth >= MAX_DEPTH:
            return None
        return TaskDelegation(agent.parent_context, self._root, task.id, task.depth, self.host)

    async def start_command(
        self,
        command: str,
        description: str,
        directory: str,
        timeout_seconds: float,
        decision: PermissionDecision,
        started_by: tuple[str, str] = ("", ""),
    ) -> TaskReport:
        from kitbag.tasks.command_task import UNDO_KEY, with_decision
        from kitbag.tasks.stored_options import worker_options
        from kitbag.tasks.task import TaskRequest

        inherited = self._inherited()
        request = TaskRequest(
            agent="",
            prompt="",
            description=description,
            parent_mode=inherited.mode,
            command=command,
            timeout_seconds=timeout_seconds,
            start_directory=directory,
            directory=inherited.environment.places.cwd,
            options={**worker_options(inherited), UNDO_KEY: self._undo_target(*started_by)},
        )
        redactor = self.board.journal.redactor
        request = await asyncio.to_thread(with_decision, request, decision, inherited.environment.workspace, redactor)
        return self._report(await self._create_task("command", request, background=True))

    async def adopt_command(self, command: RunningCommand) -> TaskReport:
        from kitbag.tasks.adopted_command import follow_command
        from kitbag.tasks.task import TaskRequest

        inherited = self._inherited()
        request = TaskRequest(
            agent="",
            prompt="",
            description=command.description,
            parent_mode=inherited.mode,
            command=command.text,
            start_directory=command.directory,
            directory=inherited.environment.places.cwd,
        )
        task = await self.board.create(
            new_session_id(),
            "command",
            request,
            root=self._root,
            parent=self._parent,
            depth=self._depth + 1,
            background=False,  # no worker may start it again
        )
        await self.board.claim(task, foreground=True)
        await self.board.move_to_background(task.id)
        task = self.board.find(task.id)
        self.host.keep(asyncio.create_task(follow_command(self.board, task, command, self.host.signals)))
        return self._report(task)

    def _undo_target(self, session_id: str, call_id: str) -> list[str]:
        """The session and call in which `kitbag undo` finds a command's changes; empty: not recorded. Changes in a
        worktree belong to its branch."""
        workspace = self._inherited().environment.workspace
        if not self._root or not call_id or is_inside(workspace.root, os.path.realpath(workspace.kitbag_home)):
            return []
        from kitbag.agent.undo.session_changes import qualify_call_id

        return [self._root, qualify_call_id(call_id, session_id, self._root)]

    async def _hand_to_worker(self, task_id: str) -> bool:
        """Records what prevents a worker from running the task as a warning; the task stays queued. False if no worker
        runs and none can be started."""
        from kitbag.tasks.worker_process import NO_WORKER, ensure_worker

        start = await asyncio.to_thread(ensure_worker, self._inherited().environment.places.kitbag_home)
        if start.problem:
            await self.board.warn(task_id, start.problem)
        return not start.problem.startswith(NO_WORKER)

    # Reading

    async def report(self, task_id: str, timeout_seconds: float, offset: int = 0) -> TaskReport:
        task = await self._wait(task_id, timeout_seconds)
        await self._mark_delivered(task)
        from kitbag.tasks.reports import fetch_sessions

        await fetch_sessions(self.board.journal, task)
        return self._note_warnings(self._report(task, offset))

    async def wait(self, task_id: str, timeout_seconds: float) -> None:
        self._note_warnings(self._report(await self._wait(task_id, timeout_seconds)))

    async def _wait(self, task_id: str, timeout_seconds: float) -> "Task":
        from kitbag.tasks.worker_process import wait_until_finished

        task = self.board.find(task_id, self._visibility_filter())
        await wait_until_finished(
            self.board, self._inherited().environment.places.kitbag_home, task.id, timeout_seconds
        )
        return self.board.find(task.id)

    def _note_warnings(self, report: TaskReport) -> TaskReport:
        """For `take_warnings`."""
        for warning in report.warnings:
            self._reported_warnings[f"{report.name} {report.id}: {warning}"] = warning
        return report

    def take_warnings(self) -> tuple[str, ...]:
        reported, self._reported_warnings = self._reported_warnings, {}
        new = {line: warning for line, warning in reported.items() if line not in self._seen_warnings}
        if not new:
            return ()
        self._seen_warnings.update(new)
        # The session has shown those of its persona when it started.
        shown = {notice.line() for notice in check_persona(self._inherited().environment.library)}
        return tuple(line for line, warning in new.items() if warning not in shown)

    async def _mark_delivered(self, task: "Task") -> None:
        """A result that this agent has read is not announced to it again."""
        from kitbag.tasks.notifications import unnotified_tasks

        if any(one.id == task.id for one in unnotified_tasks(self.board, self._parent or self._root)):
            await self.board.mark_notified(task.id, task.run)

    def _visibility_filter(self) -> "Callable[[Task], bool]":
        """A model sees the tasks of its session and of its directory, not the user's other work. Without a session and
        a task, the caller is the user and sees everything."""
        here, is_user = self._inherited().environment.places.cwd, not self._root and not self._parent
        related = {task.id for task in self._related_tasks()}
        return lambda task: is_user or task.directory == here or task.id in related

    def _report(self, task: "Task", offset: int = 0) -> TaskReport:
        from kitbag.tasks.reports import build_report

        return build_report(self.board, task, offset)

    async def take_notifications(self) -> str:
        if not self.has_started_tasks or (self._host is None and not self._root):
            return ""
        from kitbag.tasks.notifications import render_notifications, take_unnotified

        finished = await take_unnotified(self.board, self._root, self._parent)
        for task in finished:
            self._note_warnings(self._report(task))
        return render_notifications(self.board, finished)

    def has_notifications(self) -> bool:
        from kitbag.tasks.notifications import unnotified_tasks

        if not self.has_started_tasks:
            return False
        self.board.refresh()
        return bool(self._root) and bool(unnotified_tasks(self.board, self._parent or self._root))

    def spent(self) -> tuple[int, float]:
        """Tokens and cost of all other tasks under the same limits: ancestors, siblings and descendants."""
        if not self.has_started_tasks:
            return 0, 0.0
        others = [task for task in self._related_tasks() if task.id != self._parent and task.kind == "agent"]
        reports = [self._report(task) for task in others]
        tokens, cost = sum(report.tokens for report in reports), sum(report.cost or 0.0 for report in reports)
        if self._parent and self._root:
            with contextlib.suppress(KitbagError):  # the spending of an unreadable session is unknown
                totals = read_totals(self.board.journal, self._root)
                return tokens + totals.usage.total_input + totals.usage.output, cost + totals.cost
        return tokens, cost

    def _related_tasks(self) -> "list[Task]":
        if self._root or not self._parent:
            return self.board.descendants(self._root) if self._root else []
        top = self.board.find(self._parent)
        while top.parent:
            top = self.board.find(top.parent)
        return [top, *self.board.descendants(top.id)]

    def unfinished(self) -> list[TaskReport]:
        started = self.board.descendants(self._parent or self._root) if self.has_started_tasks else []
        return [self._note_warnings(self._report(task)) for task in started if task.background and not task.is_finished]

    async def stop(self, task_id: str) -> TaskStopResult:
        from kitbag.tasks.stop import stop_task

        return await stop_task(self.board, self.board.find(task_id, self._visibility_filter()), "model")


def _shorten(prompt: str) -> str:
    """The beginning of the prompt, for lists."""
    words = " ".join(prompt.split())
    return words if len(words) <= _MAX_DESCRIPTION else f"{words[: _MAX_DESCRIPTION - 1]}…"
