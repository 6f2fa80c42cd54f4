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
from typing import Any, Final

from kitbag.sandbox.protected_writes import ProtectedWrite, ProtectedWrites, WriteRequest
from kitbag.sandbox.seccomp import watched_calls, watching_program
from kitbag.sandbox.watched_process import (
    MAX_LINKS,
    CallInProgress,
    NotRunnableHereError,
    UnresolvedPathError,
    WritePlace,
    file_mode,
    filter_count,
    follow_links,
    libc,
    read_status,
    read_text,
    resolve,
    socket_path,
    text_positions,
)

_RECEIVE, _SEND, _ADD, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40182103, 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_ADD_AND_SEND = 2
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")
_RESPONSE: Final = struct.Struct("=QqiI")
_ADD_DESCRIPTOR: Final = struct.Struct("=QIIII")
_AT_REMOVEDIR, _AT_SYMLINK_FOLLOW, _AT_EMPTY_PATH = 0x200, 0x400, 0x1000
_RENAME_EXCHANGE = 2
_NS_GET_USERNS, _MNT_DETACH = 0xB701, 2
_MAX_DENIED = 50
_UMASK_SECONDS = 0.05
_MAX_REPORT = 40_000
_OPENING: Final = ("open", "openat", "creat")
_ONLY_ON_CREATION: Final = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
HOSTILE: Final = "hostile"


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
        self._setup_filters = filter_count(os.getpid()) + 1
        self._setup_pids: set[int] = set()
        self._calls = watched_calls()
        self._is_suspicious = re.compile(rules.suspicious_names(), re.IGNORECASE | re.DOTALL).search
        self._listener = -1
        self._pending = select.poll()
        self._waiting: dict[str, list[CallInProgress]] = {}
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
        calls: list[CallInProgress] = []
        while not calls or self._pending.poll(0):
            buffer = bytearray(_NOTIFICATION.size)
            try:
                fcntl.ioctl(self._listener, _RECEIVE, buffer, True)
            except OSError:
                break  # the caller has ended meanwhile
            identifier, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
            calls.append(CallInProgress(identifier, pid, *self._calls[number], arguments))
        if time.monotonic() > self._umasks_read_at + 1:  # numbers of processes are used again
            self._umasks.clear()
            self._umasks_read_at = time.monotonic()
        for call in calls:
            self._decide(call)

    # --- deciding ---------------------------------------------------------------------------------------------------

    def _decide(self, call: CallInProgress) -> None:
        try:
            if not self._has_started and self._is_setting_up(call.pid):
                return self._respond(call.id, 0, _CONTINUE)
            if call.name == "umask":
                self._forget_umasks()
                return self._respond(call.id, 0, _CONTINUE)
            texts = self._texts(call)
            try:
                return self._examine_and_run(call, texts)
            except NotRunnableHereError:
                if texts != self._texts(call):
                    self.stop_reason = HOSTILE
                    return self._respond(call.id, -errno.EPERM)
                return self._respond(call.id, 0, _CONTINUE)
        except UnresolvedPathError as error:
            return self._respond(call.id, -error.number)
        except OSError as error:
            return self._respond(call.id, -(error.errno or errno.EPERM))
        except (ValueError, OverflowError, ArithmeticError):
            return self._respond(call.id, -errno.EINVAL)

    def _is_setting_up(self, pid: int) -> bool:
        """Whether it is bubblewrap, which adds its own filter right before it starts the command."""
        if pid not in self._setup_pids:
            self._has_started = filter_count(pid) > self._setup_filters
            self._setup_pids.add(pid)
        return not self._has_started

    def _texts(self, call: CallInProgress) -> list[bytes]:
        if call.name == "bind":
            return [socket_path(call)]
        return [read_text(call.pid, call.arguments[at]) for at in text_positions(call.watched)]

    def _examine_and_run(self, call: CallInProgress, texts: list[bytes]) -> None:
        """Run the call here, on the directories that were checked, or deny it, or let it wait for an answer. Raises
        NotRunnableHereError if it can't be run here, and OSError or UnresolvedPathError for its own errors."""
        if call.name == "bind" and not texts[0]:
            raise NotRunnableHereError
        places: list[WritePlace] = []
        try:
            for at, (directory, _) in enumerate(call.watched.paths):
                places.append(resolve(call, directory, texts[at]))
            if call.name == "truncate":
                places[0] = follow_links(call, places[0])
            found = self._find_protected(call, places, texts)
            if found is not None and not self._is_allowed(call, found):
                return
            if call.watched.removes and found is None:
                raise NotRunnableHereError  # left to the kernel, which is faster: nothing can be created that way
            if call.name.startswith(("rename", "unlink", "rmdir")) and any(
                self._rules.is_pinned(place.path) for place in places
            ):
                raise UnresolvedPathError(
                    errno.EBUSY
                )  # as for a mount point, which it is for the caller, but not for us
            if call.name == "bind":
                raise NotRunnableHereError
            if call.name in _OPENING:
                while not self._open_for(call, places[0], is_directory=texts[0].endswith(b"/")):
                    places[0] = follow_links(call, places[0])
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

    def _find_protected(
        self, call: CallInProgress, places: list[WritePlace], texts: list[bytes]
    ) -> ProtectedWrite | None:
        renames = call.name.startswith("rename")
        moves_directory = renames and any(stat.S_ISDIR(file_mode(place)) for place in places)
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
                exists=file_mode(place) != 0,
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

    def _is_allowed(self, call: CallInProgress, found: ProtectedWrite) -> bool:
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

    def _deny(self, call: CallInProgress, path: str, reason: str) -> None:
        if len(self._denied) < _MAX_DENIED:
            self._denied.setdefault(path, reason)
        self._respond(call.id, -errno.EPERM)

    def _respond(self, identifier: int, error: int, flags: int = 0) -> None:
        with contextlib.suppress(OSError):  # the caller has ended
            fcntl.ioctl(self._listener, _SEND, _RESPONSE.pack(identifier, 0, error, flags))

    # --- running ----------------------------------------------------------------------------------------------------

    def _open_for(self, call: CallInProgress, place: WritePlace, *, is_directory: bool) -> bool:
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

    def _open(self, call: CallInProgress, place: WritePlace, *, is_directory: bool) -> int | None:
        """As the caller would; None if it is a link to follow. Never blocks: a file that exists is examined first."""
        flags, (parent, name, _) = call.flags, place
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            return os.open(name or b".", flags | os.O_CLOEXEC, self._creation_mode(call), dir_fd=parent)
        for _ in range(MAX_LINKS):
            if flags & os.O_CREAT and name and not is_directory:
                try:
                    creating = flags | os.O_EXCL | os.O_CLOEXEC
                    return os.open(name, creating, self._creation_mode(call), dir_fd=parent)
                except FileExistsError:
                    if flags & os.O_EXCL:
                        raise
            try:
                found = os.open(name or b".", os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            except FileNotFoundError:
                if is_directory and flags & os.O_CREAT:
                    raise UnresolvedPathError(errno.EISDIR) from None
                if not flags & os.O_CREAT:
                    raise
                continue  # it has just been removed
            try:
                return _reopen(found, flags, is_directory=is_directory)
            finally:
                os.close(found)
        raise UnresolvedPathError(errno.ELOOP)

    def _creation_mode(self, call: CallInProgress) -> int:
        at = 0 if call.watched.flags is None else call.watched.flags
        return call.arguments[at + 1] & 0o7777 & ~self._umask(call.pid)

    def _umask(self, pid: int) -> int:
        mask = self._umasks.get(pid)
        if mask is None:
            mask = int(read_status(pid, b"Umask:") or b"077", 8)
            # A call that sets it may not have taken effect yet.
            if time.monotonic() > self._umask_set_at + _UMASK_SECONDS:
                self._umasks[pid] = mask
        return mask

    def _forget_umasks(self) -> None:
        self._umasks.clear()
        self._umask_set_at = time.monotonic()

    def _change(self, call: CallInProgress, places: list[WritePlace], texts: list[bytes]) -> None:
        """Run any call but those that open. Raises OSError."""
        parent, name, _ = places[-1]
        arguments, last = call.arguments, call.watched.paths[-1][1]
        if not name and call.name.startswith(("mkdir", "mknod", "link", "symlink")):
            raise UnresolvedPathError(errno.EEXIST)  # a root, or `.`
        if call.name.startswith("mkdir"):
            os.mkdir(name, arguments[last + 1] & 0o1777 & ~self._umask(call.pid), dir_fd=parent)
        elif call.name.startswith("mknod"):
            mode = arguments[last + 1] & 0xFFFF
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK):
                raise UnresolvedPathError(errno.EPERM)
            os.mknod(name, mode & ~self._umask(call.pid), 0, dir_fd=parent)
        elif call.name.startswith("rename"):
            flags = call.flags if call.name == "renameat2" else 0
            if libc.renameat2(places[0].parent, places[0].name, parent, name, flags):
                raise OSError(ctypes.get_errno(), "")
        elif call.name.startswith("link"):
            if call.name == "linkat" and call.flags & (_AT_SYMLINK_FOLLOW | _AT_EMPTY_PATH):
                raise NotRunnableHereError
            os.link(places[0].name, name, src_dir_fd=places[0].parent, dst_dir_fd=parent, follow_symlinks=False)
        elif call.name.startswith("symlink"):
            os.symlink(texts[-1], name, dir_fd=parent)
        elif call.name == "truncate":
            self._truncate(places[0], ctypes.c_longlong(arguments[1]).value)
        elif call.name == "rmdir" or (call.name == "unlinkat" and arguments[2] & _AT_REMOVEDIR):
            os.rmdir(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)

    def _truncate(self, place: WritePlace, length: int) -> None:
        if self._max_file_size and length > self._max_file_size:
            raise UnresolvedPathError(errno.EFBIG)
        if stat.S_ISFIFO(file_mode(place)):
            raise UnresolvedPathError(errno.EINVAL)
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
        raise UnresolvedPathError(errno.EEXIST)
    if stat.S_ISLNK(mode):
        if flags & os.O_NOFOLLOW:
            raise UnresolvedPathError(errno.ELOOP)
        return None
    if stat.S_ISDIR(mode) and flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR | os.O_TRUNC):
        raise UnresolvedPathError(errno.EISDIR)
    if is_directory and not stat.S_ISDIR(mode):
        raise UnresolvedPathError(errno.EISDIR if flags & os.O_CREAT else errno.ENOTDIR)
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        raise NotRunnableHereError
    wanted = flags & ~_ONLY_ON_CREATION
    descriptor = os.open(f"/proc/self/fd/{found}", wanted | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not flags & os.O_NONBLOCK:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    return descriptor


def _check_slashes(call: CallInProgress, places: list[WritePlace], texts: list[bytes]) -> None:
    """Only a directory may be named with a slash at the end."""
    if call.name.startswith("mkdir"):
        return
    for place, text in zip(places, texts, strict=False):
        last = text.rstrip(b"/").rpartition(b"/")[2]
        if call.name.startswith("rename") and last in (b"", b".", b".."):
            raise UnresolvedPathError(errno.EBUSY)
        if not text.endswith(b"/"):
            continue
        mode = file_mode(place)
        moves_directory = call.name.startswith("rename") and stat.S_ISDIR(file_mode(places[0]))
        if mode and not stat.S_ISDIR(mode):
            raise UnresolvedPathError(errno.ENOTDIR)
        if not mode and not moves_directory:
            raise UnresolvedPathError(errno.ENOENT)


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
        libc.setns(owner, 0)  # fails where the sandbox has no user namespace of its own, and needs none
        done = libc.setns(mounts, 0) == 0
        for path in paths:
            done = done and libc.umount2(os.fsencode(path), _MNT_DETACH) == 0
        os._exit(0 if done else 1)
    finally:
        os._exit(1)
