"""Starting the worker process: one for each Kitbag home, detached, found by a lock that the kernel keeps.

Used by whoever puts background work on the board, or finds some that nobody does. The lock is taken before the process
is started and handed to it, so of many who come at once one starts one. Its file says who has it.
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

from kitbag.processes.process_table import holds_file
from kitbag.processes.signals import detach, send_signal
from kitbag.store.private_files import StoreError
from kitbag.tasks.board import Board
from kitbag.tasks.owner import this_process
from kitbag.tasks.task_processes import MARK
from kitbag.tasks.version import is_newer, this_version
from kitbag.tasks.worker_lock import (
    GIVEN,
    WAITS,
    AtWork,
    DamagedLock,
    at_work,
    in_state,
    lock_path,
    locked,
    open_state,
    read_lock,
)

MOST_LOG_BYTES: Final = 4_000_000
HUNG_SECONDS: Final = 60.0
"""Without a sign of life; time in which the machine sleeps does not count."""
NO_WORKER: Final = "no worker could be started"
"""What warnings begin with that say so."""
_LOG: Final = "worker.log"
_NOT_PASSED_ON: Final = (MARK, "CLAUDE_SESSION_ID", GIVEN, WAITS)
"""A worker belongs to no task, also when a task's command was what started it."""
_EARLY = 10.0
_LOOK_SECONDS = 2.0
_ENDING_SECONDS = 2.0
_children: "list[tuple[subprocess.Popen[bytes], float]]" = []


class Hosting(NamedTuple):
    started: bool
    """Whether a worker had to be started."""
    problem: str = ""
    """Why what waits may have to wait on: for a person and a model."""


def ensure_worker(kitbag_home: str) -> Hosting:
    """Call it after the task is on the board: a worker that is about to leave looks at the board once more after it has
    let go of its lock. Never raises for what can't be started: the task waits for the next who tries."""
    failed = _failed_before(kitbag_home)
    before = read_lock(kitbag_home)
    try:
        try:
            with locked(kitbag_home) as descriptor:
                return _started(kitbag_home, descriptor, failed, ignored_damage(kitbag_home, before))
        except BlockingIOError:
            return _other_at_work(kitbag_home, failed)
    except (OSError, StoreError) as error:
        reason = error.problem if isinstance(error, StoreError) else error.strerror or str(error)
        return Hosting(False, f"{NO_WORKER} ({reason}); it waits until one is: `kitbag worker`")


async def look_after(board: Board, kitbag_home: str) -> Hosting:
    """Ends what ran in front in a process that is gone, and starts a worker where there is background work that nobody
    does. For whoever looks at tasks, so that none looks alive that is not."""
    await board.bury()
    return await asyncio.to_thread(ensure_worker, kitbag_home) if board.orphans() else Hosting(False)


async def until_finished(board: Board, kitbag_home: str, task_id: str, seconds: float) -> None:
    """At most so long; meanwhile sees to it that somebody does the task, whoever ends on the way."""
    deadline = time.monotonic() + seconds
    while True:
        hosting = await look_after(board, kitbag_home)
        if hosting.problem and hosting.problem not in board.find(task_id).warnings:
            await board.warn(task_id, hosting.problem)
        left = deadline - time.monotonic()
        if left <= 0 or await board.until(lambda task: task.is_finished, task_id, min(left, _LOOK_SECONDS)):
            return


def ignored_damage(kitbag_home: str, before: AtWork | DamagedLock | None) -> str:
    """What whoever takes the lock has to say about what it found there."""
    if not isinstance(before, DamagedLock):
        return ""
    return f"ignored {lock_path(kitbag_home)}, which is damaged ({before.problem}); the new worker rewrites it"


# --- for the worker itself --------------------------------------------------------------------------------------


def bound_log(kitbag_home: str, most: int = MOST_LOG_BYTES) -> None:
    """When what this process prints goes to the log and that is long: begins a new one and keeps the last."""
    with contextlib.suppress(OSError):
        path = in_state(kitbag_home, _LOG)
        ours, named = os.fstat(2), os.lstat(path)
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino) or named.st_size < most:
            return
        os.replace(path, f"{path}.1")
        log = open_state(kitbag_home, _LOG, os.O_APPEND)
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
        finally:
            os.close(log)


# --- for those who start it -------------------------------------------------------------------------------------


