"""The SQLite file of the journal: opens it, migrates it, and recovers it if it is damaged.

Every process that has the file open holds a shared lock, so a damaged file is set aside only when no process
writes to it. Used only by the journal; uses private_files.
"""

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

import msgspec

from kitbag.store import private_files
from kitbag.store.private_files import StoreError

APPLICATION_ID: Final = 0x4B424A31
"""Stored in the file, so that no other database is mistaken for a journal."""
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE records (seq INTEGER PRIMARY KEY AUTOINCREMENT, stream TEXT NOT NULL, at TEXT NOT NULL,"
        " kind TEXT NOT NULL, body TEXT NOT NULL, key TEXT)",
        "CREATE INDEX records_stream ON records (stream, seq)",
        "CREATE UNIQUE INDEX records_key ON records (key) WHERE key IS NOT NULL",
        "CREATE TRIGGER records_stay BEFORE UPDATE ON records BEGIN SELECT RAISE(ABORT, 'records never change'); END",
        "CREATE TRIGGER records_last BEFORE DELETE ON records BEGIN SELECT RAISE(ABORT, 'records are kept'); END",
    ),
)
"""Each migrates a file to the next version; the version of a file is the number of migrations applied."""
VERSION: Final = len(MIGRATIONS)
BUSY_SECONDS: Final = 30.0
PRAGMAS: Final = ("synchronous = FULL", "trusted_schema = OFF", "foreign_keys = ON", "cell_size_check = ON")
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CHECK_SUFFIX = ".check"
"""Created next to a file in which damage was detected, for the next process that opens it."""
_COPY_PREFIX = ".copy-"
_REBUILT_SUFFIX = ".new"
"""The rebuilt file, until it replaces the damaged one."""
_SEQ_GAP = 1_000_000
"""Sequence numbers skipped after damage, since lost records may have used some of them."""
_BATCH = 1000


class JournalRecovery(NamedTuple):
    """What happened to a damaged file."""

    folder: str
    """The folder that now holds the damaged file, unchanged."""
    records: int
    """How many records, from the first, were readable and are kept."""
    problem: str


