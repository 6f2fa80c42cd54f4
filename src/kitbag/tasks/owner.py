"""Which process owns a task, and whether it still lives. A number alone does not say: it is given to others later.

Used by the board and the worker.
"""

import os
import socket
from functools import cache
from typing import NamedTuple


class Owner(NamedTuple):
    machine: str
    boot: str
    pid: int
    started: str
    """The process's start, in the kernel's ticks; empty where that can't be told."""

    def is_alive(self) -> bool:
        """Of another machine nobody here can tell; then it is taken to live."""
        if self.machine != _machine():
            return True
        if self.boot != _boot():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        started, state = _process(self.pid)
        return state != "Z" and (not started or not self.started or started == self.started)


def this_process() -> Owner:
    pid = os.getpid()
    return Owner(_machine(), _boot(), pid, _process(pid)[0])


@cache
def _machine() -> str:
    return socket.gethostname()


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
