"""Runs one background command: decides again, runs it in the resulting sandbox, writes its output to a file, and
records the result before anything is notified.

Used by the worker, and by delegation if no worker can be started. A command never runs twice: it has side effects.
"""

import asyncio
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from kitbag.agent.shield import run_to_completion
from kitbag.errors import InvalidError, KitbagError
from kitbag.permissions.approvals.approval import PermitError, outcome_digest
from kitbag.permissions.decisions.decide import Permissions
from kitbag.permissions.model import PermissionDecision, Workspace
from kitbag.processes.command_runner import CommandResult
from kitbag.sandbox.confine import describe_confinement
from kitbag.sandbox.confinement import answer_by_rules
from kitbag.sandbox.environment import scrub_environment
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.output_file import MAX_BYTES, OutputFile
from kitbag.tasks.standalone_setup import load_user_environment
from kitbag.tasks.stop_signals import StopSignals
from kitbag.tasks.stored_options import parse_options
from kitbag.tasks.task import Task, TaskRequest, TaskResult
from kitbag.tasks.task_processes import kill_processes, terminate_processes
from kitbag.tools.shell.command_run import AgentCommand, confinement_for, run_agent_command, run_in_own_thread
from kitbag.tools.shell.exit_status import exit_meaning, format_exit_code
from kitbag.tools.shell.working_directory import workspace_directory

if TYPE_CHECKING:
    from kitbag.agent.undo.background_changes import BackgroundChanges

TERMINATE_SECONDS: Final = 1.2
"""Between asking its processes to terminate and killing them; the caller that stops a task waits little more than two
seconds."""
_KILL_SECONDS = 2.0
UNDO_KEY: Final = "undo"
"""The option of a request that names the session and the call to which its changes belong."""
_DECISION_CHANGED = "its effect changed since it was approved"


# --- the decision, passed from the process that asks to the one that runs ---------------------------------------------


def with_decision(
    request: TaskRequest, decision: PermissionDecision, workspace: Workspace, redactor: Redactor
) -> TaskRequest:
    """The request with all that another process needs to run exactly this command. Raises InvalidError if it can't be
    stored verbatim, and RefusedError if it is denied now."""
    if (
        redactor.redact_text(request.command) != request.command
        or redactor.redact_text(request.start_directory) != request.start_directory
    ):
        raise InvalidError(
            "the command seems to contain a secret, and background commands are recorded",
            "read the secret from a file or variable, or run the command in the foreground",
        )
    stored = {
        "sandbox": decision.sandbox,
        "network": decision.network,
        "by_person": decision.effect == "ask",
        "root": workspace.root,
        "writable": list(workspace.extra_write_roots),
        # By the user's rules alone: a session may have more, from answers or skills.
        "rules_said": outcome_digest(_decide_now(request)[0]),
    }
    return msgspec.structs.replace(
        request, options={**request.options, "decided": stored, "environment": storable_environment(redactor)}
    )


def storable_environment(redactor: Redactor) -> dict[str, str]:
    """The part of the caller's environment that commands may see and that can be stored: a worker has its own
    environment."""
    environment = scrub_environment(os.environ.items())
    return {name: value for name, value in environment.items() if redactor.redact_value({name: value}) == {name: value}}


def _decide_now(request: TaskRequest) -> tuple[PermissionDecision, Permissions]:
    """By the user's rules and trust as they are on disk. Raises RefusedError if a rule denies it."""
    _, permissions, _ = load_user_environment(request.directory, parse_options(request.options))
    permissions = permissions.with_mode(cast("Any", request.parent_mode))
    arguments = {"command": request.command, "description": request.description, "run_in_background": True}
    decision = permissions.decide("Bash", arguments, request.start_directory)
    denying = next((part for part in decision.parts if part.effect == "deny" and part.rule), None)
    if denying is not None:
        raise PermitError(f"{denying.reason} (`{denying.rule}`)", "change the rule")
    return decision, permissions


