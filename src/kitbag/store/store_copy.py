"""Copies a whole journal between the file of this machine and a PostgreSQL database, and verifies the copy.

Used by `kitbag store copy`. Records keep their numbers. One transaction: after an interruption the target is as it was.
The source is only read.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Generator, Iterable, Iterator
from typing import Final

import msgspec

from kitbag.store import private_files
from kitbag.store.database_url import describe_url
from kitbag.store.journal_file import JournalFile, store_error
from kitbag.store.journal_integrity import DamagedRecordError, RecordRow, checksum, intact_rows
from kitbag.store.journal_opening import open_journal_file
from kitbag.store.postgres import Database
from kitbag.store.private_files import StoreError
from kitbag.store.progress import report_progress

_PROGRESS_ROWS: Final = 50_000
_INSERT: Final = "INSERT INTO records (seq, stream, at, kind, body, key, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)"
_END_PROCESSES: Final = "end chats, wait for running tasks, and end the worker with `kitbag fleet drain --all`"
Ranges = list[tuple[int, int]]


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    source: str
    target: str
    records: int
    digest: str
    """SHA-256 over all records in order, the same when read from either side."""


class _Digest:
    """Of the records that pass through."""

    def __init__(self) -> None:
        self.count = 0
        self._hash = hashlib.sha256()

    def add(self, rows: Iterable[RecordRow]) -> Iterator[RecordRow]:
        for row in rows:
            self.count += 1
            self._hash.update(repr(tuple(row[:6])).encode("utf-8", "surrogatepass"))
            if not self.count % _PROGRESS_ROWS:
                report_progress(f"copied {self.count:,} records")
            yield row

    def result(self) -> tuple[int, str]:
        return self.count, self._hash.hexdigest()


def copy_to_database(path: str, url: str) -> CopyReport:
    """Raises StoreError. The database must have no records."""
    written, verified = _Digest(), _Digest()
    with contextlib.ExitStack() as stack:
        opened = stack.enter_context(_open(path))
        if not private_files.try_lock(opened.lock_fd, timeout=0):
            problem = f"{path} is in use by another Kitbag process"
            raise StoreError(problem, _END_PROCESSES)
        database = Database(url).open()
        stack.callback(database.disconnect)
        stack.enter_context(_nothing_copied(path))
        pruned: Ranges = opened.reader.execute("SELECT first, last FROM pruned_ranges ORDER BY first").fetchall()
        with database.fill(written.add(intact_rows(opened.reader)), pruned) as rows:
            _exhaust(verified.add(rows))
            _compare(written, verified)
    return CopyReport(source=path, target=describe_url(url), records=written.count, digest=written.result()[1])


def copy_to_file(url: str, path: str) -> CopyReport:
    """Raises StoreError. The file must have no records."""
    written, verified = _Digest(), _Digest()
    with contextlib.ExitStack() as stack:
        database = Database(url).open()
        stack.callback(database.disconnect)
        writer = stack.enter_context(_open(path)).writer
        stack.enter_context(_nothing_copied(path))
        writer.execute("BEGIN IMMEDIATE")
        stack.callback(lambda: writer.in_transaction and writer.execute("ROLLBACK"))
        if writer.execute("SELECT 1 FROM records LIMIT 1").fetchone():
            raise StoreError(f"{path} has records already", "move it elsewhere, or use another KITBAG_HOME")
        for row in written.add(database.rows_after(0)):
            writer.execute(_INSERT, (*row[:6], checksum(*row[:6])))
        writer.executemany("INSERT INTO pruned_ranges VALUES (?, ?)", _merged(database.pruned_after(0)))
        writer.execute("DELETE FROM derived_tables")
        _exhaust(verified.add(intact_rows(writer)))
        _compare(written, verified)
        writer.execute("COMMIT")
    return CopyReport(source=describe_url(url), target=path, records=written.count, digest=written.result()[1])


def _exhaust(rows: Iterable[RecordRow]) -> None:
    for _ in rows:
        pass


def _merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    merged: Ranges = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged


def _compare(written: _Digest, verified: _Digest) -> None:
    if written.result() != verified.result():
        counts = f"{written.count:,} records sent, {verified.count:,} read back"
        raise StoreError(
            f"nothing copied: the copy differs from the original ({counts})", "retry; if it happens again, report it"
        )


@contextlib.contextmanager
def _open(path: str) -> Generator[JournalFile, None, None]:
    """Migrated and checked as ever; a change by others is noticed when it is opened again."""
    opened = open_journal_file(path)
    try:
        yield opened
    finally:
        opened.reader.close()
        opened.writer.close()
        os.close(opened.lock_fd)


@contextlib.contextmanager
def _nothing_copied(path: str) -> Generator[None, None, None]:
    try:
        yield
    except sqlite3.Error as error:
        failure = store_error(path, error)
        raise StoreError(f"nothing copied: {failure.problem}", failure.fix) from error
    except DamagedRecordError as error:
        raise StoreError(f"nothing copied: {path} is damaged: {error}", "run `kitbag store check`") from error
