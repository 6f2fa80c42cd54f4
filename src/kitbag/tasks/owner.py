"""Which process owns a task, and whether it still lives. A number alone does not say: it is given to others later, and
the same number means another process in a container.

Used by the board and the worker.
"""

import os
import reprlib
import socket
from functools import cache
from typing import Any, NamedTuple, cast

from kitbag.processes.process_table import is_pid, process_exists, process_info, process_user
from kitbag.processes.signals import HAS_ENDED


class Owner(NamedTuple):
    machine: str
    """Its name, and the space in which its process numbers count."""
    boot: str
    pid: int
    started: str
    """The process's start, in the kernel's ticks; empty where that can't be told."""

    def check_alive(self) -> bool | None:
        """None where nobody here can tell: it is of another machine or container."""
        if not is_pid(self.pid):
            return False
        if (here := self._is_local()) is not True:
            return here
        if not process_exists(self.pid):
            return False
        info = process_info(self.pid)
        return info is None or (not info.has_ended and (not self.started or info.started == self.started))

    def is_alive(self) -> bool:
        """What can't be told is taken to live."""
        return self.check_alive() is not False

    def identity_problem(self) -> str:
        """Why the process of this number may be another one than this; empty when it is this one, of this user. To be
        asked before it is sent a signal; what can't be told is no proof."""
        info = process_info(self.pid)
        if self._is_local() is not True:
            return "was named by another machine or container, or before a restart"
        if info is None or info.has_ended:
            return HAS_ENDED
        if not self.started or info.started != self.started:
            return "is another process by now"
        return "" if process_user(self.pid) == os.geteuid() else "belongs to another user"

    def _is_local(self) -> bool | None:
        """False: of this machine, before it was restarted; None where its numbers mean nothing here."""
        name, _, space = self.machine.partition("/")
        here, _, space_here = _machine_id().partition("/")
        if self.boot != _boot_id():
            return False if name == here else None
        return None if space != space_here or (not self.boot and name != here) else True


GONE_OWNER = Owner("", "", 0, "")
"""In place of an owner that can't be read: nobody, who does not live."""


def parse_owner(value: object) -> Owner:
    """As it was written down. Raises ValueError for what no process has written."""
    if not isinstance(value, list | tuple):
        raise ValueError("its owner is not a list")
    fields = list(cast("list[Any]", value))
    if len(fields) != len(Owner._fields):
        raise ValueError(f"its owner has {len(fields)} fields instead of {len(Owner._fields)}")
    machine, boot, pid, started = fields
    if not all(isinstance(text, str) for text in (machine, boot, started)):
        raise ValueError("its owner's machine, boot or start is not text")
    if not is_pid(pid):
        raise ValueError(f"its owner's process number is {reprlib.repr(pid)}")
    return Owner(machine, boot, pid, started)


def this_process() -> Owner:
    return _owner_of_pid(os.getpid())


@cache
def _owner_of_pid(pid: int) -> Owner:
    info = process_info(pid)
    return Owner(_machine_id(), _boot_id(), pid, info.started if info is not None else "")


os.register_at_fork(after_in_child=_owner_of_pid.cache_clear)


@cache
def _machine_id() -> str:
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = ""
    return f"{socket.gethostname()}/{space}"


@cache
def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