def prepare_command(request: TaskRequest, task_id: str) -> AgentCommand:
    """The command and its sandbox. The earlier decision holds while the rules still decide the same; otherwise the new
    decision counts. Raises InvalidError, including RefusedError."""
    stored = cast("Mapping[str, Any]", request.options.get("decided", {}))
    decision, permissions = _decide_now(request)
    workspace = permissions.workspace
    if workspace.root != stored.get("root"):
        raise PermitError(f"the workspace is now {workspace.root}", "start it again")
    if outcome_digest(decision) == stored.get("rules_said"):
        reason = "approved by the user" if stored["by_person"] else decision.reason
        decision = msgspec.structs.replace(
            decision, effect="allow", reason=reason, sandbox=stored["sandbox"], network=bool(stored["network"])
        )
    elif decision.effect != "allow":
        raise PermitError(f"{_DECISION_CHANGED}: {decision.reason}", "start it again")
    writable = tuple(root for root in workspace.extra_write_roots if root in stored["writable"])
    workspace = msgspec.structs.replace(workspace, extra_write_roots=writable)
    if not workspace_directory(request.start_directory, workspace):
        raise InvalidError(
            f"{request.start_directory} is no longer a directory of the workspace", "start it in another directory"
        )
    return AgentCommand(
        text=request.command,
        directory=request.start_directory,
        timeout_seconds=request.timeout_seconds or math.inf,
        workspace=workspace,
        decision=decision,
        mode=cast("Any", request.parent_mode),
        session_id=task_id,
        environment=request.options.get("environment", {}),
        max_output_bytes=0,
        on_question=answer_by_rules(permissions, request.start_directory),
    )


# --- running
# ------------------------------------------------------------------------------------------------------------


class _CommandResult(msgspec.Struct, frozen=True, kw_only=True):
    ran: CommandResult
    output_tail: str
    """The end of the output."""
    size: int
    problem: str
    sandbox_note: str


