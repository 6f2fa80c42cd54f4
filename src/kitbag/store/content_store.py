"""Bytes that are kept so that a change can be taken back: each content once, named by its SHA-256, for this user alone.

Used by agent/changes and agent/undo. Uses private_files for places and locks. Bounded: what was not used for a month
goes, and the oldest goes first when there is too much; whoever prunes is told how much went.
"""

import contextlib
import hashlib
import os
import re
import secrets
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
"""With more, it is quicker to have the system write all that waits."""
_LOCK = f"{FOLDER}/.lock"
_PRUNED = f"{FOLDER}/.pruned"
_DIGEST = re.compile("[0-9a-f]{64}")
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class PruneResult(NamedTuple):
    """What was removed, and what is left."""

    files: int
    bytes: int
    remaining_bytes: int


class _StoredFile(NamedTuple):
    used_at: float
    """When it was kept, or asked to be kept, last."""
    size: int
    path: str


def content_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class ContentStore:
    """Several processes may use one folder at the same time."""

    def __init__(self, kitbag_home: str) -> None:
        self._home = kitbag_home

    @property
    def folder(self) -> str:
        return os.path.join(self._home, FOLDER)

    def put(self, data: bytes) -> str:
        """The name to get it back by. On the disk when this returns, so that a crash does not lose it."""
        with self.open_writer() as many:
            digest = many.put(data)
            many.make_durable([digest])
        return digest

    @contextlib.contextmanager
    def open_writer(self) -> Generator["ContentWriter", None, None]:
        """To keep many; what is to outlive a failure of power has to be made durable."""
        with (
            private_files.hold_lock(self._home, _LOCK, shared=True),  # nothing is pruned meanwhile
            private_files.open_directory(self._home, FOLDER) as inside,
        ):
            yield ContentWriter(self.folder, inside)

    def get(self, digest: str) -> bytes | None:
        """None when it is not kept, or no longer, or is damaged: what comes back is what was put."""
        if not _DIGEST.fullmatch(digest):
            return None
        with private_files.open_directory(self._home, FOLDER) as inside:
            try:
                descriptor = os.open(_relative_path(digest), _READ_FLAGS, dir_fd=inside)
            except OSError:
                return None
        with open(descriptor, "rb") as file:
            data = file.read() if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
        return data if content_digest(data) == digest else None

    def has(self, digest: str) -> bool:
        """Quicker than `get`, and without a look at the bytes."""
        return bool(_DIGEST.fullmatch(digest)) and os.path.isfile(os.path.join(self.folder, _relative_path(digest)))

    def digests(self) -> set[str]:
        """Of all that is kept."""
        return {os.path.basename(found.path) for found in self._stored_files()}

    def prune_if_due(self, max_bytes: int = MAX_BYTES, max_days: float = MAX_DAYS) -> PruneResult | None:
        """Once a day; None when it is not time yet, or another process is at it."""
        with contextlib.suppress(OSError):
            if time.time() - os.stat(os.path.join(self._home, _PRUNED)).st_mtime < _DAY:
                return None
        try:
            return self.prune(max_bytes, max_days, lock_timeout=0.0)
        except StoreError:
            return None

    def prune(self, max_bytes: int = MAX_BYTES, max_days: float = MAX_DAYS, lock_timeout: float = 30.0) -> PruneResult:
        """What was used within the last day stays in any case: somebody may rely on it."""
        with private_files.hold_lock(self._home, _LOCK, lock_timeout):
            private_files.write(self._home, _PRUNED, b"")
            now = time.time()
            every = sorted(self._stored_files())
            left, files, size = sum(found.size for found in every), 0, 0
            for found in every:
                age = now - found.used_at
                if age < _DAY or (age < max_days * _DAY and left <= max_bytes):
                    continue
                with contextlib.suppress(OSError):
                    os.unlink(found.path)
                    left, files, size = left - found.size, files + 1, size + found.size
            self._remove_leftovers(now)
        return PruneResult(files, size, left)

    def _stored_files(self) -> Iterable[_StoredFile]:
        for entry in self._entries():
            if _DIGEST.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    yield _StoredFile(found.st_mtime, found.st_size, entry.path)

    def _remove_leftovers(self, now: float) -> None:
        """Of a process that was killed while it wrote."""
        for entry in self._entries():
            with contextlib.suppress(OSError):
                if entry.name.startswith(".") and now - entry.stat(follow_symlinks=False).st_mtime > _DAY:
                    os.unlink(entry.path)

    def _entries(self) -> Iterable["os.DirEntry[str]"]:
        try:
            with os.scandir(self.folder) as shelves:
                names = [entry.path for entry in shelves if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return
        except OSError as error:
            raise storage_error("read", self.folder, error) from error
        for name in names:
            with contextlib.suppress(OSError), os.scandir(name) as entries:
                yield from entries


class ContentWriter:
    """Puts many; of one thread at a time."""

    def __init__(self, place: str, inside: int) -> None:
        self._path = place
        self._directory_fd = inside
        self._new_subdirectories: set[str] = set()

    def put(self, data: bytes) -> str:
        digest = content_digest(data)
        try:
            self._write_if_new(digest, data)
        except OSError as error:
            raise storage_error("written", f"{self._path}/{_relative_path(digest)}", error) from error
        return digest

    def make_durable(self, digests: Iterable[str]) -> None:
        """What is not there is passed over."""
        shelves: set[str] = set()
        wanted = set(digests)
        try:
            if len(wanted) > _MAX_SINGLE_SYNCS:
                return os.sync()
            for digest in wanted:
                if _DIGEST.fullmatch(digest) and self._sync(_relative_path(digest)):
                    shelves.add(digest[:2])
            for shelf in (*shelves, *(["."] if shelves & self._new_subdirectories else [])):
                self._sync(shelf)
        except OSError as error:
            raise storage_error("written", self._path, error) from error
        return None

    def _write_if_new(self, digest: str, data: bytes) -> None:
        """Under its name at once: one that was cut short is known by its size here, and by its digest in `get`."""
        place, shelf = _relative_path(digest), digest[:2]
        try:
            try:
                return self._write(place, data)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(shelf, 0o700, dir_fd=self._directory_fd)
                self._new_subdirectories.add(shelf)
                return self._write(place, data)
        except FileExistsError:
            if self._is_complete(place, len(data)):
                return None
        temporary = f"{shelf}/.{secrets.token_hex(8)}"
        self._write(temporary, data)
        os.rename(temporary, place, src_dir_fd=self._directory_fd, dst_dir_fd=self._directory_fd)
        return None

    def _is_complete(self, place: str, size: int) -> bool:
        """A use counts against its age."""
        found = os.stat(place, dir_fd=self._directory_fd, follow_symlinks=False)
        if found.st_size != size or not stat.S_ISREG(found.st_mode):
            return False
        if time.time() - found.st_mtime > _DAY / 2:
            os.utime(place, dir_fd=self._directory_fd, follow_symlinks=False)
        return True

    def _write(self, place: str, data: bytes) -> None:
        descriptor = os.open(place, _CREATE_FLAGS, 0o600, dir_fd=self._directory_fd)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(place, dir_fd=self._directory_fd)
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
