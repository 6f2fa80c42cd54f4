"""Carries out one background command: judged once more, run in what that says, its output in a file of its own, and its
end on the board before anybody is told.

Used by the worker, and by delegation where no worker can be started. A command is never run twice: it has effects.
"""

import asyncio
import math
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from kitbag.agent.shield import to_its_end
from kitbag.errors import InvalidError, KitbagError
from kitbag.permissions.approvals.approval import RefusedError, outcome_digest
from kitbag.permissions.model import Judgement, Workspace
from kitbag.processes.command_runner import Ran
from kitbag.sandbox.confine import describe
from kitbag.sandbox.environment import scrubbed
from kitbag.store.redaction import Redactor
from kitbag.tasks.board import Board
from kitbag.tasks.output_file import MOST_BYTES, OutputFile
from kitbag.tasks.standalone_setup import lay_person, read_options
from kitbag.tasks.stop_signals import Signals
from kitbag.tasks.task import End, Task, Wish
from kitbag.tasks.task_processes import ask_to_end, end_processes
from kitbag.tools.shell.command_run import Wanted, confinement_of, in_own_thread, run_wanted
from kitbag.tools.shell.exit_status import answer_of, exit_code
from kitbag.tools.shell.working_directory import inside

POLITE_SECONDS: Final = 1.2
"""Between asking its processes to end and ending them; whoever stops a task waits for little more than two seconds."""
_ENDING_SECONDS = 2.0
_CHANGED = "what it would do has changed since it was allowed"


# --- what was decided, from the one who wants it to the one who runs it -----------------------------------------------


def with_decision(wish: Wish, judgement: Judgement, workspace: Workspace, redactor: Redactor) -> Wish:
    """The wish with all that another process needs to run exactly this. Raises InvalidError for what can't be written
    down as it is, and RefusedError for what is denied by now."""
    if redactor.text(wish.command) != wish.command or redactor.text(wish.starts_in) != wish.starts_in:
        raise InvalidError(
            "the command holds what looks like a secret, and what runs in the background is written down",
            "let it read the secret from a file or a variable, or run it in the foreground",
        )
    decided = {
        "sandbox": judgement.sandbox,
        "network": judgement.network,
        "by_person": judgement.effect == "ask",
        "root": workspace.root,
        "writable": list(workspace.also_writable),
        # By the person's rules alone. A session may know more: what was answered in it, or what a skill allows.
        "rules_said": outcome_digest(_judged_now(wish)[0]),
    }
    return wish._replace(options={**wish.options, "decided": decided, "environment": written_environment(redactor)})


def written_environment(redactor: Redactor) -> dict[str, str]:
    """What commands see of the environment of whoever begins a task, without what can't be written down: the worker
    has another one."""
    given = scrubbed(os.environ.items())
    return {name: value for name, value in given.items() if redactor.value({name: value}) == {name: value}}


def _judged_now(wish: Wish) -> tuple[Judgement, Workspace]:
    """By the person's rules and trust as they are on the disk. Raises RefusedError where a rule denies it."""
    _, permissions, _ = lay_person(wish.directory, read_options(wish.options))
    permissions = permissions.in_mode(cast("Any", wish.parent_mode))
    arguments = {"command": wish.command, "description": wish.description, "run_in_background": True}
    judgement = permissions.decide("Bash", arguments, wish.starts_in)
    denying = next((part for part in judgement.parts if part.effect == "deny" and part.rule), None)
    if denying is not None:
        raise RefusedError(f"{denying.reason} (`{denying.rule}`)", "leave it, or change the rule")
    return judgement, permissions.workspace


def wanted_now(wish: Wish, task_id: str) -> Wanted:
    """What is to run, and in what. As long as the rules say what they said, what was decided then holds; where they
    say something else, that counts. Raises InvalidError, RefusedError among them."""
    decided = cast("Mapping[str, Any]", wish.options.get("decided", {}))
    judgement, workspace = _judged_now(wish)
    if workspace.root != decided.get("root"):
        raise RefusedError(f"the workspace is now {workspace.root}", "start it again")
    if outcome_digest(judgement) == decided.get("rules_said"):
        reason = "a person agreed to it" if decided["by_person"] else judgement.reason
        judgement = Judgement("allow", reason, (), decided["sandbox"], bool(decided["network"]))
    elif judgement.effect != "allow":
        raise RefusedError(f"{_CHANGED}: {judgement.reason}", "start it again")
    writable = tuple(root for root in workspace.also_writable if root in decided["writable"])
    workspace = workspace._replace(also_writable=writable)
    if not inside(wish.starts_in, workspace):
        raise InvalidError(f"{wish.starts_in} is no folder of the workspace any more", "start it elsewhere")
    return Wanted(
        wish.command,
        wish.starts_in,
        wish.seconds or math.inf,
        workspace,
        judgement,
        cast("Any", wish.parent_mode),
        task_id,
        environment=wish.options.get("environment", {}),
        flood=0,
    )


