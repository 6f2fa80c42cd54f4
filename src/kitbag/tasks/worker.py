"""The worker: a process that hosts background tasks, so that they outlive the process that started them.

Started on demand and detached, one per Kitbag home; exits when idle. Only the worker recovers tasks whose process has
died. `kitbag worker` runs one in the foreground. Permissions follow the workspace's current rules and trust; questions
wait in the approval queue.
"""

import asyncio
import functools
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from kitbag.agent.session import STREAM_PREFIX
from kitbag.assembly.open_journal import open_journal
from kitbag.assembly.open_store import store_name
from kitbag.assembly.parent_context import ParentContext
from kitbag.errors import KitbagError
from kitbag.events import Notice
from kitbag.library.scopes import find_places
from kitbag.permissions.approvals.approval import ApprovalAnswer, ApprovalRequest, Approvals
from kitbag.permissions.approvals.queue import ApprovalQueue, QueueApprover
from kitbag.settings import load_settings
from kitbag.store.journal import Journal
from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.command_task import CommandTask
from kitbag.tasks.delegation import TaskDelegation
from kitbag.tasks.fleet import SharedLimits, announce_exit, announce_worker, is_drained
from kitbag.tasks.git_workspace import (
    LostCheckoutError,
    checkout,
    checkout_of,
    has_checkout,
    parse_git_workspace,
)
from kitbag.tasks.interrupted import UNKNOWN_OUTCOME, describe_ended_process
from kitbag.tasks.library_snapshot import unpack_snapshot
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.queue_order import COMMAND_LANE, QueueOrder, lane_of
from kitbag.tasks.reports import fetch_sessions, finish_for_owner
from kitbag.tasks.runner import TaskRunner, request_for_messages
from kitbag.tasks.standalone_setup import load_standalone_setup
from kitbag.tasks.stored_options import parse_options
from kitbag.tasks.task import (
    SNAPSHOT_KEY,
    TRUSTED_CONTENT_KEY,
    WORKSPACE_KEY,
    Task,
    TaskRequest,
    TaskResult,
    requester_label,
)
from kitbag.tasks.task_host import MAX_DEPTH, TaskHost
from kitbag.tasks.task_patches import (
    PATCH_STREAM_PREFIX,
    last_checkout,
    last_returned_patch,
    read_patch,
    record_checkout,
)
from kitbag.tasks.task_processes import kill_processes
from kitbag.tasks.version import is_newer, kitbag_version
from kitbag.tasks.watchdog import Phase, Watchdog
from kitbag.tasks.worker_environments import SetupCache
from kitbag.tasks.worker_lock import hold_worker_lock, read_lock, write_heartbeat
from kitbag.tasks.worker_needs import DEFAULT_QUEUE, WorkerNeeds, served_queues
from kitbag.tasks.worker_process import damaged_lock_notice, rotate_log
from kitbag.tasks.worktree import Worktree

if TYPE_CHECKING:
    from kitbag.assembly.base_agent import BaseAgent
    from kitbag.tools.delegation import Delegation

IDLE_SECONDS: Final = 30.0
MAX_RECOVERIES: Final = 3
MAX_CONCURRENT: Final = 20
"""Per depth."""
MAX_CONCURRENT_COMMANDS: Final = 100
_SHUTDOWN_SECONDS: Final = 1.0
"""Time for commands to end when the worker exits."""
_MAX_JOURNAL_FAILURES: Final = 60
"""Consecutive failures of the journal, one second apart, before the worker gives up."""
_POLL_SECONDS: Final = 1.0
_LOG_CHECK_SECONDS: Final = 60.0


class _TaskApprover:
    """Puts questions into the approval queue and marks the task as waiting on the board."""

    one_at_a_time = False

    def __init__(self, queue: ApprovalQueue, board: Board, task_id: str, watchdog: Watchdog) -> None:
        self._inner = QueueApprover(queue)
        self._board = board
        self._task_id = task_id
        self._watchdog = watchdog

    async def ask(self, question: ApprovalRequest) -> ApprovalAnswer:
        await self._board.record_question(self._task_id, question.id)
        self._watchdog.enter(Phase("answer", question.tool))
        answer = await self._inner.ask(question)
        self._watchdog.enter(Phase("tool", question.tool))
        await self._board.record_question(self._task_id, question.id, answered=True)
        return answer


