"""Runs one agent task to its end: starts the agent, watches it, stops it on request, restarts it with missing skills or
files, and records the result. The same in the foreground and in the worker.

Used by delegation and the worker. The result is in the journal before anything is notified.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kitbag.agent.inbox import Inbox
from kitbag.agent.run import Run
from kitbag.agent.session import STREAM_PREFIX
from kitbag.agent.shield import run_to_completion
from kitbag.assembly.base_agent import BaseAgent
from kitbag.assembly.parent_context import ParentContext
from kitbag.errors import InvalidError, KitbagError
from kitbag.events import Event, Notice, Retrying, RunEnded, ToolFinished, ToolProgress, ToolStarted, TurnEnded, Waiting
from kitbag.messages import message_from_json
from kitbag.store.fencing import fenced_by
from kitbag.tasks.agent_permissions import check_agent_unchanged, check_start_still_allowed
from kitbag.tasks.board import Board, begin_key, end_key
from kitbag.tasks.interrupted import UNKNOWN_OUTCOME, calls_with_unknown_outcome
from kitbag.tasks.missing_needs import ResolvedNeeds, reported_needs, resolve_needs
from kitbag.tasks.reports import earlier_spending, partial_result, session_ids
from kitbag.tasks.stop_signals import StopSignals
from kitbag.tasks.subagent import Subagent
from kitbag.tasks.task import Task, TaskRequest, TaskResult, TaskStatus, requester_label
from kitbag.tasks.task_patches import store_returned_patch
from kitbag.tasks.task_processes import kill_processes
from kitbag.tasks.watchdog import Phase, Watchdog
from kitbag.tasks.worktree import Worktree, commit_changes, create_worktree, move_to_worktree
from kitbag.tools.delegation import Delegation

MAX_RESTARTS: Final = 2
"""How often an agent is restarted because it reported a missing skill or file."""
STOP_GRACE_SECONDS: Final = 2.0
"""Seconds between asking a task to stop and killing its processes."""
_COMPLETED: Final = ("completed", "empty")

ProgressCallback = Callable[[str], None]


class TaskRunner:
    """For one run of one task."""

    def __init__(
        self,
        board: Board,
        task: Task,
        inherited: ParentContext,
        signals: StopSignals,
        make_delegation: Callable[[BaseAgent, Task], Delegation | None],
        progress: ProgressCallback = lambda _: None,
        watchdog: Watchdog | None = None,
        checkout: Worktree | None = None,
    ) -> None:
        """`make_delegation`: creates what the agent uses to start other agents, given the agent and its task.
        `checkout`: the clone that is its workspace; its changes come back as a patch."""
        self.board = board
        self.task = task
        self.inherited = inherited
        self._signals = signals
        self._make_delegation = make_delegation
        self._progress = progress
        self._watchdog = watchdog or Watchdog()
        self._checkout = checkout
        self._text = ""
        self._started_at = time.monotonic()
        self._run: Run | None = None

    async def run(self, request: TaskRequest, message: str = "", *, recovered: bool = False) -> TaskResult:
        """Runs it to its end; the result is recorded on return. `message`: the new message for a resumed agent."""
        with self._signals.watch(self.task.id, self.task.run) as stop_event:
            # Nothing of this run is written once another process has taken the task over or ended it.
            with fenced_by(begin_key(self.task.id, self.task.run + 1), end_key(self.task.id, self.task.run)):
                work = asyncio.ensure_future(self._run_with_restarts(request, message, recovered))
            watch = asyncio.ensure_future(self._watch(work, stop_event))
            try:
                await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    await asyncio.wait([work], timeout=STOP_GRACE_SECONDS)
            except asyncio.CancelledError:
                self._cancel(work)
                await run_to_completion(self._finish_cancelled(work))
                raise
            finally:
                watch.cancel()
            return await run_to_completion(self._finish(self._result_of(work)))

    async def _finish_cancelled(self, work: "asyncio.Future[TaskResult]") -> None:
        await asyncio.wait([work], timeout=STOP_GRACE_SECONDS)
        await self._finish(self._result_of(work))

    def _cancel(self, work: "asyncio.Future[TaskResult]") -> None:
        """Cancels through the agent's run if there is one, so that its text so far is kept."""
        if self._run is not None:
            self._run.cancel()
        else:
            work.cancel()

    def _result_of(self, work: "asyncio.Future[TaskResult]") -> TaskResult:
        if not work.done():
            work.cancel()  # whatever it still does is ignored
            return self._with_stop_reason(self._partial_result("cancelled"))
        if work.cancelled():
            return self._with_stop_reason(self._partial_result("cancelled"))
        error = work.exception()
        if error is None:
            return self._with_stop_reason(work.result())
        if isinstance(error, KitbagError):
            return self._partial_result("failed", f"{error.problem}. {error.fix}".strip())
        return self._partial_result("failed", f"{type(error).__name__}: {error}")

    def _partial_result(self, status: TaskStatus, error: str = "") -> TaskResult:
        """Text and spending so far, when the agent can't report them itself: spending counts against limits however it
        ends."""
        try:
            result = partial_result(self.board, self.board.find(self.task.id), status, error)
        except KitbagError:  # e.g. an unreadable journal, which is then what ended it
            result = TaskResult(status=status, error=error)
        return msgspec.structs.replace(result, text=self._text or result.text)

    def _with_stop_reason(self, result: TaskResult) -> TaskResult:
        if result.status == "cancelled" and self._watchdog.stop_reason:
            return msgspec.structs.replace(result, status="failed", error=self._watchdog.stop_reason)
        return result

    async def _finish(self, result: TaskResult) -> TaskResult:
        """The first result counts, even if the process that stopped the task wrote it."""
        result = msgspec.structs.replace(result, seconds=round(time.monotonic() - self._started_at, 3))
        if result.status == "cancelled" or self._watchdog.stop_reason:
            await asyncio.to_thread(kill_processes, self.task.id)
        await self.board.finish(self.task.id, self.task.run, result)
        recorded = self.board.find(self.task.id).result
        return recorded or result

    async def _watch(self, work: "asyncio.Future[TaskResult]", stop_requested: asyncio.Event) -> None:
        """Cancels the work on a stop request or when the watchdog times out."""
        while not work.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop_requested.wait(), self._watchdog.check_interval)
            if stop_requested.is_set():
                self._cancel(work)
                return
            self._watchdog.set_waiting_for_user(self._is_waiting_for_user())
            warning, limit = self._watchdog.check()
            if warning:
                await self.board.warn(self.task.id, warning)
            if limit:
                self._watchdog.stop_reason = limit
                self._cancel(work)
                return

    def _is_waiting_for_user(self) -> bool:
        """Whether it, or a task it started and waits for, waits for an approval."""
        waiting = self.inherited.approvals.waiting_agents()
        if not waiting:
            return False
        return any(
            requester_label(one.agent, one.id) in waiting for one in (self.task, *self.board.descendants(self.task.id))
        )

    # Running the agent

    async def _run_with_restarts(self, request: TaskRequest, message: str, recovered: bool) -> TaskResult:
        session, spent = self.task.session, earlier_spending(self.board.journal, self.task)
        for attempt in range(len(session_ids(self.task)) - 1, MAX_RESTARTS + 1):
            result, needs = await self._run_agent(request, session, message, recovered)
            result = msgspec.structs.replace(
                result,
                turns=result.turns + spent.turns,
                tokens=result.tokens + spent.tokens,
                cost=None if result.cost is None or spent.cost is None else result.cost + spent.cost,
            )
            if needs.restart is None or attempt == MAX_RESTARTS:
                return await self._check_outcome(request, result, needs)
            # Restart with a fresh history: what was missing is now in the prompt.
            request = msgspec.structs.replace(needs.restart, message=self._read_steering(session))
            message, recovered, spent = request.message, False, result
            session = f"{self.task.id}-{attempt + 2}"
            await self.board.update_request(self.task, request, session)
        raise AssertionError("not reached")

    async def _check_outcome(self, request: TaskRequest, result: TaskResult, needs: ResolvedNeeds) -> TaskResult:
        """An answer that asks for what the agent does not get is a failure; a packed task's answer is compared with its
        output contract."""
        if needs.is_blocked and result.status == "completed":
            error = "; ".join(needs.unmet)
            if needs.restart is not None:
                error = f"asked for missing skills or files again after {MAX_RESTARTS} restarts"
                await self.board.warn(self.task.id, error)
            return msgspec.structs.replace(result, status="failed", error=error)
        if not request.contract or result.status != "completed":
            return result
        from kitbag.tasks.packed_task import contract_violations

        root = self.inherited.environment.workspace.root
        violations = await asyncio.to_thread(contract_violations, request.contract, result.text, root)
        return msgspec.structs.replace(result, violations=violations)

    def _read_steering(self, session: str) -> str:
        """What was sent to the agent while it worked: its new session starts with that."""
        return "\n\n".join(
            message_from_json(record.body["message"]).text
            for record in self.board.journal.read(STREAM_PREFIX + session)
            if record.kind == "user" and record.body.get("steering")
        )

    async def _run_agent(
        self, request: TaskRequest, session: str, message: str, recovered: bool
    ) -> tuple[TaskResult, ResolvedNeeds]:
        definition = self.inherited.environment.library.find_agent(request.agent)
        check_agent_unchanged(definition, request)
        check_start_still_allowed(request, self.inherited.permissions)
        is_resumed = self.board.journal.last(STREAM_PREFIX + session) is not None
        inherited, worktree = self.inherited, self._checkout
        if worktree is None and definition.isolation == "worktree":
            worktree = await asyncio.to_thread(self._create_worktree)
            inherited = move_to_worktree(inherited, worktree)
        agent = Subagent(inherited, definition, request, self.task.id, session)
        agent.delegation = self._make_delegation(agent, self.task)
        agent.may_continue = self._may_continue
        if worktree is None:
            agent.undo_session_id = self.task.root
        async with agent:
            unknown = calls_with_unknown_outcome(agent.session) if recovered and is_resumed else []
            if unknown:
                problem = f"{UNKNOWN_OUTCOME}: its process ended while running {', '.join(unknown)}"
                return _interrupted_result(agent, f"{problem}; resume the task to repeat it"), ResolvedNeeds()
            has_nothing_to_do = is_resumed and not message and not agent.inbox.pending()
            result = agent.previous_result() if has_nothing_to_do else None
            # Completed and not recovered: the message it was resumed for was taken back.
            if result is None or not (recovered or result.status in _COMPLETED):
                result = await self._run_to_end(agent, message)
            if request.output_schema and not reported_needs(result):
                result = await self._meet_schema(agent, request.output_schema, result)
            if worktree is not None:
                result = await self._return_changes(result, worktree)
            needs = ResolvedNeeds()
            if reported := reported_needs(result):
                needs = await asyncio.to_thread(resolve_needs, reported, request, agent)
                for problem in needs.unmet:
                    await self.board.warn(self.task.id, problem)
            return result, needs

    async def _return_changes(self, result: TaskResult, worktree: Worktree) -> TaskResult:
        """As a branch of the user's repository, or, if this is a clone, as a patch."""
        message = self.task.description or f"Changes by {self.task.agent}"
        self.inherited.environment.workspace.check_in_place()
        # A background command may still use it.
        in_use = any(not one.is_finished for one in self.board.descendants(self.task.id))
        branch = await asyncio.to_thread(commit_changes, worktree, message, in_use=in_use)
        if self._checkout is None:
            return msgspec.structs.replace(result, branch=branch)
        from kitbag.tasks.git_workspace import changes_since_base

        try:
            patch = await asyncio.to_thread(changes_since_base, worktree) if branch else b""
        except InvalidError as error:
            await self.board.warn(self.task.id, f"{error.problem}; {error.fix}")
            return msgspec.structs.replace(result, branch=branch)
        name = await store_returned_patch(self.board.journal, self.task.id, patch)
        return msgspec.structs.replace(result, patch=name if patch else "")

    async def _run_to_end(self, agent: Subagent, message: str) -> TaskResult:
        async with agent.run(message) as run:
            self._run = run
            async for event in run:
                self._on_event(event)
                if isinstance(event, Notice) and event.severity != "info":
                    await self.board.warn(self.task.id, event.line())
        self._run = None
        return _result_from_run(run.ended, agent)

    async def _meet_schema(self, agent: Subagent, schema: Mapping[str, Any], result: TaskResult) -> TaskResult:
        """An answer that violates the schema is requested once more, also if another process did that; then the task
        has failed."""
        from kitbag.packing.output_schema import find_violations, is_retry, render_retry

        has_retried = any(is_retry(message.text) for message in agent.session.messages() if message.role == "user")
        while result.status == "completed":
            problems = await asyncio.to_thread(find_violations, schema, result.text)
            if not problems:
                break
            if has_retried:
                error = f"the answer does not match the output schema: {'; '.join(problems)}"
                return msgspec.structs.replace(result, status="failed", error=error)
            result, has_retried = await self._run_to_end(agent, render_retry(problems)), True
        return result

    def _create_worktree(self) -> Worktree:
        environment = self.inherited.environment
        environment.workspace.check_in_place()
        return create_worktree(environment.workspace.root, environment.places.kitbag_home, self.task.id)

    def _may_continue(self) -> bool:
        """Whether this run is still current: the task has not finished and no stop is requested."""
        task = self.board.find(self.task.id)
        return task.run == self.task.run and not task.is_finished and not task.stop_requested

    def _on_event(self, event: Event) -> None:
        match event:
            case ToolStarted(title=title):
                self._watchdog.enter(Phase("tool", title))
                self._progress(f"{self.task.agent}: {title}")
            case ToolProgress(text=text):
                self._watchdog.enter(Phase("tool", text))
                self._progress(f"{self.task.agent}: {text}")
            case ToolFinished():
                self._watchdog.enter(Phase("model"))
            case TurnEnded(turn=turn):
                self._watchdog.enter(Phase("model"))
                self._progress(f"{self.task.agent}: turn {turn}")
            case Retrying(reason=reason, seconds=seconds):
                self._watchdog.touch()
                self._progress(f"{self.task.agent}: {reason}; retrying in {seconds:.0f} s")
            case Waiting():
                self._watchdog.touch()  # the request has timeouts of its own
                self._progress(f"{self.task.agent}: {event.line()}")
            case RunEnded(text=text):
                self._text = text
            case _:
                self._watchdog.touch()


