"""The journal: everything that must survive a crash, in order; records are written once and never changed.

`append` and `write` return when the record is on disk. Concurrent writers share one commit. Every body passes the
redactor here and nowhere else. Several processes may open the same journal. Used by approvals, transcripts and
tasks; uses journal_file for the SQLite file.
"""

import asyncio
import contextlib
import itertools
import json
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from kitbag.store import journal_file
from kitbag.store.deleted_records import delete_rows, stream_seqs
from kitbag.store.derived_tables import DerivedTable, JournalRecord, apply_rows, build_step
from kitbag.store.fault_points import point
from kitbag.store.journal_batch import Batch, CommitFailure, JournalEntry, check_name
from kitbag.store.journal_file import JournalRecovery, store_error
from kitbag.store.journal_integrity import checksum, last_used_seq, read_unchecked_until, row_problem
from kitbag.store.journal_opening import open_journal_file
from kitbag.store.journal_recovery import DAMAGE_STREAM
from kitbag.store.journal_stamp import WalState, read_wal_salt, write_last_seq, write_stamp
from kitbag.store.journal_watch import POLL_SECONDS, JournalWatch
from kitbag.store.private_files import StoreError
from kitbag.store.progress import report_progress
from kitbag.store.redaction import Redactor
from kitbag.store.token_bucket import RateLimit, bucket_home, take_from_file

__all__ = ["Journal", "JournalEntry", "JournalRecord", "NotFetchedError", "journal_path"]
PAGE_SIZE = 100
_PROGRESS_STEP = 100_000
_CHECKPOINT_BYTES = 4_000_000
"""Size of the write-ahead log at which its pages are copied into the database file."""
_INSERT = (
    "INSERT INTO records (seq, stream, at, kind, body, key, checksum) VALUES (?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (key) WHERE key IS NOT NULL DO NOTHING"
)
_SELECT = "SELECT seq, stream, at, kind, body, key, checksum FROM records WHERE "
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
# Jumps to the next stream name, so that the time depends on the number of streams, not of records.
_STREAMS = """
WITH RECURSIVE found (stream) AS (
  SELECT min(stream) FROM records WHERE stream >= :prefix
  UNION ALL
  SELECT (SELECT min(records.stream) FROM records WHERE records.stream > found.stream) FROM found
  WHERE substr(found.stream, 1, length(:prefix)) = :prefix
)
SELECT stream FROM found WHERE substr(stream, 1, length(:prefix)) = :prefix
"""


class NotFetchedError(StoreError):
    """Only briefs of the stream are on this machine. The rest is being fetched; the same may succeed soon."""


def journal_path(kitbag_home: str) -> str:
    """The journal of the current user on this machine."""
    return os.path.join(kitbag_home, "state", "journal.db")


