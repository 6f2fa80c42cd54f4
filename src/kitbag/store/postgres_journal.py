"""The journal on PostgreSQL: records become durable there; reads come from a mirror on this machine.

One thread writes, another follows what others write. Only `append`, `append_all`, `append_once` and `delete` block the
caller for a round trip. Used through `Journal`; docs/architecture.md says why it is built this way.
"""

import contextlib
import math
import os
import select
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from kitbag.store.deleted_records import number_ranges
from kitbag.store.fencing import FencedError
from kitbag.store.journal import Batch, CommitFailure, Journal, JournalEntry
from kitbag.store.journal_integrity import RecordRow
from kitbag.store.journal_mirror import JournalMirror
from kitbag.store.postgres import EXISTS, FENCED, Database, Leases, NewBatch, UnreachableError, row_checksum
from kitbag.store.private_files import StoreError
from kitbag.store.progress import report_progress
from kitbag.store.redaction import Redactor
from kitbag.store.token_bucket import RateLimit

_POLL_SECONDS: Final = 1.0
"""How often the follower looks without a notification."""
_FOLLOW_AFTER_SECONDS: Final = 0.2
"""A command that is done by then never connects its follower."""
_PAGE_ROWS: Final = 2_000
_PAGE_BYTES: Final = 8_000_000
_PROGRESS_ROWS: Final = 50_000


def mirror_path(kitbag_home: str, store_id: str) -> str:
    return os.path.join(kitbag_home, "state", f"mirror-{store_id[:13]}.db")


def home_queue(kitbag_home: str) -> str:
    return f"home:{socket.gethostname()}:{os.path.realpath(kitbag_home)}"


class _OtherHistoryError(StoreError):
    """The database was restored from a backup."""


