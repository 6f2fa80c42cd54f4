"""The one way to send signals: to a process that is pinned and then checked, never to ourselves.

A pid alone identifies nothing: it may come from a damaged file, and the kernel reuses pids. So a process is opened as a
pidfd, the caller checks that it is the right one, and the signal goes through the pidfd. An unreaped child needs no
pidfd: its pid can't be reused.
"""

import contextlib
import errno
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kitbag.processes.process_table import ancestor_pids, is_pid, process_info

if TYPE_CHECKING:
    import subprocess

ProcessCheck = Callable[[int], str]
"""Why a pid is not the intended process; empty if it is."""
HAS_ENDED: Final = "has ended"
_PIDFD_UNAVAILABLE: Final = (errno.ENOSYS, errno.EPERM, errno.EMFILE, errno.ENFILE)
"""An old kernel, a seccomp filter, or too many open files."""
_detached: "list[subprocess.Popen[bytes]]" = []


def send_signal(pid: object, number: signal.Signals, check: ProcessCheck, *, spare_ancestors: bool = True) -> str:
    """Empty if it was sent, else why not, to be read after "the process". `check` is called once the process is pinned.
    `spare_ancestors`: false for a worker, which is detached from the process that started it."""
    if not is_pid(pid):
        return "is not a valid process ID"
    if reason := _protection_reason(pid, spare_ancestors):
        return reason
    descriptor: int | None = None
    try:
        descriptor = _open_pidfd(pid)
        if reason := check(pid):
            return reason
        if descriptor is None:
            os.kill(pid, number)
        else:
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return HAS_ENDED
    except OSError as error:
        return f"cannot be signaled: {error.strerror}"
    finally:
        if descriptor is not None:
            os.close(descriptor)
    return ""


def signal_child_group(pid: int, number: signal.Signals) -> None:
    """Signal the process group that a direct child leads. Does nothing once the child was reaped, since its pid may
    have been reused."""
    if is_pid(pid) and pid not in (1, os.getpgrp()) and _is_unreaped_child(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


def detach(child: "subprocess.Popen[bytes]") -> None:
    """It will outlive this process; `kill_child` leaves it alone."""
    _detached[:] = [one for one in (*_detached, child) if one.returncode is None]


def kill_child(pid: int) -> None:
    """Kill a direct child and the group that it leads."""
    if any(one.pid == pid and one.returncode is None for one in _detached):
        return None
    with contextlib.suppress(OSError):
        if os.getpgid(pid) == pid:
            return signal_child_group(pid, signal.SIGKILL)
    send_signal(pid, signal.SIGKILL, lambda found: "" if _is_unreaped_child(found) else "is not a child of Kitbag")
    return None


def has_child_exited(pid: int) -> bool:
    """Check a direct child without reaping it. Raises ChildProcessError if it was already reaped."""
    if hasattr(os, "waitid"):
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    info = process_info(pid)  # macOS before Python 3.13
    if info is None or info.parent != os.getpid():
        raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
    return info.has_ended


def _is_unreaped_child(pid: int) -> bool:
    """Running, or ended and not yet reaped."""
    try:
        has_child_exited(pid)
    except OSError:
        return False
    return True


def _protection_reason(pid: int, spare_ancestors: bool) -> str:
    if pid == 1:
        return "is init (PID 1)"
    if pid in (os.getpid(), os.getpgrp()) or os.path.exists(f"/proc/self/task/{pid}"):
        return "is Kitbag itself or its process group leader"
    if spare_ancestors and pid in ancestor_pids():
        return "is an ancestor of this process"
    return ""


def _open_pidfd(pid: int) -> int | None:
    """None if pidfds are not supported. Raises ProcessLookupError if there is no such process."""
    try:
        return os.pidfd_open(pid)
    except AttributeError:
        return None
    except OSError as error:
        if error.errno in _PIDFD_UNAVAILABLE:
            return None
        raise ProcessLookupError(error.errno, error.strerror) from error  # perhaps a thread id