class JournalFile(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    writer: sqlite3.Connection
    reader: sqlite3.Connection
    lock_fd: int
    """A descriptor that holds the shared lock while the file is open."""
    recovery: JournalRecovery | None


class _JournalPath(NamedTuple):
    base: str
    folder: str
    name: str

    @property
    def path(self) -> str:
        return os.path.join(self.base, self.folder, self.name)

    def beside(self, suffix: str) -> str:
        return os.path.join(self.folder, self.name + suffix)


def open_journal_file(path: str) -> JournalFile:
    """Raises StoreError. The directory of the file is Kitbag's own; its parent is the user's."""
    directory, name = os.path.split(os.path.abspath(path))
    file = _JournalPath(*os.path.split(directory), name)
    with contextlib.ExitStack() as undo:
        # One process at a time creates, migrates or recovers the file.
        undo.enter_context(private_files.hold_lock(file.base, file.beside(".opening")))
        lock_fd = private_files.acquire_lock(file.base, file.beside(".lock"), shared=True)
        recovery = None
        try:
            try:
                _prepare_file(file)
                writer, reader = _connect(file)
            except _DamageError as damage:
                recovery, writer, reader = _recover(file, lock_fd, str(damage))
        except BaseException:
            os.close(lock_fd)
            raise
        return JournalFile(path=file.path, writer=writer, reader=reader, lock_fd=lock_fd, recovery=recovery)


def store_error(path: str, error: sqlite3.Error) -> StoreError:
    """Translates an SQLite error into a problem with a fix."""
    code = error_code(error)
    if code in _BUSY_CODES:
        return StoreError(f"{path} is locked by another process", "retry when it has finished")
    if code in _DAMAGE_CODES:
        return StoreError(
            f"{path} is corrupt ({error})",
            "stop all Kitbag processes; the next one moves the file aside and recovers every readable record",
        )
    if code == sqlite3.SQLITE_FULL:
        return private_files.storage_error("write", path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return private_files.storage_error("write", path, OSError(errno.EACCES, str(error)))
    if code == sqlite3.SQLITE_TOOBIG:
        return StoreError(f"record too large for {path}", "reduce the output")
    return StoreError(f"cannot use {path}: {error}", "check that the disk works and has free space")


def error_code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return error_code(error) in _BUSY_CODES


def flag_damage(path: str, error: sqlite3.Error) -> None:
    """Makes the next process that opens the file check all of it."""
    if error_code(error) in _DAMAGE_CODES:
        directory, name = os.path.split(path)
        with contextlib.suppress(StoreError):
            private_files.write(directory, name + _CHECK_SUFFIX, b"")


class _DamageError(Exception):
    pass


@contextlib.contextmanager
def _detect_damage(path: str) -> Generator[None, None, None]:
    try:
        yield
    except sqlite3.Error as error:
        if error_code(error) in _DAMAGE_CODES:
            raise _DamageError(str(error)) from error
        raise store_error(path, error) from error


def _prepare_file(file: _JournalPath) -> None:
    """Ensures a regular file of our own with mode 0600, which SQLite also uses for the files next to it."""
    with private_files.open_directory(file.base, file.folder) as directory_fd:
        try:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(file.name + suffix, dir_fd=directory_fd, follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        raise StoreError(f"{file.path}{suffix} is not a regular file", "move it elsewhere")
                    if stat.S_IMODE(status.st_mode) & 0o077:
                        os.chmod(file.name + suffix, 0o600, dir_fd=directory_fd)
            with contextlib.suppress(FileNotFoundError):  # the rebuilt file, from now or from before a crash
                if not os.path.lexists(file.path):
                    os.rename(file.name + _REBUILT_SUFFIX, file.name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
                    os.fsync(directory_fd)
            # An existing file is not opened here: closing it would drop the locks SQLite holds in this process.
            with contextlib.suppress(FileExistsError):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(file.name, flags, 0o600, dir_fd=directory_fd))
        except OSError as error:
            raise private_files.storage_error("write", file.path, error) from error


def _connect(file: _JournalPath) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    with _detect_damage(file.path), contextlib.ExitStack() as undo:
        writer = undo.enter_context(contextlib.closing(_connection(file.path)))
        _migrate(file, writer)
        reader = undo.enter_context(contextlib.closing(_connection(file.path)))
        reader.execute("PRAGMA query_only = ON")
        if private_files.read(file.base, file.beside(_CHECK_SUFFIX)) is not None:
            result = str(reader.execute("PRAGMA integrity_check(1)").fetchone()[0])
            if result != "ok":
                raise _DamageError(result)
            with contextlib.suppress(OSError):  # if this fails, it is checked again next time
                os.unlink(file.path + _CHECK_SUFFIX)
        undo.pop_all()
        return writer, reader


def _connection(path: str) -> sqlite3.Connection:
    from urllib.parse import quote

    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=rw",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for pragma in PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(file: _JournalPath, writer: sqlite3.Connection) -> None:
    version = _read_pragma(writer, "user_version")
    application = _read_pragma(writer, "application_id")
    tables = writer.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise StoreError(f"{file.path} is another application's database", "move it elsewhere")
    if version > VERSION:
        raise StoreError(f"{file.path} was written by a newer version of Kitbag (format {version})", "upgrade Kitbag")
    if str(writer.execute("PRAGMA journal_mode").fetchone()[0]) != "wal":
        writer.execute("PRAGMA journal_mode = WAL")
    if version < VERSION:
        writer.execute("BEGIN IMMEDIATE")
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                writer.execute(statement)
        writer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        writer.execute(f"PRAGMA user_version = {VERSION}")
        writer.execute("COMMIT")
    columns = [str(row[1]) for row in writer.execute("PRAGMA table_info(records)")]
    if columns != ["seq", "stream", "at", "kind", "body", "key"]:
        raise _DamageError("unexpected table schema")


def _read_pragma(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _recover(
    file: _JournalPath, lock_fd: int, problem: str
) -> tuple[JournalRecovery, sqlite3.Connection, sqlite3.Connection]:
    """Moves the damaged file away unchanged, and copies its records up to the first unreadable one.

    The new file is complete before the old one is moved: after a crash at any point, the next process can continue.
    """
    import shutil

    if not private_files.try_lock(lock_fd, timeout=0):
        raise StoreError(
            f"{file.path} is corrupt ({problem}) and in use by another Kitbag process", "stop that process and retry"
        )
    rebuilt = file._replace(name=file.name + _REBUILT_SUFFIX)
    with private_files.open_directory(file.base, file.folder) as directory_fd:
        backup_folder = _make_backup_folder(directory_fd, file)
        recovery = JournalRecovery(os.path.join(os.path.dirname(file.path), backup_folder), 0, problem)
        try:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(rebuilt.name + suffix, dir_fd=directory_fd)
            for leftover in [name for name in os.listdir(directory_fd) if name.startswith(_COPY_PREFIX)]:
                shutil.rmtree(os.path.join(os.path.dirname(file.path), leftover), ignore_errors=True)
            recovery = _copy_readable_records(rebuilt, file.path, recovery)
            with private_files.open_directory(os.path.dirname(file.path), backup_folder) as backup_fd:
                for suffix in ("-wal", "-shm", ""):  # a WAL without its file would be treated as garbage
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(file.name + suffix, file.name + suffix, src_dir_fd=directory_fd, dst_dir_fd=backup_fd)
                os.fsync(backup_fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name + _CHECK_SUFFIX, dir_fd=directory_fd)
        except OSError as error:
            raise private_files.storage_error("move aside", file.path, error) from error
    try:
        _prepare_file(file)
        writer, reader = _connect(file)
    except _DamageError as error:
        raise StoreError(f"cannot create {file.path}: {error}", "check that the disk works") from error
    private_files.try_lock(lock_fd, timeout=0, shared=True)
    return recovery, writer, reader


def _make_backup_folder(directory_fd: int, file: _JournalPath) -> str:
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


def _copy_readable_records(rebuilt: _JournalPath, damaged: str, recovery: JournalRecovery) -> JournalRecovery:
    """Copies into a new file, with a record of what happened."""
    import json
    from datetime import UTC, datetime

    _prepare_file(rebuilt)
    try:
        writer, reader = _connect(rebuilt)
        with contextlib.closing(writer), contextlib.closing(reader):
            highest = 0
            writer.execute("BEGIN IMMEDIATE")
            for row in _readable_rows(damaged):
                writer.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?)", row)
                recovery, highest = recovery._replace(records=recovery.records + 1), max(highest, int(row[0]))
            at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            body = {"folder": recovery.folder, "records": recovery.records, "problem": recovery.problem}
            note = (highest + _SEQ_GAP, "journal", at, "damaged", json.dumps(body))
            writer.execute("INSERT INTO records (seq, stream, at, kind, body) VALUES (?, ?, ?, ?, ?)", note)
            writer.execute("COMMIT")
    except sqlite3.Error as error:
        raise store_error(rebuilt.path, error) from error
    except _DamageError as error:
        raise StoreError(f"cannot create {rebuilt.path}: {error}", "check that the disk works") from error
    return recovery


def _readable_rows(damaged: str) -> Iterator[tuple[int, str, str, str, str, str | None]]:
    """Reads from a copy, because opening a database modifies it."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(dir=os.path.dirname(damaged), prefix=_COPY_PREFIX) as copy:
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(damaged + suffix, os.path.join(copy, "journal" + suffix), follow_symlinks=False)
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(os.path.join(copy, "journal"), isolation_level=None)) as connection,
        ):
            # Otherwise SQLite refuses to read a truncated file.
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            last = 0
            while True:
                # By row id, because an index may be what is damaged.
                rows = connection.execute(
                    "SELECT seq, stream, at, kind, body, key FROM records NOT INDEXED"
                    " WHERE seq > ? ORDER BY seq LIMIT ?",
                    (last, _BATCH),
                )
                before = last
                for row in rows:
                    if not _is_intact(row):
                        return
                    last = int(row[0])
                    yield row
                if last == before:
                    return


def _is_intact(row: tuple[object, ...]) -> bool:
    import json

    *texts, key = row[1:]
    if not all(isinstance(text, str) for text in texts) or not isinstance(key, str | None):
        return False
    try:
        json.loads(str(row[4]))
    except (ValueError, RecursionError):
        return False
    return True
