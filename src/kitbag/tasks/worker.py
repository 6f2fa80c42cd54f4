"""The worker: a process of its own that hosts background work, so that it outlives whoever began it.

Started on demand and detached, one for each user's Kitbag; gone when there has been nothing to do for a while. It alone
recovers work whose process has ended. `kitbag worker` runs one by hand. What may be done is decided by the rules and
trust of the workspace as they are now; questions wait in the approval queue.
"""

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kitbag.agent.session import PREFIX
from kitbag.assembly.inherited import Inherited
from kitbag.assembly.open_journal import open_journal
from kitbag.errors import KitbagError
from kitbag.events import Notice
from kitbag.permissions.approvals.approval import Answer, Approvals, Question
from kitbag.permissions.approvals.queue import ApprovalQueue, QueueApprover
from kitbag.store.journal import Journal
from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.command_task import CommandTask
from kitbag.tasks.delegation import DEEPEST, Delegated, Shared
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.reports import end_so_far
from kitbag.tasks.runner import TaskRunner
from kitbag.tasks.standalone_setup import lay_inherited, read_options
from kitbag.tasks.task import End, Task, Wish, asked_by
from kitbag.tasks.task_processes import end_processes
from kitbag.tasks.version import is_newer, this_version
from kitbag.tasks.watchdog import Phase, Watchdog
from kitbag.tasks.worker_environments import Grounds
from kitbag.tasks.worker_lock import give_sign_of_life, locked, read_lock
from kitbag.tasks.worker_process import bound_log, ignored_damage

if TYPE_CHECKING:
    from kitbag.assembly.base_agent import BaseAgent
    from kitbag.tools.delegation import Delegation

IDLE_SECONDS: Final = 30.0
MOST_RECOVERIES: Final = 3
AT_ONCE: Final = 20
"""At each depth, so that those who wait for the tasks that they began never keep them from beginning."""
COMMANDS_AT_ONCE: Final = 100
"""Apart from those: a server that runs for days takes no agent's place."""
_COMMANDS: Final = -1
_LEAVING_SECONDS: Final = 1.0
"""For commands to end, when the worker has to."""
_MOST_TROUBLE: Final = 60
"""Times in a row, a second apart, that the journal may fail before the worker gives up."""
_LOOK_SECONDS: Final = 1.0
_LOG_SECONDS: Final = 60.0


class _TaskApprover:
    """Puts questions into the queue, and says on the board that the task waits."""

    one_at_a_time = False

    def __init__(self, queue: ApprovalQueue, board: Board, task_id: str, watchdog: Watchdog) -> None:
        self._inner = QueueApprover(queue)
        self._board = board
        self._task_id = task_id
        self._watchdog = watchdog

    async def ask(self, question: Question) -> Answer:
        await self._board.wait_for_answer(self._task_id, question.id)
        self._watchdog.enter(Phase("answer", question.tool))
        answer = await self._inner.ask(question)
        self._watchdog.enter(Phase("tool", question.tool))
        await self._board.wait_for_answer(self._task_id, question.id, over=True)
        return answer