# --- running it -------------------------------------------------------------------------------------------------------


class _Done(NamedTuple):
    ran: Ran
    last: str
    """The end of what it printed."""
    size: int
    problem: str
    held_in: str


class CommandTask:
    """Of the one beginning that a command has."""

    def __init__(self, board: Board, task: Task, signals: Signals, most_output: int = MOST_BYTES) -> None:
        self.board = board
        self.task = task
        self.is_running = False
        """In its thread; for whoever can't wait for it in the event loop."""
        self._signals = signals
        self._most_output = most_output
        self._stop = threading.Event()
        self._begun = time.monotonic()

    def leave(self) -> None:
        """Ends it; from any thread. Its end on the board is left to others."""
        self._stop.set()

    async def run(self, wish: Wish) -> End:
        """To its end, which is written by then."""
        with self._signals.of(self.task.id, self.task.run) as wanted:
            if wanted.is_set():
                self._stop.set()  # then it does not begin
            work = asyncio.ensure_future(in_own_thread(lambda _: self._work(wish)))
            watch = asyncio.ensure_future(wanted.wait())
            try:
                await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    await self._ask_to_end(work)
            except asyncio.CancelledError:
                self._stop.set()
                await to_its_end(self._given_up(wish, work))
                raise
            finally:
                watch.cancel()
            return await to_its_end(self._finish(wish, work, stopped=wanted.is_set()))

    async def _ask_to_end(self, work: "asyncio.Future[_Done]") -> None:
        """All of its processes, wherever they are; then the runner ends what is left."""
        await asyncio.to_thread(ask_to_end, self.task.id)
        await asyncio.wait([work], timeout=POLITE_SECONDS)
        self._stop.set()
        await asyncio.wait([work], timeout=_ENDING_SECONDS)

    async def _given_up(self, wish: Wish, work: "asyncio.Future[_Done]") -> None:
        await asyncio.wait([work], timeout=_ENDING_SECONDS)
        await self._finish(wish, work, stopped=True)

    async def _finish(self, wish: Wish, work: "asyncio.Future[_Done]", *, stopped: bool) -> End:
        """The first end counts, also when it was written by the one who stopped it."""
        end = self._end_of(wish, work, stopped)._replace(seconds=round(time.monotonic() - self._begun, 3))
        if not work.done() or stopped:
            await asyncio.to_thread(end_processes, self.task.id)
        if work.done() and not work.cancelled() and work.exception() is None:
            done = work.result()
            for warning in (*done.ran.notes, *([done.problem] if done.problem else [])):
                await self.board.warn(self.task.id, warning)
        await self.board.end(self.task.id, self.task.run, end)
        return self.board.find(self.task.id).end or end

    def _end_of(self, wish: Wish, work: "asyncio.Future[_Done]", stopped: bool) -> End:
        if not work.done() or work.cancelled():
            return End("cancelled")
        error = work.exception()
        if isinstance(error, KitbagError):
            return End("failed", error=f"the command did not run: {error.problem}. {error.fix}".strip())
        if error is not None:
            return End("failed", error=f"{type(error).__name__}: {error}")
        ran, last, size, _, held_in = work.result()
        if stopped or ran.stopped == "asked":
            return End("cancelled", last, length=size)
        if ran.stopped == "time":
            return End("failed", last, f"stopped after {wish.seconds:g} s, when its time was over", length=size)
        code = ran.status if ran.status >= 0 else 128 - ran.status
        if not code or answer_of(wish.command, ran.status):
            return End("completed", last, length=size, code=code)
        return End("failed", last, exit_code(ran.status) + held_in, length=size, code=code)

    # In its own thread

    def _work(self, wish: Wish) -> _Done:
        self.is_running = True
        try:
            wanted = wanted_now(wish, self.task.id)
            journal = self.board.journal
            output = OutputFile(os.path.dirname(journal.path), self.task.id, journal.redactor, self._most_output)
            try:
                ran = run_wanted(wanted, self._stop, output.take, lambda _: output.quiet())
            finally:
                output.close()
            confinement = confinement_of(wanted)
            held_in = f" (ran in: {describe(confinement)})" if confinement is not None else ""
            return _Done(ran, output.last or ran.text, output.size, output.problem, held_in)
        finally:
            self.is_running = False
