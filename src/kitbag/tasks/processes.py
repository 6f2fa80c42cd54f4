"""The processes of a task, found by a mark in their environment, also where they have left their group or session.

Used when a task is stopped or has lost its owner. Commands get the mark from the Bash tool.
"""

import contextlib
import os
import signal
import time
from typing import Final

MARK: Final = "KITBAG_SESSION_ID"
"""Its value is the session's id, which begins with the task's."""
_SECONDS = 2.0


def processes_of(task_id: str) -> list[int]:
    """Of this user, and not this process."""
    sign = f"{MARK}={task_id}".encode()
    found: list[int] = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdecimal() or int(name) == os.getpid():
                continue
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                rows = file.read().split(b"\0")
                if any(row == sign or row.startswith(sign + b"-") for row in rows) and _lives(name):
                    found.append(int(name))
    return found


def _lives(name: str) -> bool:
    with (
        contextlib.suppress(OSError, IndexError),
        open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file,
    ):
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


def end_processes(task_id: str) -> int:
    """Ends all of them; how many are left, which should be none."""
    deadline = time.monotonic() + _SECONDS
    while True:
        alive = processes_of(task_id)
        if not alive or time.monotonic() >= deadline:
            return len(alive)
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
