"""Decides about system calls of a sandboxed command that create or change files, before the kernel runs them.

Runs in the command's supervisor. The kernel reports each such call and waits. Its path is resolved as the command sees
it, and then allowed, asked about or denied. What is allowed is run here, on the directory that was checked, and the
command gets the result: it can't exchange a name or a link between check and use. Only calls on pipes and in /proc,
which are different for another process, are left to the kernel. Uses `protected_writes`.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import select
import stat
import struct
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kitbag.sandbox.protected_writes import ProtectedWrite, ProtectedWrites, WriteRequest
from kitbag.sandbox.seccomp import WatchedCall, watched_calls, watching_program

_RECEIVE, _SEND, _ADD, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40182103, 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_ADD_AND_SEND = 2
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")
_RESPONSE: Final = struct.Struct("=QqiI")
_ADD_DESCRIPTOR: Final = struct.Struct("=QIIII")
_AT_FDCWD, _AT_REMOVEDIR, _AT_SYMLINK_FOLLOW, _AT_EMPTY_PATH = -100, 0x200, 0x400, 0x1000
_RENAME_EXCHANGE = 2
_OPENAT2, _NO_SYMLINKS, _IN_ROOT = 437, 0x04, 0x10
_NS_GET_USERNS, _MNT_DETACH = 0xB701, 2
_PATH_BYTES = 4096
_PAGE = 4096
_MAX_LINKS = 40
_MAX_DENIED = 50
_UMASK_SECONDS = 0.05
_MAX_REPORT = 40_000
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_OPENING: Final = ("open", "openat", "creat")
_ONLY_ON_CREATION: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_PROC: Final = re.compile(rb"/+(?:proc|dev/(?:fd|stdin|stdout|stderr))(?:/|$)")
_PROC_LINK: Final = re.compile(
    rb"/+proc/+(?:(self|thread-self)|[^/]+)/+(?:task/[^/]+/)?(cwd|root|fd/[0-9]+)/+(.*)", re.DOTALL
)
HOSTILE: Final = "hostile"


class _Unresolved(Exception):  # noqa: N818 - carries the error for the command
    def __init__(self, number: int) -> None:
        self.number = number


class _SpecialFile(Exception):  # noqa: N818 - not an error
    """The call can only be run by the caller itself."""


class _Call(NamedTuple):
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


class _Place(NamedTuple):
    """Where a call writes."""

    parent: int
    """An open directory."""
    name: bytes
    path: str


def create_guard(policy: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> "WriteGuard":
    return WriteGuard(
        ProtectedWrites.from_json(policy), send, asks=bool(policy["asks"]), max_file_size=int(policy["file_size"])
    )


class WriteGuard:
    def __init__(
        self, rules: ProtectedWrites, send: Callable[[Mapping[str, Any]], None], *, asks: bool, max_file_size: int
    ) -> None:
        """`asks`: send a question for each protected path, instead of denying it."""
        self.program = watching_program()
        self.stop_reason = ""
        self._rules = rules
        self._asks = asks
        self._ask = send
        self._max_file_size = max_file_size
        self._has_started = False
        self._setup_filters = _filter_count(os.getpid()) + 1
        self._setup_pids: set[int] = set()
        self._calls = watched_calls()
        self._is_suspicious = re.compile(rules.suspicious_names(), re.IGNORECASE | re.DOTALL).search
        self._listener = -1
        self._pending = select.poll()
        self._waiting: dict[str, list[_Call]] = {}
        self._answers: dict[str, str] = {}
        """By protected path: why it is denied, or empty if it is allowed."""
        self._denied: dict[str, str] = {}
        self._umasks: dict[int, int] = {}
        """By process; reading it takes longer than creating a file."""
        self._umask_set_at = self._umasks_read_at = 0.0

    def attach(self, listener: int) -> None:
        self._listener = listener
        self._pending.register(listener, select.POLLIN)
        with contextlib.suppress(OSError):  # since Linux 6.6
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP)

    def report(self) -> Mapping[str, Any]:
        allowed = [path for path, reason in self._answers.items() if not reason]
        return {
            "denied": _fitting([[path, reason] for path, reason in self._denied.items()]),
            "allowed": _fitting(allowed),
        }

    def answer(self, key: str, reason: str) -> None:
        waiting = self._waiting.pop(key, [])
        if not reason and waiting and (mounts := self._rules.allow(key)) and not _unmount(waiting[0].pid, mounts):
            reason = "it was allowed, but could not be made writable in the running sandbox; run the command again"
        self._answers[key] = reason
        for call in waiting:
            if reason:
                self._deny(call, key, reason)
            else:
                self._decide(call)

    def handle(self) -> None:
        # Receive all first: until then, a signal makes the call of a waiting process fail.
        calls: list[_Call] = []
        while not calls or self._pending.poll(0):
            buffer = bytearray(_NOTIFICATION.size)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, buffer, True)
            except OSError:
                break  # the caller has ended meanwhile
            identifier, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
            calls.append(_Call(identifier, pid, *self._calls[number], arguments))
        if time.monotonic() > self._umasks_read_at + 1:  # numbers of processes are used again
            self._umasks.clear()
            self._umasks_read_at = time.monotonic()
        for call in calls:
            self._decide(call)

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _decide(self, call: _Call) -> None:
        try:
            if not self._has_started and self._is_setting_up(call.pid):
                return self._respond(call.id, 0, _CONTINUE)
            if call.name == "umask":
                self._forget_umasks()
                return self._respond(call.id, 0, _CONTINUE)
            texts = self._texts(call)
            try:
                return self._examine_and_run(call, texts)
            except _SpecialFile:
                if texts != self._texts(call):
                    self.stop_reason = HOSTILE
                    return self._respond(call.id, -errno.EPERM)
                return self._respond(call.id, 0, _CONTINUE)
        except _Unresolved as error:
            return self._respond(call.id, -error.number)
        except OSError as error:
            return self._respond(call.id, -(error.errno or errno.EPERM))
        except (ValueError, OverflowError, ArithmeticError):
            return self._respond(call.id, -errno.EINVAL)

    def _is_setting_up(self, pid: int) -> bool:
        """Whether it is bubblewrap, which adds its own filter right before it starts the command."""
        if pid not in self._setup_pids:
            self._has_started = _filter_count(pid) > self._setup_filters
            self._setup_pids.add(pid)
        return not self._has_started

    def _texts(self, call: _Call) -> list[bytes]:
        if call.name == "bind":
            return [_socket_path(call)]
        return [_read_text(call.pid, call.arguments[at]) for at in _text_positions(call.watched)]

    def _examine_and_run(self, call: _Call, texts: list[bytes]) -> None:
        """Run the call here, on the directories that were checked, or deny it, or let it wait for an answer. Raises
        _SpecialFile if it can't be run here, and OSError or _Unresolved for its own errors."""
        places: list[_Place] = []
        try:
            for at, (directory, _) in enumerate(call.watched.paths):
                places.append(_resolve(call, directory, texts[at]))
            if call.name == "truncate":
                places[0] = _follow(call, places[0])
            found = self._find_protected(call, places, texts)
            if found is not None and not self._is_allowed(call, found):
                return
            if call.watched.removes and found is None:
                raise _SpecialFile  # left to the kernel, which is faster: nothing can be created that way
            if call.name.startswith(("rename", "unlink", "rmdir")) and any(
                self._rules.is_pinned(place.path) for place in places
            ):
                raise _Unresolved(errno.EBUSY)  # as for a mount point, which it is for the caller, but not for us
            if call.name == "bind":
                raise _SpecialFile
            if call.name in _OPENING:
                while not self._open_for(call, places[0], is_directory=texts[0].endswith(b"/")):
                    places[0] = _follow(call, places[0])
                    found = self._find_protected(call, places, texts)
                    if found is not None and not self._is_allowed(call, found):
                        return
            else:
                _check_slashes(call, places, texts)
                self._change(call, places, texts)
                self._respond(call.id, 0)
        finally:
            for place in places:
                os.close(place.parent)

    def _find_protected(self, call: _Call, places: list[_Place], texts: list[bytes]) -> ProtectedWrite | None:
        renames = call.name.startswith("rename")
        moves_directory = renames and any(stat.S_ISDIR(_mode(place)) for place in places)
        exchanges = call.name == "renameat2" and call.flags & _RENAME_EXCHANGE
        for at, place in enumerate(places):
            if not (
                moves_directory
                or self._rules.examines_all
                or self._is_suspicious(os.fsencode(place.path))
                or call.watched.target is not None
            ):
                continue
            is_target = at == len(places) - 1 or bool(exchanges)
            request = WriteRequest(
                path=place.path,
                call=call.name,
                exists=_mode(place) != 0,
                replaces=is_target and call.name.startswith(("rename", "link", "symlink")),
                source=places[1 - at].path if is_target and renames else "",
                parent=place.parent,
            )
            found = self._rules.find(request)
            if found is None and call.watched.target is not None:
                found = self._rules.find_target(place.path, os.fsdecode(texts[-1]))
            if found is not None:
                return found
        return None

    def _is_allowed(self, call: _Call, found: ProtectedWrite) -> bool:
        path = found.path
        if path in self._waiting:
            self._waiting[path].append(call)
            return False
        if path not in self._answers and self._asks and found.may_ask:
            self._waiting[path] = [call]
            self._ask({"question": path, "path": path})
            return False
        denial = self._answers.get(path, found.reason)
        if denial:
            self._deny(call, path, denial)
        return not denial

    def _deny(self, call: _Call, path: str, reason: str) -> None:
        if len(self._denied) < _MAX_DENIED:
            self._denied.setdefault(path, reason)
        self._respond(call.id, -errno.EPERM)

    def _respond(self, identifier: int, error: int, flags: int = 0) -> None:
        with contextlib.suppress(OSError):  # the caller has ended
            fcntl.ioctl(self._listener, _SEND, _RESPONSE.pack(identifier, 0, error, flags))

    # --- running ----------------------------------------------------------------------------------------------------

    def _open_for(self, call: _Call, place: _Place, *, is_directory: bool) -> bool:
        """False if it is a link to follow."""
        descriptor = self._open(call, place, is_directory=is_directory)
        if descriptor is None:
            return False
        try:
            request = _ADD_DESCRIPTOR.pack(call.id, _ADD_AND_SEND, descriptor, 0, call.flags & os.O_CLOEXEC)
            with contextlib.suppress(FileNotFoundError):  # the caller has ended
                fcntl.ioctl(self._listener, _ADD, request)
        finally:
            os.close(descriptor)
        return True

    def _open(self, call: _Call, place: _Place, *, is_directory: bool) -> int | None:
        """As the caller would; None if it is a link to follow. Never blocks: what exists is looked at first."""
        flags, (parent, name, _) = call.flags, place
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            return os.open(name or b".", flags | os.O_CLOEXEC, self._creation_mode(call), dir_fd=parent)
        for _ in range(_MAX_LINKS):
            try:
                found = os.open(name or b".", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            except FileNotFoundError:
                if not flags & os.O_CREAT:
                    raise
                if is_directory:
                    raise _Unresolved(errno.EISDIR) from None
                try:
                    creating = flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                    return os.open(name, creating, self._creation_mode(call), dir_fd=parent)
                except FileExistsError:
                    continue
            try:
                return _reopen(found, flags, is_directory=is_directory)
            finally:
                os.close(found)
        raise _Unresolved(errno.ELOOP)

    def _creation_mode(self, call: _Call) -> int:
        at = 0 if call.watched.flags is None else call.watched.flags
        return call.arguments[at + 1] & 0o7777 & ~self._umask(call.pid)

    def _umask(self, pid: int) -> int:
        mask = self._umasks.get(pid)
        if mask is None:
            mask = int(_status(pid, b"Umask:") or b"077", 8)
            # A call that sets it may not have taken effect yet.
            if time.monotonic() > self._umask_set_at + _UMASK_SECONDS:
                self._umasks[pid] = mask
        return mask

    def _forget_umasks(self) -> None:
        self._umasks.clear()
        self._umask_set_at = time.monotonic()

    def _change(self, call: _Call, places: list[_Place], texts: list[bytes]) -> None:
        """Run any call but those that open. Raises OSError."""
        parent, name, _ = places[-1]
        arguments, last = call.arguments, call.watched.paths[-1][1]
        if not name and call.name.startswith(("mkdir", "mknod", "link", "symlink")):
            raise _Unresolved(errno.EEXIST)  # a root, or `.`
        if call.name.startswith("mkdir"):
            os.mkdir(name, arguments[last + 1] & 0o1777 & ~self._umask(call.pid), dir_fd=parent)
        elif call.name.startswith("mknod"):
            mode = arguments[last + 1] & 0xFFFF
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
                raise _Unresolved(errno.EPERM)
            os.mknod(name, mode & ~self._umask(call.pid), 0, dir_fd=parent)
        elif call.name.startswith("rename"):
            flags = call.flags if call.name == "renameat2" else 0
            if _libc.renameat2(places[0].parent, places[0].name, parent, name, flags):
                raise OSError(ctypes.get_errno(), "")
        elif call.name.startswith("link"):
            if call.name == "linkat" and call.flags & (_AT_SYMLINK_FOLLOW | _AT_EMPTY_PATH):
                raise _SpecialFile
            os.link(places[0].name, name, src_dir_fd=places[0].parent, dst_dir_fd=parent, follow_symlinks=False)
        elif call.name.startswith("symlink"):
            os.symlink(texts[-1], name, dir_fd=parent)
        elif call.name == "truncate":
            self._truncate(places[0], ctypes.c_longlong(arguments[1]).value)
        elif call.name == "rmdir" or (call.name == "unlinkat" and arguments[2] & _AT_REMOVEDIR):
            os.rmdir(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)

    def _truncate(self, place: _Place, length: int) -> None:
        if self._max_file_size and length > self._max_file_size:
            raise _Unresolved(errno.EFBIG)
        if stat.S_ISFIFO(_mode(place)):
            raise _Unresolved(errno.EINVAL)
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(place.name, flags, dir_fd=place.parent)
        try:
            os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)


