"""Starts the worker process: one per Kitbag home, detached, found by its lock.

Used by code that queues background tasks or finds unhosted ones. The starter takes the lock and passes it to the new
process, so of many concurrent starters only one succeeds. The lock file identifies the holder.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from typing import Final, NamedTuple

from kitbag.assembly.open_store import store_name
from kitbag.processes.process_table import has_file_open
from kitbag.processes.signals import detach, send_signal
from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.owner import this_process
from kitbag.tasks.task_processes import SESSION_VARIABLE
from kitbag.tasks.version import is_newer, kitbag_version
from kitbag.tasks.worker_lock import (
    LOCK_DESCRIPTOR_VARIABLE,
    WAIT_FOR_LOCK_VARIABLE,
    DamagedLock,
    WorkerRecord,
    hold_worker_lock,
    lock_path,
    open_state_file,
    read_lock,
    read_worker_record,
    state_path,
)

MAX_LOG_BYTES: Final = 4_000_000
HUNG_SECONDS: Final = 60.0
"""Without a heartbeat; time asleep does not count."""
NO_WORKER: Final = "could not start a worker"
"""The prefix of warnings that say so."""
_LOG_FILE: Final = "worker.log"
_EXCLUDED_VARIABLES: Final = (SESSION_VARIABLE, "CLAUDE_SESSION_ID", LOCK_DESCRIPTOR_VARIABLE, WAIT_FOR_LOCK_VARIABLE)
"""A worker belongs to no task, even if a task's command started it."""
_EARLY_EXIT_SECONDS = 10.0
_POLL_SECONDS = 2.0
_TAKEOVER_SECONDS = 2.0
_children: "list[tuple[subprocess.Popen[bytes], float]]" = []


class WorkerStart(NamedTuple):
    started: bool
    """Whether a new worker was started."""
    problem: str = ""
    """Why queued tasks may have to wait: for the user and the model."""


def ensure_worker(kitbag_home: str) -> WorkerStart:
    """Call it after the task is on the board: an exiting worker checks the board once more after releasing its lock.
    Never raises if no worker can be started: the task waits for the next attempt."""
    start_failure = _last_start_failure(kitbag_home)
    previous = read_lock(kitbag_home)
    try:
        try:
            with hold_worker_lock(kitbag_home) as descriptor:
                return _start_worker(kitbag_home, descriptor, start_failure, damaged_lock_notice(kitbag_home, previous))
        except BlockingIOError:
            return _check_running_worker(kitbag_home, start_failure)
    except (OSError, StoreError) as error:
        reason = error.problem if isinstance(error, StoreError) else error.strerror or str(error)
        return WorkerStart(False, f"{NO_WORKER} ({reason}); start one with `kitbag worker`")


async def ensure_tasks_hosted(board: Board, kitbag_home: str) -> WorkerStart:
    """Ends foreground tasks of dead processes, and starts a worker if background tasks need one. Called before tasks
    are shown, so that no dead task looks alive."""
    await board.end_dead_foreground_tasks()
    return (
        await asyncio.to_thread(ensure_worker, kitbag_home) if board.unhosted_background_tasks() else WorkerStart(False)
    )


async def wait_until_finished(board: Board, kitbag_home: str, task_id: str, timeout: float) -> None:
    """Returns on timeout at the latest; meanwhile makes sure that the task has a live owner."""
    deadline = time.monotonic() + timeout
    while True:
        start = await ensure_tasks_hosted(board, kitbag_home)
        if start.problem and start.problem not in board.find(task_id).warnings:
            await board.warn(task_id, start.problem)
        left = deadline - time.monotonic()
        if left <= 0 or await board.wait_until(lambda task: task.is_finished, task_id, min(left, _POLL_SECONDS)):
            return


def damaged_lock_notice(kitbag_home: str, previous: WorkerRecord | DamagedLock | None) -> str:
    """What the new lock holder reports about the file it found."""
    if not isinstance(previous, DamagedLock):
        return ""
    return f"ignored {lock_path(kitbag_home)}, which is damaged ({previous.problem}); the new worker rewrites it"


# --- in the worker ----------------------------------------------------------------------------------------------


def rotate_log(kitbag_home: str, max_bytes: int = MAX_LOG_BYTES) -> None:
    """Starts a new log and keeps the last one, if this process writes to the log and it is long."""
    with contextlib.suppress(OSError):
        path = state_path(kitbag_home, _LOG_FILE)
        ours, named = os.fstat(2), os.lstat(path)
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino) or named.st_size < max_bytes:
            return
        os.replace(path, f"{path}.1")
        log = open_state_file(kitbag_home, _LOG_FILE, os.O_APPEND)
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
        finally:
            os.close(log)


# --- starting a worker ------------------------------------------------------------------------------------------


def _start_worker(kitbag_home: str, descriptor: int | None, *problems: str) -> WorkerStart:
    """Passes on the lock, or without a descriptor lets the new worker wait for it."""
    environment = {name: value for name, value in os.environ.items() if name not in _EXCLUDED_VARIABLES}
    environment["KITBAG_HOME"] = kitbag_home
    environment |= {WAIT_FOR_LOCK_VARIABLE: "1"} if descriptor is None else {LOCK_DESCRIPTOR_VARIABLE: str(descriptor)}
    with _open_log(kitbag_home) as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "kitbag", "worker"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=kitbag_home,
            env=environment,
            start_new_session=True,
            pass_fds=() if descriptor is None else (descriptor,),
        )
    detach(child)
    _children.append((child, time.monotonic()))
    return WorkerStart(True, "; ".join(filter(None, problems)))


