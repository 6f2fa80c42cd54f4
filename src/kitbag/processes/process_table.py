"""What the system reports about a process: existence, start time, parent, user and open files.

Reads /proc; without it, as on macOS, runs `ps`. Used by `signals`, `descendants` and `tasks`. Never raises: None means
that the system does not say.
"""

import contextlib
import os
from typing import Final, NamedTuple, TypeGuard

HIGHEST_PID: Final = 1 << 22
"""The highest pid on any Linux, whatever its settings."""
_PS: Final = ("ps", "-o", "lstart=,ppid=,stat=,uid=", "-p")
_PS_SECONDS: Final = 5.0


class ProcessInfo(NamedTuple):
    started: str
    """Kernel clock ticks since boot, or as `ps` prints it. Together with boot and pid it identifies a process."""
    state: str
    parent: int

    @property
    def has_ended(self) -> bool:
        return self.state in ("Z", "X")


def is_pid(value: object) -> TypeGuard[int]:
    """Whether it can be the pid of one process. To the kernel, 0 and negative numbers mean groups or all processes."""
    return type(value) is int and 0 < value <= HIGHEST_PID


def process_exists(pid: int) -> bool:
    """True for zombies and other users' processes too."""
    if not is_pid(pid):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def process_info(pid: int) -> ProcessInfo | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return ProcessInfo(fields[19], fields[0], int(fields[1]))
    except (OSError, IndexError, ValueError):
        ps_fields = _run_ps(pid)
        return ProcessInfo(" ".join(ps_fields[:5]), ps_fields[6][:1], int(ps_fields[5])) if ps_fields else None


def process_user(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        ps_fields = _run_ps(pid)
        return int(ps_fields[7]) if ps_fields else None


def has_file_open(pid: int, path: str) -> bool | None:
    """Whether it has this file open."""
    if not _has_proc():
        return None
    try:
        expected = os.stat(path, follow_symlinks=False)
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for name in names:
        with contextlib.suppress(OSError):
            found = os.stat(f"/proc/{pid}/fd/{name}")
            if (found.st_dev, found.st_ino) == (expected.st_dev, expected.st_ino):
                return True
    return False


def ancestor_pids() -> set[int]:
    """All ancestors of this process."""
    pids: set[int] = set()
    parent = os.getppid()
    while parent > 0 and parent not in pids:
        pids.add(parent)
        info = process_info(parent)
        parent = info.parent if info is not None else 0
    return pids


def child_pids() -> set[int]:
    """Direct children of all threads of this process. Empty if the system does not say."""
    pids: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children", encoding="ascii") as file:
                pids.update(int(pid) for pid in file.read().split())
    return pids


def _has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def _run_ps(pid: int) -> list[str]:
    """Five fields of the start time, then parent, state and user; empty if unknown."""
    if _has_proc():
        return []
    import subprocess

    try:
        arguments = [*_PS, str(pid)]
        result = subprocess.run(  # noqa: S603 - our own words
            arguments, check=False, capture_output=True, timeout=_PS_SECONDS, env={**os.environ, "LC_ALL": "C"}
        )
    except (OSError, subprocess.SubprocessError):
        return []
    fields = result.stdout.decode("ascii", "replace").split()
    return fields if len(fields) == 8 and fields[5].isdecimal() and fields[7].isdecimal() else []
