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
from typing import Any, Final, NamedTuple, cast

from kitbag.agent.shield import run_to_completion
from kitbag.errors import InvalidError, KitbagError
from kitbag.permissions.approvals.approval import PermitError, outcome_digest
from kitbag.permissions.model import PermissionDecision, Workspace
from kitbag.processes.command_runner import CommandResult
from kitbag.sandbox.confine import describe_confinement
from kitbag.sandbox.environment import scrub_environment
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.output_file import MAX_BYTES, OutputFile
from kitbag.tasks.standalone_setup import load_user_environment, parse_options
from kitbag.tasks.stop_signals import StopSignals
from kitbag.tasks.task import Task, TaskRequest, TaskResult
from kitbag.tasks.task_processes import kill_processes, terminate_processes
from kitbag.tools.shell.command_run import AgentCommand, confinement_for, run_agent_command, run_in_own_thread
from kitbag.tools.shell.exit_status import exit_meaning, format_exit_code
from kitbag.tools.shell.working_directory import workspace_directory

TERMINATE_SECONDS: Final = 1.2
"""Between asking its processes to terminate and killing them; the caller that stops a task waits little more than two
seconds."""
_KILL_SECONDS = 2.0
_DECISION_CHANGED = "what it would do has changed since it was allowed"


# --- the decision, passed from the process that asks to the one that runs ---------------------------------------------


def with_decision(
    wish: TaskRequest, judgement: PermissionDecision, workspace: Workspace, redactor: Redactor
) -> TaskRequest:
    """The request with all that another process needs to run exactly this command. Raises InvalidError if it can't be
    stored verbatim, and RefusedError if it is denied now."""
    if redactor.redact_text(wish.command) != wish.command or redactor.redact_text(wish.starts_in) != wish.starts_in:
        raise InvalidError(
            "the command holds what looks like a secret, and what runs in the background is written down",
            "let it read the secret from a file or a variable, or run it in the foreground",
        )
    decided = {
        "sandbox": judgement.sandbox,
        "network": judgement.network,
        "by_person": judgement.effect == "ask",
        "root": workspace.root,
        "writable": list(workspace.extra_write_roots),
        # By the user's rules alone: a session may have more, from answers or skills.
        "rules_said": outcome_digest(_decide_now(wish)[0]),
    }
    return wish._replace(options={**wish.options, "decided": decided, "environment": storable_environment(redactor)})


def storable_environment(redactor: Redactor) -> dict[str, str]:
    """The part of the caller's environment that commands may see and that can be stored: a worker has its own
    environment."""
    given = scrub_environment(os.environ.items())
    return {name: value for name, value in given.items() if redactor.redact_value({name: value}) == {name: value}}


def _decide_now(wish: TaskRequest) -> tuple[PermissionDecision, Workspace]:
    """By the user's rules and trust as they are on disk. Raises RefusedError if a rule denies it."""
    _, permissions, _ = load_user_environment(wish.directory, parse_options(wish.options))
    permissions = permissions.with_mode(cast("Any", wish.parent_mode))
    arguments = {"command": wish.command, "description": wish.description, "run_in_background": True}
    judgement = permissions.decide("Bash", arguments, wish.starts_in)
    denying = next((part for part in judgement.parts if part.effect == "deny" and part.rule), None)
    if denying is not None:
        raise PermitError(f"{denying.reason} (`{denying.rule}`)", "leave it, or change the rule")
    return judgement, permissions.workspace


def prepare_command(wish: TaskRequest, task_id: str) -> AgentCommand:
    """The command and its sandbox. The earlier decision holds while the rules still decide the same; otherwise the new
    decision counts. Raises InvalidError, including RefusedError."""
    decided = cast("Mapping[str, Any]", wish.options.get("decided", {}))
    judgement, workspace = _decide_now(wish)
    if workspace.root != decided.get("root"):
        raise PermitError(f"the workspace is now {workspace.root}", "start it again")
    if outcome_digest(judgement) == decided.get("rules_said"):
        reason = "a person agreed to it" if decided["by_person"] else judgement.reason
        judgement = PermissionDecision("allow", reason, (), decided["sandbox"], bool(decided["network"]))
    elif judgement.effect != "allow":
        raise PermitError(f"{_DECISION_CHANGED}: {judgement.reason}", "start it again")
    writable = tuple(root for root in workspace.extra_write_roots if root in decided["writable"])
    workspace = workspace._replace(extra_write_roots=writable)
    if not workspace_directory(wish.starts_in, workspace):
        raise InvalidError(f"{wish.starts_in} is no folder of the workspace any more", "start it elsewhere")
    return AgentCommand(
        wish.command,
        wish.starts_in,
        wish.seconds or math.inf,
        workspace,
        judgement,
        cast("Any", wish.parent_mode),
        task_id,
        environment=wish.options.get("environment", {}),
        max_output_bytes=0,
    )


