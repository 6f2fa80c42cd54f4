"""Keeps two processes from writing to the same session: an open one holds a kernel lock, which ends with its process.

Used by Agent for every session it opens, so by the chat and `-p`. The lock file names the holder.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Generator
from contextvars import ContextVar
from typing import Final

from kitbag.runtime.session_in_use import in_use_error
from kitbag.store import private_files
from kitbag.store.journal import Journal
from kitbag.store.private_files import StoreError

_FOLDER: Final = "open"
_MAX_ATTEMPTS: Final = 1_000
_MAX_ATTEMPTS_IF_HELD: Final = 30
"""If the file names a holder. More than one, because a concurrent is_session_open holds the lock briefly."""
_PAUSE: Final = 0.001
_MAX_BYTES: Final = 200
_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@contextlib.contextmanager
def hold_session(kitbag_home: str, session_id: str) -> Generator[None, None, None]:
    """Raises SessionInUseError. If there can be no lock, e.g. on a read-only disk, the session opens without it."""
    descriptor = -1
    if not _is_file_name(session_id):
        yield
        return
    with (
        contextlib.suppress(OSError, StoreError),
        private_files.open_directory(_state_folder(kitbag_home), _FOLDER) as inside,
    ):
        descriptor = _acquire(inside, session_id)
    try:
        yield
    finally:
        if descriptor >= 0:
            _release(_lock_path(kitbag_home, session_id), descriptor)


session_owner: ContextVar[str] = ContextVar("session_owner", default="")
"""The chat whose agents share a session. A process with several chats, such as the web UI, gives each a name."""
_shared: dict[tuple[str, str, str], tuple[contextlib.ExitStack, int]] = {}
"""The sessions that agents of this process hold, by owner, and how many agents each."""


@contextlib.contextmanager
def share_session(kitbag_home: str, session_id: str) -> Generator[None, None, None]:
    """As `hold_session`, but agents of one owner hold it together: a chat opens a session anew before it closes the old
    agent."""
    key = (kitbag_home, session_id, session_owner.get())
    lock, count = _shared.get(key, (contextlib.ExitStack(), 0))
    if not count:
        lock.enter_context(hold_session(kitbag_home, session_id))
    _shared[key] = lock, count + 1
    try:
        yield
    finally:
        lock, count = _shared.pop(key)
        if count > 1:
            _shared[key] = lock, count - 1
        else:
            lock.close()


def _acquire(inside: int, name: str) -> int:
    """A concurrent is_session_open may remove the file before we lock it; then the locked file is not the one that
    others will check. -1: failed."""
    for attempt in range(_MAX_ATTEMPTS):
        descriptor = os.open(name, _FLAGS | os.O_CREAT, 0o600, dir_fd=inside)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(name, descriptor, inside):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')}".encode(), 0)
                return descriptor
        except BlockingIOError:
            holder = _read_holder(descriptor)
            if holder and attempt >= _MAX_ATTEMPTS_IF_HELD:
                os.close(descriptor)
                raise in_use_error(name, holder) from None
        os.close(descriptor)
        time.sleep(_PAUSE)
    return -1


def _read_holder(descriptor: int) -> str:
    """`process 123, since 2026-01-31 12:00:00`; empty if unknown."""
    pid, _, since = os.pread(descriptor, _MAX_BYTES, 0).decode(errors="replace").partition(" ")
    return f"process {pid}, since {since}" if pid.isdigit() and since.isprintable() else ""


def is_session_open(kitbag_home: str, session_id: str, journal: Journal | None = None, *, wait: bool = True) -> bool:
    """True also for this process. Removes a stale lock file. `journal`: in which processes of other machines may have
    it open; `wait`: for an answer of its server, so not on an event loop."""
    if journal is not None and journal.is_shared:
        from kitbag.runtime.session_leases import is_open_elsewhere

        if is_open_elsewhere(journal, session_id, wait=wait):
            return True
    if not _is_file_name(session_id):
        return False
    try:
        descriptor = os.open(_lock_path(kitbag_home, session_id), _FLAGS)
    except OSError:
        return False
    return not _release(_lock_path(kitbag_home, session_id), descriptor)


def _release(path: str, descriptor: int) -> bool:
    """Returns whether no other process holds the lock; then its file is removed."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, descriptor):  # another process may have created a new one
            os.unlink(path)
        return True
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        os.close(descriptor)


def _is_at(path: str, descriptor: int, inside: int | None = None) -> bool:
    """Whether the descriptor is the file with this name."""
    ours = os.fstat(descriptor)
    try:
        named = os.stat(path, dir_fd=inside, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)


def _is_file_name(session_id: str) -> bool:
    """Anything else would name another file, which would be removed."""
    return "/" not in session_id and "\0" not in session_id and session_id not in ("", ".", "..")


def _lock_path(kitbag_home: str, session_id: str) -> str:
    return os.path.join(_state_folder(kitbag_home), _FOLDER, session_id)


def _state_folder(kitbag_home: str) -> str:
    return os.path.join(kitbag_home, "state")
