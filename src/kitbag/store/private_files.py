"""How state is written: for this user alone, whole or not at all, and never through a symbolic link.

A place is a base that the user chose (the Kitbag home, or a project's folder) and a path below it; every part
of that path is opened relative to the one before, so that nobody can put a link in between. Used by the journal
and by whoever keeps a file.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Generator

from kitbag.errors import InvalidError

_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_TIMEOUT = 30.0
_POLL_SECONDS = 0.02
_MAX_BYTES = 64 * 1024 * 1024


class StoreError(InvalidError):
    """What is kept can't be read or written; says why, and what to do."""


@contextlib.contextmanager
def open_directory(base: str, path: str = "") -> Generator[int, None, None]:
    """A descriptor of the directory, which is made if it is not there. Below the base only the user may enter."""
    place = os.path.join(base, path)
    try:
        descriptor = _open_base(base)
    except OSError as error:
        raise storage_error("used", base, error) from error
    try:
        try:
            for part in _split_path(path):
                inner = _open_subdirectory(descriptor, part)
                os.close(descriptor)
                descriptor = inner
        except OSError as error:
            raise storage_error("used", place, error) from error
        yield descriptor
    finally:
        os.close(descriptor)


def write(base: str, path: str, data: bytes) -> None:
    """Puts a file in place of the one that was there; after a crash it is the old or the new one, never a part."""
    import secrets

    folder, name = os.path.split(path)
    place = os.path.join(base, path)
    with open_directory(base, folder) as inside:
        temporary = f".{name}.{secrets.token_hex(8)}"
        try:
            _reject_link(inside, name, place)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=inside)
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, name, src_dir_fd=inside, dst_dir_fd=inside)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=inside)
                raise
            os.fsync(inside)
        except OSError as error:
            raise storage_error("written", place, error) from error


def read(base: str, path: str) -> bytes | None:
    """The whole file; None when there is none."""
    place = os.path.join(base, path)
    try:
        descriptor = _open_base(base, make=False)
        try:
            for part in _split_path(os.path.dirname(path)):
                inner = os.open(part, _DIRECTORY_FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            # Not blocking: a pipe in its place must not hold us.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(os.path.basename(path), flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        with open(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise StoreError(f"{place} is not a file", "move it away")
            data = opened.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("read", place, error) from error
    if len(data) > _MAX_BYTES:
        raise StoreError(f"{place} is longer than {_MAX_BYTES:,} bytes", "move it away")
    return data


@contextlib.contextmanager
def hold_lock(base: str, path: str, timeout: float = _LOCK_TIMEOUT, shared: bool = False) -> Generator[int, None, None]:
    """One process at a time, or many that share it. The kernel lets go when the process ends, however it ends."""
    descriptor = acquire_lock(base, path, timeout, shared)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def acquire_lock(base: str, path: str, timeout: float = _LOCK_TIMEOUT, shared: bool = False) -> int:
    """A descriptor that holds the lock until it is closed."""
    folder, name = os.path.split(path)
    place = os.path.join(base, path)
    with open_directory(base, folder) as inside:
        try:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=inside)
        except OSError as error:
            raise storage_error("used", place, error) from error
    try:
        if not try_lock(descriptor, timeout, shared):
            raise StoreError(f"another Kitbag holds {place}", "try again when it is done")
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise storage_error("used", place, error) from error
        raise
    return descriptor


def try_lock(descriptor: int, timeout: float, shared: bool = False) -> bool:
    """Takes the lock, or changes the one that is held from shared to sole and back."""
    import fcntl
    import time

    end = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)


def set_aside(base: str, path: str) -> str:
    """Gives a damaged file another name, which it returns; nothing is ever deleted or overwritten."""
    folder, name = os.path.split(path)
    place = os.path.join(base, path)
    with open_directory(base, folder) as inside:
        taken = set(os.listdir(inside))
        for number in range(1, 10_000):
            other = f"{name}.damaged-{number}"
            if other in taken:
                continue
            try:
                os.rename(name, other, src_dir_fd=inside, dst_dir_fd=inside)
                os.fsync(inside)
            except OSError as error:
                raise storage_error("set aside", place, error) from error
            return os.path.join(base, folder, other)
    raise StoreError(f"{place} was set aside too often", "remove old copies named `.damaged-`")


def storage_error(action: str, path: str, error: OSError) -> StoreError:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return StoreError(f"{path} can't be {action}: it is a symbolic link", "put the real thing in its place")
    if error.errno == errno.ENOTDIR:
        return StoreError(f"{path} can't be {action}: a part of it is a link or no directory", "put a directory there")
    fix = {
        errno.ENOSPC: "make room on the disk",
        errno.EDQUOT: "make room: your share of the disk is used up",
        errno.EROFS: "set KITBAG_HOME to a directory that can be written to",
        errno.EACCES: "set KITBAG_HOME to a directory that can be written to",
        errno.EPERM: "set KITBAG_HOME to a directory that can be written to",
    }.get(error.errno or 0, "see to the cause, and try again")
    return StoreError(f"{path} can't be {action}: {error.strerror or error}", fix)


def _split_path(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        raise ValueError(f"{path!r} is not a path below a base")
    return parts


def _open_base(base: str, make: bool = True) -> int:
    # The way to the base is the user's own choice, links included.
    if make:
        os.makedirs(base, mode=0o700, exist_ok=True)
    return os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _open_subdirectory(descriptor: int, part: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(part, 0o700, dir_fd=descriptor)
    inner = os.open(part, _DIRECTORY_FLAGS, dir_fd=descriptor)
    try:
        status = os.fstat(inner)
        if stat.S_IMODE(status.st_mode) & 0o077 and status.st_uid == os.geteuid():
            os.fchmod(inner, 0o700)
    except BaseException:
        os.close(inner)
        raise
    return inner


def _reject_link(inside: int, name: str, place: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode):
            raise StoreError(f"{place} is a symbolic link; nothing was written", "put a real file in its place")
