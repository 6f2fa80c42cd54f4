"""The SQLite file of the journal: its schema and migrations, connections, and errors as problems with a fix.

Used by the journal, journal_opening and journal_recovery; uses private_files.
"""

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Generator
from typing import Final, Literal, NamedTuple

import msgspec

from kitbag.store import private_files
from kitbag.store.fault_points import point
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
    (
        "ALTER TABLE records ADD COLUMN checksum INTEGER",
        "CREATE TABLE journal_facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
        "INSERT INTO journal_facts SELECT 'unchecked_until', coalesce(max(seq), 0) FROM records",
        # A process of an earlier version may still have the file open.
        "CREATE TRIGGER records_unchecked AFTER INSERT ON records WHEN new.checksum IS NULL"
        " BEGIN UPDATE journal_facts SET value = new.seq WHERE name = 'unchecked_until'; END",
    ),
    (
        "CREATE TABLE derived_tables (name TEXT PRIMARY KEY, version INTEGER NOT NULL, applied INTEGER NOT NULL,"
        " complete INTEGER NOT NULL)",
        "CREATE TABLE derived_problems (name TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL,"
        " problem TEXT NOT NULL)",
        "CREATE TABLE task_states (id TEXT PRIMARY KEY, number INTEGER NOT NULL, changed INTEGER NOT NULL,"
        " started_by TEXT NOT NULL, root TEXT NOT NULL, directory TEXT NOT NULL, finished INTEGER NOT NULL,"
        " state TEXT NOT NULL, checksum INTEGER NOT NULL)",
        "CREATE INDEX task_states_number ON task_states (number)",
        "CREATE INDEX task_states_changed ON task_states (changed)",
        "CREATE INDEX task_states_started_by ON task_states (started_by, number)",
        "CREATE INDEX task_states_root ON task_states (root, number)",
        "CREATE INDEX task_states_directory ON task_states (directory, number)",
        "CREATE INDEX task_states_finished ON task_states (finished, number)",
        "CREATE TABLE session_states (id TEXT PRIMARY KEY, last INTEGER NOT NULL, task TEXT NOT NULL,"
        " directory TEXT NOT NULL, state TEXT NOT NULL, checksum INTEGER NOT NULL)",
        "CREATE INDEX session_states_last ON session_states (task, last)",
        "CREATE INDEX session_states_directory ON session_states (task, directory, last)",
        "CREATE TRIGGER records_underived AFTER INSERT ON records WHEN new.checksum IS NULL"
        " BEGIN DELETE FROM derived_tables; END",
    ),
    (
        "CREATE TABLE pruning (allowed INTEGER NOT NULL)",
        "CREATE TABLE pruned_ranges (first INTEGER PRIMARY KEY, last INTEGER NOT NULL)",
        "CREATE INDEX pruned_ranges_last ON pruned_ranges (last)",
        "DROP TRIGGER records_last",
        "CREATE TRIGGER records_last BEFORE DELETE ON records WHEN NOT EXISTS (SELECT 1 FROM pruning)"
        " BEGIN SELECT RAISE(ABORT, 'only pruning deletes records'); END",
    ),
    (
        "ALTER TABLE task_states ADD COLUMN queue TEXT",
        "ALTER TABLE task_states ADD COLUMN status TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE task_states ADD COLUMN depth INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE task_states ADD COLUMN not_before TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE task_states ADD COLUMN dedup_key TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE task_states ADD COLUMN ended TEXT NOT NULL DEFAULT ''",
        "CREATE INDEX task_states_queue ON task_states (queue, status, depth, not_before, number)"
        " WHERE finished = 0 AND queue IS NOT NULL",
        "CREATE INDEX task_states_dedup_key ON task_states (queue, dedup_key, number) WHERE dedup_key <> ''",
    ),
)
"""Each migrates a file to the next version; the version of a file is the number of migrations applied."""
VERSION: Final = len(MIGRATIONS)
_FIRST_COLUMNS: Final = ("seq", "stream", "at", "kind", "body", "key")
BUSY_SECONDS: Final = 30.0
PRAGMAS: Final = (
    "synchronous = FULL",
    "trusted_schema = OFF",
    "foreign_keys = ON",
    "cell_size_check = ON",
    "secure_delete = ON",  # deleted bytes are overwritten
    "wal_autocheckpoint = 0",  # the journal does it, and notes the state of the file
    "journal_size_limit = 0",  # so that the size of the log says how much of it is in use
)
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_EXTERNAL_CODES = (
    *_BUSY_CODES,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_INTERRUPT,
)
CHECK_SUFFIX = ".check"
"""Created next to a file in which damage was detected, for the next process that opens it."""
REBUILT_SUFFIX = ".new"
"""The rebuilt file, until it replaces the damaged one."""


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
    """A descriptor that holds the shared lock while the file is open, and the stamp of the file."""
    unchecked_until: int
    """Records up to this number may lack a checksum."""
    recovery: JournalRecovery | None


