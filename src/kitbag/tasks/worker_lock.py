"""The worker's lock file: one process per Kitbag home holds the lock and writes its identity into the file.

The kernel holds the lock. Anything in the file that is not a worker's record is damage and never taken for a process.
Taking the lock empties the file, so its content comes from the holder. Used by worker_process and the worker.
"""

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Generator
from typing import Any, Final, NamedTuple, cast

from kitbag.store.private_files import StoreError, storage_error
from kitbag.tasks.owner import Owner, parse_owner, this_process
from kitbag.tasks.version import kitbag_version

LOCK_DESCRIPTOR_VARIABLE: Final = "KITBAG_WORKER_LOCK"
"""The descriptor of the lock, inherited by a worker from the process that starts it."""
WAIT_FOR_LOCK_VARIABLE: Final = "KITBAG_WORKER_WAITS"
_LOCK_FILE: Final = "worker.lock"
_NEXT_WORKER_FILE: Final = "worker.next"
"""Held by a newer worker that waits for an older one to exit."""
_RECORD_BYTES: Final = 800
"""Records are padded to this size, so that a concurrent reader never sees parts of the previous one."""
_MAX_BYTES: Final = 10_000
_MAX_VERSION_CHARACTERS: Final = 100
_MAX_SECONDS: Final = 1e15


class WorkerRecord(NamedTuple):
    """A worker's own entry in its lock file."""

    owner: Owner
    version: str
    heartbeat: float
    """Monotonic time of the last sign of life; the clock stops while the machine sleeps."""
    store: str | None = None
    """The database whose tasks it runs; empty: the file of this Kitbag home; None: it did not say."""


class DamagedLock(NamedTuple):
    problem: str


def lock_path(kitbag_home: str) -> str:
    return state_path(kitbag_home, _LOCK_FILE)


def read_lock(kitbag_home: str) -> WorkerRecord | DamagedLock | None:
    """The record of the current or last lock holder; None if there is none yet."""
    try:
        descriptor = os.open(lock_path(kitbag_home), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        data = os.read(descriptor, _MAX_BYTES + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    except OSError as error:
        return DamagedLock(f"can't be read: {error.strerror}")
    finally:
        os.close(descriptor)
    try:
        return _parse_record(data) if data.strip() else None
    except ValueError as error:
        return DamagedLock(str(error))


def read_worker_record(kitbag_home: str) -> WorkerRecord | None:
    """Like `read_lock`, but None for a damaged file."""
    record = read_lock(kitbag_home)
    return record if isinstance(record, WorkerRecord) else None


def _parse_record(data: bytes) -> WorkerRecord:
    """Raises ValueError with the problem."""
    try:
        parsed: Any = json.loads(data) if len(data) <= _MAX_BYTES else None
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None
    if not isinstance(parsed, dict):
        raise ValueError("not a JSON object, or too long")
    fields = cast("dict[str, Any]", parsed)
    owner, version, heartbeat = parse_owner(fields.get("owner")), fields.get("version"), fields.get("beat")
    if not isinstance(version, str) or len(version) > _MAX_VERSION_CHARACTERS:
        raise ValueError("invalid version")
    if isinstance(heartbeat, bool) or not isinstance(heartbeat, int | float) or not abs(heartbeat) <= _MAX_SECONDS:
        raise ValueError("invalid time")
    store = fields.get("store")
    return WorkerRecord(
        owner=owner, version=version, heartbeat=float(heartbeat), store=store if isinstance(store, str) else None
    )


@contextlib.contextmanager
def hold_worker_lock(kitbag_home: str) -> Generator[int, None, None]:
    """Yields the lock's descriptor, the inherited one if there is one. Raises BlockingIOError if a worker holds it."""
    descriptor = _inherited_descriptor(kitbag_home)
    if descriptor is None:
        descriptor = open_state_file(kitbag_home, _LOCK_FILE)
        try:
            if os.environ.pop(WAIT_FOR_LOCK_VARIABLE, ""):
                _wait_for_lock(kitbag_home, descriptor)
            else:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _clear_record(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def write_heartbeat(descriptor: int, store: str = "") -> None:
    """Writes the worker's record; called about every second."""
    record = {
        "owner": this_process().to_record(),
        "version": kitbag_version(),
        "beat": round(time.monotonic(), 3),
        "store": store,
    }
    data = json.dumps(record).encode().ljust(_RECORD_BYTES)
    with contextlib.suppress(OSError):  # keep working on a full disk
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def state_path(kitbag_home: str, name: str) -> str:
    return os.path.join(kitbag_home, "state", name)


def open_state_file(kitbag_home: str, name: str, flags: int = 0) -> int:
    """Opens a file in the state directory. Raises StoreError."""
    path = state_path(kitbag_home, name)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except OSError as error:
        raise storage_error("use", path, error) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{path} is not a regular file", "move it elsewhere, or delete it")
    return descriptor


def _clear_record(descriptor: int) -> None:
    """Updates the modification time too, which tells how long the record has been empty."""
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.utime(descriptor)


def _inherited_descriptor(kitbag_home: str) -> int | None:
    value = os.environ.pop(LOCK_DESCRIPTOR_VARIABLE, "")
    if not value.isdecimal() or len(value) > 9:
        return None
    try:
        ours, named = os.fstat(int(value)), os.lstat(lock_path(kitbag_home))
    except OSError:
        return None
    if (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
        return None
    os.set_inheritable(int(value), False)
    return int(value)


def _wait_for_lock(kitbag_home: str, descriptor: int) -> None:
    """Waits until the previous worker exits. Only one process waits."""
    next_one = open_state_file(kitbag_home, _NEXT_WORKER_FILE)
    try:
        fcntl.flock(next_one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(next_one)
