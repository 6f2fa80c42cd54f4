"""Opens the journal's file: checks one that Kitbag did not leave so, recovers a damaged one, migrates an old one.

Every process that has the file open holds a shared lock, so a file is checked and set aside only when no other process
uses it. Used by the journal and by `kitbag store`.
"""

import contextlib
import os
import sqlite3
from collections.abc import Generator

from kitbag.store import private_files
from kitbag.store.journal_file import (
    CHECK_SUFFIX,
    DamageError,
    JournalFile,
    JournalPath,
    connect,
    connect_to,
    detect_damage,
    prepare_file,
    read_version,
)
from kitbag.store.journal_integrity import DamagedRecordError, PrunedRanges, intact_rows, read_unchecked_until
from kitbag.store.journal_recovery import recover
from kitbag.store.journal_stamp import has_changed, needs_check, read_last_seq, read_stamp, write_last_seq, write_stamp
from kitbag.store.private_files import StoreError
from kitbag.store.progress import report_progress

_LARGE_BYTES = 50_000_000
"""Checking a file of this size takes long enough to say so."""


def open_journal_file(path: str) -> JournalFile:
    """Raises StoreError. The directory of the file is Kitbag's own; its parent is the user's."""
    file = journal_path_parts(path)
    with contextlib.ExitStack() as undo:
        # One process at a time creates, checks, migrates or recovers the file.
        undo.enter_context(private_files.hold_lock(file.base, file.beside(".opening")))
        lock_fd = private_files.acquire_lock(file.base, file.beside(".lock"), shared=True)
        undo_open = undo.enter_context(contextlib.ExitStack())
        undo_open.callback(os.close, lock_fd)
        is_alone = private_files.try_lock(lock_fd, timeout=0)
        recovery = None
        try:
            if is_alone and not os.path.lexists(file.path):
                write_last_seq(lock_fd, 0)  # the user removed it
            prepare_file(file)
            if is_alone:
                _check_if_changed(file, lock_fd)
            writer, reader = connect(file)
        except DamageError as damage:
            if not is_alone:
                raise StoreError(
                    f"{file.path} is corrupt ({damage}) and in use by another Kitbag process",
                    "stop that process and retry",
                ) from damage
            recovery = recover(file, str(damage), read_last_seq(lock_fd))
            writer, reader = _connect_to_rebuilt(file)
        with _refuse_damage(file.path):
            unchecked_until = read_unchecked_until(reader) or 0
            if is_alone and has_changed(file.path, read_stamp(lock_fd)):
                writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                write_stamp(lock_fd, file.path)
        private_files.try_lock(lock_fd, timeout=0, shared=True)
        undo_open.pop_all()
        return JournalFile(
            path=file.path,
            writer=writer,
            reader=reader,
            lock_fd=lock_fd,
            unchecked_until=unchecked_until,
            recovery=recovery,
        )


def journal_path_parts(path: str) -> JournalPath:
    directory, name = os.path.split(os.path.abspath(path))
    return JournalPath(*os.path.split(directory), name)


@contextlib.contextmanager
def _refuse_damage(path: str) -> Generator[None, None, None]:
    """For a file that was just checked or rebuilt."""
    try:
        with detect_damage(path):
            yield
    except DamageError as error:
        raise StoreError(f"{path} is corrupt ({error})", "check that the disk works") from error


def _connect_to_rebuilt(file: JournalPath) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    with _refuse_damage(file.path):
        prepare_file(file)
        return connect(file)


def _check_if_changed(file: JournalPath, lock_fd: int) -> None:
    """Raises DamageError. Reads only: a damaged file is set aside as it is."""
    promised = read_last_seq(lock_fd)
    if not os.path.getsize(file.path):
        if promised:
            raise DamageError("the file is empty")
        return
    is_requested = private_files.read(file.base, file.beside(CHECK_SUFFIX)) is not None
    with contextlib.closing(connect_read_only(file)) as connection, detect_damage(file.path, any_error=True):
        if not read_version(file, connection):
            return
        if needs_check(file.path, read_stamp(lock_fd)) or is_requested:
            check_records(file, connection)
        last = connection.execute("SELECT max(seq) FROM records").fetchone()[0] or 0
        if last < promised and not PrunedRanges(connection).covers(last + 1, promised):
            raise DamageError(f"the last records are missing: {last + 1:,} to {promised:,}")
    if is_requested:
        with contextlib.suppress(OSError):  # if this fails, it is checked again next time
            os.unlink(file.path + CHECK_SUFFIX)


def connect_read_only(file: JournalPath) -> sqlite3.Connection:
    with open(file.path, "rb") as opened:
        header = opened.read(20)
    if header[18:20] not in (b"\x01\x01", b"\x02\x02"):  # SQLite would treat it as read-only
        raise DamageError("file is not a database")
    with detect_damage(file.path, any_error=True):
        return connect_to(file.path, "ro")


def check_records(file: JournalPath, connection: sqlite3.Connection) -> int:
    """Checks every page and every record, and returns how many there are. Raises DamageError."""
    if os.path.getsize(file.path) > _LARGE_BYTES:
        report_progress(f"checking {file.path}")
    with detect_damage(file.path, any_error=True):
        result = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
        if result != "ok":
            raise DamageError(result)
        try:
            rows = intact_rows(connection, lambda count: report_progress(f"checked {count:,} records"))
            return sum(1 for _ in rows)
        except DamagedRecordError as error:
            raise DamageError(str(error)) from error
