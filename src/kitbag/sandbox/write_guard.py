"""Decides about system calls of a sandboxed command that create or change files, before the kernel runs them.

Runs in the command's supervisor. The kernel reports each such call and waits. Most are let through by name alone; what
could be a protected path is resolved as the command would see it, and then allowed, asked about or denied. A thread can
change a name after it was checked: a name that changes under the check ends the command, and calls that could have been
changed are reported, so that `control_snapshot` can tell what slipped through. Uses `protected_writes` for the rules.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kitbag.sandbox.protected_writes import ProtectedWrites, WriteRequest, is_directory
from kitbag.sandbox.seccomp import WatchedCall, watched_calls, watching_program

_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")
_RESPONSE: Final = struct.Struct("=QqiI")
_AT_FDCWD = -100
_PATH_BYTES = 4096
_SHORT_PATH = 256
_OPENAT2 = 437
_NS_GET_USERNS, _MNT_DETACH = 0xB701, 2
_IN_ROOT = 0x10
_MAX_LINKS = 40
_MAX_OPEN_MEMORIES = 64
_MAX_UNSURE = 100_000
_MAX_DENIED = 50
_MAX_REPORT = 40_000
HOSTILE: Final = "hostile"


class _Unresolved(Exception):  # noqa: N818 - carries the error for the command
    def __init__(self, number: int) -> None:
        self.number = number


class _Call(NamedTuple):
    id: int
    pid: int
    """The calling thread."""
    name: str
    watched: WatchedCall
    arguments: tuple[int, ...]


def create_guard(policy: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> "WriteGuard":
    return WriteGuard(ProtectedWrites.from_json(policy), bool(policy["asks"]), send)


class WriteGuard:
    def __init__(self, rules: ProtectedWrites, asks: bool, send: Callable[[Mapping[str, Any]], None]) -> None:
        """`asks`: send a question for each protected path, instead of denying it."""
        self.program = watching_program(removals=rules.watches_removals)
        self.stop_reason = ""
        self._rules = rules
        self._asks = asks
        self._ask = send
        self._calls = watched_calls(removals=rules.watches_removals)
        self._suspicious = re.compile(rules.suspicious_names(), re.IGNORECASE | re.DOTALL).search
        self._listener = -1
        self._memories: dict[int, int] = {}
        self._waiting: dict[str, list[_Call]] = {}
        self._answers: dict[str, str] = {}
        """By protected path: why it is denied, or empty if it is allowed."""
        self._denied: dict[str, str] = {}
        self._unsure: deque[tuple[int, str]] = deque(maxlen=_MAX_UNSURE)

    def attach(self, listener: int) -> None:
        self._listener = listener
        with contextlib.suppress(OSError):  # since Linux 6.6
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP)

    def report(self) -> Mapping[str, Any]:
        allowed = [path for path, reason in self._answers.items() if not reason]
        return {
            "denied": _fitting([[path, reason] for path, reason in self._denied.items()]),
            "allowed": _fitting(allowed),
            "unsure": _fitting([[at, path] for at, path in reversed(self._unsure)]),
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
                self._continue(call.id)

    def handle(self) -> None:
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer, True)
        except OSError:
            return None  # the caller has ended meanwhile
        identifier, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        name, watched = self._calls[number]
        call = _Call(identifier, pid, name, watched, tuple(arguments))
        try:
            texts = [self._read(pid, arguments[at]) for at in _text_positions(watched)]
            if self._needs_examination(call, texts) and not self._examine(call, texts):
                return None
            if self._is_threaded(pid):
                self._unsure.append((time.time_ns(), self._absolute(call, texts)))
            if texts != [self._read(pid, arguments[at]) for at in _text_positions(watched)]:
                self.stop_reason = HOSTILE
                return self._fail(identifier, errno.EPERM)
        except _Unresolved as error:
            return self._fail(identifier, error.number)
        except OSError:
            return self._fail(identifier, errno.EPERM)
        return self._continue(identifier)

    def _needs_examination(self, call: _Call, texts: list[bytes]) -> bool:
        if self._rules.examines_all or any(map(self._suspicious, texts)):
            return True
        # A directory that is renamed may contain control paths.
        return call.name.startswith("rename") and is_directory(_as_seen_by(call.pid, texts[0]))

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _examine(self, call: _Call, texts: list[bytes]) -> bool:
        """Whether to continue; otherwise the call has been answered, or waits for an answer."""
        follows = call.name in ("open", "openat", "creat", "truncate") and not _refuses_links(call)
        source = ""
        for at, (directory, _) in enumerate(call.watched.paths):
            parent, name = self._resolve(call, directory, texts[at], follows)
            try:
                path = os.path.join(_path_of(parent), os.fsdecode(name))
                is_target = at == len(call.watched.paths) - 1
                request = WriteRequest(
                    path=path,
                    call=call.name,
                    exists=_exists(name, parent),
                    replaces=is_target and call.name.startswith(("rename", "link", "symlink")),
                    source=source if is_target and call.name.startswith("rename") else "",
                    parent=parent,
                )
                source = path
                found = self._rules.find(request)
                if found is None and call.watched.target is not None:
                    found = self._rules.find_target(path, os.fsdecode(texts[-1]))
            finally:
                os.close(parent)
            if found is not None and not self._is_allowed(call, found.path, found.reason, may_ask=found.may_ask):
                return False
        return True

    def _is_allowed(self, call: _Call, path: str, reason: str, *, may_ask: bool) -> bool:
        if path in self._waiting:
            self._waiting[path].append(call)
            return False
        if path not in self._answers and self._asks and may_ask:
            self._waiting[path] = [call]
            self._ask({"question": path, "path": path})
            return False
        denial = self._answers.get(path, reason)
        if denial:
            self._deny(call, path, denial)
        return not denial

    def _deny(self, call: _Call, path: str, reason: str) -> None:
        if len(self._denied) < _MAX_DENIED:
            self._denied.setdefault(path, reason)
        self._fail(call.id, errno.EPERM)

    def _is_threaded(self, pid: int) -> bool:
        """Whether another thread could change the arguments meanwhile."""
        try:
            return os.stat(f"/proc/{pid}/task").st_nlink > 3
        except OSError:
            return True

    def _absolute(self, call: _Call, texts: list[bytes]) -> str:
        directory = call.watched.paths[-1][0]
        text = texts[len(call.watched.paths) - 1]
        if text.startswith(b"/"):
            return os.fsdecode(text)
        return os.path.join(self._directory(call, directory), os.fsdecode(text))

    # --- answering --------------------------------------------------------------------------------------------------

    def _continue(self, identifier: int) -> None:
        with contextlib.suppress(OSError):  # the caller has ended
            fcntl.ioctl(self._listener, _SEND, _RESPONSE.pack(identifier, 0, 0, _CONTINUE))

    def _fail(self, identifier: int, number: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._listener, _SEND, _RESPONSE.pack(identifier, 0, -number, 0))

    # --- reading the caller -----------------------------------------------------------------------------------------

    def _read(self, pid: int, address: int) -> bytes:
        """A path from the caller's memory. Raises _Unresolved if there is none."""
        for _ in range(2):
            memory = self._memories.get(pid)
            if memory is None:
                if len(self._memories) >= _MAX_OPEN_MEMORIES:
                    for descriptor in self._memories.values():
                        os.close(descriptor)
                    self._memories.clear()
                memory = self._memories[pid] = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
            try:
                text, end, _ = os.pread(memory, _SHORT_PATH, address).partition(b"\0")
                if not end and text:
                    text, end, _ = os.pread(memory, _PATH_BYTES, address).partition(b"\0")
                if end:
                    return text
                if text:
                    raise _Unresolved(errno.ENAMETOOLONG if len(text) == _PATH_BYTES else errno.EFAULT)
            except (OSError, OverflowError):
                pass
            # The memory of a program that has been replaced since, or of another process with this number.
            os.close(self._memories.pop(pid))
        raise _Unresolved(errno.EFAULT)

    def _directory(self, call: _Call, position: int | None) -> str:
        number = _AT_FDCWD if position is None else ctypes.c_int(call.arguments[position] & 0xFFFFFFFF).value
        try:
            return os.readlink(f"/proc/{call.pid}/cwd" if number == _AT_FDCWD else f"/proc/{call.pid}/fd/{number}")
        except OSError:
            raise _Unresolved(errno.EBADF if number != _AT_FDCWD else errno.ENOENT) from None

    def _resolve(self, call: _Call, position: int | None, text: bytes, follows: bool) -> tuple[int, bytes]:
        """An open directory and a name in it: where the call would write, with links resolved as the caller sees them.
        Raises _Unresolved with the error that the call would get."""
        root = os.open(f"/proc/{call.pid}/root", os.O_PATH | os.O_CLOEXEC)
        try:
            if not text:
                raise _Unresolved(errno.ENOENT)
            path = text
            if not text.startswith(b"/"):
                path = os.path.join(os.fsencode(self._directory(call, position)), text)
            for _ in range(_MAX_LINKS):
                directory, name = os.path.split(path.rstrip(b"/"))
                if name in (b"", b".", b".."):
                    directory, name = os.path.split(os.fsencode(_resolved_directory(root, path)))
                parent = _open_directory(root, directory or b"/")
                try:
                    target = os.readlink(name, dir_fd=parent) if follows else None
                except OSError:
                    target = None
                if target is None:
                    return parent, name
                path = os.path.join(os.fsencode(_path_of(parent)), target)
                os.close(parent)
            raise _Unresolved(errno.ELOOP)
        finally:
            os.close(root)


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