@contextlib.contextmanager
def _open_log(kitbag_home: str) -> Generator[int, None, None]:
    """A worker that can't write its log still works."""
    try:
        path = state_path(kitbag_home, _LOG_FILE)
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_size >= MAX_LOG_BYTES:
                os.replace(path, f"{path}.1")
        log = open_state_file(kitbag_home, _LOG_FILE, os.O_APPEND)
    except (OSError, StoreError):
        yield subprocess.DEVNULL
        return
    try:
        yield log
    finally:
        os.close(log)


def _check_running_worker(kitbag_home: str, start_failure: str) -> WorkerStart:
    """The holder writes to the lock file every second, so a problem counts only if it persists."""
    deadline = time.monotonic() + _TAKEOVER_SECONDS
    seen, problem = None, None
    while not _is_healthy(kitbag_home, record := read_lock(kitbag_home)):
        if problem is None or record != seen:
            seen, problem = record, _resolve_problem(kitbag_home, record)
        try:
            with hold_worker_lock(kitbag_home) as descriptor:
                return _start_worker(kitbag_home, descriptor, start_failure, problem.resolved)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return WorkerStart(False, problem.unresolved)
        time.sleep(0.02)
    other = read_worker_record(kitbag_home)
    if other is not None and (reason := _reason_to_follow(kitbag_home, other)):
        _start_worker(kitbag_home, None)
        return WorkerStart(True, reason)
    return WorkerStart(False, start_failure)


def _reason_to_follow(kitbag_home: str, other: WorkerRecord) -> str:
    """Why a worker that waits until this one exits is needed."""
    if is_newer(kitbag_version(), other.version):
        return f"a worker of Kitbag {other.version} is finishing its tasks; a newer worker starts after that"
    if other.store is not None and other.store != store_name(kitbag_home):
        used = other.store or "the file of this machine"
        return (
            f"the worker of this Kitbag home, process {other.owner.pid}, uses {used}; another one starts when it exits"
            f" (`kill {other.owner.pid}` ends it)"
        )
    return ""


def _is_healthy(kitbag_home: str, record: WorkerRecord | DamagedLock | None) -> bool:
    """Whether the lock holder identifies itself and has a recent heartbeat."""
    if isinstance(record, DamagedLock) or (record is not None and record.owner.check_alive() is False):
        return False
    if record is not None and record.owner.boot == this_process().boot:
        return time.monotonic() - record.heartbeat <= HUNG_SECONDS
    # It has just started, or its clock is another machine's.
    try:
        return time.time() - os.stat(lock_path(kitbag_home)).st_mtime <= HUNG_SECONDS
    except OSError:
        return True


class _WorkerProblem(NamedTuple):
    """A problem with the lock holder: the messages for when it is resolved and while it is not."""

    resolved: str
    unresolved: str


def _resolve_problem(kitbag_home: str, record: WorkerRecord | DamagedLock | None) -> _WorkerProblem:
    """Kills a hanging worker if its identity is certain; the next one recovers its tasks as after a crash."""
    path = lock_path(kitbag_home)
    advice = f"Kitbag sent no signal. Run `fuser -v {path}` to see which process holds the lock, and end it if it hangs"
    if record is None:
        return _WorkerProblem("", f"{NO_WORKER}: the process that holds {path} did not record its ID. {advice}")
    if isinstance(record, DamagedLock):
        unresolved = f"{NO_WORKER}: {path} is damaged ({record.problem}). {advice}"
        return _WorkerProblem(damaged_lock_notice(kitbag_home, record), unresolved)

    def check(pid: int) -> str:
        if reason := record.owner.identity_problem():
            return reason
        if has_file_open(pid, path) is False:
            return "does not hold the lock"
        return "" if read_lock(kitbag_home) == record else "is responding again"

    pid = record.owner.pid
    if reason := record.owner.identity_problem() or send_signal(pid, signal.SIGKILL, check):
        return _WorkerProblem("", f"{NO_WORKER}: {path} names process {pid}, which {reason}. {advice}")
    resolved = "the worker stopped responding and was replaced"
    return _WorkerProblem(
        resolved, f"{NO_WORKER}: the worker, process {pid}, does not respond; end it with: kill -9 {pid}"
    )


def _last_start_failure(kitbag_home: str) -> str:
    """Why the last worker that we started exited at once, if it did. Also reaps exited workers."""
    problem = ""
    for child, since in list(_children):
        status = child.poll()
        if status is None:
            continue
        _children.remove((child, since))
        if status > 0 and status < 128 and time.monotonic() - since < _EARLY_EXIT_SECONDS:
            problem = f"the last worker exited with status {status}: {_last_log_line(kitbag_home) or 'see its log'}"
    return problem


def _last_log_line(kitbag_home: str) -> str:
    with contextlib.suppress(OSError), open(state_path(kitbag_home, _LOG_FILE), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 2_000))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""
    return ""