class Worker:
    def __init__(
        self,
        journal: Journal,
        *,
        idle_seconds: float = IDLE_SECONDS,
        at_once: int = AT_ONCE,
        log: Callable[[str], None],
        sign_of_life: Callable[[], None] = lambda: None,
    ) -> None:
        self.board = Board(journal)
        self._journal = journal
        self._queue = ApprovalQueue(journal)
        self._shared = Shared(self.board, at_once)
        self._at_once = at_once
        self._idle_seconds = idle_seconds
        self._log = log
        self._sign_of_life = sign_of_life
        self._running: dict[str, asyncio.Task[None]] = {}
        self._commands: dict[str, CommandTask] = {}
        self._lanes: Counter[int] = Counter()
        self._grounds = Grounds(self._lay)
        self._me = this_process()
        self._looked = (-1, 0.0)
        self._swept: set[tuple[str, int]] = set()
        """Beginnings of tasks whose processes were ended because their owner was gone."""
        self._leaves = False
        """Somebody wants what only a newer Kitbag understands."""

    async def serve(self) -> None:
        """Until there has been nothing to do for a while."""
        signs = asyncio.create_task(self._give_signs())
        try:
            await self._serve()
        finally:
            signs.cancel()

    async def _give_signs(self) -> None:
        """By itself: a journal that lets us wait is no reason to be taken for dead."""
        while True:
            self._sign_of_life()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _serve(self) -> None:
        idle_since, trouble = time.monotonic(), 0
        while True:
            try:
                seen = self._journal.last_seq()
                await self._look()
                now = time.monotonic()
                if self._running:
                    idle_since = now
                elif self._leaves or now - idle_since >= self._idle_seconds:
                    return
                await self._journal.changed(seen, min(max(self._idle_seconds, 0.02), _LOOK_SECONDS))
                trouble = 0
            except StoreError as error:
                trouble += 1
                self._log(f"{error.problem}. {error.fix}")
                if trouble >= _MOST_TROUBLE:
                    raise
                await asyncio.sleep(_LOOK_SECONDS)

    def running(self) -> list[str]:
        """Also what runs in front of those, as it was last seen: for a moment in which nothing may be read."""
        return [task.id for task in self.board.open_now() if task.owner == self._me]

    def leave_commands(self) -> None:
        for command in list(self._commands.values()):
            command.leave()

    def runs_commands(self) -> bool:
        return any(command.is_running for command in list(self._commands.values()))

    async def close(self) -> None:
        await self._grounds.close()

    async def _look(self) -> None:
        """When the board has changed, and each second for what happens without a word."""
        self.board.refresh()
        now = time.monotonic()
        if self._looked[0] == self.board.seen and now - self._looked[1] < _LOOK_SECONDS:
            return
        if now - self._looked[1] >= _LOOK_SECONDS:
            await self.board.bury()
        else:
            now = self._looked[1]
        self._looked = (self.board.seen, now)
        waiting = [task for task in self.board.unfinished() if task.background and task.id not in self._running]
        await self._take_over(task for task in waiting if task.status != "queued")
        for task in waiting:
            if task.status != "queued":
                continue
            if is_newer(task.version, this_version()):
                self._leaves = True
            elif task.stop_wanted:
                if await self.board.claim(task):
                    await self.board.end(task.id, task.run + 1, End("cancelled"))
            elif not self._leaves and self._has_room(task):
                self._begin(task)

    async def _take_over(self, tasks: Iterable[Task]) -> None:
        """Before anything new is begun: of what is said to run, what nobody does."""
        # What another worker did is lost, since we have the lock, even where we can't see its processes.
        lives: dict[Owner | None, bool | None] = {self._me: False, None: True}
        lost: list[Task] = []
        for task in tasks:
            if task.owner not in lives:
                lives[task.owner] = task.owner.lives() if task.owner is not None else True
            lost += [] if lives[task.owner] else [task]
        survivors = {(task.id, task.run) for task in lost} - self._swept
        if survivors:
            # Nothing of them runs on while another takes their place, also where it was one of them that started us.
            self._swept |= survivors
            ids = [task_id for task_id, _ in survivors]
            await asyncio.to_thread(lambda: end_processes(*ids, spare_ancestors=False))
        for task in lost:
            await self._recover(task)

    def _has_room(self, task: Task) -> bool:
        return self._lanes[_lane(task)] < (COMMANDS_AT_ONCE if task.kind == "command" else self._at_once)

    async def _recover(self, task: Task) -> None:
        if task.stop_wanted:
            await self.board.end(task.id, task.run, end_so_far(self.board, task, "cancelled"))
        elif task.kind == "command":
            problem = "interrupted (unknown outcome): the process that ran it ended; it is not run again by itself"
            await self.board.end(task.id, task.run, end_so_far(self.board, task, "interrupted", problem))
        elif task.recoveries >= MOST_RECOVERIES:
            problem = f"its process ended {task.recoveries + 1} times; it is not tried again unless you resume it"
            await self.board.end(task.id, task.run, end_so_far(self.board, task, "interrupted", problem))
        else:
            if self._has_room(task):
                self._begin(task, recovered=True)
            return
        await self._withdraw_questions(task)

    def _begin(self, task: Task, *, recovered: bool = False) -> None:
        self._lanes[_lane(task)] += 1
        self._running[task.id] = asyncio.create_task(self._claimed(task, recovered))

    def _got_on(self, task: Task) -> bool:
        """Whether it took a step when it was last begun: then it is not what ends its process, as far as we know."""
        steps = self._journal.read(PREFIX + task.session)
        return any(record.kind in ("reply", "result") and record.at > task.started for record in steps)

    async def _claimed(self, task: Task, recovered: bool) -> None:
        try:
            if await self.board.claim(task, recovered=recovered and not self._got_on(task)):
                await self._carry_out(self.board.find(task.id), recovered)
        except KitbagError as error:  # it stays as it is on the board, and is found there again
            self._log(f"task {task.id}: {error.problem}. {error.fix}")
        finally:
            self._lanes[_lane(task)] -= 1
            del self._running[task.id]

    async def _carry_out(self, task: Task, recovered: bool) -> None:
        try:
            wish, asked = self.board.last_wish(task.id)
            if task.kind == "command":
                return await self._command(task, wish)
            watchdog = Watchdog()
            async with self._grounds.of(wish) as inherited:
                approver = _TaskApprover(self._queue, self.board, task.id, watchdog)
                settings_file = inherited.ground.library.settings.user_file
                inherited = inherited._replace(
                    approvals=Approvals(approver, settings_file), environment=wish.options.get("environment")
                )
                heard = any(record.kind == "user" for record in self._journal.read(PREFIX + task.session, asked))
                runner = TaskRunner(
                    self.board, task, inherited, self._shared.signals, self._for_child(task), watchdog=watchdog
                )
                end = await runner.run(wish, "" if heard else wish.request, recovered=recovered)
            self._log(f"task {task.id} ({task.agent}): {end.status}")
        except KitbagError as error:
            await self.board.end(task.id, task.run, End("failed", error=f"{error.problem}. {error.fix}".strip()))
        except Exception as error:  # noqa: BLE001 - one task must not end the others
            self._log(f"task {task.id}: {type(error).__name__}: {error}")
            await self.board.end(task.id, task.run, End("failed", error=f"{type(error).__name__}: {error}"))
        finally:
            await self._withdraw_questions(task)

    async def _withdraw_questions(self, task: Task) -> None:
        """Of one that has ended: nobody is to be asked what nobody needs to know."""
        for one in (task, *self.board.below(task.id)):
            await self._queue.withdraw(asked_by(one.agent, one.id))

    async def _command(self, task: Task, wish: Wish) -> None:
        self._commands[task.id] = CommandTask(self.board, task, self._shared.signals)
        try:
            end = await self._commands[task.id].run(wish)
        finally:
            del self._commands[task.id]
        self._log(f"task {task.id} (command): {end.status}")

    def _for_child(self, task: Task) -> "Callable[[BaseAgent, Task], Delegation | None]":
        def made(agent: "BaseAgent", _: Task) -> "Delegation | None":
            return (
                Delegated(agent.inherited, task.root, task.id, task.depth, self._shared)
                if task.depth < DEEPEST
                else None
            )

        return made

    def _lay(self, wish: Wish) -> Inherited:
        mode: Any = wish.parent_mode
        return lay_inherited(
            wish.directory, read_options(wish.options), wish.parent_model, mode, self._journal, self._note
        )

    def _note(self, notice: Notice) -> None:
        self._log(notice.text)