class CommandTask:
    """For the only run of a command."""

    def __init__(self, board: Board, task: Task, signals: StopSignals, max_output: int = MAX_BYTES) -> None:
        self.board = board
        self.task = task
        self.is_running = False
        """In its thread; for code that can't await it."""
        self._signals = signals
        self._max_output = max_output
        self._stop = threading.Event()
        self._started_at = time.monotonic()
        self._changes: BackgroundChanges | None = None
        self._warnings: list[str] = []
        """What can't be undone."""

    def abort(self) -> None:
        """Ends it, from any thread; does not record a result."""
        self._stop.set()

    async def run(self, request: TaskRequest) -> TaskResult:
        """Runs it to its end; the result is recorded on return."""
        with self._signals.watch(self.task.id, self.task.run) as stop_event:
            if stop_event.is_set():
                self._stop.set()  # so it does not start
            work = asyncio.ensure_future(run_in_own_thread(lambda _: self._run_in_thread(request)))
            watch = asyncio.ensure_future(stop_event.wait())
            try:
                await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    await self._terminate(work)
            except asyncio.CancelledError:
                self._stop.set()
                await run_to_completion(self._finish_cancelled(request, work))
                raise
            finally:
                watch.cancel()
            return await run_to_completion(self._finish(request, work, stopped=stop_event.is_set()))

    async def _terminate(self, work: "asyncio.Future[_CommandResult]") -> None:
        """Asks all of its processes to terminate; then the runner kills the rest."""
        await asyncio.to_thread(terminate_processes, self.task.id)
        await asyncio.wait([work], timeout=TERMINATE_SECONDS)
        self._stop.set()
        await asyncio.wait([work], timeout=_KILL_SECONDS)

    async def _finish_cancelled(self, request: TaskRequest, work: "asyncio.Future[_CommandResult]") -> None:
        await asyncio.wait([work], timeout=_KILL_SECONDS)
        await self._finish(request, work, stopped=True)

    async def _finish(
        self, request: TaskRequest, work: "asyncio.Future[_CommandResult]", *, stopped: bool
    ) -> TaskResult:
        """The first result counts, even if the process that stopped the task wrote it."""
        result = msgspec.structs.replace(
            self._result_of(request, work, stopped), seconds=round(time.monotonic() - self._started_at, 3)
        )
        if not work.done() or stopped:
            await asyncio.to_thread(kill_processes, self.task.id)
        if work.done() and not work.cancelled() and work.exception() is None:
            done = work.result()
            for warning in (*done.ran.notes, *([done.problem] if done.problem else [])):
                await self.board.warn(self.task.id, warning)
        if not stopped:
            await self._finish_changes()
        await self.board.finish(self.task.id, self.task.run, result)
        if stopped:  # stopping it does not wait for a scan of the workspace
            await self._finish_changes()
        return self.board.find(self.task.id).result or result

    async def _finish_changes(self) -> None:
        if self._changes is not None:
            await asyncio.to_thread(self._changes.finish)
        for warning in self._warnings:
            await self.board.warn(self.task.id, warning)

    def _result_of(self, request: TaskRequest, work: "asyncio.Future[_CommandResult]", stopped: bool) -> TaskResult:
        if not work.done() or work.cancelled():
            return TaskResult(status="cancelled")
        error = work.exception()
        if isinstance(error, KitbagError):
            return TaskResult(status="failed", error=f"the command did not run: {error.problem}. {error.fix}".strip())
        if error is not None:
            return TaskResult(status="failed", error=f"{type(error).__name__}: {error}")
        done = work.result()
        ran, tail, size = done.ran, done.output_tail, done.size
        if stopped or ran.stop_reason == "asked":
            return TaskResult(status="cancelled", text=tail, full_length=size)
        if ran.stop_reason == "time":
            error_text = f"timed out after {request.timeout_seconds:g} s"
            return TaskResult(status="failed", text=tail, error=error_text, full_length=size)
        return describe_command_end(request.command, ran, tail, size, done.sandbox_note)

    # In its own thread

    def _record_changes(self, request: TaskRequest, command: AgentCommand) -> "BackgroundChanges | None":
        """None if it only reads, or can't be undone."""
        target = request.options.get(UNDO_KEY)
        if not target:
            return None
        from kitbag.agent.undo.background_changes import BackgroundChanges

        session_id, call = target
        changes = BackgroundChanges(
            self.board.journal, command.workspace, self.task.id, session_id, call, self._warnings.append
        )
        changes.start()
        return changes

    def _run_in_thread(self, request: TaskRequest) -> _CommandResult:
        self.is_running = True
        try:
            command = prepare_command(request, self.task.id)
            journal = self.board.journal
            self._changes = self._record_changes(request, command)
            output = OutputFile(os.path.dirname(journal.path), self.task.id, journal.redactor, self._max_output)
            try:
                ran = run_agent_command(command, self._stop, output.feed, lambda _: output.flush_idle())
            finally:
                output.close()
            confinement = confinement_for(command)
            sandbox_note = f" (ran in: {describe_confinement(confinement)})" if confinement is not None else ""
            return _CommandResult(
                ran=ran,
                output_tail=output.tail or ran.text,
                size=output.size,
                problem=output.problem,
                sandbox_note=sandbox_note,
            )
        finally:
            self.is_running = False


def describe_command_end(command: str, ran: CommandResult, tail: str, size: int, sandbox_note: str = "") -> TaskResult:
    """Of a command that ended by itself. `tail` and `size`: of its output."""
    code = ran.status if ran.status >= 0 else 128 - ran.status
    if not code or exit_meaning(command, ran.status):
        return TaskResult(status="completed", text=tail, full_length=size, exit_code=code)
    error = format_exit_code(ran.status) + sandbox_note
    return TaskResult(status="failed", text=tail, error=error, full_length=size, exit_code=code)
