"""Identifies the process that owns a task, and checks whether it is alive. A pid alone is not enough: pids are reused,
and mean something else in a container.

Used by the board, the worker and its lock.
"""

import os
import reprlib
import socket
from functools import cache
from typing import Any, Final, cast

import msgspec

from kitbag.processes.process_table import is_pid, process_exists, process_info, process_user
from kitbag.processes.signals import HAS_ENDED


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    machine: str
    """The host name and the pid namespace."""
    boot: str
    pid: int
    started: str
    """The start time of the process in kernel ticks; empty if unknown."""

    def to_record(self) -> list[str | int]:
        """As it is stored: a list in this order, which `parse_owner` reads."""
        return [self.machine, self.boot, self.pid, self.started]

    @property
    def name(self) -> str:
        """Identifies the process among all machines."""
        return " ".join(str(part) for part in self.to_record())

    def check_alive(self) -> bool | None:
        """None if unknown: it belongs to another machine or container."""
        if not is_pid(self.pid):
            return False
        if (here := self._is_local()) is not True:
            return here
        if not process_exists(self.pid):
            return False
        info = process_info(self.pid)
        return info is None or (not info.has_ended and (not self.started or info.started == self.started))

    def identity_problem(self) -> str:
        """Why the process with this pid may not be this owner; empty if it is, and belongs to this user. To be checked
        before sending a signal; unknown is no proof."""
        info = process_info(self.pid)
        if self._is_local() is not True:
            return "was recorded by another machine or container, or before a reboot"
        if info is None or info.has_ended:
            return HAS_ENDED
        if not self.started or info.started != self.started:
            return "is now a different process"
        return "" if process_user(self.pid) == os.geteuid() else "belongs to another user"

    def _is_local(self) -> bool | None:
        """False: this machine, before a reboot. None: its pids mean nothing here."""
        name, _, namespace = self.machine.partition("/")
        here, _, namespace_here = _machine_id().partition("/")
        if self.boot != _boot_id():
            return False if name == here else None
        return None if namespace != namespace_here or (not self.boot and name != here) else True


GONE_OWNER = Owner(machine="", boot="", pid=0, started="")
"""Stands for an owner that can't be read: never alive."""


_RECORD_LENGTH: Final = 4


def parse_owner(value: object) -> Owner:
    """Parses a stored owner. Raises ValueError for anything that no process has written."""
    if not isinstance(value, list | tuple):
        raise ValueError("its owner is not a list")
    fields = list(cast("list[Any]", value))
    if len(fields) != _RECORD_LENGTH:
        raise ValueError(f"its owner has {len(fields)} fields instead of {_RECORD_LENGTH}")
    machine, boot, pid, started = fields
    if not all(isinstance(text, str) for text in (machine, boot, started)):
        raise ValueError("its owner's machine, boot or start is not text")
    if not is_pid(pid):
        raise ValueError(f"its owner's process ID is invalid: {reprlib.repr(pid)}")
    return Owner(machine=machine, boot=boot, pid=pid, started=started)


def this_process() -> Owner:
    return _owner_of_pid(os.getpid())


@cache
def _owner_of_pid(pid: int) -> Owner:
    info = process_info(pid)
    return Owner(machine=_machine_id(), boot=_boot_id(), pid=pid, started=info.started if info is not None else "")


os.register_at_fork(after_in_child=_owner_of_pid.cache_clear)


@cache
def _machine_id() -> str:
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}/{namespace}"


@cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
