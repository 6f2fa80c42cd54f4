"""Finds and ends what a command left running, also in a session of its own, with another parent, or with nothing of
its environment.

Each process of a command carries a mark in two places: a variable, and an empty file that it holds open at a number
that nobody uses. Whoever loses both has worked for it. The file's name also tells the session, for those who look for
what is left of one. Used by command_runner, and by tasks/processes.
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
"""More processes than a processor starts in a second."""


class DescendantTracker:
    __slots__ = ("_begun", "_descriptor", "_first", "_number", "mark")

    def __init__(self, *, with_file: bool = True, session: str = "") -> None:
        """`held`: whether there is a file too."""
        self.mark = os.urandom(12).hex()
        self._descriptor = self._number = (
            _create_marker_file(f"{_FILE_PREFIX}{self.mark}-{session[:100]}") if with_file else -1
        )
        self._first = 0
        self._begun = time.monotonic()

    def marker_value(self, outer: str) -> str:
        """A command that runs Kitbag passes its own mark on, so that ending it ends what that one started."""
        return f"{outer[-1000:]}:{self.mark}"

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What the command is to be given."""
        return (self._descriptor,) if self._descriptor >= 0 else ()

    def track(self, process: int) -> None:
        """It runs, as this process, and has the file."""
        self._first = process
        self.close()

    def end_all(self) -> None:
        """Until there is nothing more."""
        deadline = time.monotonic() + _END_TIMEOUT
        needed, quiet = 1, 0
        while quiet < needed and time.monotonic() < deadline:
            alive, unclear = self._scan_processes(*self._pid_range())
            for pid in alive:
                send_signal(pid, signal.SIGKILL, self._check_marker)
            # Looked at twice: a process shows no environment for the moment in which it becomes another program.
            needed = 2 if alive or unclear else needed
            quiet = 0 if alive else quiet + 1
            if quiet < needed:
                time.sleep(_PAUSE)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _pid_range(self) -> tuple[int, int]:
        """Between these are the numbers of whatever the command started; numbers are given in turn. All numbers when
        the turn may have begun anew since."""
        since = (time.monotonic() - self._begun) * _MAX_STARTS_PER_SECOND * (os.cpu_count() or 1)
        last = _read_number("/proc/sys/kernel/ns_last_pid") or _NEVER
        soon = self._first + since < _pid_max()
        return (self._first, last) if soon and self._first <= last else (0, _NEVER)

    def _scan_processes(self, lowest: int, highest: int) -> tuple[list[int], bool]:
        """What carries the mark, and whether something may have been missed."""
        try:
            names = os.listdir("/proc")
        except OSError:
            return [], False
        found: list[int] = []
        unclear = lowest == 0
        mark, own = self.mark.encode(), os.getpid()
        for name in names:
            if not name.isdigit() or not lowest < int(name) <= highest or int(name) == own:
                continue
            environment = _environment(name)
            if mark in environment or self._holds_marker_file(name):
                found.append(int(name))
            elif not environment and not unclear:
                # Becoming another program, or ended by now and perhaps with a child; not what was there before us.
                unclear = _start_time(name) >= _start_time(str(self._first))
        return found, unclear

    def _check_marker(self, process: int) -> str:
        """Whether a process that was found carries the mark, now that its number can't become another's."""
        carries = self.mark.encode() in _environment(str(process)) or self._holds_marker_file(str(process))
        return "" if carries else "was not started by this command"

    def _holds_marker_file(self, process: str) -> bool:
        if self._number < 0:
            return False
        try:
            return self.mark in os.readlink(f"/proc/{process}/fd/{self._number}") and _is_inherited(
                process, self._number
            )
        except OSError:
            return False


def session_of_process(process: str) -> str:
    """The session that a process belongs to by such a file; empty when there is none, or nobody may know."""
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
    """We hold it for a moment too, and so does whatever another thread starts then: closed when it is run."""
    with open(f"/proc/{process}/fdinfo/{number}", encoding="ascii") as file:
        return not any(int(line[6:], 8) & os.O_CLOEXEC for line in file if line.startswith("flags:"))


def _create_marker_file(name: str) -> int:
    """One that nobody can write to, whose name can be seen in the list of open files; -1 where there is no such."""
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
    """When, in a measure of the kernel's; endlessly late for what is gone."""
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
