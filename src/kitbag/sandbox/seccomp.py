"""The seccomp programs of the sandbox: what is denied, and which calls are reported to `write_guard`.

Denied is what namespaces don't cover: sockets to the hypervisor (vsock), kernel key rings, io_uring, which bypasses
filters, calls whose arguments a filter can't read (openat2, clone3), and new views of the file system. Denied calls
return an error, not a kill.
"""

import errno
import os
import struct
from typing import Final, NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_X32: Final = 0x40000000
_MISSING = _ERROR | errno.ENOSYS

_AUDIT_ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_NUMBERS: Final = {
    "x86_64": {
        "socket": 41, "ioctl": 16, "clone": 56, "bind": 49, "umask": 95, "unshare": 272, "mount": 165, "umount2": 166,
        "setns": 308, "pivot_root": 155, "chroot": 161, "add_key": 248, "request_key": 249,
        "keyctl": 250, "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "open": 2, "openat": 257,
        "creat": 85, "mkdir": 83, "mkdirat": 258,
        "mknod": 133, "mknodat": 259, "rename": 82, "renameat": 264, "renameat2": 316, "link": 86, "linkat": 265,
        "symlink": 88, "symlinkat": 266, "truncate": 76, "unlink": 87, "rmdir": 84, "unlinkat": 263,
    },
    "aarch64": {
        "socket": 198, "ioctl": 29, "clone": 220, "bind": 200, "umask": 166, "unshare": 97, "mount": 40, "umount2": 39,
        "setns": 268, "pivot_root": 41, "chroot": 51, "add_key": 217, "request_key": 218, "keyctl": 219, "bpf": 280,
        "perf_event_open": 241, "userfaultfd": 282, "openat": 56, "mkdirat": 34, "mknodat": 33, "renameat": 38,
        "renameat2": 276, "linkat": 37, "symlinkat": 36, "truncate": 45, "unlinkat": 35,
    },
}  # fmt: skip
_DENIED = (
    *("add_key", "request_key", "keyctl", "bpf", "perf_event_open", "userfaultfd"),
    *("mount", "umount2", "setns", "pivot_root", "chroot"),
)
_UNREADABLE = (425, 426, 427, 435, 437, 428, 429, 430, 431, 432, 433, 442)
"""io_uring, clone3, openat2 and the newer calls that mount, the same everywhere. Programs fall back to older ones."""
_FAMILIES = (1, 2, 10, 16)
"""unix, inet, inet6, netlink"""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into a terminal."""
WRITING_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CLONE_NEW_VIEW = 0x10000000 | 0x00020000
"""A user or mount namespace, in which paths would mean something else."""

Instruction = tuple[int, int, int, int]


class WatchedCall(NamedTuple):
    """A system call that can create or change a file, by the positions of its arguments."""

    paths: tuple[tuple[int | None, int], ...]
    """(directory descriptor, path) of what it writes."""
    flags: int | None = None
    """Only watched if these flags ask for writing."""
    target: int | None = None
    """The text of a symbolic link."""
    removes: bool = False


_WATCHED: Final = {
    "open": WatchedCall(((None, 0),), flags=1),
    "openat": WatchedCall(((0, 1),), flags=2),
    "creat": WatchedCall(((None, 0),)),
    "mkdir": WatchedCall(((None, 0),)),
    "mkdirat": WatchedCall(((0, 1),)),
    "mknod": WatchedCall(((None, 0),)),
    "mknodat": WatchedCall(((0, 1),)),
    "rename": WatchedCall(((None, 0), (None, 1))),
    "renameat": WatchedCall(((0, 1), (2, 3))),
    "renameat2": WatchedCall(((0, 1), (2, 3))),
    "link": WatchedCall(((None, 0), (None, 1))),
    "linkat": WatchedCall(((0, 1), (2, 3))),
    "symlink": WatchedCall(((None, 1),), target=0),
    "symlinkat": WatchedCall(((1, 2),), target=0),
    "truncate": WatchedCall(((None, 0),)),
    "bind": WatchedCall(((None, 1),)),
    "umask": WatchedCall(()),
    "unlink": WatchedCall(((None, 0),), removes=True),
    "rmdir": WatchedCall(((None, 0),), removes=True),
    "unlinkat": WatchedCall(((0, 1),), removes=True),
}


def watched_calls() -> dict[int, tuple[str, WatchedCall]]:
    """By number; empty on unknown architectures."""
    numbers = _NUMBERS.get(os.uname().machine, {})
    return {numbers[name]: (name, call) for name, call in _WATCHED.items() if name in numbers}


def watching_program() -> bytes:
    """Reports the watched calls to a listener; empty on unknown architectures."""
    code = _prologue()
    for number, (_, call) in watched_calls().items():
        if call.flags is None:
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _NOTIFY)]
        else:
            code += [(_EQUAL, 0, 4, number), (_LOAD, 0, 0, _FIRST_ARGUMENT + 8 * call.flags)]
            code += [(_ANY_BIT, 0, 1, WRITING_FLAGS), (_RETURN, 0, 0, _NOTIFY), (_RETURN, 0, 0, _ALLOW)]
    return _assemble(code)


def denying_program() -> bytes:
    """For bubblewrap's `--seccomp`; empty on unknown architectures."""
    numbers = _NUMBERS.get(os.uname().machine)
    if numbers is None:
        return b""
    code = _prologue()
    for number in _UNREADABLE:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _MISSING)]
    for name in _DENIED:
        code += [(_EQUAL, 0, 1, numbers[name]), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    families = [(_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
    code += [(_EQUAL, 0, len(families) + 3, numbers["socket"]), (_LOAD, 0, 0, _FIRST_ARGUMENT), *families]
    code += [(_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    for name in ("clone", "unshare"):
        code += [(_EQUAL, 0, 4, numbers[name]), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
        code += [(_ANY_BIT, 0, 1, _CLONE_NEW_VIEW), (_RETURN, 0, 0, _ERROR | errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    code += [(_EQUAL, 0, 2 + 2 * len(_TERMINAL_INPUT) - 1, numbers["ioctl"]), (_LOAD, 0, 0, _FIRST_ARGUMENT + 8)]
    for request in _TERMINAL_INPUT:
        code += [(_EQUAL, 0, 1, request), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    return _assemble(code)


def _prologue() -> list[Instruction]:
    """Load the number of the call. Other architectures' calls, which have other numbers, are missing."""
    architecture = _AUDIT_ARCHITECTURES.get(os.uname().machine, 0)
    code: list[Instruction] = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _MISSING)]
    return [*code, (_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _MISSING)]


def _assemble(code: list[Instruction]) -> bytes:
    if os.uname().machine not in _NUMBERS:
        return b""
    return b"".join(struct.pack("HBBI", *line) for line in (*code, (_RETURN, 0, 0, _ALLOW)))