# --- running
# ------------------------------------------------------------------------------------------------------------


class _CommandResult(NamedTuple):
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

    def abort(self) -> None:
        """Ends it, from any thread; does not record a result."""
        self._stop.set()

    async def run(self, wish: TaskRequest) -> TaskResult:
        """Runs it to its end; the result is recorded on return."""
        with self._signals.watch(self.task.id, self.task.run) as wanted:
            if wanted.is_set():
                self._stop.set()  # so it does not start
            work = asyncio.ensure_future(run_in_own_thread(lambda _: self._run_in_thread(wish)))
            watch = asyncio.ensure_future(wanted.wait())
            try:
                await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    await self._terminate(work)
            except asyncio.CancelledError:
                self._stop.set()
                await run_to_completion(self._finish_cancelled(wish, work))
                raise
            finally:
                watch.cancel()
            return await run_to_completion(self._finish(wish, work, stopped=wanted.is_set()))

    async def _terminate(self, work: "asyncio.Future[_CommandResult]") -> None:
        """Asks all of its processes to terminate; then the runner kills the rest."""
        await asyncio.to_thread(terminate_processes, self.task.id)
        await asyncio.wait([work], timeout=TERMINATE_SECONDS)
        self._stop.set()
        await asyncio.wait([work], timeout=_KILL_SECONDS)

    async def _finish_cancelled(self, wish: TaskRequest, work: "asyncio.Future[_CommandResult]") -> None:
        await asyncio.wait([work], timeout=_KILL_SECONDS)
        await self._finish(wish, work, stopped=True)

    async def _finish(self, wish: TaskRequest, work: "asyncio.Future[_CommandResult]", *, stopped: bool) -> TaskResult:
        """The first result counts, even if the process that stopped the task wrote it."""
        end = self._result_of(wish, work, stopped)._replace(seconds=round(time.monotonic() - self._started_at, 3))
        if not work.done() or stopped:
            await asyncio.to_thread(kill_processes, self.task.id)
        if work.done() and not work.cancelled() and work.exception() is None:
            done = work.result()
            for warning in (*done.ran.notes, *([done.problem] if done.problem else [])):
                await self.board.warn(self.task.id, warning)
        await self.board.finish(self.task.id, self.task.run, end)
        return self.board.find(self.task.id).end or end

    def _result_of(self, wish: TaskRequest, work: "asyncio.Future[_CommandResult]", stopped: bool) -> TaskResult:
        if not work.done() or work.cancelled():
            return TaskResult("cancelled")
        error = work.exception()
        if isinstance(error, KitbagError):
            return TaskResult("failed", error=f"the command did not run: {error.problem}. {error.fix}".strip())
        if error is not None:
            return TaskResult("failed", error=f"{type(error).__name__}: {error}")
        ran, last, size, _, held_in = work.result()
        if stopped or ran.stop_reason == "asked":
            return TaskResult("cancelled", last, length=size)
        if ran.stop_reason == "time":
            return TaskResult("failed", last, f"stopped after {wish.seconds:g} s, when its time was over", length=size)
        code = ran.status if ran.status >= 0 else 128 - ran.status
        if not code or exit_meaning(wish.command, ran.status):
            return TaskResult("completed", last, length=size, code=code)
        return TaskResult("failed", last, format_exit_code(ran.status) + held_in, length=size, code=code)

    # In its own thread

    def _run_in_thread(self, wish: TaskRequest) -> _CommandResult:
        self.is_running = True
        try:
            wanted = prepare_command(wish, self.task.id)
            journal = self.board.journal
            output = OutputFile(os.path.dirname(journal.path), self.task.id, journal.redactor, self._max_output)
            try:
                ran = run_agent_command(wanted, self._stop, output.feed, lambda _: output.flush_idle())
            finally:
                output.close()
            confinement = confinement_for(wanted)
            held_in = f" (ran in: {describe_confinement(confinement)})" if confinement is not None else ""
            return _CommandResult(ran, output.tail or ran.text, output.size, output.problem, held_in)
        finally:
            self.is_running = False
