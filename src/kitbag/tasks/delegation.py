"""Other agents for the tools of a run: in front they work in this process, in the background a worker hosts them.

Used by Agent and Subagent; satisfies tools/delegation. The board is where all of it is written down.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kitbag.agent.resume import resume
from kitbag.agent.session import new_id
from kitbag.agent.shield import to_its_end
from kitbag.assembly.base_agent import BaseAgent
from kitbag.assembly.inherited import Inherited
from kitbag.assembly.run_options import Options
from kitbag.errors import InvalidError, KitbagError
from kitbag.library.agents import Agent as AgentFile
from kitbag.permissions.approvals.approval import Refusal
from kitbag.permissions.decisions.decide import Permissions, child_mode
from kitbag.permissions.model import Judgement
from kitbag.tools.delegation import Delegation, Errand, Report, Stopped

if TYPE_CHECKING:  # most runs start no agent, and what that takes is imported when one does
    from kitbag.tasks.board import Board
    from kitbag.tasks.task import Kind, Task, Wish

DEEPEST: Final = 3
AT_ONCE: Final = 20
_LONGEST_ABOUT = 60


class Shared:
    """What all agents of one process have in common."""

    def __init__(self, board: "Board", at_once: int = AT_ONCE) -> None:
        from kitbag.tasks.stop_signals import Signals

        self.board = board
        self.signals = Signals(board)
        self._here: set[asyncio.Task[None]] = set()
        self._slots = [asyncio.Semaphore(at_once) for _ in range(DEEPEST + 1)]

    def slot(self, task: "Task") -> asyncio.Semaphore:
        """So many at once at each depth: whoever waits for what it began does not keep that from beginning."""
        return self._slots[min(task.depth, DEEPEST)]

    def run_here(self, task: "Task", wish: "Wish") -> None:
        """A command that no worker can run: it ends with this process."""
        from kitbag.tasks.command_task import CommandTask

        async def run() -> None:
            with contextlib.suppress(KitbagError):  # what can't be written is found as it was left
                if await self.board.claim(task):
                    await CommandTask(self.board, self.board.find(task.id), self.signals).run(wish)

        running = asyncio.create_task(run())
        self._here.add(running)
        running.add_done_callback(self._here.discard)


class Delegated:
    """For one agent. `parent` and `depth` are those of its task; empty and 0 for the one a person talks to."""

    def __init__(
        self,
        inherited: Callable[[], Inherited],
        root: str,
        parent: str = "",
        depth: int = 0,
        shared: Shared | None = None,
        *,
        has_past: bool = True,
    ) -> None:
        """`inherited`: what its agents get from it, at the moment when they start. `has_past`: tasks may be on the
        board from before, e.g. of a session that is resumed."""
        self._has_past = has_past
        self._inherited = inherited
        self._root = root
        self._parent = parent
        self._depth = depth
        self._shared = shared

    @property
    def shared(self) -> Shared:
        """Made when it is first needed: most runs start no agent."""
        if self._shared is None:
            from kitbag.tasks.board import Board

            self._shared = Shared(Board(self._inherited().journal))
        return self._shared

    @property
    def has_begun(self) -> bool:
        return self._shared is not None or self._has_past

    @property
    def board(self) -> "Board":
        return self.shared.board

    # What may be started

    def facts(self, agent: str, resume: str) -> tuple[tuple[str, str], ...]:
        from kitbag.tasks.agent_permissions import tools_in_words

        definition = self._usable(agent)
        mode = child_mode(self._inherited().mode, definition.permission_mode)
        return (("mode", mode), ("tools", tools_in_words(definition)), ("from", definition.path))

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

    async def refused(self, errand: Errand, permissions: Permissions, directory: str) -> str:
        asked = {"subagent_type": errand.agent, "prompt": errand.prompt, "description": errand.description}
        facts = self.facts(errand.agent, "")
        approvals = self._inherited().approvals
        permit = await approvals.authorize(permissions, "Task", asked, directory, "", facts)
        if isinstance(permit, Refusal):
            return permit.reason
        permit.use("Task", asked, directory, approvals.permissions(permissions))
        return ""

    # Starting

    async def start(self, errand: Errand, progress: Callable[[str], None]) -> Report:
        definition = self._usable(errand.agent)
        background = errand.background or definition.background
        wish = self._wish(errand, definition)
        if background:
            from kitbag.tasks.command_task import written_environment

            environment = self._inherited().environment or written_environment(self.board.journal.redactor)
            wish = wish._replace(options={**wish.options, "environment": dict(environment)})
        if errand.resume:
            return await self._resume(errand, wish, background, progress)
        if wish.pack:
            from kitbag.tasks.packed_task import packed

            wish, warnings = await asyncio.to_thread(packed, wish, self._inherited(), definition)
            for warning in warnings:
                progress(warning)
        task = await self._put("agent", wish, background)
        return self._report(task) if background else await self._in_front(task, wish, "", progress)

    async def _put(self, kind: "Kind", wish: "Wish", background: bool) -> "Task":
        """On the board, and where it belongs there into the hands of a worker; or, when that is cancelled, nowhere."""
        task_id, root, parent = new_id(), self._root, self._parent

        async def put() -> "Task":
            depth = self._depth + 1
            task = await self.board.create(
                task_id, kind, wish, root=root, parent=parent, depth=depth, background=background
            )
            if background and not await self._hand_to_worker(task_id) and kind == "command":
                self.shared.run_here(task, wish)
            return self.board.find(task_id)

        try:
            return await to_its_end(put())
        except asyncio.CancelledError:
            await to_its_end(self._take_back(task_id))
            raise

    async def _take_back(self, task_id: str) -> None:
        """Nobody has been told of it."""
        from kitbag.tasks.stop import stop_task

        with contextlib.suppress(KitbagError):
            await stop_task(self.board, self.board.find(task_id), "cancelled")

    def _wish(self, errand: Errand, definition: AgentFile) -> "Wish":
        from kitbag.tasks.agent_permissions import MARK, mark_of, with_rules_said
        from kitbag.tasks.task import Wish

        inherited = self._inherited()
        wish = Wish(
            definition.full_name,
            errand.prompt,
            errand.description or _about(errand.prompt),
            errand.model,
            inherited.chosen.again,
            inherited.mode,
            errand.max_turns,
            pack=errand.pack,
            directory=inherited.ground.places.cwd,
            options={**_for_worker(inherited), MARK: mark_of(definition)},
        )
        return with_rules_said(wish, inherited.permissions)

    async def _resume(self, errand: Errand, wish: "Wish", background: bool, progress: Callable[[str], None]) -> Report:
        task = self.board.find(errand.resume, self._ours())
        if task.kind != "agent":
            raise InvalidError(f"task {task.id} is a command, which can't be resumed", "run it again")
        if task.directory != wish.directory:
            raise InvalidError(f"task {task.id} works in {task.directory}", "resume it from there, or start another")
        if background and self._root and task.root != self._root:
            problem = f"task {task.id} belongs to another session, which would be told of its end"
            raise InvalidError(problem, "resume it in the foreground, or start another")
        if task.depth <= self._depth:
            raise InvalidError(f"task {task.id} was begun by those that began you, or beside you", "do it yourself")
        if task.agent.lower() != wish.agent.lower():
            raise InvalidError(f"task {task.id} is of the agent {task.agent}", f"resume it with {task.agent}")
        if not task.is_finished:
            raise InvalidError(f"task {task.id} is {task.status}", "wait for its end with TaskOutput, or stop it")
        before = self.board.wish(task.id)
        wish = wish._replace(
            prompt=before.prompt,
            description=before.description,
            skills=before.skills,
            pack=before.pack,
            contract=before.contract,
            request=errand.prompt,
            turns_before=resume(self.board.journal, task.session).totals.turns,
        )
        if background:
            if not await self.board.queue_again(task, wish):
                raise InvalidError(f"task {task.id} was resumed by somebody else", "look at it with TaskOutput")
            await self._hand_to_worker(task.id)
            return self._report(self.board.find(task.id))
        await self.board.ask_again(task, wish)
        return await self._in_front(task, wish, errand.prompt, progress)

    async def _in_front(self, task: "Task", wish: "Wish", request: str, progress: Callable[[str], None]) -> Report:
        from kitbag.tasks.runner import TaskRunner

        claimed = False
        try:
            async with self.shared.slot(task):
                claiming = asyncio.ensure_future(self.board.claim(task, again=bool(request), in_front=True))
                try:
                    await to_its_end(asyncio.wait([claiming]))
                finally:  # also when it was cancelled: whether it is ours has to be known
                    claimed = not claiming.cancelled() and not claiming.exception() and claiming.result()
                claiming.result()  # or what kept it from being claimed
                task = self.board.find(task.id)
                if claimed:
                    signals = self.shared.signals
                    runner = TaskRunner(self.board, task, self._inherited(), signals, self._for_child, progress)
                    await runner.run(wish, request)
        except BaseException as error:
            if claimed or not request:  # then it is ours, and stays open nowhere
                await to_its_end(self._break_off(task, error))
            raise
        task = self.board.find(task.id)
        if not claimed and not task.is_finished:
            raise InvalidError(f"task {task.id} was begun by somebody else", "look at it with TaskOutput")
        return self._report(task)

    async def _break_off(self, task: "Task", error: BaseException) -> None:
        """The first end counts."""
        from kitbag.tasks.owner import this_process
        from kitbag.tasks.task import End

        with contextlib.suppress(KitbagError):
            task = self.board.find(task.id)
            if not task.is_finished and task.owner == this_process():
                why = "" if isinstance(error, asyncio.CancelledError) else f"{type(error).__name__}: {error}"
                await self.board.end(task.id, task.run, End("failed" if why else "cancelled", error=why))

    def _for_child(self, agent: BaseAgent, task: "Task") -> Delegation | None:
        if task.depth >= DEEPEST:
            return None
        return Delegated(agent.inherited, self._root, task.id, task.depth, self.shared)

    async def start_command(
        self, command: str, description: str, directory: str, seconds: float, judgement: Judgement
    ) -> Report:
        from kitbag.tasks.command_task import with_decision
        from kitbag.tasks.task import Wish

        inherited = self._inherited()
        wish = Wish(
            "",
            "",
            description,
            parent_mode=inherited.mode,
            command=command,
            seconds=seconds,
            starts_in=directory,
            directory=inherited.ground.places.cwd,
            options=_for_worker(inherited),
        )
        redactor = self.board.journal.redactor
        wish = await asyncio.to_thread(with_decision, wish, judgement, inherited.ground.workspace, redactor)
        return self._report(await self._put("command", wish, background=True))

    async def _hand_to_worker(self, task_id: str) -> bool:
        """What keeps a worker from doing it is said with the task, which waits on the board. False when there is none,
        and none can be started."""
        from kitbag.tasks.worker_process import NO_WORKER, ensure_worker

        hosting = await asyncio.to_thread(ensure_worker, self._inherited().ground.places.kitbag_home)
        if hosting.problem:
            await self.board.warn(task_id, hosting.problem)
        return not hosting.problem.startswith(NO_WORKER)

    # Looking

    async def report(self, task_id: str, seconds: float, offset: int = 0) -> Report:
        from kitbag.tasks.worker_process import until_finished

        task = self.board.find(task_id, self._ours())
        await until_finished(self.board, self._inherited().ground.places.kitbag_home, task.id, seconds)
        return self._report(self.board.find(task.id), offset)

    def _ours(self) -> "Callable[[Task], bool]":
        """A model sees the tasks of its session and of its directory, not those of a person's other work. Without a
        session and a task it is the person who asks, and sees all."""
        here, is_person = self._inherited().ground.places.cwd, not self._root and not self._parent
        family = {task.id for task in self._family()}
        return lambda task: is_person or task.directory == here or task.id in family

    def _report(self, task: "Task", offset: int = 0) -> Report:
        from kitbag.tasks.reports import report_of

        return report_of(self.board, task, offset)

    async def news(self) -> str:
        if not self.has_begun or (self._shared is None and not self._root):
            return ""
        from kitbag.tasks.notifications import take_notifications

        return await take_notifications(self.board, self._root, self._parent)

    def has_news(self) -> bool:
        from kitbag.tasks.notifications import untold

        if not self.has_begun:
            return False
        self.board.refresh()
        return bool(self._root) and bool(untold(self.board, self._parent or self._root))

    def spent(self) -> tuple[int, float]:
        """By all others that count against the same limits: whoever began this one, and all that was begun."""
        if not self.has_begun:
            return 0, 0.0
        others = [task for task in self._family() if task.id != self._parent and task.kind == "agent"]
        reports = [self._report(task) for task in others]
        tokens, cost = sum(report.tokens for report in reports), sum(report.cost or 0.0 for report in reports)
        if self._parent and self._root:
            with contextlib.suppress(KitbagError):  # of a session that can't be read nobody knows
                totals = resume(self.board.journal, self._root).totals
                return tokens + totals.usage.shown_to_model + totals.usage.output, cost + totals.cost
        return tokens, cost

    def _family(self) -> "list[Task]":
        if self._root or not self._parent:
            return self.board.below(self._root) if self._root else []
        top = self.board.find(self._parent)
        while top.parent:
            top = self.board.find(top.parent)
        return [top, *self.board.below(top.id)]

    def unfinished(self) -> list[Report]:
        begun = self.board.below(self._parent or self._root) if self.has_begun else []
        return [self._report(task) for task in begun if task.background and not task.is_finished]

    async def stop(self, task_id: str) -> Stopped:
        from kitbag.tasks.stop import stop_task

        return await stop_task(self.board, self.board.find(task_id, self._ours()), "model")


def _about(prompt: str) -> str:
    """Its first words, for a list."""
    words = " ".join(prompt.split())
    return words if len(words) <= _LONGEST_ABOUT else f"{words[: _LONGEST_ABOUT - 1]}…"


def _for_worker(inherited: Inherited) -> dict[str, Any]:
    return {**options_for_worker(inherited.options), "settings_mode": inherited.ground.live.settings_mode}


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
        "max_tokens": options.limits.tokens,
        "max_cost": options.limits.cost,
    }
