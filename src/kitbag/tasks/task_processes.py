"""Finds and kills the processes of tasks, even if they have left their process group or session.

A process is recognized by an environment variable that the Bash tool sets, or by a file that it holds. Used when tasks
are stopped or their owner has died. One scan covers any number of tasks.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator

from kitbag.processes.descendants import SESSION_VARIABLE, session_of_process
from kitbag.processes.process_table import process_info
from kitbag.processes.signals import send_signal

_VARIABLE_PREFIX = f"{SESSION_VARIABLE}=".encode()
_KILL_TIMEOUT = 2.0
_MIN_SCANS = 5
"""Even if a single scan takes all of the time, as on a busy machine."""
_SCAN_PAUSE = 0.01


def find_task_processes(*task_ids: str) -> list[int]:
    """Processes of this user, without this process."""
    wanted = frozenset(task_ids)
    found: list[int] = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal() and int(name) != os.getpid() and _belongs_to_tasks(int(name), wanted):
                found.append(int(name))
    return found


def terminate_processes(*task_ids: str) -> None:
    _signal_each(find_task_processes(*task_ids), signal.SIGTERM, task_ids, spare_ancestors=True)


def kill_processes(*task_ids: str, timeout: float = _KILL_TIMEOUT, spare_ancestors: bool = True) -> int:
    """Kills them and returns how many are left, which should be none but ancestors of this process."""
    deadline, scans = time.monotonic() + timeout, 0
    while task_ids:
        alive = find_task_processes(*task_ids)
        if not alive or (scans >= _MIN_SCANS and time.monotonic() >= deadline):
            return len(alive)
        scans += 1
        _signal_each(alive, signal.SIGKILL, task_ids, spare_ancestors)
        time.sleep(_SCAN_PAUSE)
    return 0


def _signal_each(
    pids: list[int], signal_number: signal.Signals, task_ids: Iterable[str], spare_ancestors: bool
) -> None:
    """Checks ownership again once the process is pinned: until then its pid may be reused."""
    wanted = frozenset(task_ids)
    for pid in pids:
        send_signal(
            pid,
            signal_number,
            lambda found: "" if _belongs_to_tasks(found, wanted) else "belongs to none of these tasks",
            spare_ancestors=spare_ancestors,
        )


def _belongs_to_tasks(pid: int, task_ids: frozenset[str]) -> bool:
    sessions = (mark.partition("-")[0] for mark in _session_ids(pid))
    if not any(session and session in task_ids for session in sessions):  # an empty id would match every process
        return False
    info = process_info(pid)
    return info is not None and not info.has_ended


def _session_ids(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/environ", "rb") as file:
            rows = file.read().split(b"\0")
        yield from (
            row[len(_VARIABLE_PREFIX) :].decode("utf-8", "replace") for row in rows if row.startswith(_VARIABLE_PREFIX)
        )
    yield session_of_process(str(pid))
