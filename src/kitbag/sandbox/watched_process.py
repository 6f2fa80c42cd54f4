"""The process whose system call is being decided: its memory, its status, and where its paths lead.

Used by `write_guard`, in the command's supervisor. Paths are resolved as that process sees them, in its own root and
directories, and give an open directory and a name in it.
"""

import ctypes
import errno
import os
import re
from typing import Final, NamedTuple

from kitbag.sandbox.seccomp import WatchedCall

_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPENAT2, _NO_SYMLINKS, _IN_ROOT = 437, 0x04, 0x10
_PATH_BYTES = 4096
_PAGE = 4096
MAX_LINKS: Final = 40
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_PROC: Final = re.compile(rb"/+(?:proc|dev/(?:fd|stdin|stdout|stderr))(?:/|$)")
_PROC_LINK: Final = re.compile(
    rb"/+proc/+(?:(self|thread-self)|[^/]+)/+(?:task/[^/]+/)?(cwd|root|fd/[0-9]+)/+(.*)", re.DOTALL
)


class UnresolvedPathError(Exception):
    """The call fails with this error number."""

    def __init__(self, number: int) -> None:
        self.number = number


class NotRunnableHereError(Exception):
    """The call can only be run by the caller itself."""


class CallInProgress(NamedTuple):
    """A system call that waits for a decision."""

    id: int
    pid: int
    """The calling thread."""
    name: str
    watched: WatchedCall
    arguments: list[int]

    @property
    def flags(self) -> int:
        """Of a call that opens or renames."""
        if self.name == "creat":
            return os.O_CREAT | os.O_WRONLY | os.O_TRUNC
        at = 4 if self.name in ("renameat2", "linkat") else self.watched.flags
        return 0 if at is None else self.arguments[at] & 0x7FFFFFFF


class WritePlace(NamedTuple):
    """Where a call writes."""

    parent: int
    """An open directory."""
    name: bytes
    path: str


# --- resolving ------------------------------------------------------------------------------------------------------


def resolve(call: CallInProgress, position: int | None, text: bytes) -> WritePlace:
    """Where the call would write, with links to directories resolved as the caller sees them. Raises
    UnresolvedPathError with the error that the call would get, or NotRunnableHereError."""
    if not text:
        if call.name == "linkat" and call.flags & _AT_EMPTY_PATH:
            raise NotRunnableHereError
        raise UnresolvedPathError(errno.ENOENT)
    return _place(*_open_parent(call, position, text))


def follow_links(call: CallInProgress, place: WritePlace) -> WritePlace:
    """Where the link that a place is leads, and the links after it. Closes the place, unless it raises."""
    seen = [place]
    try:
        while place.name and len(seen) <= MAX_LINKS:
            try:
                target = os.readlink(place.name, dir_fd=place.parent)
            except OSError:
                break
            start = os.fsencode(os.path.dirname(place.path))
            place = _place(*_open_absolute(call, os.path.join(start, target)))
            seen.append(place)
        else:
            raise UnresolvedPathError(errno.ELOOP)
    except BaseException:
        for other in seen[1:]:
            os.close(other.parent)
        raise
    for other in seen[:-1]:
        os.close(other.parent)
    return place


def _place(parent: int, name: bytes) -> WritePlace:
    path = os.readlink(f"/proc/self/fd/{parent}")
    return WritePlace(parent, name, f"{path.rstrip('/')}/{os.fsdecode(name)}" if name else path)


def _open_parent(call: CallInProgress, position: int | None, text: bytes) -> tuple[int, bytes]:
    """The open parent directory, and the name in it; the name is empty for a root or a path that ends with `.`."""
    if text.startswith(b"/"):
        return _open_absolute(call, text)
    number = _AT_FDCWD if position is None else ctypes.c_int(call.arguments[position] & 0xFFFFFFFF).value
    return _open_below(call, f"/proc/{call.pid}/cwd" if number == _AT_FDCWD else f"/proc/{call.pid}/fd/{number}", text)


def _open_below(call: CallInProgress, start_path: str, text: bytes) -> tuple[int, bytes]:
    """`text` relative to a directory of the caller."""
    try:
        start = os.open(start_path, _DIRECTORY)
    except NotADirectoryError:
        raise UnresolvedPathError(errno.ENOTDIR) from None
    except OSError:
        raise UnresolvedPathError(errno.EBADF if "/fd/" in start_path else errno.ENOENT) from None
    directory, name = _split(text)
    if not directory:
        return start, name
    try:
        try:
            return _open_directory(start, directory, _NO_SYMLINKS), name
        except UnresolvedPathError as error:
            if error.number != errno.ELOOP:
                raise
        return _open_absolute(call, os.path.join(os.fsencode(os.readlink(f"/proc/self/fd/{start}")), text))
    finally:
        os.close(start)


