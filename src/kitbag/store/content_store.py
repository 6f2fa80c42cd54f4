"""Content-addressed storage for undo: each content is stored once, named by its SHA-256, readable only by the user.

Used by agent/undo; uses private_files for directories and locks. Bounded: content unused for a month is pruned, and
the oldest goes first when there is too much.
"""

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Generator, Iterable
from typing import Final, NamedTuple

from kitbag.store import private_files
from kitbag.store.private_files import StoreError, storage_error

FOLDER: Final = "state/kept"
MAX_BYTES: Final = 1 << 30
MAX_DAYS: Final = 30
_DAY = 86_400.0
_MAX_SINGLE_SYNCS = 100
"""Above this, one `sync` of the whole system is faster."""
_LOCK = f"{FOLDER}/.lock"
_PRUNED = f"{FOLDER}/.pruned"
_DIGEST = re.compile("[0-9a-f]{64}")
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class PruneResult(NamedTuple):
    """What was removed, and how much remains."""

    files: int
    bytes: int
    remaining_bytes: int


class _StoredFile(NamedTuple):
    used_at: float
    """When it was last stored, or requested to be stored."""
    size: int
    path: str


def content_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class ContentStore:
    """Several processes may use one store at the same time."""

    def __init__(self, kitbag_home: str) -> None:
        self._home = kitbag_home

    @property
    def folder(self) -> str:
        return os.path.join(self._home, FOLDER)

    def put(self, data: bytes) -> str:
        """Returns the digest to get it back. Durable when this returns."""
        with self.open_writer() as writer:
            digest = writer.put(data)
            writer.make_durable([digest])
        return digest

    @contextlib.contextmanager
    def open_writer(self) -> Generator["ContentWriter", None, None]:
        """For storing many; call `make_durable` for content that must survive a power failure."""
        with (
            private_files.hold_lock(self._home, _LOCK, shared=True),  # prevents pruning meanwhile
            private_files.open_directory(self._home, FOLDER) as directory_fd,
        ):
            yield ContentWriter(self.folder, directory_fd)

    def get(self, digest: str) -> bytes | None:
        """None if it is not stored, was pruned, or is damaged: returned content always matches its digest."""
        if not _DIGEST.fullmatch(digest):
            return None
        with private_files.open_directory(self._home, FOLDER) as directory_fd:
            try:
                descriptor = os.open(_relative_path(digest), _READ_FLAGS, dir_fd=directory_fd)
            except OSError:
                return None
        with open(descriptor, "rb") as file:
            data = file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        return data if content_digest(data) == digest else None

    def has(self, digest: str) -> bool:
        """Faster than `get`; does not verify the content."""
        return bool(_DIGEST.fullmatch(digest)) and os.path.isfile(os.path.join(self.folder, _relative_path(digest)))

    def digests(self) -> set[str]:
        """Digests of all stored content."""
        return {os.path.basename(file.path) for file in self._stored_files()}

    def prune_if_due(self, max_bytes: int = MAX_BYTES, max_days: float = MAX_DAYS) -> PruneResult | None:
        """At most once a day; None if it is not due, or another process is pruning."""
        with contextlib.suppress(OSError):
            if time.time() - os.stat(os.path.join(self._home, _PRUNED)).st_mtime < _DAY:
                return None
        try:
            return self.prune(max_bytes, max_days, lock_timeout=0.0)
        except StoreError:
            return None

    def prune(self, max_bytes: int = MAX_BYTES, max_days: float = MAX_DAYS, lock_timeout: float = 30.0) -> PruneResult:
        """Keeps everything used within the last day, since a session may rely on it."""
        with private_files.hold_lock(self._home, _LOCK, lock_timeout):
            private_files.write(self._home, _PRUNED, b"")
            now = time.time()
            stored = sorted(self._stored_files())
            remaining, files, size = sum(file.size for file in stored), 0, 0
            for file in stored:
                age = now - file.used_at
                if age < _DAY or (age < max_days * _DAY and remaining <= max_bytes):
                    continue
                with contextlib.suppress(OSError):
                    os.unlink(file.path)
                    remaining, files, size = remaining - file.size, files + 1, size + file.size
            self._remove_leftovers(now)
        return PruneResult(files, size, remaining)

    def delete(self, digests: Iterable[str]) -> int:
        """Deletes content that nothing refers to any more, and returns the bytes that were freed."""
        freed = 0
        with private_files.hold_lock(self._home, _LOCK):
            for digest in digests:
                path = os.path.join(self.folder, _relative_path(digest))
                if _DIGEST.fullmatch(digest):
                    with contextlib.suppress(OSError):
                        size = os.lstat(path).st_size
                        os.unlink(path)
                        freed += size
        return freed

    def _stored_files(self) -> Iterable[_StoredFile]:
        for entry in self._entries():
            if _DIGEST.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    yield _StoredFile(status.st_mtime, status.st_size, entry.path)

    def _remove_leftovers(self, now: float) -> None:
        """Removes temporary files of a process that was killed while writing."""
        for entry in self._entries():
            with contextlib.suppress(OSError):
                if entry.name.startswith(".") and now - entry.stat(follow_symlinks=False).st_mtime > _DAY:
                    os.unlink(entry.path)

    def _entries(self) -> Iterable["os.DirEntry[str]"]:
        try:
            with os.scandir(self.folder) as subdirectories:
                names = [entry.path for entry in subdirectories if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("read", self.folder, error) from error
        for name in names:
            with contextlib.suppress(OSError), os.scandir(name) as entries:
                yield from entries


class ContentWriter:
    """Stores many contents; not thread-safe."""

    def __init__(self, path: str, directory_fd: int) -> None:
        self._path = path
        self._directory_fd = directory_fd
        self._new_subdirectories: set[str] = set()

    def put(self, data: bytes) -> str:
        digest = content_digest(data)
        try:
            self._write_if_new(digest, data)
        except OSError as error:
            raise storage_error("write", f"{self._path}/{_relative_path(digest)}", error) from error
        return digest

    def make_durable(self, digests: Iterable[str]) -> None:
        """Ignores digests that are not stored."""
        subdirectories: set[str] = set()
        requested = set(digests)
        try:
            if len(requested) > _MAX_SINGLE_SYNCS:
                return os.sync()
            for digest in requested:
                if _DIGEST.fullmatch(digest) and self._sync(_relative_path(digest)):
                    subdirectories.add(digest[:2])
            for subdirectory in (*subdirectories, *(["."] if subdirectories & self._new_subdirectories else [])):
                self._sync(subdirectory)
        except OSError as error:
            raise storage_error("write", self._path, error) from error
        return None

    def _write_if_new(self, digest: str, data: bytes) -> None:
        """Writes under the final name: a truncated file is detected by its size here, and by its digest in `get`."""
        path, subdirectory = _relative_path(digest), digest[:2]
        try:
            try:
                return self._write(path, data)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(subdirectory, 0o700, dir_fd=self._directory_fd)
                self._new_subdirectories.add(subdirectory)
                return self._write(path, data)
        except FileExistsError:
            if self._is_complete(path, len(data)):
                return None
        temporary = f"{subdirectory}/.{os.urandom(8).hex()}"
        self._write(temporary, data)
        os.rename(temporary, path, src_dir_fd=self._directory_fd, dst_dir_fd=self._directory_fd)
        return None

    def _is_complete(self, path: str, size: int) -> bool:
        """Also renews the time of last use."""
        status = os.stat(path, dir_fd=self._directory_fd, follow_symlinks=False)
        if status.st_size != size or not stat.S_ISREG(status.st_mode):
            return False
        if time.time() - status.st_mtime > _DAY / 2:
            os.utime(path, dir_fd=self._directory_fd, follow_symlinks=False)
        return True

    def _write(self, path: str, data: bytes) -> None:
        descriptor = os.open(path, _CREATE_FLAGS, 0o600, dir_fd=self._directory_fd)
        try:
            remaining = memoryview(data)
            while remaining:
                remaining = remaining[os.write(descriptor, remaining) :]
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path, dir_fd=self._directory_fd)
            raise
        finally:
            os.close(descriptor)

    def _sync(self, path: str) -> bool:
        try:
            descriptor = os.open(path, _READ_FLAGS, dir_fd=self._directory_fd)
        except FileNotFoundError:
            return False
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return True


def _relative_path(digest: str) -> str:
    return f"{digest[:2]}/{digest}"
