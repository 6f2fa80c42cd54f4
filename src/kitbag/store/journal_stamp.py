"""What the journal's lock file says about the journal: the last record committed, and the state of the database file
after the last checkpoint. A file that does not match was changed, cut or restored by something else and is checked.

Used by journal_opening to compare and by the journal to write. SQLite's own checksums cover only the write-ahead log.
"""

import contextlib
import os
import struct
import zlib
from typing import Final, NamedTuple

_LINE: Final = 96
"""Bytes of each of the two lines. They are written separately, each with one call."""
_WAL_HEADER: Final = struct.Struct(">8xI4x8s8x")
_WAL_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_SHM_FRAMES: Final = struct.Struct("=16xI")


class WalState(NamedTuple):
    """The write-ahead log: which one it is, how many frames it has, and how many of them the database file has."""

    salt: str
    frames: int
    copied: int


class JournalStamp(NamedTuple):
    size: int
    modified: int
    wal: WalState


NO_WAL: Final = WalState("-", 0, 0)


def write_last_seq(lock_fd: int, seq: int) -> None:
    """Called after each commit. Not synced: after a power failure an earlier number is there, which does no harm."""
    with contextlib.suppress(OSError):
        os.pwrite(lock_fd, _line(str(seq)), 0)


def read_last_seq(lock_fd: int) -> int:
    """0 if unknown."""
    text = _read_line(lock_fd, 0)
    return int(text) if text.isdecimal() else 0


def write_stamp(lock_fd: int, path: str, wal: WalState = NO_WAL) -> None:
    """Repeats until the file has not changed meanwhile, because several processes may do this at once."""
    with contextlib.suppress(OSError):
        while True:
            status = os.stat(path)
            size, modified = status.st_size, status.st_mtime_ns
            os.pwrite(lock_fd, _line(f"{size} {modified} {wal.salt} {wal.frames} {wal.copied}"), _LINE)
            after = os.stat(path)
            if (after.st_size, after.st_mtime_ns) == (size, modified):
                return


def read_stamp(lock_fd: int) -> JournalStamp | None:
    fields = _read_line(lock_fd, _LINE).split(" ")
    try:
        size, modified, salt, frames, copied = fields
        return JournalStamp(int(size), int(modified), WalState(salt, int(frames), int(copied)))
    except ValueError:
        return None


def needs_check(path: str, stamp: JournalStamp | None) -> bool:
    """Whether the whole file must be checked, because it is not as Kitbag left it. Call while no other process has it
    open, and a connection has read from it, so that SQLite has found the valid frames of the log."""
    try:
        if stamp is None or has_changed(path, stamp):
            return True
        return not _is_wal_complete(path, stamp.wal)
    except OSError:
        return True


def has_changed(path: str, stamp: JournalStamp | None) -> bool:
    status = os.stat(path)
    return stamp is None or (status.st_size, status.st_mtime_ns) != (stamp.size, stamp.modified)


def read_wal_salt(path: str) -> str:
    """Identifies the log: it changes when the log starts again."""
    try:
        with open(f"{path}-wal", "rb") as file:
            return _WAL_HEADER.unpack(file.read(_WAL_HEADER_BYTES))[1].hex()
    except (OSError, struct.error):
        return "-"


def _is_wal_complete(path: str, known: WalState) -> bool:
    """Whether the log has all frames that the database file needs, and no frames after a damaged one."""
    has_all = known.copied >= known.frames
    try:
        file = open(f"{path}-wal", "rb")  # noqa: SIM115 - closed below
    except FileNotFoundError:
        return has_all
    with file:
        header = file.read(_WAL_HEADER_BYTES)
        if len(header) < _WAL_HEADER_BYTES:
            return has_all and not header
        page_size, salt = _WAL_HEADER.unpack(header)
        with open(f"{path}-shm", "rb") as index:
            valid = int(_SHM_FRAMES.unpack(index.read(_SHM_FRAMES.size))[0])
        frame_size = page_size + _FRAME_HEADER_BYTES
        count = (os.fstat(file.fileno()).st_size - _WAL_HEADER_BYTES) // frame_size
        if not (valid >= known.copied if salt.hex() == known.salt else has_all) or (count and not valid):
            return False
        for number in range(valid, count):
            file.seek(_WAL_HEADER_BYTES + number * frame_size + 8)
            if file.read(8) == salt:  # frames of an earlier log have another
                return False
    return True


def _line(text: str) -> bytes:
    return f"{text} {zlib.crc32(text.encode()):08x}".ljust(_LINE - 1).encode() + b"\n"


def _read_line(lock_fd: int, offset: int) -> str:
    """Empty if it is missing or damaged."""
    try:
        text, _, check = os.pread(lock_fd, _LINE, offset).decode("ascii").rstrip().rpartition(" ")
    except (OSError, ValueError):
        return ""
    return text if check == f"{zlib.crc32(text.encode()):08x}" else ""
