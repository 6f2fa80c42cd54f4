"""A copy of a journal that is elsewhere, in an SQLite file with the same tables, for reading. Large records of streams
that were not opened here are stubs: their body is a brief.

Used by postgres_journal. It can be deleted at any time: what is missing is fetched again. So it is not synced to disk,
and a damaged one is replaced instead of recovered.
"""

import contextlib
import os
import sqlite3
import threading
from collections.abc import Generator, Iterable, Sequence
from typing import Final, NamedTuple

from kitbag.store import private_files
from kitbag.store.briefs import STUB_CHECKSUM
from kitbag.store.deleted_records import delete_rows
from kitbag.store.derived_tables import apply_rows, leave_unknown_tables
from kitbag.store.journal_file import (
    DamageError,
    JournalFile,
    JournalPath,
    connect,
    connect_to,
    prepare_file,
    store_error,
)
from kitbag.store.journal_integrity import RecordRow, checksum, last_used_seq
from kitbag.store.journal_opening import journal_path_parts
from kitbag.store.private_files import StoreError

_INSERT: Final = "INSERT INTO records (seq, stream, at, kind, body, key, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)"
_COMPLETE: Final = "UPDATE records SET body = ?, checksum = ? WHERE seq = ? AND checksum = -1"
FIRST_STUB: Final = "SELECT min(seq) FROM records WHERE stream = ? AND checksum = -1"
_SCHEMA: Final = (
    "DROP TRIGGER IF EXISTS records_stay",
    "CREATE INDEX IF NOT EXISTS records_stubs ON records (stream, seq) WHERE checksum = -1",
)
_TABLES: Final = ("records", "pruned_ranges", "derived_tables", "derived_problems", "journal_facts")


class MirrorState(NamedTuple):
    last: int
    prunings: int


class JournalMirror:
    """Writes through a connection of its own. Safe to use from several threads and processes."""

    def __init__(self, path: str) -> None:
        """Raises StoreError."""
        self.file = _open_file(journal_path_parts(path))
        self._lock = threading.Lock()
        self._writer = connect_to(path)
        for connection in (self._writer, self.file.writer):
            connection.execute("PRAGMA synchronous = NORMAL")

    def close(self) -> None:
        """The file itself belongs to the journal."""
        with self._lock:
            self._writer.close()

    def state(self) -> MirrorState:
        with self._lock, self._translated():
            return self._state()

    def _state(self) -> MirrorState:
        found = self._writer.execute("SELECT value FROM journal_facts WHERE name = 'prunings'").fetchone()
        return MirrorState(last_used_seq(self._writer), int(found[0]) if found else 0)

    def last_row(self) -> RecordRow | None:
        with self._lock, self._translated():
            found = self._writer.execute(
                "SELECT seq, stream, at, kind, body, key, checksum FROM records ORDER BY seq DESC LIMIT 1"
            ).fetchone()
            return RecordRow(*found) if found else None

    @contextlib.contextmanager
    def _translated(self) -> Generator[None, None, None]:
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(self.file.path, error) from error

    @contextlib.contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection, None, None]:
        with self._lock, self._translated():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    def add(self, rows: Sequence[RecordRow], after: int | None = None, prunings: int | None = None) -> int:
        """Adds those that it lacks, in order, and returns the last number that it has. `after`: add nothing unless
        this is the last one it has, or a later one. `prunings`: when the rows were read; after a later one, add
        nothing, because some may be deleted."""
        with self._transaction() as writer:
            state = self._state()
            last = state.last
            if (after is not None and last < after) or (prunings is not None and state.prunings > prunings):
                return last
            new = [row for row in rows if row.seq > last]
            for row in new:
                stored = STUB_CHECKSUM if row.checksum == STUB_CHECKSUM else checksum(*row[:6])
                writer.execute(_INSERT, (*row[:6], stored))
            if new:
                leave_unknown_tables(writer, new[0].seq)
            apply_rows(writer, [row[:5] for row in new])
            return max([last, *(row.seq for row in new)])

    def complete(self, rows: Iterable[RecordRow]) -> None:
        """Replaces briefs by the whole records."""
        with self._transaction() as writer:
            writer.executemany(_COMPLETE, ((row.body, checksum(*row[:6]), row.seq) for row in rows))

    def first_stub(self, stream: str) -> int | None:
        """The first record of the stream that is here only as a brief."""
        with self._lock, self._translated():
            return self._writer.execute(FIRST_STUB, (stream,)).fetchone()[0]

    def delete(self, ranges: Iterable[tuple[int, int]], prunings: int) -> None:
        """Deletes the records of these ranges. Derived tables are built again, without them."""
        with self._transaction() as writer:
            if self._state().prunings >= prunings:
                return
            for first, last in ranges:
                found = writer.execute("SELECT seq FROM records WHERE seq BETWEEN ? AND ?", (first, last)).fetchall()
                delete_rows(writer, [int(row[0]) for row in found])
            writer.execute("DELETE FROM derived_tables")
            _set_fact(writer, "prunings", prunings)

    def clear(self) -> None:
        """To be fetched again, because the records come from another history."""
        with self._transaction() as writer:
            writer.execute("INSERT INTO pruning VALUES (1)")
            for table in _TABLES:
                writer.execute(f"DELETE FROM {table}")  # noqa: S608 - names from our own code
            writer.execute("DELETE FROM pruning")


def _set_fact(writer: sqlite3.Connection, name: str, value: int) -> None:
    writer.execute("DELETE FROM journal_facts WHERE name = ?", (name,))
    writer.execute("INSERT INTO journal_facts VALUES (?, ?)", (name, value))


def _open_file(file: JournalPath) -> JournalFile:
    with contextlib.ExitStack() as undo:
        undo.enter_context(private_files.hold_lock(file.base, file.beside(".opening")))
        lock_fd = private_files.acquire_lock(file.base, file.beside(".lock"), shared=True)
        undo_open = undo.enter_context(contextlib.ExitStack())
        undo_open.callback(os.close, lock_fd)
        prepare_file(file)
        try:
            writer, reader = connect(file)
        except DamageError as damage:
            if not private_files.try_lock(lock_fd, timeout=0):
                problem = f"{file.path} is corrupt ({damage}) and in use by another Kitbag process"
                raise StoreError(problem, "stop that process and retry") from damage
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file.path + suffix)
            prepare_file(file)
            writer, reader = connect(file)
            private_files.try_lock(lock_fd, timeout=0, shared=True)
        try:
            for statement in _SCHEMA:
                writer.execute(statement)
        except sqlite3.Error as error:
            raise store_error(file.path, error) from error
        undo_open.pop_all()
        return JournalFile(
            path=file.path, writer=writer, reader=reader, lock_fd=lock_fd, unchecked_until=0, recovery=None
        )
