"""Decides about system calls of a sandboxed command that create or change files, before the kernel runs them.

Runs in the command's supervisor. The kernel reports each such call and waits. Most are let through by name alone. A
name that could be protected is resolved as the command would see it, and then allowed, asked about or denied. What is
allowed is run here, so that nothing can change between check and use; so are calls of programs with threads, which
could change a name after it was checked. Counts processes too. Uses `protected_writes` for the rules.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import re
import stat
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kitbag.sandbox.protected_writes import ProtectedWrite, ProtectedWrites, WriteRequest, is_directory
from kitbag.sandbox.seccomp import WatchedCall, fork_calls, watched_calls, watching_program

_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_ADD, _ADD_AND_SEND = 0x40182103, 2
_ADD_DESCRIPTOR: Final = struct.Struct("=QIIII")
_AT_REMOVEDIR, _AT_SYMLINK_FOLLOW = 0x200, 0x400
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
_MAX_UNSURE = 1_000
_MAX_DENIED = 50
_MAX_REPORT = 40_000
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


def create_guard(
    policy: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None], count_processes: Callable[[], int]
) -> "WriteGuard":
    return WriteGuard(
        ProtectedWrites.from_json(policy), bool(policy["asks"]), send, int(policy["processes"]), count_processes
    )


class WriteGuard:
    def __init__(
        self,
        rules: ProtectedWrites,
        asks: bool,
        send: Callable[[Mapping[str, Any]], None],
        max_processes: int,
        count_processes: Callable[[], int],
    ) -> None:
        """`asks`: send a question for each protected path, instead of denying it. `max_processes`: 0 for no limit."""
        self.program = watching_program(
            writes=rules.has_roots, removals=rules.watches_removals, forks=bool(max_processes)
        )
        self._has_started = False
        self._setup_filters = _filter_count(os.getpid()) + 1
        self._setup_pids: set[int] = set()
        self._forks = fork_calls()
        self._max_processes = max_processes
        self._count_processes = count_processes
        self._processes = 0
        """At most so many run: those counted last and those started since."""
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
        self._unsure: deque[int] = deque(maxlen=_MAX_UNSURE)

    def attach(self, listener: int) -> None:
        self._listener = listener
        with contextlib.suppress(OSError):  # since Linux 6.6
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP)

    def report(self) -> Mapping[str, Any]:
        allowed = [path for path, reason in self._answers.items() if not reason]
        return {
            "denied": _fitting([[path, reason] for path, reason in self._denied.items()]),
            "allowed": _fitting(allowed),
            "unsure": list(self._unsure),
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
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer, True)
        except OSError:
            return None  # the caller has ended meanwhile
        identifier, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        if number in self._forks:
            return self._count_fork(identifier)
        name, watched = self._calls[number]
        return self._decide(_Call(identifier, pid, name, watched, arguments))

    def _count_fork(self, identifier: int) -> None:
        self._processes += 1
        if self._processes > self._max_processes:
            self._processes = self._count_processes()
            if self._processes > self._max_processes:
                self.stop_reason = "processes"
                return self._fail(identifier, errno.EAGAIN)
        return self._continue(identifier)

    def _decide(self, call: _Call) -> None:
        """Let the kernel run it if nothing can change its arguments meanwhile, or run it here."""
        positions = _text_positions(call.watched)
        try:
            if not self._has_started and self._is_setting_up(call.pid):
                return self._continue(call.id)
            texts = [self._read(call.pid, call.arguments[at]) for at in positions]
            is_suspicious = self._is_suspicious(call, texts)
            if is_suspicious or self._rules.examines_all or self._is_threaded(call.pid):
                try:
                    return self._examine_and_run(call, texts)
                except _SpecialFile:
                    if is_suspicious:
                        return self._fail(call.id, errno.EPERM)
                    self._unsure.append(time.time_ns())
            if texts != [self._read(call.pid, call.arguments[at]) for at in positions]:
                self.stop_reason = HOSTILE
                return self._fail(call.id, errno.EPERM)
        except _Unresolved as error:
            return self._fail(call.id, error.number)
        except OSError as error:
            return self._fail(call.id, error.errno or errno.EPERM)
        return self._continue(call.id)

    def _is_setting_up(self, pid: int) -> bool:
        """Whether it is bubblewrap, which adds its own filter right before it starts the command."""
        if pid not in self._setup_pids:
            self._has_started = _filter_count(pid) > self._setup_filters
            self._setup_pids.add(pid)
        return not self._has_started

    def _is_suspicious(self, call: _Call, texts: list[bytes]) -> bool:
        if any(map(self._suspicious, texts)):
            return True
        # A directory that is renamed may contain control paths.
        return call.name.startswith("rename") and is_directory(_as_seen_by(call.pid, texts[0]))

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _examine_and_run(self, call: _Call, texts: list[bytes]) -> None:
        """Run the call here, on the directories that were checked, or deny it, or let it wait for an answer. Raises
        _SpecialFile if it can't be run here, and OSError or _Unresolved for its own errors."""
        follows = call.name in ("open", "openat", "creat", "truncate") and not _refuses_links(call)
        places: list[tuple[int, bytes]] = []
        try:
            for at, (directory, _) in enumerate(call.watched.paths):
                places.append(self._resolve(call, directory, texts[at], follows))
            found = self._find_protected(call, places, texts)
            if found is None and self._rules.is_pinned(call.name, [_join(*place) for place in places]):
                raise _Unresolved(errno.EBUSY)  # as for a mount point, which it is for the caller, but not for us
            if found is not None and not self._is_allowed(call, found):
                return
            self._run(call, places, texts)
        finally:
            for parent, _ in places:
                os.close(parent)

    def _find_protected(
        self, call: _Call, places: list[tuple[int, bytes]], texts: list[bytes]
    ) -> ProtectedWrite | None:
        source = ""
        for at, (parent, name) in enumerate(places):
            path = _join(parent, name)
            is_target = at == len(places) - 1
            request = WriteRequest(
                path=path,
                call=call.name,
                exists=_mode(name, parent) != 0,
                replaces=is_target and call.name.startswith(("rename", "link", "symlink")),
                source=source if is_target and call.name.startswith("rename") else "",
                parent=parent,
            )
            source = path
            found = self._rules.find(request)
            if found is None and call.watched.target is not None:
                found = self._rules.find_target(path, os.fsdecode(texts[-1]))
            if found is not None:
                return found
        return None

    def _run(self, call: _Call, places: list[tuple[int, bytes]], texts: list[bytes]) -> None:
        if any(text.endswith(b"/") for text in texts) and not call.name.startswith("mkdir"):
            raise _SpecialFile  # only a directory may have that name; rare, so left to the kernel
        if call.name in ("open", "openat", "creat"):
            descriptor = self._open(call, *places[0])
            try:
                flags = call.arguments[call.watched.flags] if call.watched.flags is not None else 0
                request = _ADD_DESCRIPTOR.pack(call.id, _ADD_AND_SEND, descriptor, 0, flags & os.O_CLOEXEC)
                with contextlib.suppress(FileNotFoundError):  # the caller has ended
                    fcntl.ioctl(self._listener, _ADD, request)
            finally:
                os.close(descriptor)
            return
        self._change(call, places, texts)
        self._respond(call.id, 0, 0)

    def _open(self, call: _Call, parent: int, name: bytes) -> int:
        at = call.watched.flags
        flags = os.O_CREAT | os.O_WRONLY | os.O_TRUNC if at is None else call.arguments[at] & 0xFFFFFFFF
        mode = call.arguments[1 if at is None else at + 1] & 0o7777
        kind = stat.S_IFMT(_mode(name, parent))
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            raise _SpecialFile  # a device or pipe behaves differently for another process
        create = flags & os.O_CREAT or flags & os.O_TMPFILE == os.O_TMPFILE
        mode = mode & ~_umask(call.pid) if create else 0
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY, mode, dir_fd=parent)

    def _change(self, call: _Call, places: list[tuple[int, bytes]], texts: list[bytes]) -> None:
        """Run any call but those that open. Raises OSError."""
        parent, name = places[-1]
        arguments, last = call.arguments, call.watched.paths[-1][1]
        if call.name.startswith("mkdir"):
            os.mkdir(name, arguments[last + 1] & 0o1777 & ~_umask(call.pid), dir_fd=parent)
        elif call.name.startswith("mknod"):
            mode = arguments[last + 1] & 0xFFFF
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
                raise _Unresolved(errno.EPERM)
            os.mknod(name, mode & ~_umask(call.pid), 0, dir_fd=parent)
        elif call.name.startswith("rename"):
            flags = arguments[4] & 0xFFFFFFFF if call.name == "renameat2" else 0
            source, old = places[0]
            if _libc.renameat2(source, old, parent, name, flags):
                raise OSError(ctypes.get_errno(), "")
        elif call.name.startswith("link"):
            if call.name == "linkat" and arguments[4] & _AT_SYMLINK_FOLLOW:
                raise _SpecialFile
            os.link(places[0][1], name, src_dir_fd=places[0][0], dst_dir_fd=parent, follow_symlinks=False)
        elif call.name.startswith("symlink"):
            os.symlink(texts[-1], name, dir_fd=parent)
        elif call.name == "truncate":
            descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=parent)
            try:
                os.ftruncate(descriptor, ctypes.c_longlong(arguments[1]).value)
            finally:
                os.close(descriptor)
        elif call.name == "rmdir" or (call.name == "unlinkat" and arguments[2] & _AT_REMOVEDIR):
            os.rmdir(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)

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
        self._fail(call.id, errno.EPERM)

    def _is_threaded(self, pid: int) -> bool:
        """Whether another thread could change the arguments meanwhile."""
        try:
            return os.stat(f"/proc/{pid}/task").st_nlink > 3
        except OSError:
            return True

    # --- answering --------------------------------------------------------------------------------------------------

    def _continue(self, identifier: int) -> None:
        self._respond(identifier, 0, _CONTINUE)

    def _fail(self, identifier: int, number: int) -> None:
        self._respond(identifier, -number, 0)

    def _respond(self, identifier: int, error: int, flags: int) -> None:
        with contextlib.suppress(OSError):  # the caller has ended
            fcntl.ioctl(self._listener, _SEND, _RESPONSE.pack(identifier, 0, error, flags))

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
        Raises _Unresolved with the error that the call would get, or _SpecialFile."""
        root = os.open(f"/proc/{call.pid}/root", os.O_PATH | os.O_CLOEXEC)
        try:
            if not text:
                raise _Unresolved(errno.ENOENT)
            path = text
            if not text.startswith(b"/"):
                path = os.path.join(os.fsencode(self._directory(call, position)), text)
            for _ in range(_MAX_LINKS):
                if path.startswith(b"/proc/"):
                    raise _SpecialFile  # it looks different to every process
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


def _join(parent: int, name: bytes) -> str:
    return os.path.join(_path_of(parent), os.fsdecode(name))


def _mode(name: bytes, parent: int) -> int:
    """0 if it does not exist."""
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except OSError:
        return 0


def _umask(pid: int) -> int:
    return int(_status(pid, b"Umask:") or b"077", 8)


def _filter_count(pid: int) -> int:
    return int(_status(pid, b"Seccomp_filters:") or b"0")


def _status(pid: int, field: bytes) -> bytes:
    with open(f"/proc/{pid}/status", "rb") as file:
        return next((line[len(field) :].strip() for line in file if line.startswith(field)), b"")


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