def _result_from_run(ended: RunEnded, agent: Subagent) -> TaskResult:
    usage, status = ended.usage, ended.status
    cost = None if agent.session.totals.unpriced else agent.session.totals.cost
    fix = "" if "--continue" in ended.fix else ended.fix  # that fix is for the user's own session
    error = f"{ended.error}. {fix}".strip(" .") if ended.error else ""
    return TaskResult(
        status=status,
        text=ended.text,
        error=error,
        turns=agent.session.totals.turns,
        tokens=usage.total_input + usage.output,
        cost=cost,
    )


def request_for_messages(board: Board, task: Task, result: TaskResult) -> TaskRequest | None:
    """To resume a finished task for a message that was sent between the agent's last look into its inbox and the task's
    end. None: there is none."""
    if result.status not in _COMPLETED or not Inbox(board.journal, task.id).pending():
        return None
    return msgspec.structs.replace(board.request(task.id), message="", previous_turns=result.turns)


def _interrupted_result(agent: Subagent, problem: str) -> TaskResult:
    totals = agent.session.totals
    texts = [message.text for message in agent.session.messages() if message.role == "assistant" and message.text]
    status: TaskStatus = "interrupted"
    tokens = totals.usage.total_input + totals.usage.output
    return TaskResult(
        status=status,
        text=texts[-1] if texts else "",
        error=problem,
        turns=totals.turns,
        tokens=tokens,
        cost=None if totals.unpriced else totals.cost,
    )