class Worker:
    def __init__(
        self,
        journal: Journal,
        *,
        idle_seconds: float = IDLE_SECONDS,
        max_concurrent: int = MAX_CONCURRENT,
        queues: Iterable[str] = (),
        limits: Mapping[str, int] | None = None,
        log: Callable[[str], None],
        heartbeat: Callable[[], None] = lambda: None,
    ) -> None:
        """`queues`: in addition to that of this Kitbag home; without any, the one of the user's settings. `limits`: how
        many tasks of a queue run at once over all workers, per depth."""
        self.board = Board(journal)
        self._journal = journal
        self._queue = ApprovalQueue(journal)
        self._host = TaskHost(self.board, max_concurrent)
        self._max_concurrent = max_concurrent
        self._idle_seconds = idle_seconds
        self._log = log
        self._heartbeat = heartbeat
        self._running: dict[str, asyncio.Task[None]] = {}
        self._commands: dict[str, CommandTask] = {}
        self._lanes: Counter[int] = Counter()
        self._queues = served_queues(journal, queues)
        self._needs = WorkerNeeds(journal)
        self._own_limits = {
            journal.home_queue if name == DEFAULT_QUEUE else name: limit for name, limit in (limits or {}).items()
        }
        self._shared_limits = SharedLimits(self.board, self._own_limits)
        self._limits = dict(self._own_limits)
        self._order = QueueOrder(self._queues, self._limits, self._find_obstacle, journal.now)
        self.board.on_change = self._order.update
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Per queue with a limit: claims depend on the one before."""
        self._setups = SetupCache(self._load_setup)
        self._owner = this_process()
        self._last_scan = (-1, 0.0)
        self._killed_runs: set[tuple[str, int]] = set()
        """(task id, run) pairs whose processes were killed because their owner had died."""
        self._should_exit = False
        """A queued task needs a newer Kitbag."""
        self._announced_at = journal.last_seq()
        self.is_drained = False
        """The user wants it to start nothing more."""

    async def serve(self) -> None:
        """Runs until idle."""
        heartbeats = asyncio.create_task(self._send_heartbeats())
        try:
            if self._journal.is_shared:
                self._announced_at = await announce_worker(
                    self._journal,
                    self._owner,
                    queues=self._queues,
                    concurrency=self._max_concurrent,
                    providers=self._needs.providers(),
                    limits=self._own_limits,
                )
            await self._serve()
            if self._journal.is_shared:
                await announce_exit(self._journal, self._owner)
        finally:
            heartbeats.cancel()

    async def _send_heartbeats(self) -> None:
        """A separate task: a slow journal must not make the worker look dead."""
        while True:
            self._heartbeat()
            await asyncio.sleep(_POLL_SECONDS)

    async def _serve(self) -> None:
        idle_since, failures = time.monotonic(), 0
        while True:
            try:
                seen = self._journal.last_seq()
                await self._scan_board()
                now = time.monotonic()
                if self._running:
                    idle_since = now
                elif self._should_exit or self.is_drained:
                    return
                elif self._order.has_scheduled or self._guards_others():
                    idle_since = now
                elif now - idle_since >= self._idle_seconds:
                    return
                await self._journal.wait_async(seen, min(max(self._idle_seconds, 0.02), _POLL_SECONDS))
                failures = 0
            except StoreError as error:
                failures += 1
                self._log(f"{error.problem}. {error.fix}")
                if failures >= _MAX_JOURNAL_FAILURES:
                    raise
                await asyncio.sleep(_POLL_SECONDS)

    def running_task_ids(self) -> list[str]:
        """Includes foreground children, as of the last refresh: signal handlers must not read the journal."""
        return [task.id for task in self.board.known_unfinished() if task.owner == self._owner]

    def abort_commands(self) -> None:
        for command in list(self._commands.values()):
            command.abort()

    def has_running_commands(self) -> bool:
        return any(command.is_running for command in list(self._commands.values()))

    async def close(self) -> None:
        await self._setups.close()

    async def _scan_board(self) -> None:
        """Runs when the board has changed, and every second for changes that leave no record."""
        unreadable = len(self.board.unreadable)
        self.board.refresh()
        if len(self.board.unreadable) > unreadable:
            self._log(self.board.unreadable_notice())
        now = time.monotonic()
        if self._last_scan[0] == self.board.last_applied_seq and now - self._last_scan[1] < _POLL_SECONDS:
            return
        is_due = now - self._last_scan[1] >= _POLL_SECONDS
        if is_due:
            await self.board.end_dead_foreground_tasks()
            if self._journal.is_shared:
                self._limits.clear()
                self._limits |= self._shared_limits.read()
            self._order.retry()
        self._last_scan = (self.board.last_applied_seq, now if is_due else self._last_scan[1])
        self.is_drained = self.is_drained or is_drained(self._journal, self._owner, self._announced_at)
        if self.is_drained:
            return
        if is_due:
            await self._take_over([task for task in self._order.running.values() if not self._find_obstacle(task)])
        for task in list(self._order.stopped.values()):
            if await self.board.claim(task):
                await self.board.finish(task.id, task.run + 1, TaskResult(status="cancelled"))
        # A newer worker of this home needs our lock; workers of other homes find it by themselves.
        own = ("", self._journal.home_queue)
        self._should_exit = self._should_exit or any(task.queue in own for task in self._order.newer.values())
        while not self._should_exit and (task := self._order.choose(self._has_free_slot)) is not None:
            self._start(task)

    async def _take_over(self, tasks: Iterable[Task]) -> None:
        """Recovers tasks whose owner has died, before new ones start."""
        # Tasks of another worker that shares our file are lost even if we can't see its processes: we hold the lock.
        alive: dict[Owner | None, bool | None] = {self._owner: False, None: True}
        lost: list[Task] = []
        for task in tasks:
            if task.owner not in alive:
                alive[task.owner] = self.board.check_alive(task.owner) if task.owner is not None else True
            is_lost = alive[task.owner] is False or (alive[task.owner] is None and not self._journal.is_shared)
            lost += [task] if is_lost else []
        # One scan for owners that are gone. A frozen one may come back and continue a task that is not claimed.
        await self._kill_leftovers(*(task for task in lost if self._has_ended(task.owner)))
        for task in lost:
            await self._recover(task)

    def _has_ended(self, owner: Owner | None) -> bool:
        """Not only frozen or cut off beyond its lease."""
        return owner in (None, self._owner) or not self._journal.is_shared or owner.check_alive() is False

    async def _kill_leftovers(self, *tasks: Task) -> None:
        """Nothing of a lost task keeps running while it is recovered, even if one of its processes started this
        worker."""
        if runs := {(task.id, task.run) for task in tasks} - self._killed_runs:
            self._killed_runs |= runs
            ids = [task_id for task_id, _ in runs]
            await asyncio.to_thread(lambda: kill_processes(*ids, spare_ancestors=False))

    def _guards_others(self) -> bool:
        """Whether workers of other machines run tasks that only we could recover if they die."""
        own = ("", self._journal.home_queue)
        return any(task.queue not in own for task in self._order.running.values())

    def _find_obstacle(self, task: Task) -> str:
        return f"task {task.id} is ending here" if task.id in self._running else self._needs.missing(task)

    def _has_free_slot(self, lane: int) -> bool:
        return self._lanes[lane] < (MAX_CONCURRENT_COMMANDS if lane == COMMAND_LANE else self._max_concurrent)

    async def _recover(self, task: Task) -> None:
        if task.stop_requested:
            await finish_for_owner(self.board, task, "cancelled")
        elif task.kind == "command":
            problem = f"{UNKNOWN_OUTCOME}: its process ended; it is not restarted automatically"
            await finish_for_owner(self.board, task, "interrupted", problem)
        elif task.recoveries >= MAX_RECOVERIES and not self._made_progress(task):
            await fetch_sessions(self._journal, task)
            await finish_for_owner(self.board, task, "interrupted", describe_ended_process(self.board, task))
        else:
            if self._has_free_slot(lane_of(task)):
                self._start(task, recovered=True)
            return
        await self._kill_leftovers(task)
        await self._withdraw_questions(task)

    def _start(self, task: Task, *, recovered: bool = False) -> None:
        self._lanes[lane_of(task)] += 1
        self._running[task.id] = asyncio.create_task(self._claim_and_run(task, recovered))

    def _made_progress(self, task: Task) -> bool:
        """Whether the last run completed a step: then the task itself is probably not what kills its process."""
        steps = self._journal.read(STREAM_PREFIX + task.session, brief=True)
        return any(record.kind in ("reply", "result") and record.at > task.started for record in steps)

    async def _claim_and_run(self, task: Task, recovered: bool) -> None:
        try:
            if await self._claim(task, recovered):
                await self._kill_leftovers(*([task] if recovered else []))
                await self._run_task(self.board.find(task.id), recovered)
            else:
                self._order.lose(task.id)
        except KitbagError as error:  # it stays on the board and is found again
            self._order.lose(task.id)
            self._log(f"task {task.id}: {error.problem}. {error.fix}")
        finally:
            self._lanes[lane_of(task)] -= 1
            del self._running[task.id]

    async def _claim(self, task: Task, recovered: bool) -> bool:
        limit = self._order.limit_of(task)
        if recovered or not limit:
            return await self.board.claim(task, recovered=recovered and not self._made_progress(task))
        async with self._turns[task.queue]:
            return await self.board.claim(task, limit=limit)

    async def _run_task(self, task: Task, recovered: bool) -> None:
        try:
            request, request_seq = self.board.latest_request(task.id)
            if task.kind == "command":
                return await self._run_command(task, request)
            watchdog = Watchdog()
            request, checkout = await self._check_out(task, request)
            if snapshot := str(request.options.get(SNAPSHOT_KEY, "")):
                home = find_places(os.path.sep).kitbag_home
                await asyncio.to_thread(unpack_snapshot, self._journal, home, snapshot)
            async with self._setups.acquire(request) as inherited:
                approver = _TaskApprover(self._queue, self.board, task.id, watchdog)
                settings_file = inherited.environment.library.settings.user_file
                inherited = msgspec.structs.replace(
                    inherited,
                    approvals=Approvals(approver, settings_file, is_background=True),
                    can_ask_user=True,
                    command_env=request.options.get("environment"),
                )
                is_delivered = any(
                    record.kind == "user" and not record.body.get("steering")
                    for record in self._journal.read(STREAM_PREFIX + task.session, request_seq, brief=True)
                )
                runner = TaskRunner(
                    board=self.board,
                    task=task,
                    inherited=inherited,
                    signals=self._host.signals,
                    make_delegation=self._child_delegation(task),
                    watchdog=watchdog,
                    checkout=checkout,
                )
                result = await runner.run(request, "" if is_delivered else request.message, recovered=recovered)
            if (next_request := request_for_messages(self.board, task, result)) is not None:
                await self.board.requeue(self.board.find(task.id), next_request)
            self._log(f"task {task.id} ({task.agent}): {result.status}")
        except KitbagError as error:
            status = "interrupted" if isinstance(error, LostCheckoutError) else "failed"
            await self.board.finish(
                task.id, task.run, TaskResult(status=status, error=f"{error.problem}. {error.fix}".strip())
            )
        except Exception as error:  # noqa: BLE001 - one task must not end the others
            self._log(f"task {task.id}: {type(error).__name__}: {error}")
            await self.board.finish(
                task.id, task.run, TaskResult(status="failed", error=f"{type(error).__name__}: {error}")
            )
        finally:
            await self._withdraw_questions(task)

    async def _check_out(self, task: Task, request: TaskRequest) -> tuple[TaskRequest, Worktree | None]:
        """The request with a clone of its repository as its directory, if it needs one. Raises KitbagError."""
        workspace = parse_git_workspace(request.options)
        if workspace is None or (not workspace.always and os.path.isdir(request.directory)):
            return request, None
        home = find_places(os.path.sep).kitbag_home
        journal, patches = self._journal, list[bytes]()
        await journal.fetch_async(PATCH_STREAM_PREFIX + task.id)
        if not await asyncio.to_thread(has_checkout, checkout_of(home, task.id, workspace)):
            patches += [read_patch(journal, task.id, "uncommitted", name)] if (name := workspace.uncommitted) else []
            returned, earlier = last_returned_patch(journal, task.id), last_checkout(journal, task.id)
            steps = journal.read(STREAM_PREFIX + task.session, brief=True)
            if returned is None and earlier is not None and any(step.kind == "intent" for step in steps):
                problem = f"interrupted: the files of its earlier run are on {earlier[0]} in {earlier[1]}"
                raise LostCheckoutError(problem, "resume it when that machine's worker runs, or start a new task")
            patches += [returned] if returned else []
        protocols = load_settings(home, ()).get("tasks.git_protocols")
        worktree = await asyncio.to_thread(checkout, home, task.id, workspace, protocols, *patches)
        await record_checkout(journal, task.id, worktree.path)
        directory = os.path.join(worktree.path, workspace.folder)
        options = {name: value for name, value in request.options.items() if name != WORKSPACE_KEY}
        # Trust is bound to the contents that the user trusted, not to the path.
        options["trust_workspace"] = str(options.get(TRUSTED_CONTENT_KEY, "")) or False
        return msgspec.structs.replace(request, directory=directory, options=options), worktree

    async def _withdraw_questions(self, task: Task) -> None:
        """Withdraws the questions of a finished task and its descendants."""
        for one in (task, *self.board.descendants(task.id)):
            await self._queue.withdraw(requester_label(one.agent, one.id))

    async def _run_command(self, task: Task, request: TaskRequest) -> None:
        self._commands[task.id] = CommandTask(self.board, task, self._host.signals)
        try:
            result = await self._commands[task.id].run(request)
        finally:
            del self._commands[task.id]
        self._log(f"task {task.id} (command): {result.status}")

    def _child_delegation(self, task: Task) -> "Callable[[BaseAgent, Task], Delegation | None]":
        def made(agent: "BaseAgent", _: Task) -> "Delegation | None":
            return (
                TaskDelegation(agent.parent_context, task.root, task.id, task.depth, self._host)
                if task.depth < MAX_DEPTH
                else None
            )

        return made

    def _load_setup(self, request: TaskRequest) -> ParentContext:
        mode: Any = request.parent_mode
        return load_standalone_setup(
            request.directory,
            parse_options(request.options),
            request.parent_model,
            mode,
            self._journal,
            self._log_notice,
        )

    def _log_notice(self, notice: Notice) -> None:
        self._log(notice.text)


def run_worker(
    kitbag_home: str,
    *,
    idle_seconds: float = IDLE_SECONDS,
    max_concurrent: int = MAX_CONCURRENT,
    queues: Iterable[str] = (),
    limits: Mapping[str, int] | None = None,
    log: Callable[[str], None],
) -> bool:
    """False if another worker is running."""
    queues = tuple(queues)
    make_worker = functools.partial(
        Worker, idle_seconds=idle_seconds, max_concurrent=max_concurrent, queues=queues, limits=limits, log=log
    )
    while True:
        previous = read_lock(kitbag_home)
        try:
            with hold_worker_lock(kitbag_home) as lock:
                if damage := damaged_lock_notice(kitbag_home, previous):
                    log(damage)
                is_drained = asyncio.run(_serve_home(kitbag_home, lock, make_worker))
        except BlockingIOError:
            return False
        if is_drained:
            return True
        # A task may have been queued while we were exiting: its creator saw our lock and started no worker.
        if not _has_work(kitbag_home, queues):
            return True


async def _serve_home(kitbag_home: str, lock: int, make_worker: Callable[..., Worker]) -> bool:
    """Whether it was drained."""
    log_checked_at, store = time.monotonic(), store_name(kitbag_home)

    def sign_of_life() -> None:
        nonlocal log_checked_at
        write_heartbeat(lock, store)
        if time.monotonic() - log_checked_at >= _LOG_CHECK_SECONDS:
            log_checked_at = time.monotonic()
            rotate_log(kitbag_home)

    write_heartbeat(lock, store)
    with open_journal(kitbag_home) as journal:
        worker = make_worker(journal, heartbeat=sign_of_life)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Not through the event loop, which may be blocked.
            signal.signal(number, lambda given, _: _exit_on_signal(worker, given))
        try:
            await worker.serve()
        finally:
            await worker.close()
        return worker.is_drained


def _exit_on_signal(worker: Worker, number: int) -> NoReturn:
    """Exits immediately. Running tasks stay on the board; the next worker recovers them as after a crash."""
    if worker.has_running_commands():
        # In another thread: this one may hold a lock that it needs.
        threading.Thread(target=worker.abort_commands, daemon=True).start()
        deadline = time.monotonic() + _SHUTDOWN_SECONDS
        while worker.has_running_commands() and time.monotonic() < deadline:
            time.sleep(0.01)
    kill_processes(*worker.running_task_ids())
    os._exit(128 + number)


def _has_work(kitbag_home: str, queues: Iterable[str]) -> bool:
    with open_journal(kitbag_home) as journal:
        served, needs = served_queues(journal, queues), WorkerNeeds(journal)
        tasks = [task for task in Board(journal).unfinished() if task.background and task.queue in served]
        # A task that a worker on another machine runs is not ours to wait for.
        free = [task for task in tasks if not journal.is_shared or task.status == "queued"]
        return any(not needs.missing(task) and not is_newer(task.version, kitbag_version()) for task in free)
