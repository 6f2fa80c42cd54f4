"""Which directory a workspace is, whatever is at its path later: moved, deleted and replaced directories are noticed.

Held by `model.Workspace` and stored with background tasks. `decisions/decide` checks it before each tool call,
`safe_open` on the way to each file, and the sandbox before each command.
"""

import contextlib
import os
from collections.abc import Sequence

from kitbag.errors import InvalidError

_OPEN = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class WorkspaceMovedError(InvalidError):
    """The workspace's path no longer leads to the directory in which the work began."""

    def __init__(self, path: str) -> None:
        change = (
            f"moved or replaced: {path} is not the directory in which this work began"
            if os.path.lexists(path)
            else f"moved or deleted: {path} no longer exists"
        )
        super().__init__(f"the workspace was {change}", "move it back, or start again in the directory you want")


class WorkspaceIdentity:
    """Device, inode and time of creation of a directory. Holds a descriptor where the work runs: while it is open, no
    other directory gets the same inode. The time of creation replaces it in records (0: the file system has none)."""

    __slots__ = ("_born", "_descriptor", "device", "inode")

    def __init__(self, device: int, inode: int, born: int = 0, descriptor: int = -1) -> None:
        self.device = device
        self.inode = inode
        self._born = born
        self._descriptor = descriptor

    @classmethod
    def of_directory(cls, path: str) -> "WorkspaceIdentity | None":
        """None if there is no directory that can be opened."""
        try:
            descriptor = os.open(path, _OPEN)
        except (OSError, ValueError):
            return None
        status = os.fstat(descriptor)
        return cls(status.st_dev, status.st_ino, descriptor=descriptor)

    @classmethod
    def from_record(cls, record: object) -> "WorkspaceIdentity | None":
        """Reads what `to_record` returned; None for anything else, such as a record of an earlier version."""
        if not isinstance(record, list | tuple):
            return None
        numbers = [one for one in record if isinstance(one, int)]  # pyright: ignore[reportUnknownVariableType]
        return cls(*numbers) if len(numbers) == _RECORD_LENGTH else None

    def to_record(self) -> list[int]:
        return [self.device, self.inode, self._born or _time_of_creation(self._descriptor)]

    def matches(self, status: os.stat_result) -> bool:
        """For a directory that was just opened."""
        return (self.device, self.inode) == (status.st_dev, status.st_ino)

    def is_at(self, path: str) -> bool:
        """Whether a resolved path is still this directory."""
        if self._descriptor >= 0:
            try:
                return self.matches(os.lstat(path))
            except OSError:
                return False
        there = WorkspaceIdentity.of_directory(path)
        if there is None or there.inode != self.inode:
            return False
        born = there.to_record()[2]
        # Device numbers may change when the machine restarts.
        return born == self._born if born and self._born else there.device == self.device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkspaceIdentity) and (self.device, self.inode) == (other.device, other.inode)

    def __hash__(self) -> int:
        return hash((self.device, self.inode))

    def __del__(self) -> None:
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)


_RECORD_LENGTH = 3
_STATX_BTIME, _AT_EMPTY_PATH, _BTIME_OFFSET = 0x800, 0x1000, 80


def _time_of_creation(descriptor: int) -> int:
    """In nanoseconds; 0 if unknown. Python has no call for it on Linux; imported late, because few runs store it."""
    if descriptor < 0:
        return 0
    import ctypes

    buffer = ctypes.create_string_buffer(256)
    try:
        status = ctypes.CDLL(None).statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer)
    except (AttributeError, OSError):
        return int(getattr(os.fstat(descriptor), "st_birthtime", 0) * 1e9)
    if status != 0 or not _unsigned(buffer.raw[:4]) & _STATX_BTIME:
        return 0
    seconds, nanoseconds = buffer.raw[_BTIME_OFFSET : _BTIME_OFFSET + 8], buffer.raw[_BTIME_OFFSET + 8 :][:4]
    return _unsigned(seconds) * 10**9 + _unsigned(nanoseconds)


def _unsigned(raw: Sequence[int]) -> int:
    import sys

    return int.from_bytes(bytes(raw), sys.byteorder)
