"""Which process owns a task, and whether it still lives. A number alone does not say: it is given to others later, and
the same number means another process in a container.

Used by the board and the worker.
"""

import os
import socket
from functools import cache
from typing import NamedTuple


class Owner(NamedTuple):
    machine: str
    """Its name, and the space in which its process numbers count."""
    boot: str
    pid: int
    started: str
    """The process's start, in the kernel's ticks; empty where that can't be told."""

    def lives(self) -> bool | None:
        """None where nobody here can tell: it is of another machine or container."""
        name, _, space = self.machine.partition("/")
        here, _, space_here = _machine().partition("/")
        if self.boot != _boot():
            return False if name == here else None
        if space != space_here or (not self.boot and name != here):
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        started, state = _process(self.pid)
        return state not in ("Z", "X") and (not started or not self.started or started == self.started)

    def is_alive(self) -> bool:
        """What can't be told is taken to live."""
        return self.lives() is not False


def this_process() -> Owner:
    pid = os.getpid()
    return Owner(_machine(), _boot(), pid, _process(pid)[0])


@cache
def _machine() -> str:
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()}/{space}"


@cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _process(pid: int) -> tuple[str, str]:
    """(start, state); both empty where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        return fields[19], fields[0]
    except (OSError, IndexError):
        return "", ""
