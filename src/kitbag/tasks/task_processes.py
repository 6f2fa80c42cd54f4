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
from typing import Final

from kitbag.processes.descendants import SESSION, session_held
from kitbag.processes.process_table import info_of
from kitbag.processes.signals import send_signal

MARK: Final = SESSION
"""Its value is the session's id: the task's, or that and `-2`, `-3`, where it was started anew."""
_SIGN = f"{MARK}=".encode()
_SECONDS = 2.0
_LEAST_LOOKS = 5
"""Also where one look takes all of the time, as on a machine that is busy."""
_PAUSE = 0.01


def processes_of(*task_ids: str) -> list[int]:
    """Of this user, and not this process."""
    wanted = frozenset(task_ids)
    found: list[int] = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdecimal() and int(name) != os.getpid() and _belongs(int(name), wanted):
                found.append(int(name))
    return found


def ask_to_end(*task_ids: str) -> None:
    _signal_each(processes_of(*task_ids), signal.SIGTERM, task_ids, spare_ancestors=True)


def end_processes(*task_ids: str, seconds: float = _SECONDS, spare_ancestors: bool = True) -> int:
    """Ends all of them; how many are left, which should be none but those that this process was started by."""
    deadline, looks = time.monotonic() + seconds, 0
    while task_ids:
        alive = processes_of(*task_ids)
        if not alive or (looks >= _LEAST_LOOKS and time.monotonic() >= deadline):
            return len(alive)
        looks += 1
        _signal_each(alive, signal.SIGKILL, task_ids, spare_ancestors)
        time.sleep(_PAUSE)
    return 0


def _signal_each(pids: list[int], number: signal.Signals, task_ids: Iterable[str], spare_ancestors: bool) -> None:
    """The mark is looked at once more when the process is pinned: until then the number may become another's."""
    wanted = frozenset(task_ids)
    for pid in pids:
        send_signal(
            pid,
            number,
            lambda found: "" if _belongs(found, wanted) else "belongs to none of these tasks",
            spare_ancestors=spare_ancestors,
        )


def _belongs(pid: int, task_ids: frozenset[str]) -> bool:
    sessions = (mark.partition("-")[0] for mark in _marks(pid))
    if not any(session and session in task_ids for session in sessions):  # an empty id would be everybody's
        return False
    info = info_of(pid)
    return info is not None and not info.has_ended


def _marks(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        with open(f"/proc/{pid}/environ", "rb") as file:
            rows = file.read().split(b"\0")
        yield from (row[len(_SIGN) :].decode("utf-8", "replace") for row in rows if row.startswith(_SIGN))
    yield session_held(str(pid))