class JournalPath(NamedTuple):
    base: str
    folder: str
    name: str

    @property
    def path(self) -> str:
        return os.path.join(self.base, self.folder, self.name)

    def beside(self, suffix: str) -> str:
        return os.path.join(self.folder, self.name + suffix)


def store_error(path: str, error: sqlite3.Error) -> StoreError:
    """Translates an SQLite error into a problem with a fix."""
    code = error_code(error)
    if code in _BUSY_CODES:
        return StoreError(f"{path} is locked by another process", "retry when it has finished")
    if code in _DAMAGE_CODES:
        return StoreError(
            f"{path} is corrupt ({error})",
            "stop all Kitbag processes; the next one sets the file aside and recovers the records before the damage",
        )
    if code == sqlite3.SQLITE_FULL:
        return private_files.storage_error("write", path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return private_files.storage_error("write", path, OSError(errno.EACCES, str(error)))
    if code == sqlite3.SQLITE_TOOBIG:
        return StoreError(f"record too large for {path}", "reduce the output")
    return StoreError(f"cannot use {path}: {error}", "check that the disk works and has free space")


def error_code(error: sqlite3.Error) -> int:
    if str(error).startswith("Could not decode"):  # by Python, so without a code
        return sqlite3.SQLITE_CORRUPT
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return error_code(error) in _BUSY_CODES


def flag_damage(path: str, error: sqlite3.Error) -> None:
    if error_code(error) in _DAMAGE_CODES:
        request_check(path)


def request_check(path: str) -> None:
    """Makes the next process that opens the file alone check all of it."""
    directory, name = os.path.split(path)
    with contextlib.suppress(StoreError):
        private_files.write(directory, name + CHECK_SUFFIX, b"")


class DamageError(Exception):
    """The file is damaged; the text says how it was noticed."""


@contextlib.contextmanager
def detect_damage(path: str, any_error: bool = False) -> Generator[None, None, None]:
    """Raises DamageError or StoreError. `any_error`: whatever the disk and other processes can't explain is damage."""
    try:
        yield
    except sqlite3.Error as error:
        if error_code(error) in _DAMAGE_CODES or (any_error and error_code(error) not in _EXTERNAL_CODES):
            raise DamageError(str(error)) from error
        raise store_error(path, error) from error


def prepare_file(file: JournalPath) -> None:
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
                    os.rename(file.name + REBUILT_SUFFIX, file.name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
                    os.fsync(directory_fd)
            # An existing file is not opened here: closing it would drop the locks SQLite holds in this process.
            with contextlib.suppress(FileExistsError):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(file.name, flags, 0o600, dir_fd=directory_fd))
        except OSError as error:
            raise private_files.storage_error("write", file.path, error) from error


def connect(file: JournalPath) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """Migrates the file. Returns a connection for writing and one for reading."""
    with detect_damage(file.path), contextlib.ExitStack() as undo:
        writer = undo.enter_context(contextlib.closing(connect_to(file.path)))
        _migrate(file, writer)
        reader = undo.enter_context(contextlib.closing(connect_to(file.path)))
        reader.execute("PRAGMA query_only = ON")
        undo.pop_all()
        return writer, reader


def connect_to(path: str, mode: Literal["rw", "ro"] = "rw") -> sqlite3.Connection:
    """`ro` leaves the file and its log as they are, also when it is closed."""
    from urllib.parse import quote

    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
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


def _migrate(file: JournalPath, writer: sqlite3.Connection) -> None:
    version = read_version(file, writer)
    if str(writer.execute("PRAGMA journal_mode").fetchone()[0]) != "wal":
        writer.execute("PRAGMA journal_mode = WAL")
    if version < VERSION:
        writer.execute("BEGIN IMMEDIATE")
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                writer.execute(statement)
        writer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        writer.execute(f"PRAGMA user_version = {VERSION}")
        point("journal-migrated")
        writer.execute("COMMIT")


def read_version(file: JournalPath, connection: sqlite3.Connection) -> int:
    """Raises StoreError for a file that this version must not touch, DamageError if the schema is another."""
    version = _read_pragma(connection, "user_version")
    application = _read_pragma(connection, "application_id")
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise StoreError(f"{file.path} is another application's database", "move it elsewhere")
    if version > VERSION:
        raise StoreError(f"{file.path} was written by a newer version of Kitbag (format {version})", "upgrade Kitbag")
    columns = [str(row[1]) for row in connection.execute("PRAGMA table_info(records)")]
    if columns != ([*_FIRST_COLUMNS, "checksum"] if version > 1 else [*_FIRST_COLUMNS] if version else []):
        raise DamageError("unexpected table schema")
    return version


def _read_pragma(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])
