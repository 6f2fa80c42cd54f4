"""The SQLite file of the journal: how it is opened, brought up to date, and saved when it is damaged.

Whoever has the file open shares one lock for as long as that lasts, so a damaged file is set aside only when
nobody writes to it any more. Used by the journal alone; it uses private_files.
"""

import contextlib
import errno
import os
import sqlite3
import stat
from collections.abc import Generator, Iterator
from typing import Final, NamedTuple

from kitbag.store import private_files
from kitbag.store.private_files import StoreError

APPLICATION_ID: Final = 0x4B424A31
"""Written into the file, so that nothing else is taken for a journal."""
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
"""Each brings a file from the version before to the next one; a file's version is how many it has seen."""
VERSION: Final = len(MIGRATIONS)
BUSY_SECONDS: Final = 30.0
PRAGMAS: Final = ("synchronous = FULL", "trusted_schema = OFF", "foreign_keys = ON", "cell_size_check = ON")
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY_CODES = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CHECK_SUFFIX = ".check"
"""Left beside a file in which damage was met, for the next one who opens it."""
_COPY_PREFIX = ".copy-"
_REBUILT_SUFFIX = ".new"
"""What is made of a damaged file, until it takes its place."""
_SEQ_GAP = 1_000_000
"""Numbers that are left out after damage, since some of them may have been given to records that are lost."""
_BATCH = 1000


class JournalRecovery(NamedTuple):
    """What became of a damaged file."""

    folder: str
    """Where it was set aside, as it was."""
    records: int
    """How many records, from the first, could be read and are kept."""
    problem: str


class JournalFile(NamedTuple):
    path: str
    writer: sqlite3.Connection
    reader: sqlite3.Connection
    lock_fd: int
    """Holds the lock that says it is open."""
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
    """Raises StoreError. The directory that holds the file is Kitbag's own; the one above it is the user's."""
    directory, name = os.path.split(os.path.abspath(path))
    place = _JournalPath(*os.path.split(directory), name)
    with contextlib.ExitStack() as undo:
        # One after the other, so that two don't make, change or save the file at once.
        undo.enter_context(private_files.hold_lock(place.base, place.beside(".opening")))
        guard = private_files.acquire_lock(place.base, place.beside(".lock"), shared=True)
        saved = None
        try:
            try:
                _prepare_file(place)
                writer, reader = _connect(place)
            except _DamageError as damage:
                saved, writer, reader = _recover(place, guard, str(damage))
        except BaseException:
            os.close(guard)
            raise
        return JournalFile(place.path, writer, reader, guard, saved)


