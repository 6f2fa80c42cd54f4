"""Sets a damaged journal aside, unchanged, and rebuilds it from its records up to the first damaged one.

Used by journal_opening. The new file is complete before the old one is moved: after a crash at any point, the next
process can continue.
"""

import contextlib
import json
import os
import sqlite3
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from typing import Final

from kitbag.store import damage_notices, private_files
from kitbag.store.fault_points import point
from kitbag.store.journal_file import (
    CHECK_SUFFIX,
    REBUILT_SUFFIX,
    DamageError,
    JournalPath,
    JournalRecovery,
    connect,
    prepare_file,
    store_error,
)
from kitbag.store.journal_integrity import DamagedRecordError, RecordRow, checksum, intact_rows
from kitbag.store.private_files import StoreError
from kitbag.store.progress import report_progress

DAMAGE_STREAM: Final = "journal"
_COPY_PREFIX: Final = ".copy-"
_SEQ_GAP: Final = 1_000_000
"""Sequence numbers skipped after damage, since lost records may have used some of them."""


def recover(file: JournalPath, problem: str, last_seq: int) -> JournalRecovery:
    """Call while no other process has the file open. `last_seq`: the last record known to have been committed."""
    report_progress(f"recovering the journal, which is damaged ({problem})")
    rebuilt = file._replace(name=file.name + REBUILT_SUFFIX)
    folder = os.path.dirname(file.path)
    with private_files.open_directory(file.base, file.folder) as directory_fd:
        backup_folder = _make_backup_folder(directory_fd, file)
        recovery = JournalRecovery(os.path.join(folder, backup_folder), 0, problem)
        try:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(rebuilt.name + suffix, dir_fd=directory_fd)
            for leftover in [name for name in os.listdir(directory_fd) if name.startswith(_COPY_PREFIX)]:
                import shutil

                shutil.rmtree(os.path.join(folder, leftover), ignore_errors=True)
            recovery = _copy_intact_records(rebuilt, file.path, recovery, last_seq)
            point("journal-rebuilt")
            # Before the damaged file is gone, so that no crash makes it unnoticed.
            damage_notices.add_notice(file.base, recovery.folder, recovery.records, problem)
            with private_files.open_directory(folder, backup_folder) as backup_fd:
                for suffix in ("-wal", "-shm", ""):  # a WAL without its file would be treated as garbage
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(file.name + suffix, file.name + suffix, src_dir_fd=directory_fd, dst_dir_fd=backup_fd)
                    point("journal-aside")
                os.fsync(backup_fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name + CHECK_SUFFIX, dir_fd=directory_fd)
        except OSError as error:
            raise private_files.storage_error("move aside", file.path, error) from error
    return recovery


def _make_backup_folder(directory_fd: int, file: JournalPath) -> str:
    for number in range(1, 10_000):
        name = f"{file.name}.damaged-{number}"
        try:
            os.mkdir(name, 0o700, dir_fd=directory_fd)
        except FileExistsError:
            if os.listdir(os.path.join(os.path.dirname(file.path), name)):
                continue
        except OSError as error:
            raise private_files.storage_error("move aside", file.path, error) from error
        return name
    raise StoreError(f"{file.path} has too many corrupt copies", "remove old directories named `.damaged-*`")


def _copy_intact_records(
    rebuilt: JournalPath, damaged: str, recovery: JournalRecovery, last_seq: int
) -> JournalRecovery:
    """Copies into a new file, with a record of what happened."""
    prepare_file(rebuilt)
    try:
        with _best_copy(damaged) as copy:
            writer, reader = connect(rebuilt)
            with contextlib.closing(writer), contextlib.closing(reader):
                writer.execute("BEGIN IMMEDIATE")
                highest, unchecked = last_seq, 0
                for row in _rows_until_damage(copy):
                    writer.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", row)
                    recovery = recovery._replace(records=recovery.records + 1)
                    highest = max(highest, row.seq)
                    unchecked = row.seq if row.checksum is None else unchecked
                writer.execute("UPDATE journal_facts SET value = ? WHERE name = 'unchecked_until'", (unchecked,))
                writer.executemany("INSERT INTO pruned_ranges VALUES (?, ?)", _pruned_ranges(copy))
                writer.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", _damage_record(recovery, highest))
                writer.execute("COMMIT")
    except sqlite3.Error as error:
        raise store_error(rebuilt.path, error) from error
    except DamageError as error:
        raise StoreError(f"cannot create {rebuilt.path}: {error}", "check that the disk works") from error
    return recovery


def _pruned_ranges(copy: str) -> list[tuple[int, int]]:
    with (
        contextlib.suppress(sqlite3.Error),
        contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection,
    ):
        connection.execute("PRAGMA writable_schema = ON")
        return connection.execute("SELECT first, last FROM pruned_ranges ORDER BY first").fetchall()
    return []


def _damage_record(recovery: JournalRecovery, highest: int) -> RecordRow:
    """`hold`: what had not ended then must not go on by itself."""
    at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    body = json.dumps(
        {"folder": recovery.folder, "records": recovery.records, "problem": recovery.problem, "hold": True}
    )
    values = (highest + _SEQ_GAP, DAMAGE_STREAM, at, "damaged", body, None)
    return RecordRow(*values, checksum(*values))


@contextlib.contextmanager
def _best_copy(damaged: str) -> Generator[str, None, None]:
    """A copy, because opening a database modifies it. With its log or without, whichever has more intact records: a
    damaged log may hide newer pages of the file."""
    import tempfile

    with tempfile.TemporaryDirectory(dir=os.path.dirname(damaged), prefix=_COPY_PREFIX) as folder:
        copy = os.path.join(folder, "journal")
        best, most = False, -1
        for with_log in (True, False) if _size(f"{damaged}-wal") else (False,):
            _copy_files(damaged, copy, with_log)
            count = sum(1 for _ in _rows_until_damage(copy))
            if count > most:
                best, most = with_log, count
        _copy_files(damaged, copy, best)
        yield copy


def _copy_files(damaged: str, copy: str, with_log: bool) -> None:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(copy + suffix)
        if suffix == "" or (suffix == "-wal" and with_log):
            with contextlib.suppress(FileNotFoundError):
                import shutil

                shutil.copyfile(damaged + suffix, copy + suffix, follow_symlinks=False)


def _size(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return 0


def _rows_until_damage(copy: str) -> Iterator[RecordRow]:
    with (
        contextlib.suppress(sqlite3.Error, DamagedRecordError),
        contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection,
    ):
        # Otherwise SQLite refuses to read a truncated file.
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        yield from intact_rows(connection)