def _started(kitbag_home: str, descriptor: int | None, *problems: str) -> Hosting:
    """With the lock in its hands, or to wait for it."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    environment["KITBAG_HOME"] = kitbag_home
    environment |= {WAITS: "1"} if descriptor is None else {GIVEN: str(descriptor)}
    with _log(kitbag_home) as log:
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
    return Hosting(True, "; ".join(filter(None, problems)))


@contextlib.contextmanager
def _log(kitbag_home: str) -> Generator[int, None, None]:
    """A worker that can't write its log works all the same."""
    try:
        path = in_state(kitbag_home, _LOG)
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_size >= MOST_LOG_BYTES:
                os.replace(path, f"{path}.1")
        log = open_state(kitbag_home, _LOG, os.O_APPEND)
    except (OSError, StoreError):
        yield subprocess.DEVNULL
        return
    try:
        yield log
    finally:
        os.close(log)


def _other_at_work(kitbag_home: str, failed: str) -> Hosting:
    """Whoever has the lock writes into its file each second, so that what is wrong there counts when it stays so."""
    deadline = time.monotonic() + _ENDING_SECONDS
    seen, trouble = None, None
    while not _is_well(kitbag_home, found := read_lock(kitbag_home)):
        if trouble is None or found != seen:
            seen, trouble = found, _deal_with(kitbag_home, found)
        try:
            with locked(kitbag_home) as descriptor:
                return _started(kitbag_home, descriptor, failed, trouble.over)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return Hosting(False, trouble.stays)
        time.sleep(0.02)
    if (other := at_work(kitbag_home)) is not None and is_newer(this_version(), other.version):
        _started(kitbag_home, None)
        return Hosting(True, f"a worker of Kitbag {other.version} finishes its work first, then a newer one begins")
    return Hosting(False, failed)


def _is_well(kitbag_home: str, found: AtWork | DamagedLock | None) -> bool:
    """Whether the one that has the lock says who it is, and has given a sign of life."""
    if isinstance(found, DamagedLock) or (found is not None and found.owner.lives() is False):
        return False
    if found is not None and found.owner.boot == this_process().boot:
        return time.monotonic() - found.beat <= HUNG_SECONDS
    # It has only begun, or counts time as another machine does.
    try:
        return time.time() - os.stat(lock_path(kitbag_home)).st_mtime <= HUNG_SECONDS
    except OSError:
        return True


class _Trouble(NamedTuple):
    """With the one that has the lock, in words: when it is over, and as long as it stays."""

    over: str
    stays: str


def _deal_with(kitbag_home: str, found: AtWork | DamagedLock | None) -> _Trouble:
    """Ends a worker that hangs, where it is proven to be that; the next one recovers what it did, as after a crash."""
    path = lock_path(kitbag_home)
    look = f"Kitbag sent no signal; run `fuser -v {path}` to see which process has the lock, and end it if it hangs"
    if found is None:
        return _Trouble("", f"{NO_WORKER}: the process that has {path} does not write its number there. {look}")
    if isinstance(found, DamagedLock):
        stays = f"{NO_WORKER}: {path} is damaged ({found.problem}). {look}"
        return _Trouble(ignored_damage(kitbag_home, found), stays)

    def check(pid: int) -> str:
        if reason := found.owner.why_not_proven():
            return reason
        if holds_file(pid, path) is False:
            return "does not have the lock"
        return "" if read_lock(kitbag_home) == found else "answers again"

    pid = found.owner.pid
    if reason := found.owner.why_not_proven() or send_signal(pid, signal.SIGKILL, check):
        return _Trouble("", f"{NO_WORKER}: {path} names process {pid}, which {reason}. {look}")
    over = "the worker did not answer any more, and was replaced"
    return _Trouble(over, f"{NO_WORKER}: the worker, process {pid}, does not answer; end it: kill -9 {pid}")


def _failed_before(kitbag_home: str) -> str:
    """Why the last one that we started ended right away, if it did. Also lets go of those that have ended."""
    problem = ""
    for child, since in list(_children):
        status = child.poll()
        if status is None:
            continue
        _children.remove((child, since))
        if status > 0 and status < 128 and time.monotonic() - since < _EARLY:
            problem = f"the last worker ended with status {status}: {_last_line(kitbag_home) or 'see its log'}"
    return problem


def _last_line(kitbag_home: str) -> str:
    with contextlib.suppress(OSError), open(in_state(kitbag_home, _LOG), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 2_000))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""
    return ""
