"""Other agents for the tools of a run: in front they work in this process, in the background a worker hosts them.

Used by Agent and Subagent; satisfies tools/delegation. The board is where all of it is written down.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kitbag.agent.session import new_id, resume
from kitbag.errors import InvalidError, KitbagError
from kitbag.library.agents import Agent as AgentFile
from kitbag.permissions.decide import child_mode
from kitbag.runtime.options import Options
from kitbag.runtime.subagent import Inherited
from kitbag.runtime.task_runner import GRACE, TaskRunner
from kitbag.tasks.board import Board
from kitbag.tasks.model import End, Task, Wish
from kitbag.tasks.processes import end_processes
from kitbag.tasks.signals import Signals
from kitbag.tools.delegation import Delegation, Errand, Report, Stopped

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent

DEEPEST: Final = 3
AT_ONCE: Final = 20


class Shared:
    """What all agents of one process have in common."""

    def __init__(self, board: Board, at_once: int = AT_ONCE) -> None:
        self.board = board
        self.signals = Signals(board)
        self.slots = asyncio.Semaphore(at_once)


class Delegated:
    """For one agent. `parent` and `depth` are those of its task; empty and 0 for the one a person talks to."""

    def __init__(
        self,
        inherited: Callable[[], Inherited],
        root: str,
        parent: str = "",
        depth: int = 0,
        shared: Shared | None = None,
    ) -> None:
        """`inherited`: what its agents get from it, at the moment when they start."""
        self._inherited = inherited
        self._root = root
        self._parent = parent
        self._depth = depth
        self._shared = shared

    @property
    def shared(self) -> Shared:
        """Made when it is first needed: most runs start no agent."""
        if self._shared is None:
            self._shared = Shared(Board(self._inherited().journal))
        return self._shared

    @property
    def board(self) -> Board:
        return self.shared.board

    # What may be started

    def facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        definition = self._usable(agent)
        mode = child_mode(self._inherited().mode, definition.permission_mode)
        return (("mode", mode), ("tools", _tools_of(definition)), ("from", definition.path))

    def _usable(self, name: str) -> AgentFile:
        library = self._inherited().ground.library
        definition = library.find_agent(name)
        if not library.judge(definition, library.view("agents")).model:
            raise InvalidError(f"the agent {definition.full_name} is not one that you may start", "choose another")
        if definition.tools.mode == "none":
            problem = f"the agent {definition.full_name} has no tools that there are"
            raise InvalidError(problem, f"correct `tools` in {definition.path}")
        if self._depth >= DEEPEST:
            raise InvalidError(f"agents can start agents only {DEEPEST} deep", "do it yourself")
        return definition

    # Starting

    async def start(self, errand: Errand, progress: Callable[[str], None]) -> Report:
        definition = self._usable(errand.agent)
        background = errand.background or definition.background
        wish = self._wish(errand, definition)
        if errand.resume:
            return await self._resume(errand, wish, background, progress)
        task = await self.board.create(
            new_id(),
            "agent",
            wish,
            root=self._root,
            parent=self._parent,
            depth=self._depth + 1,
            background=background,
        )
        if background:
            await self._hand_to_worker()
            return self._report(task)
        return await self._in_front(task, wish, "", progress)

    def _wish(self, errand: Errand, definition: AgentFile) -> Wish:
        inherited = self._inherited()
        return Wish(
            definition.full_name,
            errand.prompt,
            errand.description,
            errand.model,
            inherited.chosen.again,
            inherited.mode,
            errand.max_turns,
            pack=errand.pack,
            directory=inherited.ground.places.cwd,
            options=options_for_worker(inherited.options),
        )

    async def _resume(self, errand: Errand, wish: Wish, background: bool, progress: Callable[[str], None]) -> Report:
        task = self.board.find(errand.resume)
        if task.kind != "agent":
            raise InvalidError(f"task {task.id} is a command, which can't be resumed", "run it again")
        if task.agent.lower() != wish.agent.lower():
            raise InvalidError(f"task {task.id} is of the agent {task.agent}", f"resume it with {task.agent}")
        if not task.is_finished:
            raise InvalidError(f"task {task.id} is {task.status}", "wait for its end with TaskOutput, or stop it")
        wish = wish._replace(turns_before=resume(self.board.journal, task.session).totals.turns)
        if background:
            await self.board.queue_again(task, wish)
            await self._hand_to_worker()
            return self._report(self.board.find(task.id))
        await self.board.ask_again(task, wish)
        return await self._in_front(task, wish, errand.prompt, progress)

    async def _in_front(self, task: Task, wish: Wish, request: str, progress: Callable[[str], None]) -> Report:
        async with self.shared.slots:
            if not await self.board.claim(task, again=bool(request)):
                raise InvalidError(f"task {task.id} was begun by somebody else", "look at it with TaskOutput")
            task = self.board.find(task.id)
            runner = TaskRunner(self.board, task, self._inherited(), self.shared.signals, self._for_child, progress)
            await runner.run(wish, request)
        return self._report(self.board.find(task.id))

    def _for_child(self, agent: "Agent", task: Task) -> Delegation | None:
        if task.depth >= DEEPEST:
            return None
        return Delegated(agent.inherited, self._root, task.id, task.depth, self.shared)

    async def start_command(self, command: str, description: str, directory: str, seconds: float) -> Report:
        raise InvalidError("background commands need a worker, and none is there", "run it in front")

    async def _hand_to_worker(self) -> None:
        from kitbag.runtime.worker_process import ensure_worker

        await asyncio.to_thread(ensure_worker, self._inherited().ground.places.kitbag_home)

    # Looking

    async def report(self, task_id: str, seconds: float) -> Report:
        task = self.board.find(task_id)
        await self.board.bury()
        if seconds > 0:
            task = await self.board.until(lambda found: found.is_finished, task.id, seconds) or self.board.find(task.id)
        return self._report(self.board.find(task.id))

    def _report(self, task: Task) -> Report:
        return report_of(self.board, task)

    async def news(self) -> str:
        if self._shared is None and not self._root:
            return ""
        from kitbag.runtime.notifications import take_notifications

        return await take_notifications(self.board, self._root, self._parent)

    def spent(self) -> tuple[int, float]:
        reports = [self._report(task) for task in self.board.below(self._parent or self._root)]
        return sum(report.tokens for report in reports), sum(report.cost or 0.0 for report in reports)

    def unfinished(self) -> list[Report]:
        begun = self.board.below(self._parent or self._root)
        return [self._report(task) for task in begun if task.background and not task.is_finished]

    async def stop(self, task_id: str) -> Stopped:
        task = self.board.find(task_id)
        if task.is_finished:
            return Stopped(self._report(task), True, 0, await asyncio.to_thread(end_processes, task.id))
        return await stop_task(self.board, task, "model")


async def stop_task(board: Board, task: Task, by: str) -> Stopped:
    """Asks it to stop, and those it began; after two seconds their end is written for them."""
    below = [one for one in board.below(task.id) if not one.is_finished]
    await board.want_stop([task, *below], by)
    processes = 0
    for one in [*below, task]:
        if await board.until(lambda found: found.is_finished, one.id, GRACE + 0.5) is None:
            text = report_of(board, board.find(one.id)).text
            await board.end(one.id, board.find(one.id).run, End("cancelled", text))
        processes += await asyncio.to_thread(end_processes, one.id)
    return Stopped(report_of(board, board.find(task.id)), False, len(below), processes)


def report_of(board: Board, task: Task) -> Report:
    """What is known now: of a task that runs, from the records of its conversation."""
    end = task.end or End(task.status)
    turns, tokens, cost, text, activity = end.turns, end.tokens, end.cost, end.text, ""
    if not task.is_finished and task.kind == "agent":
        try:
            session = resume(board.journal, task.session)
        except KitbagError:
            session = None  # it has not begun yet
        if session is not None:
            totals = session.totals
            turns, tokens = totals.turns, totals.usage.shown_to_model + totals.usage.output
            cost = None if totals.unpriced else totals.cost
            replies = [message.text for message in session.messages() if message.role == "assistant" and message.text]
            text = replies[-1] if replies else ""
            activity = ", ".join(call.name for call in session.open_calls) or "asks the model"
    return Report(
        task.id,
        task.agent or "Bash",
        task.status,
        task.is_finished,
        text,
        end.error,
        task.description,
        turns,
        tokens,
        cost,
        end.seconds,
        activity,
        end.branch,
        task.warnings,
    )


def options_for_worker(options: Options) -> dict[str, Any]:
    """What the person said, as far as it counts for agents."""
    return {
        "team": options.team,
        "persona": options.persona,
        "only_tools": list(options.only_tools),
        "no_tools": list(options.no_tools),
        "ask": list(options.ask),
        "trust_workspace": options.trust_workspace,
        "extra": list(options.extra),
        "effort": options.effort,
    }


def _tools_of(definition: AgentFile) -> str:
    access = definition.tools
    if access.mode == "inherit":
        return "all that the one who starts it has"
    return ", ".join(sorted((*access.names, *access.specifiers))) or access.mode