def _lane(task: Task) -> int:
    return _COMMANDS if task.kind == "command" else task.depth


def run_worker(
    kitbag_home: str, *, idle_seconds: float = IDLE_SECONDS, at_once: int = AT_ONCE, log: Callable[[str], None]
) -> bool:
    """False when another one is at work already."""
    while True:
        before = read_lock(kitbag_home)
        try:
            with locked(kitbag_home) as lock:
                if damage := ignored_damage(kitbag_home, before):
                    log(damage)
                asyncio.run(_serve(kitbag_home, lock, idle_seconds, at_once, log))
        except BlockingIOError:
            return False
        # A task may have come while we were leaving; whoever put it there saw our lock and started nobody.
        if not _is_wanted(kitbag_home):
            return True


async def _serve(kitbag_home: str, lock: int, idle_seconds: float, at_once: int, log: Callable[[str], None]) -> None:
    looked = time.monotonic()

    def sign_of_life() -> None:
        nonlocal looked
        give_sign_of_life(lock)
        if time.monotonic() - looked >= _LOG_SECONDS:
            looked = time.monotonic()
            bound_log(kitbag_home)

    give_sign_of_life(lock)
    with open_journal(kitbag_home) as journal:
        worker = Worker(journal, idle_seconds=idle_seconds, at_once=at_once, log=log, sign_of_life=sign_of_life)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Not through the event loop: it has to be heard also when that is held up.
            signal.signal(number, lambda given, _: _leave(worker, given))
        try:
            await worker.serve()
        finally:
            await worker.close()


def _leave(worker: Worker, number: int) -> NoReturn:
    """At once. What runs stays on the board as it is: the next worker goes on with it, as after a crash."""
    if worker.runs_commands():
        # In another thread, since this one may hold what that needs.
        threading.Thread(target=worker.leave_commands, daemon=True).start()
        deadline = time.monotonic() + _LEAVING_SECONDS
        while worker.runs_commands() and time.monotonic() < deadline:
            time.sleep(0.01)
    end_processes(*worker.running())
    os._exit(128 + number)


def _is_wanted(kitbag_home: str) -> bool:
    with open_journal(kitbag_home) as journal:
        found = Board(journal).unfinished()
        return any(task.background and not is_newer(task.version, this_version()) for task in found)
