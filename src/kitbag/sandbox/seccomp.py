"""The seccomp program that denies a sandboxed command system calls which namespaces don't cover.

Sockets to the hypervisor (vsock) belong to no network namespace, kernel key rings to no user namespace, and io_uring
bypasses socket filters. Used by `bubblewrap`; denied calls return an error, not a kill.
"""

import errno
import os
import struct
from typing import Final

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24
_X32: Final = 0x40000000

# name -> (audit architecture, numbers of socket and ioctl, denied numbers)
_ARCHITECTURES: Final = {
    # add_key, request_key, keyctl, bpf, perf_event_open, userfaultfd
    "x86_64": (0xC000003E, 41, 16, (248, 249, 250, 321, 298, 323)),
    "aarch64": (0xC00000B7, 198, 29, (217, 218, 219, 280, 241, 282)),
}
_IO_URING = (425, 426, 427)
_FAMILIES = (1, 2, 10, 16)
"""unix, inet, inet6, netlink"""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX: typing into a terminal."""


def seccomp_program() -> bytes:
    """For bubblewrap's `--seccomp`; empty on unknown architectures."""
    found = _ARCHITECTURES.get(os.uname().machine)
    if found is None:
        return b""
    architecture, socket, ioctl, refused = found
    missing = _ERROR | errno.ENOSYS
    code = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, missing)]
    code += [(_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, missing)]
    for number in _IO_URING:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, missing)]
    for number in refused:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    families = [(_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
    code += [(_EQUAL, 0, len(families) + 3, socket), (_LOAD, 0, 0, _FIRST), *families]
    code += [(_RETURN, 0, 0, _ERROR | errno.EAFNOSUPPORT), (_RETURN, 0, 0, _ALLOW)]
    code += [(_EQUAL, 0, 2 + 2 * len(_TERMINAL_INPUT) - 1, ioctl), (_LOAD, 0, 0, _SECOND)]
    for request in _TERMINAL_INPUT:
        code += [(_EQUAL, 0, 1, request), (_RETURN, 0, 0, _ERROR | errno.EPERM)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *line) for line in code)