class Journal:
    """Safe to use from several threads and event loops at once. After a fork, the child opens its own."""

    is_shared = False
    """Whether processes of other machines use it too."""
    home_queue = ""
    """The queue of tasks that only workers of this Kitbag home run."""
    queue = ""
    """The queue of background agents that are started through this journal."""
    workspace_mode = "path"
    """How those of a named queue name their workspace: the setting `tasks.workspace`."""
    takes_snapshots = False
    """Whether those of a named queue take the user library along: the setting `tasks.snapshot`."""

    def __init__(self, file: journal_file.JournalFile, redactor: Redactor) -> None:
        self._file = file
        self._redactor = redactor
        self._process = os.getpid()
        self._waiting: deque[Batch] = deque()
        self._writing = threading.Lock()
        self._file_lock = self._writing
        """Held while the file is changed."""
        self._reading = threading.Lock()
        self._committed = threading.Condition()
        self._watches: dict[asyncio.AbstractEventLoop, JournalWatch] = {}
        self._wake = threading.Semaphore(0)
        self._thread: threading.Thread | None = None
        self._closed = False
        self._unchecked_until = file.unchecked_until
        self._stream_fences: dict[str, str] = {}

    @classmethod
    def open(cls, path: str, redactor: Redactor) -> "Journal":
        """Creates the file if there is none. Sets a damaged one aside, which `recovery` and a record report."""
        return cls(open_journal_file(path), redactor)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def recovery(self) -> JournalRecovery | None:
        return self._file.recovery

    @property
    def redactor(self) -> Redactor:
        return self._redactor

    def add_secrets(self, secrets: Iterable[str]) -> None:
        """Redacts these secrets too, from now on."""
        if unknown := [secret for secret in secrets if self._redactor.redact_known(secret) == secret]:
            self._redactor = self._redactor.with_secrets(unknown)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Writes pending records. May be called twice."""
        with self._writing:
            if self._closed:
                return
            try:
                self._commit_waiting()
            finally:
                self._closed = True
                with self._reading:
                    self._file.reader.close()
                self._file.writer.close()
                if not os.path.exists(f"{self.path}-wal"):  # the last process that had it open
                    write_stamp(self._file.lock_fd, self.path)
                os.close(self._file.lock_fd)
        self._wake.release()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # Writing

    def append(self, stream: str, kind: str, body: object) -> int:
        """The number of the record, which is now durable."""
        return _written_seqs(self._commit_batch(self._batch([JournalEntry(stream, kind, body)])))[0]

    def append_all(self, entries: Iterable[JournalEntry]) -> list[int]:
        """Writes all of them consecutively, or none."""
        return _written_seqs(self._commit_batch(self._batch(entries)))

    def append_once(self, key: str, stream: str, kind: str, body: object) -> int | None:
        """None if a record with this key exists, from any process: the first one wins."""
        return self._commit_batch(self._batch([JournalEntry(stream, kind, body)], key))[0]

    async def write(self, stream: str, kind: str, body: object) -> int:
        """Like `append`, without blocking the event loop. If cancelled, the record may or may not be written."""
        return _written_seqs(await self._submit(self._batch([JournalEntry(stream, kind, body)])))[0]

    async def write_all(self, entries: Iterable[JournalEntry]) -> list[int]:
        return _written_seqs(await self._submit(self._batch(entries)))

    async def write_once(self, key: str, stream: str, kind: str, body: object) -> int | None:
        return (await self._submit(self._batch([JournalEntry(stream, kind, body)], key)))[0]

    async def write_all_once(self, key: str, entries: Iterable[JournalEntry]) -> list[int]:
        """Writes all of them consecutively, or none if the key exists: then the list is empty."""
        return _written_seqs(await self._submit(self._batch(entries, key)))

    def _batch(self, entries: Iterable[JournalEntry], key: str | None = None) -> Batch:
        """`key` belongs to the first entry."""
        at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        keys = itertools.chain([key], itertools.repeat(None))
        rows = [
            (check_name(one.stream), at, check_name(one.kind), self._encode_body(one.body), row_key or one.key)
            for one, row_key in zip(entries, keys, strict=False)
        ]
        fences = self._stream_fences
        return Batch(rows, {fences[row[0]] for row in rows if row[0] in fences} if fences else set())

    def fence_stream(self, stream: str, key: str) -> None:
        """From now on, nothing is written to the stream through this journal once a record with this key exists."""
        self._stream_fences[stream] = key

    def _encode_body(self, body: object) -> str:
        """ASCII only, so that any character, even a lone surrogate, can be stored."""
        try:
            text = _ENCODER.encode(body)
            return (
                _ENCODER.encode(self._redactor.redact_value(body)) if self._redactor.may_contain_secrets(text) else text
            )
        except (ValueError, RecursionError) as error:
            raise StoreError(f"cannot write record as JSON: {error}", "use only JSON values") from error

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreError(f"{self.path} is closed", "reopen it")
        if os.getpid() != self._process:
            raise StoreError(f"{self.path} was opened by another process", "open it after the fork")

    def _commit_batch(self, batch: Batch) -> list[int | None]:
        """The caller that gets the lock writes for all waiting callers."""
        self._check_usable()
        if not batch.rows:
            return []
        self._waiting.append(batch)
        with self._writing:
            if not batch.done:
                self._check_usable()
                self._commit_waiting()
        return batch.result()

    async def _submit(self, batch: Batch) -> list[int | None]:
        self._check_usable()
        if not batch.rows:
            return []
        batch.future = asyncio.get_running_loop().create_future()
        self._give_to_thread(batch)
        await batch.future
        return batch.result()

    def _give_to_thread(self, batch: Batch) -> None:
        if self._thread is None:
            with self._committed:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._write_for_loops, name="journal", daemon=True)
                    self._thread.start()
        self._waiting.append(batch)
        self._wake.release()
        if self._closed:  # closed since the caller checked
            self._fail(self._take_waiting())

    def _write_for_loops(self) -> None:
        while True:
            self._wake.acquire()
            with self._writing:
                if self._closed:
                    self._fail(self._take_waiting())
                    return
                self._commit_waiting()

    def _take_waiting(self) -> list[Batch]:
        batches: list[Batch] = []
        with contextlib.suppress(IndexError):
            while True:
                batches.append(self._waiting.popleft())
        return batches

    def _commit_waiting(self) -> None:
        """Call with the lock held. Reports a failure to the batches it belongs to; only raises an interruption."""
        batches = self._take_waiting()
        if not batches:
            return
        try:
            failure = self._commit(batches)
            # A batch that can't be written must not fail the others.
            if failure is not None and len(batches) > 1 and not failure.busy:
                for batch in batches:
                    alone = self._commit([batch])
                    batch.error = alone.error if alone else None
            elif failure is not None:
                for batch in batches:
                    batch.error = failure.error
        except BaseException:
            # The unwritten batches wait for the next writer.
            unsettled = [batch for batch in batches if not batch.seqs and batch.error is None]
            self._waiting.extendleft(reversed(unsettled))
            self._wake.release()
            raise
        finally:
            self._finish([batch for batch in batches if batch.seqs or batch.error is not None])

    def _commit(self, batches: list[Batch]) -> "CommitFailure | None":
        writer = self._file.writer
        written: list[list[int | None]] = []
        try:
            self._begin()
            last = 0
            for batch in batches:
                last, seqs = self._insert_batch(batch.rows, batch.fences)
                written.append(seqs)
            point("table-applied")
            writer.execute("COMMIT")
            write_last_seq(self._file.lock_fd, last)
        except sqlite3.Error as error:
            written.clear()
            self._roll_back()
            journal_file.flag_damage(self.path, error)
            return CommitFailure(store_error(self.path, error), journal_file.is_busy(error))
        finally:
            if writer.in_transaction:  # interrupted
                written.clear()
                self._roll_back()
            if len(written) == len(batches):
                for batch, seqs in zip(batches, written, strict=True):
                    batch.seqs, batch.error = seqs, None if seqs else batch.fenced_error()
        self._checkpoint_if_large()
        return None

    def _checkpoint_if_large(self) -> None:
        """Copies the log into the database file, and notes its state, so that a later change by others is noticed."""
        with contextlib.suppress(OSError):
            if os.stat(f"{self.path}-wal").st_size < _CHECKPOINT_BYTES:
                return
        try:
            row = self._file.writer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            journal_file.flag_damage(self.path, error)  # the records are durable all the same
            return
        if not row[0]:
            write_stamp(self._file.lock_fd, self.path, WalState(read_wal_salt(self.path), int(row[1]), int(row[2])))

    def _insert_batch(
        self, rows: "list[tuple[str, str, str, str, str | None]]", fences: tuple[str, ...] = ()
    ) -> tuple[int, list[int | None]]:
        """Returns the number of the last record of the journal, and those of the rows; none if it is fenced."""
        writer = self._file.writer
        last = last_used_seq(writer)
        if any(_has_key(writer, key) for key in fences):
            return last, [None] * len(rows) if rows[0][4] and _has_key(writer, rows[0][4]) else []
        seqs = _insert(writer, rows, last)
        apply_rows(writer, [(seq, *row[:4]) for seq, row in zip(seqs, rows, strict=True) if seq])
        return max([last, *(seq or 0 for seq in seqs)]), seqs

    @contextlib.contextmanager
    def exclusive(self) -> Generator[sqlite3.Connection, None, None]:
        """For work on the file itself, outside a transaction. Raises StoreError."""
        with self._file_lock:
            self._check_usable()
            try:
                yield self._file.writer
            except sqlite3.Error as error:
                raise store_error(self.path, error) from error
            finally:
                write_stamp(self._file.lock_fd, self.path)

    def _begin(self) -> None:
        end = time.monotonic() + journal_file.BUSY_SECONDS
        while True:
            try:
                self._file.writer.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.Error as error:
                # SQLite's own busy timeout does not cover every state.
                if not journal_file.is_busy(error) or time.monotonic() > end:
                    raise
                time.sleep(POLL_SECONDS)

    @contextlib.contextmanager
    def transaction(self, entries: Iterable[JournalEntry] = ()) -> Generator[sqlite3.Connection, None, None]:
        """For changes besides new records: all of them or none, with these records. Raises StoreError."""
        batch = self._batch(entries)
        with self._file_lock:
            self._check_usable()
            try:
                self._begin()
                last = self._insert_batch(batch.rows)[0]
                yield self._file.writer
                self._file.writer.execute("COMMIT")
                write_last_seq(self._file.lock_fd, last)
            except sqlite3.Error as error:
                journal_file.flag_damage(self.path, error)
                raise store_error(self.path, error) from error
            finally:
                self._roll_back()
        self._checkpoint_if_large()

    def delete(
        self, streams: Iterable[str], seqs: Iterable[int], left: Iterable[JournalEntry], rows: Iterable[tuple[str, str]]
    ) -> int:
        """Deletes whole streams and single records, in one transaction with the records that are left instead. `rows`
        of derived tables to delete, as (table, id). Returns how many records were deleted."""
        with self.transaction(left) as writer:
            deleted = [*seqs, *(seq for stream in streams for seq in stream_seqs(writer, stream))]
            delete_rows(writer, deleted)
            for table, key in rows:
                writer.execute(f"DELETE FROM {table} WHERE id = ?", (key,))  # noqa: S608 - a name from our own code
            point("prune-records")
        return len(deleted)

    def ensure_table(self, table: DerivedTable) -> None:
        """Builds the table from the records if it is missing or of another version."""
        if self.select(
            "SELECT 1 FROM derived_tables WHERE name = ? AND version = ? AND complete", table.name, table.version
        ):
            return
        complete, shown = False, 0
        while not complete:
            with self.transaction() as writer:
                applied, complete = build_step(writer, table)
            if applied - shown >= _PROGRESS_STEP and not complete:
                shown = applied
                report_progress(f"building tables of the journal: {applied:,} of {self.last_seq():,} records")

    def drop_tables(self) -> None:
        """The next reader builds them again."""
        with self.transaction() as writer:
            writer.execute("DELETE FROM derived_tables")

    def _roll_back(self) -> None:
        if self._file.writer.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                self._file.writer.execute("ROLLBACK")

    def _fail(self, batches: list[Batch]) -> None:
        for batch in batches:
            batch.error = StoreError(f"{self.path} is closed", "reopen it")
        self._finish(batches)

    def _finish(self, batches: list[Batch]) -> None:
        by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
        for batch in batches:
            batch.done = True
            if batch.future is not None:
                by_loop.setdefault(batch.future.get_loop(), []).append(batch.future)
        for loop, futures in by_loop.items():
            with contextlib.suppress(RuntimeError):  # its event loop has ended
                loop.call_soon_threadsafe(_settle, futures)
        self._wake_waiters(max((seq for batch in batches for seq in batch.seqs if seq), default=None))

    def _wake_waiters(self, last: int | None) -> None:
        """`last`: a record that exists, if known."""
        with self._committed:
            self._committed.notify_all()
        for loop, watch in list(self._watches.items()):
            if not watch.is_idle:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(watch.check, last)

    # Reading

    def read(
        self, stream: str | None = None, after: int = 0, page: int = PAGE_SIZE, kind: str = "", *, brief: bool = False
    ) -> Iterator[JournalRecord]:
        """Records of one stream or of all, in order, `page` at a time. Holds no lock between records. `kind`: only
        these. `brief`: the fields of briefs (store/briefs) are enough, so nothing is fetched; always so for all
        streams. Raises NotFetchedError on an event loop, if something would have to be fetched."""
        named = [(name, value) for name, value in (("stream", stream), ("kind", kind)) if value]
        condition = " AND ".join([*(f"{name} = ?" for name, _ in named), "seq > ?"])
        query = f"{_SELECT}{condition} ORDER BY seq LIMIT {page}"
        while True:
            rows = self._query(query, (*(value for _, value in named), after))
            for row in rows:
                yield self._record(row)
            if len(rows) < page:
                return
            after = int(rows[-1][0])

    def last(self, stream: str) -> JournalRecord | None:
        """Its body may be a brief."""
        rows = self._query(f"{_SELECT}stream = ? ORDER BY seq DESC LIMIT 1", (stream,))
        return self._record(rows[0]) if rows else None

    def damages(self) -> list[JournalRecord]:
        """Where records were lost: what had not ended before one of these must not go on by itself."""
        return [record for record in self.read(DAMAGE_STREAM) if record.kind == "damaged" and record.body.get("hold")]

    def last_seq(self) -> int:
        """Across all streams; 0 if there is no record."""
        rows = self._query("SELECT seq FROM records ORDER BY seq DESC LIMIT 1", ())
        return int(rows[0][0]) if rows else 0

    def streams(self, prefix: str = "") -> list[str]:
        return [str(row[0]) for row in self._query(_STREAMS, {"prefix": prefix})]

    def identify(self, process: str) -> None:
        """The name of this process as an owner of tasks and sessions. Where processes of other machines write too, it
        holds a lease under this name while the journal is open."""

    def is_process_alive(self, process: str) -> bool | None:
        """Whether the lease of that process is valid; None if unknown, as always for a file."""

    def check_lease(self, process: str) -> bool | None:
        """Like `is_process_alive`, as of now: blocks for an answer of the server."""

    def now(self) -> float:
        """Seconds since the epoch, by the clock of all processes that share the journal."""
        return time.time()

    def take_from_bucket(self, name: str, limit: RateLimit, requests: float, tokens: float) -> float:
        """Takes from a bucket that all processes share; seconds until it is there. Blocks. Raises StoreError."""
        return take_from_file(bucket_home(self.path), name, limit, requests, tokens)

    def catch_up(self) -> None:
        """Afterwards, reads see what any process wrote before the call. A file always shows it."""

    def fetch(self, *streams: str) -> None:
        """Afterwards, all known records of these streams are here as a whole, and new ones follow. A file has them."""

    def is_fetched(self, stream: str) -> bool:
        """Whether all known records of the stream are here as a whole."""
        return True

    async def fetch_async(self, *streams: str) -> None:
        """Like `fetch`, without blocking the event loop."""

    def wait(self, after: int, timeout: float) -> bool:
        """Whether a record after `after` appears within the timeout, from any process."""
        end = time.monotonic() + timeout
        while self.last_seq() <= after:
            remaining = end - time.monotonic()
            if remaining <= 0:
                return False
            with self._committed:
                self._committed.wait(min(remaining, POLL_SECONDS))
        return True

    async def wait_async(self, after: int, timeout: float | None = None) -> bool:
        """Like `wait`, without blocking the event loop; without a timeout it waits until cancelled."""
        loop = asyncio.get_running_loop()
        watch = self._watches.setdefault(loop, JournalWatch(loop, self.last_seq))
        try:
            return await watch.wait(after, timeout)
        finally:
            if watch.is_idle:
                self._watches.pop(loop, None)

    def select(self, query: str, *values: object) -> list[Any]:
        """Rows of derived tables."""
        return self._query(query, values)

    def _query(self, query: str, values: tuple[object, ...] | dict[str, object]) -> list[Any]:
        with self._reading:
            self._check_usable()
            try:
                return self._file.reader.execute(query, values).fetchall()
            except sqlite3.Error as error:
                journal_file.flag_damage(self.path, error)
                raise store_error(self.path, error) from error

    def _record(self, row: Any) -> JournalRecord:
        if row[6] is None and row[0] > self._unchecked_until:  # perhaps just written by an earlier version
            with self._reading:
                self._unchecked_until = read_unchecked_until(self._file.reader) or 0
        problem = row_problem(row, self._unchecked_until)
        try:
            if not problem:
                return JournalRecord(seq=row[0], stream=row[1], at=row[2], kind=row[3], body=json.loads(row[4]))
        except (ValueError, RecursionError):
            problem = "it is not JSON"
        journal_file.request_check(self.path)
        raise StoreError(
            f"record {row[0]} of {self.path} is corrupt: {problem}",
            "stop all Kitbag processes; the next one sets the file aside and recovers the records before the damage",
        )


def _insert(
    writer: sqlite3.Connection, rows: "list[tuple[str, str, str, str, str | None]]", last: int
) -> list[int | None]:
    """If the key of the first row exists, none of the rows is written. `last`: the number of the last record."""
    seqs: list[int | None] = []
    for seq, row in enumerate(rows, last + 1):
        if seqs and seqs[0] is None:
            return [None] * len(rows)
        cursor = writer.execute(_INSERT, (seq, *row, checksum(seq, *row)))
        seqs.append(seq if cursor.rowcount else None)
    return seqs


def _has_key(writer: sqlite3.Connection, key: str) -> bool:
    return writer.execute("SELECT 1 FROM records WHERE key = ?", (key,)).fetchone() is not None


def _settle(futures: list["asyncio.Future[None]"]) -> None:
    for future in futures:
        if not future.done():  # not cancelled meanwhile
            future.set_result(None)


def _written_seqs(seqs: list[int | None]) -> list[int]:
    return [seq for seq in seqs if seq is not None]
