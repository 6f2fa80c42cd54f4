"""The processes of tasks, found by a mark in their environment or by a file that they hold, also where they have left
their group or session.

Used when tasks are stopped or have lost their owner. Commands get the mark from the Bash tool. All of them are found in
one look, so that a thousand tasks cost as much as one.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Final

from kitbag.permissions.command_leash import SESSION, session_held

MARK: Final = SESSION
"""Its value is the session's id: the task's, or that and `-2`, `-3`, where it was started anew."""
_SIGN = f"{MARK}=".encode()
_SECONDS = 2.0
_LEAST_LOOKS = 5
"""Also where one look takes all of the time, as on a machine that is busy."""
_PAUSE = 0.01


def processes_of(*task_ids: str) -> list[int]:
    """Of this user, and not this process."""
    wanted = set(task_ids)
    found: list[int] = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdecimal() or int(name) == os.getpid():
                continue
            if any(mark.partition("-")[0] in wanted for mark in _marks(name)) and _lives(name):
                found.append(int(name))
    return found


def _marks(name: str) -> Iterator[str]:
    with contextlib.suppress(OSError):
        with open(f"/proc/{name}/environ", "rb") as file:
            rows = file.read().split(b"\0")
        yield from (row[len(_SIGN) :].decode("utf-8", "replace") for row in rows if row.startswith(_SIGN))
    yield session_held(name)


def _lives(name: str) -> bool:
    with (
        contextlib.suppress(OSError, IndexError),
        open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file,
    ):
        return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def end_processes(*task_ids: str, seconds: float = _SECONDS) -> int:
    """Ends all of them; how many are left, which should be none."""
    deadline, looks = time.monotonic() + seconds, 0
    while task_ids:
        alive = processes_of(*task_ids)
        if not alive or (looks >= _LEAST_LOOKS and time.monotonic() >= deadline):
            return len(alive)
        looks += 1
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)
    return 0
