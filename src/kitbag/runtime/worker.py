"""The worker: a process of its own that hosts background work, so that it outlives whoever began it.

Started on demand and detached, one for each user's Kitbag; gone when there has been nothing to do for a while. It alone
recovers work whose process has ended. `kitbag worker` runs one by hand. What may be done is decided by the rules and
trust of the workspace as they are now; questions wait in the approval queue.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, NoReturn

from kitbag.agent.session import PREFIX
from kitbag.errors import KitbagError
from kitbag.events import Notice
from kitbag.permissions.approval_queue import ApprovalQueue, QueueApprover
from kitbag.permissions.approvals import Answer, Approvals, Question
from kitbag.runtime.delegation import DEEPEST, Delegated, Shared
from kitbag.runtime.sources import key_values, model_sources
from kitbag.runtime.stand_in import lay_inherited, read_options
from kitbag.runtime.subagent import Inherited, asked_by
from kitbag.runtime.task_runner import TaskRunner
from kitbag.settings import load_settings
from kitbag.store.journal import Journal, journal_path
from kitbag.store.redaction import Redactor
from kitbag.store.secret_names import holds_secret
from kitbag.tasks.board import Board
from kitbag.tasks.model import End, Task, Wish
from kitbag.tasks.processes import end_processes
from kitbag.tasks.watchdog import Phase, Watchdog

if TYPE_CHECKING:
    from kitbag.runtime.agent import Agent
    from kitbag.tools.delegation import Delegation

IDLE_SECONDS: Final = 30.0
MOST_RECOVERIES: Final = 3
AT_ONCE: Final = 20
_LOCK: Final = "worker.lock"
_LOG: Final = "worker.log"
_children: "list[subprocess.Popen[bytes]]" = []


def ensure_worker(kitbag_home: str) -> bool:
    """Whether one had to be started. Call it after the task is on the board: a worker that is about to leave looks at
    the board once more after it has let go of its lock."""
    _children[:] = [child for child in _children if child.poll() is None]
    with contextlib.suppress(BlockingIOError), _lock(kitbag_home):
        started = True
        log = os.open(_in_state(kitbag_home, _LOG), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            environment = {**os.environ, "KITBAG_HOME": kitbag_home}
            child = subprocess.Popen(
                [sys.executable, "-m", "kitbag", "worker"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=kitbag_home,
                env=environment,
                start_new_session=True,
            )
        finally:
            os.close(log)
        _children.append(child)
        return started
    return False


def _in_state(kitbag_home: str, name: str) -> str:
    return os.path.join(kitbag_home, "state", name)


@contextlib.contextmanager
def _lock(kitbag_home: str) -> Generator[None, None, None]:
    """Raises BlockingIOError when a worker has it."""
    os.makedirs(os.path.join(kitbag_home, "state"), mode=0o700, exist_ok=True)
    descriptor = os.open(_in_state(kitbag_home, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


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
    ) -> None:
        self.board = Board(journal)
        self._journal = journal
        self._queue = ApprovalQueue(journal)
        self._shared = Shared(self.board, at_once)
        self._at_once = at_once
        self._idle_seconds = idle_seconds
        self._log = log
        self._running: dict[str, asyncio.Task[None]] = {}
        self._grounds: dict[str, Inherited] = {}

    async def serve(self) -> None:
        """Until there has been nothing to do for a while."""
        idle_since = asyncio.get_running_loop().time()
        while True:
            seen = self._journal.last_seq()
            await self._look()
            now = asyncio.get_running_loop().time()
            if self._running:
                idle_since = now
            elif now - idle_since >= self._idle_seconds:
                return
            await self._journal.changed(seen, 1.0)

    def running(self) -> list[str]:
        return list(self._running)

    async def close(self) -> None:
        for inherited in self._grounds.values():
            await inherited.provider.close()

    async def _look(self) -> None:
        for task in self.board.unfinished():
            if not task.background or task.id in self._running:
                continue
            if task.status == "queued":
                if task.stop_wanted:
                    if await self.board.claim(task, again=True):
                        await self.board.end(task.id, task.run + 1, End("cancelled"))
                elif len(self._running) < self._at_once:
                    await self._begin(task)
            elif task.owner is not None and not task.owner.is_alive():
                await self._recover(task)

    async def _recover(self, task: Task) -> None:
        """Its process is gone. Nothing of it runs on while another takes its place."""
        await asyncio.to_thread(end_processes, task.id)
        if task.stop_wanted:
            await self.board.end(task.id, task.run, End("cancelled"))
        elif task.recoveries >= MOST_RECOVERIES:
            problem = f"its process ended {task.recoveries + 1} times; it is not tried again unless you resume it"
            await self.board.end(task.id, task.run, End("interrupted", error=problem))
        elif len(self._running) < self._at_once:
            await self._begin(task, recovered=True)

    async def _begin(self, task: Task, *, recovered: bool = False) -> None:
        if not await self.board.claim(task, again=task.run > 0, recovered=recovered):
            return
        task = self.board.find(task.id)
        self._running[task.id] = asyncio.create_task(self._carry_out(task, recovered))

    async def _carry_out(self, task: Task, recovered: bool) -> None:
        try:
            wish = self.board.wish(task.id)
            watchdog = Watchdog()
            inherited = await self._inherited(wish)
            approver = _TaskApprover(self._queue, self.board, task.id, watchdog)
            settings_file = inherited.ground.library.settings.user_file
            inherited = inherited._replace(approvals=Approvals(approver, settings_file))
            goes_on = self._journal.last(PREFIX + task.session) is not None
            request = wish.prompt if goes_on and not recovered else ""
            runner = TaskRunner(
                self.board, task, inherited, self._shared.signals, self._for_child(task), watchdog=watchdog
            )
            end = await runner.run(wish, request, recovered=recovered)
            self._log(f"task {task.id} ({task.agent}): {end.status}")
        except KitbagError as error:
            await self.board.end(task.id, task.run, End("failed", error=f"{error.problem}. {error.fix}".strip()))
        except Exception as error:  # noqa: BLE001 - one task must not end the others
            self._log(f"task {task.id}: {type(error).__name__}: {error}")
            await self.board.end(task.id, task.run, End("failed", error=f"{type(error).__name__}: {error}"))
        finally:
            self._running.pop(task.id, None)
            with contextlib.suppress(KitbagError):
                await self._queue.withdraw(asked_by(task.agent, task.id))

    def _for_child(self, task: Task) -> "Callable[[Agent, Task], Delegation | None]":
        def made(agent: "Agent", _: Task) -> "Delegation | None":
            return (
                Delegated(agent.inherited, task.root, task.id, task.depth, self._shared)
                if task.depth < DEEPEST
                else None
            )

        return made

    async def _inherited(self, wish: Wish) -> Inherited:
        """Made once for all tasks of one place that were begun alike."""
        key = repr((wish.directory, sorted(wish.options.items()), wish.parent_model, wish.parent_mode))
        if key not in self._grounds:
            self._grounds[key] = await asyncio.to_thread(self._lay, wish)
        return self._grounds[key]

    def _lay(self, wish: Wish) -> Inherited:
        mode: Any = wish.parent_mode
        return lay_inherited(
            wish.directory, read_options(wish.options), wish.parent_model, mode, self._journal, self._note
        )

    def _note(self, notice: Notice) -> None:
        self._log(notice.text)


def run_worker(
    kitbag_home: str, *, idle_seconds: float = IDLE_SECONDS, at_once: int = AT_ONCE, log: Callable[[str], None]
) -> bool:
    """False when another one is at work already."""
    while True:
        try:
            with _lock(kitbag_home):
                asyncio.run(_serve(kitbag_home, idle_seconds, at_once, log))
        except BlockingIOError:
            return False
        # A task may have come while we were leaving; whoever put it there saw our lock and started nobody.
        if not _is_wanted(kitbag_home):
            return True


async def _serve(kitbag_home: str, idle_seconds: float, at_once: int, log: Callable[[str], None]) -> None:
    with _open_journal(kitbag_home) as journal:
        worker = Worker(journal, idle_seconds=idle_seconds, at_once=at_once, log=log)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, _leave, worker, number)
        try:
            await worker.serve()
        finally:
            await worker.close()


def _leave(worker: Worker, number: int) -> NoReturn:
    """At once. What runs stays on the board as it is: the next worker goes on with it, as after a crash."""
    for task_id in worker.running():
        end_processes(task_id)
    os._exit(128 + number)


def _is_wanted(kitbag_home: str) -> bool:
    with _open_journal(kitbag_home) as journal:
        return any(task.background for task in Board(journal).unfinished())


def _open_journal(kitbag_home: str) -> Journal:
    sources, _ = model_sources(load_settings(kitbag_home, ()))
    secrets = [value for name, value in os.environ.items() if holds_secret(name)]
    return Journal.open(journal_path(kitbag_home), Redactor([*secrets, *key_values(sources)]))