def _as_seen_by(pid: int, text: bytes) -> str:
    """A path that leads to the same place for us, except where an absolute link lies on the way."""
    return f"/proc/{pid}/{'root' if text.startswith(b'/') else 'cwd/'}{os.fsdecode(text)}"


def _text_positions(watched: WatchedCall) -> tuple[int, ...]:
    positions = tuple(path for _, path in watched.paths)
    return positions if watched.target is None else (*positions, watched.target)


def _refuses_links(call: _Call) -> bool:
    """Whether it opens no link: O_NOFOLLOW, or O_CREAT with O_EXCL."""
    if call.watched.flags is None:
        return False
    flags = call.arguments[call.watched.flags]
    exclusive = os.O_CREAT | os.O_EXCL
    return bool(flags & os.O_NOFOLLOW) or flags & exclusive == exclusive


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _exists(name: bytes, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError:
        return False
    return True


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


def _open_directory(root: int, path: bytes) -> int:
    """Absolute links lead to the caller's root."""
    how = _OpenHow(os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, 0, _IN_ROOT)
    descriptor = _libc.syscall(_OPENAT2, root, path, ctypes.byref(how), ctypes.sizeof(how))
    if descriptor < 0:
        raise _Unresolved(ctypes.get_errno())
    return int(descriptor)


def _resolved_directory(root: int, path: bytes) -> str:
    descriptor = _open_directory(root, path)
    try:
        return _path_of(descriptor)
    finally:
        os.close(descriptor)
