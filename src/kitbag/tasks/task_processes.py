"""The processes of tasks, found by a mark in their environment or by a file that they hold, also where they have left
their group or session.

Used when tasks are stopped or have lost their owner. Commands get the mark from the Bash tool. All of them are found in
one look, so that a thousand tasks cost as much as one.
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
"""Also where one look takes all of the time, as on a machine that is busy."""
_SCAN_PAUSE = 0.01


def find_task_processes(*task_ids: str) -> list[int]:
    """Of this user, and not this process."""
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
    """Ends all of them; how many are left, which should be none but those that this process was started by."""
    deadline, looks = time.monotonic() + timeout, 0
    while task_ids:
        alive = find_task_processes(*task_ids)
        if not alive or (looks >= _MIN_SCANS and time.monotonic() >= deadline):
            return len(alive)
        looks += 1
        _signal_each(alive, signal.SIGKILL, task_ids, spare_ancestors)
        time.sleep(_SCAN_PAUSE)
    return 0


def _signal_each(pids: list[int], number: signal.Signals, task_ids: Iterable[str], spare_ancestors: bool) -> None:
    """The mark is looked at once more when the process is pinned: until then the number may become another's."""
    wanted = frozenset(task_ids)
    for pid in pids:
        send_signal(
            pid,
            number,
            lambda found: "" if _belongs_to_tasks(found, wanted) else "belongs to none of these tasks",
            spare_ancestors=spare_ancestors,
        )


def _belongs_to_tasks(pid: int, task_ids: frozenset[str]) -> bool:
    sessions = (mark.partition("-")[0] for mark in _session_ids(pid))
    if not any(session and session in task_ids for session in sessions):  # an empty id would be everybody's
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
