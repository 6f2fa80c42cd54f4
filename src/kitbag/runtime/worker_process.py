"""Starting the worker process: one for each Kitbag home, detached, found by a lock that the kernel keeps.

Used by whoever puts background work on the board, or finds some that nobody does. The lock is taken before the process
is started and handed to it, so of many who come at once one starts one. Its file says who has it.
"""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from typing import Final, NamedTuple

from kitbag.store.private_files import StoreError, cannot
from kitbag.tasks.board import Board
from kitbag.tasks.owner import Owner, this_process
from kitbag.tasks.processes import MARK
from kitbag.tasks.version import is_newer, this_version

MOST_LOG_BYTES: Final = 4_000_000
HUNG_SECONDS: Final = 60.0
"""Without a sign of life; time in which the machine sleeps does not count."""
NO_WORKER: Final = "no worker could be started"
"""What warnings begin with that say so."""
_LOCK: Final = "worker.lock"
_NEXT: Final = "worker.next"
"""Held by a newer worker that waits for an older one to leave."""
_LOG: Final = "worker.log"
_GIVEN: Final = "KITBAG_WORKER_LOCK"
_WAITS: Final = "KITBAG_WORKER_WAITS"
_NOT_PASSED_ON: Final = (MARK, "CLAUDE_SESSION_ID", _GIVEN, _WAITS)
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


class AtWork(NamedTuple):
    """What a worker says of itself in its lock file."""

    owner: Owner
    version: str
    beat: float
    """When it last gave a sign of life, by a clock that stands still while the machine sleeps."""


def ensure_worker(kitbag_home: str) -> Hosting:
    """Call it after the task is on the board: a worker that is about to leave looks at the board once more after it has
    let go of its lock. Never raises for what can't be started: the task waits for the next who tries."""
    failed = _failed_before(kitbag_home)
    try:
        with locked(kitbag_home) as descriptor:
            return _started(kitbag_home, descriptor, failed)
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


def at_work(kitbag_home: str) -> AtWork | None:
    """What the worker that has the lock, or had it last, says of itself."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(_in_state(kitbag_home, _LOCK)) as file:
        found = json.loads(file.read(10_000))
        return AtWork(Owner(*found["owner"]), str(found["version"]), float(found["beat"]))
    return None


# --- for the worker itself --------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked(kitbag_home: str) -> Generator[int, None, None]:
    """Raises BlockingIOError when a worker has it. The one that was handed over is used where there is one."""
    descriptor = _handed_over(kitbag_home)
    if descriptor is None:
        descriptor = _open(kitbag_home, _LOCK)
        try:
            if os.environ.pop(_WAITS, ""):
                _wait_for(kitbag_home, descriptor)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def give_sign_of_life(descriptor: int) -> None:
    """Into the lock file, each second or so."""
    told = {"owner": list(this_process()), "version": this_version(), "beat": time.monotonic()}
    data = json.dumps(told).encode()
    with contextlib.suppress(OSError):  # a full disk is no reason to stop working
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def bound_log(kitbag_home: str, most: int = MOST_LOG_BYTES) -> None:
    """When what this process prints goes to the log and that is long: begins a new one and keeps the last."""
    with contextlib.suppress(OSError):
        path = _in_state(kitbag_home, _LOG)
        ours, named = os.fstat(2), os.lstat(path)
        if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino) or named.st_size < most:
            return
        os.replace(path, f"{path}.1")
        log = _open(kitbag_home, _LOG, os.O_APPEND)
        try:
            os.dup2(log, 1)
            os.dup2(log, 2)
        finally:
            os.close(log)


def _handed_over(kitbag_home: str) -> int | None:
    given = os.environ.pop(_GIVEN, "")
    if not given.isdecimal():
        return None
    try:
        ours, named = os.fstat(int(given)), os.lstat(_in_state(kitbag_home, _LOCK))
    except OSError:
        return None
    if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
        return None
    os.set_inheritable(int(given), False)
    return int(given)


def _wait_for(kitbag_home: str, descriptor: int) -> None:
    """Until the one before has left. One waits, the others need not."""
    next_one = _open(kitbag_home, _NEXT)
    try:
        fcntl.flock(next_one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(next_one)


# --- for those who start it -------------------------------------------------------------------------------------


def _started(kitbag_home: str, descriptor: int | None, problem: str = "") -> Hosting:
    """With the lock in its hands, or to wait for it."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
    environment["KITBAG_HOME"] = kitbag_home
    environment |= {_WAITS: "1"} if descriptor is None else {_GIVEN: str(descriptor)}
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
    _children.append((child, time.monotonic()))
    return Hosting(True, problem)


@contextlib.contextmanager
def _log(kitbag_home: str) -> Generator[int, None, None]:
    """A worker that can't write its log works all the same."""
    try:
        path = _in_state(kitbag_home, _LOG)
        with contextlib.suppress(FileNotFoundError):
            if os.lstat(path).st_size >= MOST_LOG_BYTES:
                os.replace(path, f"{path}.1")
        log = _open(kitbag_home, _LOG, os.O_APPEND)
    except (OSError, StoreError):
        yield subprocess.DEVNULL
        return
    try:
        yield log
    finally:
        os.close(log)


def _other_at_work(kitbag_home: str, failed: str) -> Hosting:
    found = at_work(kitbag_home)
    if found is None:
        return Hosting(False, failed)
    if found.owner.boot == this_process().boot and time.monotonic() - found.beat > HUNG_SECONDS:
        return _instead_of(kitbag_home, found)
    if is_newer(this_version(), found.version):
        _started(kitbag_home, None)
        return Hosting(True, f"a worker of Kitbag {found.version} finishes its work first, then a newer one begins")
    return Hosting(False, failed)


def _instead_of(kitbag_home: str, hung: AtWork) -> Hosting:
    """What it did is recovered by the next one, as after a crash."""
    if hung.owner.lives():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(hung.owner.pid, signal.SIGKILL)
    deadline = time.monotonic() + _ENDING_SECONDS
    while True:
        try:
            with locked(kitbag_home) as descriptor:
                return _started(kitbag_home, descriptor, "the worker did not answer any more, and was replaced")
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return Hosting(False, f"the worker, process {hung.owner.pid}, does not answer; end it: kill -9")
            time.sleep(0.02)


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
    with contextlib.suppress(OSError), open(_in_state(kitbag_home, _LOG), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 2_000))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:300] if lines else ""
    return ""


def _in_state(kitbag_home: str, name: str) -> str:
    return os.path.join(kitbag_home, "state", name)


def _open(kitbag_home: str, name: str, more: int = 0) -> int:
    path = _in_state(kitbag_home, name)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | more, 0o600)
    except OSError as error:
        raise cannot("used", path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path} is no file", "move it away")
    return descriptor
