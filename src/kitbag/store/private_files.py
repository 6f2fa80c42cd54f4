"""Writes state for the current user only, atomically, and never through a symbolic link.

A file is given as a base that the user chose (the Kitbag home or a project's folder) and a path below it; every part
of that path is opened relative to its parent, so that no link can be swapped in. Used by the journal and by every
module that stores a file.
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
_MAKE_WRITABLE = "make it writable, or set KITBAG_HOME to a writable directory"


class StoreError(InvalidError):
    """Stored state can't be read or written; says why and how to fix it."""


@contextlib.contextmanager
def open_directory(base: str, path: str = "") -> Generator[int, None, None]:
    """A descriptor of the directory, created if missing. Below the base, only the user can access directories."""
    full_path = os.path.join(base, path)
    try:
        descriptor = _open_base(base)
    except OSError as error:
        raise storage_error("use", base, error) from error
    try:
        try:
            for part in _split_path(path):
                inner = _open_subdirectory(descriptor, part)
                os.close(descriptor)
                descriptor = inner
        except OSError as error:
            raise storage_error("use", full_path, error) from error
        yield descriptor
    finally:
        os.close(descriptor)


def write(base: str, path: str, data: bytes) -> None:
    """Replaces a file atomically: after a crash it has the old or the new content, never a part."""
    folder, name = os.path.split(path)
    full_path = os.path.join(base, path)
    with open_directory(base, folder) as directory_fd:
        temporary = f".{name}.{os.urandom(8).hex()}"
        try:
            _reject_link(directory_fd, name, full_path)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600, dir_fd=directory_fd)
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.rename(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary, dir_fd=directory_fd)
                raise
            os.fsync(directory_fd)
        except OSError as error:
            raise storage_error("write", full_path, error) from error


def read(base: str, path: str) -> bytes | None:
    """The whole file; None if it does not exist."""
    full_path = os.path.join(base, path)
    try:
        descriptor = _open_base(base, make=False)
        try:
            for part in _split_path(os.path.dirname(path)):
                inner = os.open(part, _DIRECTORY_FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            # Non-blocking, because it could be a pipe.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(os.path.basename(path), flags, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        with open(file, "rb") as opened:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise StoreError(f"{full_path} is not a regular file", "move it elsewhere")
            data = opened.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("read", full_path, error) from error
    if len(data) > _MAX_BYTES:
        raise StoreError(f"{full_path} is larger than {_MAX_BYTES:,} bytes", "move it elsewhere")
    return data


@contextlib.contextmanager
def hold_lock(base: str, path: str, timeout: float = _LOCK_TIMEOUT, shared: bool = False) -> Generator[int, None, None]:
    """An exclusive or shared lock between processes. The kernel releases it when the process ends, however it ends."""
    descriptor = acquire_lock(base, path, timeout, shared)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def hold_directory_lock(base: str, timeout: float = _LOCK_TIMEOUT) -> Generator[None, None, None]:
    """An exclusive lock between processes that leaves no file, for a directory that may be part of a repository."""
    with open_directory(base) as directory_fd:
        try:
            is_free = try_lock(directory_fd, timeout)
        except OSError:  # such as NFS, which locks no directories
            with hold_lock(base, ".lock", timeout):
                yield
            return
        if not is_free:
            raise StoreError(f"{base} is locked by another Kitbag process", "retry when it has finished")
        yield


def acquire_lock(base: str, path: str, timeout: float = _LOCK_TIMEOUT, shared: bool = False) -> int:
    """A descriptor that holds the lock until it is closed."""
    folder, name = os.path.split(path)
    full_path = os.path.join(base, path)
    with open_directory(base, folder) as directory_fd:
        try:
            descriptor = os.open(
                name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory_fd
            )
        except OSError as error:
            raise storage_error("use", full_path, error) from error
    try:
        if not try_lock(descriptor, timeout, shared):
            raise StoreError(f"{full_path} is locked by another Kitbag process", "retry when it has finished")
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError):
            raise storage_error("use", full_path, error) from error
        raise
    return descriptor


def try_lock(descriptor: int, timeout: float, shared: bool = False) -> bool:
    """Takes the lock, or converts a held one between shared and exclusive."""
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
    """Renames a damaged file and returns its new path; never deletes or overwrites anything."""
    folder, name = os.path.split(path)
    full_path = os.path.join(base, path)
    with open_directory(base, folder) as directory_fd:
        taken = set(os.listdir(directory_fd))
        for number in range(1, 10_000):
            new_name = f"{name}.damaged-{number}"
            if new_name in taken:
                continue
            try:
                os.rename(name, new_name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
                os.fsync(directory_fd)
            except OSError as error:
                raise storage_error("move aside", full_path, error) from error
            return os.path.join(base, folder, new_name)
    raise StoreError(f"{full_path} has too many corrupt copies", "remove old copies named `.damaged-*`")


def storage_error(action: str, path: str, error: OSError) -> StoreError:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return StoreError(
            f"cannot {action} {path}: it is a symbolic link", "replace it with a regular file or directory"
        )
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return StoreError(
            f"cannot {action} {path}: part of the path is a link or not a directory", "replace it with a directory"
        )
    fix = {
        errno.ENOSPC: "free up disk space",
        errno.EDQUOT: "free up disk space: your disk quota is exceeded",
        **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), _MAKE_WRITABLE),
    }.get(error.errno or 0, "fix the problem and retry")
    return StoreError(f"cannot {action} {path}: {error.strerror or error}", fix)


def _split_path(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or path.startswith("/"):
        raise ValueError(f"not a relative path: {path!r}")
    return parts


def _open_base(base: str, make: bool = True) -> int:
    # The path to the base is the user's choice, links included.
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


def _reject_link(directory_fd: int, name: str, full_path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISLNK(os.stat(name, dir_fd=directory_fd, follow_symlinks=False).st_mode):
            raise StoreError(f"{full_path} is a symbolic link; nothing was written", "replace it with a regular file")