def store_error(path: str, error: sqlite3.Error) -> StoreError:
    """What SQLite says, in words that tell what to do."""
    code = error_code(error)
    if code in _BUSY_CODES:
        return StoreError(f"{path} was kept busy by another process for too long", "try again when it is done")
    if code in _DAMAGE_CODES:
        return StoreError(
            f"{path} is damaged ({error})",
            "end all Kitbags; the next one sets the file aside and keeps every record that can be read",
        )
    if code == sqlite3.SQLITE_FULL:
        return private_files.storage_error("written", path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return private_files.storage_error("written", path, OSError(errno.EACCES, str(error)))
    if code == sqlite3.SQLITE_TOOBIG:
        return StoreError(f"{path} can't hold a record this long", "keep less of the output")
    return StoreError(f"{path} can't be used: {error}", "see that the disk works and has room")


def error_code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return error_code(error) in _BUSY_CODES


def flag_damage(path: str, error: sqlite3.Error) -> None:
    """So that the next one who opens the file looks through all of it."""
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


def _prepare_file(place: _JournalPath) -> None:
    """A file of our own and no link; made 0600, which SQLite takes over for the files beside it."""
    with private_files.open_directory(place.base, place.folder) as inside:
        try:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    status = os.stat(place.name + suffix, dir_fd=inside, follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        raise StoreError(f"{place.path}{suffix} is a link or no file", "move it away")
                    if stat.S_IMODE(status.st_mode) & 0o077:
                        os.chmod(place.name + suffix, 0o600, dir_fd=inside)
            with contextlib.suppress(FileNotFoundError):  # what was made of a damaged one, now or before a crash
                if not os.path.lexists(place.path):
                    os.rename(place.name + _REBUILT_SUFFIX, place.name, src_dir_fd=inside, dst_dir_fd=inside)
                    os.fsync(inside)
            # An existing file is not opened here: closing it would drop the locks SQLite holds in this process.
            with contextlib.suppress(FileExistsError):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(place.name, flags, 0o600, dir_fd=inside))
        except OSError as error:
            raise private_files.storage_error("written", place.path, error) from error


def _connect(place: _JournalPath) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    with _detect_damage(place.path), contextlib.ExitStack() as undo:
        writer = undo.enter_context(contextlib.closing(_connection(place.path)))
        _migrate(place, writer)
        reader = undo.enter_context(contextlib.closing(_connection(place.path)))
        reader.execute("PRAGMA query_only = ON")
        if private_files.read(place.base, place.beside(_CHECK_SUFFIX)) is not None:
            found = str(reader.execute("PRAGMA integrity_check(1)").fetchone()[0])
            if found != "ok":
                raise _DamageError(found)
            with contextlib.suppress(OSError):  # then it is looked through again the next time
                os.unlink(place.path + _CHECK_SUFFIX)
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


def _migrate(place: _JournalPath, writer: sqlite3.Connection) -> None:
    version = _read_pragma(writer, "user_version")
    application = _read_pragma(writer, "application_id")
    tables = writer.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    if tables and application != APPLICATION_ID:
        raise StoreError(f"{place.path} is a database of something else", "move it away")
    if version > VERSION:
        raise StoreError(f"{place.path} was written by a newer Kitbag (version {version})", "use that one")
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
        raise _DamageError("the table of records is not as it was made")


def _read_pragma(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


def _recover(
    place: _JournalPath, guard: int, problem: str
) -> tuple[JournalRecovery, sqlite3.Connection, sqlite3.Connection]:
    """Moves the damaged file away as it is, and takes over its records up to the first that can't be read.

    The new file is whole before the old one is moved: whenever this is cut off, the next one to open it can go on.
    """
    import shutil

    if not private_files.try_lock(guard, timeout=0):
        raise StoreError(
            f"{place.path} is damaged ({problem}), and another Kitbag has it open", "end that one, and try again"
        )
    fresh = place._replace(name=place.name + _REBUILT_SUFFIX)
    with private_files.open_directory(place.base, place.folder) as inside:
        aside = _make_backup_folder(inside, place)
        saved = JournalRecovery(os.path.join(os.path.dirname(place.path), aside), 0, problem)
        try:
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(fresh.name + suffix, dir_fd=inside)
            for left_over in [name for name in os.listdir(inside) if name.startswith(_COPY_PREFIX)]:
                shutil.rmtree(os.path.join(os.path.dirname(place.path), left_over), ignore_errors=True)
            saved = _copy_readable_records(fresh, place.path, saved)
            with private_files.open_directory(os.path.dirname(place.path), aside) as folder:
                for suffix in ("-wal", "-shm", ""):  # without its file, a log would be taken for garbage
                    with contextlib.suppress(FileNotFoundError):
                        os.rename(place.name + suffix, place.name + suffix, src_dir_fd=inside, dst_dir_fd=folder)
                os.fsync(folder)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place.name + _CHECK_SUFFIX, dir_fd=inside)
        except OSError as error:
            raise private_files.storage_error("set aside", place.path, error) from error
    try:
        _prepare_file(place)
        writer, reader = _connect(place)
    except _DamageError as error:
        raise StoreError(f"{place.path} can't be made: {error}", "see that the disk works") from error
    private_files.try_lock(guard, timeout=0, shared=True)
    return saved, writer, reader


def _make_backup_folder(inside: int, place: _JournalPath) -> str:
    for number in range(1, 10_000):
        name = f"{place.name}.damaged-{number}"
        try:
            os.mkdir(name, 0o700, dir_fd=inside)
        except FileExistsError:
            if os.listdir(os.path.join(os.path.dirname(place.path), name)):
                continue
        except OSError as error:
            raise private_files.storage_error("set aside", place.path, error) from error
        return name
    raise StoreError(f"{place.path} was set aside too often", "remove old folders named `.damaged-`")


def _copy_readable_records(fresh: _JournalPath, damaged: str, saved: JournalRecovery) -> JournalRecovery:
    """Into a new file, with a record of what has happened."""
    import json
    from datetime import UTC, datetime

    _prepare_file(fresh)
    try:
        writer, reader = _connect(fresh)
        with contextlib.closing(writer), contextlib.closing(reader):
            highest = 0
            writer.execute("BEGIN IMMEDIATE")
            for row in _readable_rows(damaged):
                writer.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?)", row)
                saved, highest = saved._replace(records=saved.records + 1), max(highest, int(row[0]))
            at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            note = (highest + _SEQ_GAP, "journal", at, "damaged", json.dumps(saved._asdict()))
            writer.execute("INSERT INTO records (seq, stream, at, kind, body) VALUES (?, ?, ?, ?, ?)", note)
            writer.execute("COMMIT")
    except sqlite3.Error as error:
        raise store_error(fresh.path, error) from error
    except _DamageError as error:
        raise StoreError(f"{fresh.path} can't be made: {error}", "see that the disk works") from error
    return saved


def _readable_rows(damaged: str) -> Iterator[tuple[int, str, str, str, str, str | None]]:
    """From a copy: to open a database is to change it."""
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
            # Else SQLite reads nothing of a file that is shorter than it should be.
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            last = 0
            while True:
                # By the numbers of the table itself: an index may be what is damaged.
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