def _open_absolute(call: CallInProgress, path: bytes) -> tuple[int, bytes]:
    if link := _PROC_LINK.match(path):
        if not link[1]:
            raise UnresolvedPathError(errno.EACCES)  # another process's view of the file system
        return _open_below(call, f"/proc/{call.pid}/{os.fsdecode(link[2])}", link[3])
    if _PROC.match(path):
        raise NotRunnableHereError  # it looks different to every process
    root = os.open(f"/proc/{call.pid}/root", _DIRECTORY)
    try:
        directory, name = _split(path)
        return _open_directory(root, directory or b"/", _IN_ROOT), name
    finally:
        os.close(root)


def _split(path: bytes) -> tuple[bytes, bytes]:
    """Directory and name. `a/b/.` and `a/..` are directories without a name."""
    directory, slash, name = path.rstrip(b"/").rpartition(b"/")
    if name in (b"", b".", b".."):
        return path, b""
    return directory or slash, name


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


libc = ctypes.CDLL(None, use_errno=True)
_how = {resolve: _OpenHow(_DIRECTORY, 0, resolve) for resolve in (_NO_SYMLINKS, _IN_ROOT)}


def _open_directory(start: int, path: bytes, resolve: int) -> int:
    """_IN_ROOT: absolute links lead to `start`. _NO_SYMLINKS: fails with ELOOP if there is a link."""
    how = _how[resolve]
    descriptor = libc.syscall(_OPENAT2, start, path, ctypes.byref(how), ctypes.sizeof(how))
    if descriptor < 0:
        raise UnresolvedPathError(ctypes.get_errno())
    return int(descriptor)


def file_mode(place: WritePlace) -> int:
    """0 if it does not exist."""
    try:
        return os.stat(place.name or b".", dir_fd=place.parent, follow_symlinks=False).st_mode
    except OSError:
        return 0


def text_positions(watched: WatchedCall) -> tuple[int, ...]:
    positions = tuple(path for _, path in watched.paths)
    return positions if watched.target is None else (*positions, watched.target)


# --- reading the caller ---------------------------------------------------------------------------------------------


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_buffer = ctypes.create_string_buffer(_PATH_BYTES)
_local = _Vector(ctypes.addressof(_buffer), _PATH_BYTES)


def _read_memory(pid: int, address: int, size: int) -> bytes:
    """Of the program that the process runs now. Up to the first page that is not there."""
    _local.length = size
    remote = _Vector(address, size)
    got = libc.process_vm_readv(pid, ctypes.byref(_local), 1, ctypes.byref(remote), 1, 0)
    if got < 0:
        raise UnresolvedPathError(errno.EFAULT)
    return ctypes.string_at(_buffer, got)


def read_text(pid: int, address: int) -> bytes:
    """A path. Raises UnresolvedPathError if there is none."""
    text = b""
    while len(text) < _PATH_BYTES:
        # To the end of a page: what follows may not be there.
        size = min(_PAGE - (address + len(text)) % _PAGE, _PATH_BYTES - len(text))
        part, end, _ = _read_memory(pid, address + len(text), size).partition(b"\0")
        text += part
        if end:
            return text
        if not part:
            raise UnresolvedPathError(errno.EFAULT)
    raise UnresolvedPathError(errno.ENAMETOOLONG)


def socket_path(call: CallInProgress) -> bytes:
    """The path that a socket is bound to; empty if the address is none, such as a port or an abstract name."""
    address = _read_memory(call.pid, call.arguments[1], min(call.arguments[2] & 0xFFFF, 110))
    if len(address) < 3 or int.from_bytes(address[:2], "little") != 1 or not address[2]:
        return b""
    return address[2:].partition(b"\0")[0]


def filter_count(pid: int) -> int:
    return int(read_status(pid, b"Seccomp_filters:") or b"0")


def read_status(pid: int, field: bytes) -> bytes:
    with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
        text = b"\n" + (file.read() or b"")
    return text.partition(b"\n" + field)[2].partition(b"\n")[0].strip()