class PostgresJournal(Journal):
    is_shared = True

    def __init__(self, database: Database, mirror: JournalMirror, redactor: Redactor, kitbag_home: str) -> None:
        super().__init__(mirror.file, redactor)
        self.queue = self.home_queue = home_queue(kitbag_home)
        self._file_lock = threading.Lock()  # not held during a round trip
        self.database = database
        self._mirror = mirror
        self._behind: StoreError | None = None
        """Why the mirror lacks records that this process wrote."""
        self._leases: Leases | None = None
        """As of the follower's last look; None while it is not connected or could not judge yet."""
        self._wake_reader, self._wake_writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._stopping = threading.Event()
        self._follower = threading.Thread(target=self._follow, name="journal-follower", daemon=True)

    @classmethod
    def connect(cls, url: str, kitbag_home: str, redactor: Redactor) -> "PostgresJournal":
        """Creates the tables if there are none. Returns when the mirror has every record. Raises StoreError."""
        database = Database(url).open()
        try:
            mirror = JournalMirror(mirror_path(kitbag_home, database.store_id))
            journal = cls(database, mirror, redactor, kitbag_home)
        except BaseException:
            database.disconnect()
            raise
        try:
            journal._check_history()
            journal._catch_up(database)
            journal._follower.start()
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        if self._closed:
            return
        self._stopping.set()
        self.database.close()
        os.write(self._wake_writer, b"x")
        if self._follower.is_alive():
            self._follower.join()
        super().close()
        self._mirror.close()
        self.database.disconnect()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    # Writing

    def _commit_batch(self, batch: Batch) -> list[int | None]:
        """In the thread: an interruption of the caller must not leave open whether a commit happened."""
        self._check_usable()
        if not batch.rows:
            return []
        self._give_to_thread(batch)
        with self._committed:
            self._committed.wait_for(lambda: batch.done)
        return batch.result()

    def _commit(self, batches: list[Batch]) -> CommitFailure | None:
        try:
            numbers = self.database.append([NewBatch(batch.rows, batch.fences) for batch in batches])
        except StoreError as error:
            return CommitFailure(error, isinstance(error, UnreachableError))
        new: list[RecordRow] = []
        for batch, seqs in zip(batches, numbers, strict=True):
            if seqs[0] == FENCED:
                batch.error = FencedError()
                continue
            batch.error, batch.seqs = None, [seq if seq > EXISTS else None for seq in seqs]
            new += [_mirrored(seq, row) for seq, row in zip(seqs, batch.rows, strict=True) if seq > EXISTS]
        self._mirror_own(new)
        return None

    def _mirror_own(self, rows: Sequence[RecordRow]) -> None:
        """The rows are durable, whatever happens here."""
        try:
            if rows and self._mirror.add(rows, after=rows[0].seq - 1) < rows[-1].seq:
                self.database.retry(self._catch_up)
            self._behind = None
            with self._file_lock:
                self._checkpoint_if_large()
        except StoreError as error:
            self._behind = error

    def delete(
        self, streams: Iterable[str], seqs: Iterable[int], left: Iterable[JournalEntry], rows: Iterable[tuple[str, str]]
    ) -> int:
        deleted = list(seqs)
        for stream in streams:
            deleted += [int(row[0]) for row in self.select("SELECT seq FROM records WHERE stream = ?", stream)]
        with self._writing:
            self._check_usable()
            self.database.prune(NewBatch(self._batch(left).rows), deleted, number_ranges(sorted(deleted)))
            self.database.retry(self._catch_up)
        return len(deleted)

    # Reading

    def _query(self, query: str, values: tuple[object, ...] | dict[str, object]) -> list[Any]:
        if self._behind is not None:
            raise StoreError(self._behind.problem, self._behind.fix)
        return super()._query(query, values)

    def identify(self, process: str) -> None:
        self.database.process = process

    def is_process_alive(self, process: str) -> bool | None:
        leases = self._leases
        if process == self.database.process:
            return True
        return None if leases is None else process in leases.ages

    def take_from_bucket(self, name: str, limit: RateLimit, requests: float, tokens: float) -> float:
        with self._writing:
            self._check_usable()
            return self.database.retry(lambda database: database.take(name, limit, requests, tokens))

    def catch_up(self) -> None:
        with self._writing:
            self._check_usable()
            self.database.retry(self._catch_up)

    # The mirror

    def _check_history(self) -> None:
        """A mirror whose last record the database does not have is of a database that was restored from a backup."""
        if (mirrored := self._mirror.last_row()) is None:
            return
        stored = self.database.row(mirrored.seq)
        if stored is not None and stored[:6] == mirrored[:6]:
            return
        if stored is None and any(first <= mirrored.seq <= last for first, last in self.database.pruned_after(0)):
            return
        self._mirror.clear()

    def _catch_up(self, database: Database) -> None:
        """Fetches what the mirror lacks. Raises StoreError."""
        mirrored = self._mirror.state()  # before the other, which only grows
        state = database.state()
        if state.last < mirrored.last:
            raise _OtherHistoryError(f"{database.name} has fewer records than before", "restart Kitbag")
        if state.prunings > mirrored.prunings:
            self._mirror.delete(database.pruned_after(mirrored.prunings), state.prunings)
        if state.last <= mirrored.last:
            return
        page: list[RecordRow] = []
        size = fetched = 0
        for row in database.rows_after(mirrored.last):
            page.append(row)
            size += len(row.body)
            if len(page) >= _PAGE_ROWS or size >= _PAGE_BYTES:
                self._mirror.add(page)
                fetched += len(page)
                page, size = [], 0
                if fetched % _PROGRESS_ROWS < _PAGE_ROWS and fetched >= _PROGRESS_ROWS:
                    report_progress(f"fetching records: {fetched:,} of {state.last - mirrored.last:,}")
        self._mirror.add(page)

    def _follow(self) -> None:
        """Until closed. If the server can't be reached, reads go on with what is there."""
        if self._stopping.wait(_FOLLOW_AFTER_SECONDS):
            return
        database = Database(self.database.url)
        database.store_id = self.database.store_id
        is_listening = was_lost = False
        connected_at = 0.0
        while not self._stopping.is_set():
            try:
                if not is_listening:
                    database.listen()
                    is_listening, connected_at = True, time.monotonic()
                if self.database.commits:
                    database.renew_lease(self.database.writer)
                self._judge(database.leases(), time.monotonic() - connected_at if was_lost else math.inf)
                before = self._mirror.state().last
                self._catch_up(database)
                self._behind = None
                if (last := self._mirror.state().last) > before:
                    self._wake_waiters(last)
                ready = [self._wake_reader, database.fileno()]
            except _OtherHistoryError as error:
                self._behind = error
                break
            except StoreError:
                database.disconnect()
                self._leases = None
                is_listening, was_lost, ready = False, True, [self._wake_reader]
            with contextlib.suppress(OSError, ValueError):
                select.select(ready, [], [], _POLL_SECONDS)
        database.disconnect()

    def _judge(self, leases: Leases, connected_seconds: float) -> None:
        """After the server was away for some or for all, everybody gets the time to give a sign of life."""
        self._leases = leases if min(leases.uptime, connected_seconds) > leases.seconds else None


def _mirrored(seq: int, row: tuple[str, str, str, str, str | None]) -> RecordRow:
    return RecordRow(seq, *row, row_checksum(*row))
