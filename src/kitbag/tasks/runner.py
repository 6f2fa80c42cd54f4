"""Carries out one task: starts its agent, follows it, lets it be stopped, starts it anew with what it lacked, and
writes down how it ended. The same in front and in the worker.

Used by delegation and the worker. The end is in the journal before anybody is told.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kitbag.agent.run import Run
from kitbag.agent.session import PREFIX
from kitbag.agent.shield import to_its_end
from kitbag.assembly.base_agent import BaseAgent
from kitbag.assembly.inherited import Inherited
from kitbag.errors import KitbagError
from kitbag.events import Event, Notice, RunEnded, ToolFinished, ToolProgress, ToolStarted, TurnEnded
from kitbag.tasks.agent_permissions import must_be_the_same, must_still_be_allowed
from kitbag.tasks.board import Board
from kitbag.tasks.missing_needs import lacking
from kitbag.tasks.reports import end_so_far, sessions_of, spent_before
from kitbag.tasks.stop_signals import Signals
from kitbag.tasks.subagent import Subagent
from kitbag.tasks.task import End, Task, TaskStatus, Wish, asked_by
from kitbag.tasks.task_processes import end_processes
from kitbag.tasks.watchdog import Phase, Watchdog
from kitbag.tasks.worktree import Worktree, in_worktree, keep_changes, make_worktree
from kitbag.tools.delegation import Delegation

MOST_ANEW: Final = 2
"""How often an agent is started anew because it lacked something."""
GRACE: Final = 2.0
"""Seconds between asking a task to stop and ending its processes."""

Progress = Callable[[str], None]


class TaskRunner:
    """Of one beginning of one task."""

    def __init__(
        self,
        board: Board,
        task: Task,
        inherited: Inherited,
        signals: Signals,
        delegation_of: Callable[[BaseAgent, Task], Delegation | None],
        progress: Progress = lambda _: None,
        watchdog: Watchdog | None = None,
    ) -> None:
        """`delegation_of`: what the agent itself may start, given the agent and its task."""
        self.board = board
        self.task = task
        self.inherited = inherited
        self._signals = signals
        self._delegation_of = delegation_of
        self._progress = progress
        self._watchdog = watchdog or Watchdog()
        self._text = ""
        self._begun = time.monotonic()
        self._run: Run | None = None

    async def run(self, wish: Wish, request: str = "", *, recovered: bool = False) -> End:
        """To its end, which is written by then. `request`: what an agent that goes on is told."""
        with self._signals.of(self.task.id, self.task.run) as wanted:
            work = asyncio.ensure_future(self._work(wish, request, recovered))
            watch = asyncio.ensure_future(self._watch(work, wanted))
            try:
                await asyncio.wait([work, watch], return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    await asyncio.wait([work], timeout=GRACE)
            except asyncio.CancelledError:
                self._cancel(work)
                await to_its_end(self._given_up(work))
                raise
            finally:
                watch.cancel()
            return await to_its_end(self._finish(self._outcome(work)))

    async def _given_up(self, work: "asyncio.Future[End]") -> None:
        await asyncio.wait([work], timeout=GRACE)
        await self._finish(self._outcome(work))

    def _cancel(self, work: "asyncio.Future[End]") -> None:
        """Through the run where there is one, so that what it said until then is kept."""
        if self._run is not None:
            self._run.cancel()
        else:
            work.cancel()

    def _outcome(self, work: "asyncio.Future[End]") -> End:
        if not work.done():
            work.cancel()  # whatever it still does, nobody hears of it
            return self._cancelled(self._until_now("cancelled"))
        if work.cancelled():
            return self._cancelled(self._until_now("cancelled"))
        error = work.exception()
        if error is None:
            return self._cancelled(work.result())
        if isinstance(error, KitbagError):
            return self._until_now("failed", f"{error.problem}. {error.fix}".strip())
        return self._until_now("failed", f"{type(error).__name__}: {error}")

    def _until_now(self, status: TaskStatus, error: str = "") -> End:
        """What it said and spent, where it can't tell us itself: that counts against limits however it ended."""
        try:
            end = end_so_far(self.board, self.board.find(self.task.id), status, error)
        except KitbagError:  # a journal that can't be read, say, which is then what ended it
            end = End(status, error=error)
        return end._replace(text=self._text or end.text)

    def _cancelled(self, end: End) -> End:
        if end.status == "cancelled" and self._watchdog.acted:
            return end._replace(status="failed", error=self._watchdog.acted)
        return end

    async def _finish(self, end: End) -> End:
        """The first end counts, also when it was written by the one who stopped it."""
        end = end._replace(seconds=round(time.monotonic() - self._begun, 3))
        if end.status == "cancelled" or self._watchdog.acted:
            await asyncio.to_thread(end_processes, self.task.id)
        await self.board.end(self.task.id, self.task.run, end)
        found = self.board.find(self.task.id).end
        return found or end

    async def _watch(self, work: "asyncio.Future[End]", wanted: asyncio.Event) -> None:
        """Ends the work when that is wanted, by whomever, or when it has stood still for too long."""
        while not work.done():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wanted.wait(), self._watchdog.every)
            if wanted.is_set():
                self._cancel(work)
                return
            self._watchdog.wait_for_person(self._waits_for_person())
            warning, limit = self._watchdog.look()
            if warning:
                await self.board.warn(self.task.id, warning)
            if limit:
                self._watchdog.acted = limit
                self._cancel(work)
                return

    def _waits_for_person(self) -> bool:
        """Itself, or what it began and waits for."""
        waiting = self.inherited.approvals.waiting()
        if not waiting:
            return False
        return any(asked_by(one.agent, one.id) in waiting for one in (self.task, *self.board.below(self.task.id)))

    # The agent

    async def _work(self, wish: Wish, request: str, recovered: bool) -> End:
        session, spent = self.task.session, spent_before(self.board.journal, self.task)
        for attempt in range(len(sessions_of(self.task)) - 1, MOST_ANEW + 1):
            end, wish_more = await self._agent(wish, session, request, recovered)
            end = end._replace(
                turns=end.turns + spent.turns,
                tokens=end.tokens + spent.tokens,
                cost=None if end.cost is None or spent.cost is None else end.cost + spent.cost,
            )
            if wish_more is None or attempt == MOST_ANEW:
                return end
            # Anew, with a fresh history: what it lacked stands in its prompt now.
            wish, request, recovered, spent = wish_more, "", False, end
            session = f"{self.task.id}-{attempt + 2}"
            await self.board.ask_again(self.task, wish, session)
        raise AssertionError("not reached")

    async def _agent(self, wish: Wish, session: str, request: str, recovered: bool) -> tuple[End, Wish | None]:
        definition = self.inherited.ground.library.find_agent(wish.agent)
        must_be_the_same(definition, wish)
        must_still_be_allowed(wish, self.inherited.permissions)
        goes_on = self.board.journal.last(PREFIX + session) is not None
        inherited, worktree = self.inherited, None
        if definition.isolation == "worktree":
            worktree = await asyncio.to_thread(self._worktree)
            inherited = in_worktree(inherited, worktree)
        agent = Subagent(inherited, definition, wish, self.task.id, session)
        agent.delegation = self._delegation_of(agent, self.task)
        agent.may_go_on = self._may_go_on
        if worktree is None:
            agent.changes_of = self.task.root
        async with agent:
            doubtful = agent.doubtful_calls() if recovered and goes_on else []
            if doubtful:
                problem = f"interrupted (unknown outcome): {', '.join(doubtful)} had begun when its process ended"
                return _interrupted(agent, f"{problem}; it is not repeated unless you resume the task"), None
            end = agent.end_before() if recovered and goes_on and not request else None
            if end is None:
                async with agent.run(request) as run:
                    self._run = run
                    async for event in run:
                        self._hear(event)
                self._run = None
                end = _end_of(run.ended, agent)
            if worktree is not None:
                about = self.task.description or f"Work of {self.task.agent}"
                # A command in the background may go on in it.
                in_use = any(not one.is_finished for one in self.board.below(self.task.id))
                end = end._replace(branch=await asyncio.to_thread(keep_changes, worktree, about, in_use=in_use))
            wanted = lacking(end, wish, agent)
            if wish.contract and wanted is None and end.status == "completed":
                await self._hold_to(wish.contract, end.text)
            return end, wanted

    async def _hold_to(self, contract: Mapping[str, Any], answer: str) -> None:
        from kitbag.tasks.packed_task import breaches

        for problem in await asyncio.to_thread(breaches, contract, answer, self.inherited.ground.workspace.root):
            await self.board.warn(self.task.id, f"not as required: {problem}")

    def _worktree(self) -> Worktree:
        ground = self.inherited.ground
        return make_worktree(ground.workspace.root, ground.places.kitbag_home, self.task.id)

    def _may_go_on(self) -> bool:
        """Whether this is still what counts as the task: nobody has ended it, or wants that."""
        task = self.board.find(self.task.id)
        return task.run == self.task.run and not task.is_finished and not task.stop_wanted

    def _hear(self, event: Event) -> None:
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
            case Notice(severity="warning", text=text):
                self._progress(f"{self.task.agent}: {text}")
            case RunEnded(text=text):
                self._text = text
            case _:
                self._watchdog.touch()


def _end_of(ended: RunEnded, agent: Subagent) -> End:
    usage, status = ended.usage, ended.status
    cost = None if agent.session.totals.unpriced else agent.session.totals.cost
    fix = "" if "--continue" in ended.fix else ended.fix  # which is for a person's own session
    error = f"{ended.error}. {fix}".strip(" .") if ended.error else ""
    return End(status, ended.text, error, agent.session.totals.turns, usage.shown_to_model + usage.output, cost)


def _interrupted(agent: Subagent, problem: str) -> End:
    totals = agent.session.totals
    texts = [message.text for message in agent.session.messages() if message.role == "assistant" and message.text]
    status: TaskStatus = "interrupted"
    tokens = totals.usage.shown_to_model + totals.usage.output
    return End(
        status, texts[-1] if texts else "", problem, totals.turns, tokens, None if totals.unpriced else totals.cost
    )