def _reopen(found: int, flags: int, *, is_directory: bool) -> int | None:
    """Open an existing file that is held by a descriptor; None if it is a link to follow."""
    mode = os.fstat(found).st_mode
    exclusive = os.O_CREAT | os.O_EXCL
    if flags & exclusive == exclusive:
        raise _Unresolved(errno.EEXIST)
    if stat.S_ISLNK(mode):
        if flags & os.O_NOFOLLOW:
            raise _Unresolved(errno.ELOOP)
        return None
    if stat.S_ISDIR(mode) and flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR | os.O_TRUNC):
        raise _Unresolved(errno.EISDIR)
    if is_directory and not stat.S_ISDIR(mode):
        raise _Unresolved(errno.EISDIR if flags & os.O_CREAT else errno.ENOTDIR)
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        raise _SpecialFile
    wanted = flags & ~_ONLY_ON_CREATION
    descriptor = os.open(f"/proc/self/fd/{found}", wanted | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not flags & os.O_NONBLOCK:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return descriptor


def _check_slashes(call: _Call, places: list[_Place], texts: list[bytes]) -> None:
    """Only a directory may be named with a slash at the end."""
    if call.name.startswith("mkdir"):
        return
    for place, text in zip(places, texts, strict=False):
        last = text.rstrip(b"/").rpartition(b"/")[2]
        if call.name.startswith("rename") and last in (b"", b".", b".."):
            raise _Unresolved(errno.EBUSY)
        if not text.endswith(b"/"):
            continue
        mode = _mode(place)
        moves_directory = call.name.startswith("rename") and stat.S_ISDIR(_mode(places[0]))
        if mode and not stat.S_ISDIR(mode):
            raise _Unresolved(errno.ENOTDIR)
        if not mode and not moves_directory:
            raise _Unresolved(errno.ENOENT)


# --- resolving ------------------------------------------------------------------------------------------------------


def _resolve(call: _Call, position: int | None, text: bytes) -> _Place:
    """Where the call would write, with links to directories resolved as the caller sees them. Raises _Unresolved with
    the error that the call would get, or _SpecialFile."""
    if not text:
        if call.name == "linkat" and call.flags & _AT_EMPTY_PATH:
            raise _SpecialFile
        raise _Unresolved(errno.ENOENT)
    return _place(*_open_parent(call, position, text))


def _follow(call: _Call, place: _Place) -> _Place:
    """Where the link that a place is leads, and the links after it. Closes the place, unless it raises."""
    seen = [place]
    try:
        while place.name and len(seen) <= _MAX_LINKS:
            try:
                target = os.readlink(place.name, dir_fd=place.parent)
            except OSError:
                break
            start = os.fsencode(os.path.dirname(place.path))
            place = _place(*_open_absolute(call, os.path.join(start, target)))
            seen.append(place)
        else:
            raise _Unresolved(errno.ELOOP)
    except BaseException:
        for other in seen[1:]:
            os.close(other.parent)
        raise
    for other in seen[:-1]:
        os.close(other.parent)
    return place


def _place(parent: int, name: bytes) -> _Place:
    path = os.readlink(f"/proc/self/fd/{parent}")
    return _Place(parent, name, f"{path.rstrip('/')}/{os.fsdecode(name)}" if name else path)


def _open_parent(call: _Call, position: int | None, text: bytes) -> tuple[int, bytes]:
    """The open parent directory, and the name in it; the name is empty for a root or a path that ends with `.`."""
    if text.startswith(b"/"):
        return _open_absolute(call, text)
    number = _AT_FDCWD if position is None else ctypes.c_int(call.arguments[position] & 0xFFFFFFFF).value
    return _open_below(call, f"/proc/{call.pid}/cwd" if number == _AT_FDCWD else f"/proc/{call.pid}/fd/{number}", text)


def _open_below(call: _Call, start_path: str, text: bytes) -> tuple[int, bytes]:
    """`text` relative to a directory of the caller."""
    try:
        start = os.open(start_path, _DIRECTORY)
    except NotADirectoryError:
        raise _Unresolved(errno.ENOTDIR) from None
    except OSError:
        raise _Unresolved(errno.EBADF if "/fd/" in start_path else errno.ENOENT) from None
    directory, name = _split(text)
    if not directory:
        return start, name
    try:
        try:
            return _open_directory(start, directory, _NO_SYMLINKS), name
        except _Unresolved as error:
            if error.number != errno.ELOOP:
                raise
        return _open_absolute(call, os.path.join(os.fsencode(os.readlink(f"/proc/self/fd/{start}")), text))
    finally:
        os.close(start)


def _open_absolute(call: _Call, path: bytes) -> tuple[int, bytes]:
    if link := _PROC_LINK.match(path):
        if not link[1]:
            raise _Unresolved(errno.EACCES)  # another process's view of the file system
        return _open_below(call, f"/proc/{call.pid}/{os.fsdecode(link[2])}", link[3])
    if _PROC.match(path):
        raise _SpecialFile  # it looks different to every process
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


_libc = ctypes.CDLL(None, use_errno=True)
_how = {resolve: _OpenHow(_DIRECTORY, 0, resolve) for resolve in (_NO_SYMLINKS, _IN_ROOT)}


def _open_directory(start: int, path: bytes, resolve: int) -> int:
    """_IN_ROOT: absolute links lead to `start`. _NO_SYMLINKS: fails with ELOOP if there is a link."""
    how = _how[resolve]
    descriptor = _libc.syscall(_OPENAT2, start, path, ctypes.byref(how), ctypes.sizeof(how))
    if descriptor < 0:
        raise _Unresolved(ctypes.get_errno())
    return int(descriptor)


def _mode(place: _Place) -> int:
    """0 if it does not exist."""
    try:
        return os.stat(place.name or b".", dir_fd=place.parent, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _text_positions(watched: WatchedCall) -> tuple[int, ...]:
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
    got = _libc.process_vm_readv(pid, ctypes.byref(_local), 1, ctypes.byref(remote), 1, 0)
    if got < 0:
        raise _Unresolved(errno.EFAULT)
    return ctypes.string_at(_buffer, got)


def _read_text(pid: int, address: int) -> bytes:
    """A path. Raises _Unresolved if there is none."""
    text = b""
    while len(text) < _PATH_BYTES:
        # To the end of a page: what follows may not be there.
        size = min(_PAGE - (address + len(text)) % _PAGE, _PATH_BYTES - len(text))
        part, end, _ = _read_memory(pid, address + len(text), size).partition(b"\0")
        text += part
        if end:
            return text
        if not part:
            raise _Unresolved(errno.EFAULT)
    raise _Unresolved(errno.ENAMETOOLONG)


def _socket_path(call: _Call) -> bytes:
    """The path that a socket is bound to. Raises _SpecialFile if it is not a path."""
    address = _read_memory(call.pid, call.arguments[1], min(call.arguments[2] & 0xFFFF, 110))
    if len(address) < 3 or int.from_bytes(address[:2], "little") != 1 or not address[2]:
        raise _SpecialFile
    return address[2:].partition(b"\0")[0]


def _filter_count(pid: int) -> int:
    return int(_status(pid, b"Seccomp_filters:") or b"0")


def _status(pid: int, field: bytes) -> bytes:
    with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
        text = b"\n" + (file.read() or b"")
    return text.partition(b"\n" + field)[2].partition(b"\n")[0].strip()


def _fitting(values: list[Any]) -> list[Any]:
    """As many as fit in a message."""
    left = _MAX_REPORT
    for at, value in enumerate(values):
        left -= len(json.dumps(value))
        if left < 0:
            return values[:at]
    return values


def _unmount(pid: int, paths: list[str]) -> bool:
    """Remove mounts of the sandbox that a process is in. A child of ours enters its namespaces for that."""
    helper = os.fork()
    if helper:
        return os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1]) == 0
    try:
        mounts = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        owner = fcntl.ioctl(mounts, _NS_GET_USERNS)
        _libc.setns(owner, 0)  # fails where the sandbox has no user namespace of its own, and needs none
        done = _libc.setns(mounts, 0) == 0
        for path in paths:
            done = done and _libc.umount2(os.fsencode(path), _MNT_DETACH) == 0
        os._exit(0 if done else 1)
    finally:
        os._exit(1)
