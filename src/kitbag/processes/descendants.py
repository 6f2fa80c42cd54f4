"""Finds and ends all descendants of a command, even in another session, with another parent or a cleared environment.

Each process of a command inherits a marker in two ways: an environment variable, and an empty file held open at an
unusual descriptor; losing both takes deliberate effort. The file's name also contains the session. Used by
`command_runner` and by `tasks`.
"""

import contextlib
import fcntl
import os
import signal
import sys
import time
from functools import cache
from typing import Final

from kitbag.processes.process_table import process_info
from kitbag.processes.signals import send_signal

MARKER_VARIABLE: Final = "KITBAG_COMMAND_ID"
SESSION_VARIABLE: Final = "KITBAG_SESSION_ID"
_FILE_PREFIX = "kitbag-"
_END_TIMEOUT = 2.0
_PAUSE = 0.002
_LOWEST_DESCRIPTOR = 70
_NEVER = sys.maxsize
_MAX_STARTS_PER_SECOND = 50_000
"""More processes than one CPU can start in a second."""


class DescendantTracker:
    __slots__ = ("_begun", "_descriptor", "_first", "_number", "marker")

    def __init__(self, *, with_file: bool = True, session: str = "") -> None:
        """`with_file`: whether to pass the marker as a file too."""
        self.marker = os.urandom(12).hex()
        self._descriptor = self._number = (
            _create_marker_file(f"{_FILE_PREFIX}{self.marker}-{session[:100]}") if with_file else -1
        )
        self._first = 0
        self._begun = time.monotonic()

    def marker_value(self, outer: str) -> str:
        """Prepends the outer marker: ending a command that runs Kitbag also ends what that Kitbag started."""
        return f"{outer[-1000:]}:{self.marker}"

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors to pass to the command."""
        return (self._descriptor,) if self._descriptor >= 0 else ()

    def track(self, process: int) -> None:
        """The command runs as this process and has inherited the file."""
        self._first = process
        self.close()

    def end_all(self) -> None:
        """Kill until none is left."""
        deadline = time.monotonic() + _END_TIMEOUT
        needed, quiet = 1, 0
        while quiet < needed and time.monotonic() < deadline:
            alive, unclear = self._scan_processes(*self._pid_range())
            for pid in alive:
                send_signal(pid, signal.SIGKILL, self._check_marker)
            # Scan twice: a process shows no environment for a moment during exec.
            needed = 2 if alive or unclear else needed
            quiet = 0 if alive else quiet + 1
            if quiet < needed:
                time.sleep(_PAUSE)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _pid_range(self) -> tuple[int, int]:
        """The range of pids that the command's processes can have, since pids are assigned in order. The full range if
        pids may have wrapped around."""
        possible_starts = (time.monotonic() - self._begun) * _MAX_STARTS_PER_SECOND * (os.cpu_count() or 1)
        last = _read_number("/proc/sys/kernel/ns_last_pid") or _NEVER
        has_not_wrapped = self._first + possible_starts < _pid_max()
        return (self._first, last) if has_not_wrapped and self._first <= last else (0, _NEVER)

    def _scan_processes(self, lowest: int, highest: int) -> tuple[list[int], bool]:
        """Pids with the marker, and whether some may have been missed."""
        try:
            names = os.listdir("/proc")
        except OSError:
            return [], False
        pids: list[int] = []
        unclear = lowest == 0
        marker, own_pid = self.marker.encode(), os.getpid()
        for name in names:
            if not name.isdigit() or not lowest < int(name) <= highest or int(name) == own_pid:
                continue
            environment = _environment(name)
            if marker in environment or self._holds_marker_file(name):
                pids.append(int(name))
            elif not environment and not unclear:
                # In exec, or just ended and perhaps with a child. Ignore processes that are older than the command.
                unclear = _start_time(name) >= _start_time(str(self._first))
        return pids, unclear

    def _check_marker(self, process: int) -> str:
        """Whether a pinned process has the marker; its pid can't be reused now."""
        has_marker = self.marker.encode() in _environment(str(process)) or self._holds_marker_file(str(process))
        return "" if has_marker else "was not started by this command"

    def _holds_marker_file(self, process: str) -> bool:
        if self._number < 0:
            return False
        try:
            return self.marker in os.readlink(f"/proc/{process}/fd/{self._number}") and _is_inherited(
                process, self._number
            )
        except OSError:
            return False


def session_of_process(process: str) -> str:
    """The session that a process belongs to by its marker file; empty if there is none or it can't be read."""
    try:
        for name in os.listdir(f"/proc/{process}/fd"):
            number = int(name)
            if number >= _LOWEST_DESCRIPTOR:
                _, found, rest = os.readlink(f"/proc/{process}/fd/{number}").partition(f"/memfd:{_FILE_PREFIX}")
                if found and _is_inherited(process, number):
                    return rest.removesuffix(" (deleted)").partition("-")[2]
    except OSError:
        pass
    return ""


def _is_inherited(process: str, number: int) -> bool:
    """We and any process that another thread starts meanwhile hold it briefly too, but close it on exec."""
    with open(f"/proc/{process}/fdinfo/{number}", encoding="ascii") as file:
        return not any(int(line[6:], 8) & os.O_CLOEXEC for line in file if line.startswith("flags:"))


def _create_marker_file(name: str) -> int:
    """A sealed empty file whose name shows in the list of open files; -1 if not supported."""
    try:
        low = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except (AttributeError, OSError):
        return -1
    try:
        fcntl.fcntl(low, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LOWEST_DESCRIPTOR)
    except OSError:
        return -1
    finally:
        os.close(low)


def _environment(process: str) -> bytes:
    with contextlib.suppress(OSError), open(f"/proc/{process}/environ", "rb", buffering=0) as file:
        return file.read() or b""
    return b""


def _start_time(process: str) -> int:
    """In kernel ticks; never for a process that is gone."""
    info = process_info(int(process))
    return int(info.started) if info is not None and info.started.isdecimal() else _NEVER


@cache
def _pid_max() -> int:
    return _read_number("/proc/sys/kernel/pid_max")


def _read_number(path: str) -> int:
    try:
        with open(path, "rb", buffering=0) as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0
