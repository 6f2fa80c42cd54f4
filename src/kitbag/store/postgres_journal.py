"""The journal on PostgreSQL: records become durable there; reads come from a mirror on this machine.

One thread writes, another follows what others write. Only `append`, `append_all`, `append_once` and `delete` block the
caller for a round trip. Used through `Journal`; docs/architecture.md says why it is built this way.
"""

import asyncio
import contextlib
import itertools
import math
import os
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kitbag.store.briefs import STUB_CHECKSUM, has_briefs
from kitbag.store.journal import PAGE_SIZE, Journal, JournalRecord, NotFetchedError
from kitbag.store.journal_batch import Batch, CommitFailure, JournalEntry
from kitbag.store.journal_integrity import RecordRow, checksum
from kitbag.store.journal_mirror import FIRST_STUB, JournalMirror
from kitbag.store.postgres import EXISTS, FENCED, Database, Leases, NewBatch, UnreachableError, row_checksum
from kitbag.store.private_files import StoreError
from kitbag.store.progress import report_progress
from kitbag.store.redaction import Redactor
from kitbag.store.token_bucket import RateLimit

_POLL_SECONDS: Final = 1.0
"""How often the follower looks and gives a sign of life without a notification."""
_SIGN_SECONDS: Final = 0.5
"""At least this long between two signs of life, each of which is a commit."""
_FOLLOW_AFTER_SECONDS: Final = 0.2
"""A command that is done by then never connects its follower."""
_PAGE_ROWS: Final = 2_000
_PAGE_BYTES: Final = 8_000_000
_PROGRESS_ROWS: Final = 50_000
_FETCH_ROWS: Final = 500
_MAX_FOLLOWED: Final = 500


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
        self._following = Database(database.url)
        """The connection of the follower."""
        self._following.store_id, self._following.clock_ahead = database.store_id, database.clock_ahead
        self._mirror = mirror
        self._behind: StoreError | None = None
        """Why the mirror lacks records that this process wrote."""
        self._followed: dict[str, None] = {}
        """Streams that were opened here, the last used last: large records that others add to them are fetched."""
        self._writing_to: frozenset[str] = frozenset()
        """Streams to which this process is writing: it has these records itself."""
        self._wanted: set[str] = set()
        """Streams with stubs that the follower is to fetch: a reader on an event loop lacked them, or they are open."""
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
        self._following.close(0)
        self._wake_follower()
        if self._follower.is_alive():
            self._follower.join()
        super().close()
        self._mirror.close()
        with contextlib.suppress(StoreError):
            self.database.forget_writer()
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
        self._writing_to = frozenset(row[0] for batch in batches for row in batch.rows)
        try:
            return self._commit_and_mirror(batches)
        finally:
            self._writing_to = frozenset()

    def _commit_and_mirror(self, batches: list[Batch]) -> CommitFailure | None:
        try:
            numbers = self.database.append([NewBatch(batch.rows, batch.fences) for batch in batches])
        except StoreError as error:
            return CommitFailure(error, isinstance(error, UnreachableError))
        new: list[RecordRow] = []
        for batch, seqs in zip(batches, numbers, strict=True):
            if seqs[0] == FENCED:
                batch.error = batch.fenced_error()
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
            for stream in {row.stream for row in rows if has_briefs(row.stream)}:
                self._complete_own(stream, rows)
            self._behind = None
            with self._file_lock:
                self._checkpoint_if_large()
        except StoreError as error:
            self._behind = error

    def _complete_own(self, stream: str, rows: Sequence[RecordRow]) -> None:
        """A stream that only this process wrote is whole. One that others write too may have stubs before the rows
        written now; if it is open here, it is completed, so that a process reads its own writes."""
        if self._mirror.first_stub(stream) is not None:  # perhaps of these rows: the follower was faster
            self._mirror.complete(row for row in rows if row.stream == stream)
        if self._mirror.first_stub(stream) is None:
            self._follow_stream(stream)
        elif stream in self._followed:
            self.database.retry(lambda database: self._complete(database, stream))

    def delete(
        self, streams: Iterable[str], seqs: Iterable[int], left: Iterable[JournalEntry], rows: Iterable[tuple[str, str]]
    ) -> int:
        deleted, whole = list(seqs), list(streams)
        for stream in whole:
            deleted += [int(row[0]) for row in self.select("SELECT seq FROM records WHERE stream = ?", stream)]
        with self._writing:
            self._check_usable()
            is_deleted = self.database.prune(NewBatch(self._batch(left).rows), deleted, whole)
            self.database.retry(self._catch_up)
        if not is_deleted:
            problem = "nothing deleted: another machine uses or deleted a part of it meanwhile"
            raise StoreError(problem, "retry")
        return len(deleted)

    # Reading

    def _query(self, query: str, values: tuple[object, ...] | dict[str, object]) -> list[Any]:
        if self._behind is not None:
            raise StoreError(self._behind.problem, self._behind.fix)
        return super()._query(query, values)

    def _record(self, row: Any) -> JournalRecord:
        return super()._record((*row[:6], checksum(*row[:6])) if row[6] == STUB_CHECKSUM else row)

    def read(
        self, stream: str | None = None, after: int = 0, page: int = PAGE_SIZE, kind: str = "", *, brief: bool = False
    ) -> Iterator[JournalRecord]:
        records = super().read(stream, after, page, kind)
        if stream is None or brief:
            return records
        if self._first_stub(stream) is not None and not is_event_loop_running():
            self.fetch(stream)
        if (stub := self._first_stub(stream)) is None and not has_briefs(stream):
            return records
        if stub is not None:
            self._wanted.add(stream)
            self._wake_follower()
            if stream not in self._followed:
                raise NotFetchedError(f"{stream} is being fetched from {self.database.name}", "retry")
        self._follow_stream(stream)
        # A stub of a followed stream is replaced within moments; until then this is where the stream ends.
        return records if stub is None else itertools.takewhile(lambda record: record.seq < stub, records)

    def is_fetched(self, stream: str) -> bool:
        return self._first_stub(stream) is None

    def _first_stub(self, stream: str) -> int | None:
        return self._query(FIRST_STUB, (stream,))[0][0]

    def fetch(self, *streams: str) -> None:
        for stream in streams:
            self._follow_stream(stream)
            is_complete = self._first_stub(stream) is None
            while not is_complete:  # page by page, so that records can be written between two
                with self._writing:
                    self._check_usable()
                    is_complete = self.database.retry(lambda database: self._complete_page(database, stream))  # noqa: B023

    async def fetch_async(self, *streams: str) -> None:
        await asyncio.to_thread(self.fetch, *streams)

    def identify(self, process: str) -> None:
        self.database.process = process

    def is_process_alive(self, process: str) -> bool | None:
        leases = self._leases
        if process == self.database.process:
            return True
        return None if leases is None else process in leases.ages

    def now(self) -> float:
        return time.time() + self._following.clock_ahead

    def take_from_bucket(self, name: str, limit: RateLimit, requests: float, tokens: float) -> float:
        with self._writing:
            self._check_usable()
            return self.database.retry(lambda database: database.take(name, limit, requests, tokens))

    def check_lease(self, process: str) -> bool | None:
        with self._writing:
            self._check_usable()
            leases = self.database.retry(Database.leases)
        return True if process in leases.ages else False if leases.uptime > leases.seconds else None

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
        if stored is not None and mirrored.checksum == STUB_CHECKSUM:
            stored = stored._replace(body=mirrored.body)
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
        for row in database.rows_after(mirrored.last, brief=True):
            page.append(row)
            if row.checksum == STUB_CHECKSUM and row.stream in self._followed:
                self._wanted.add(row.stream)
            size += len(row.body)
            if len(page) >= _PAGE_ROWS or size >= _PAGE_BYTES:
                self._mirror.add(page, prunings=state.prunings)
                fetched += len(page)
                page, size = [], 0
                if fetched % _PROGRESS_ROWS < _PAGE_ROWS and fetched >= _PROGRESS_ROWS:
                    report_progress(f"fetching records: {fetched:,} of {state.last - mirrored.last:,}")
        self._mirror.add(page, prunings=state.prunings)
        if self._mirror.state().prunings > state.prunings:  # by another process of this Kitbag home
            self._catch_up(database)

    def _follow_stream(self, stream: str) -> None:
        with self._committed:
            self._followed.pop(stream, None)
            self._followed[stream] = None
            if len(self._followed) > _MAX_FOLLOWED:
                del self._followed[next(iter(self._followed))]

    def _complete(self, database: Database, stream: str) -> None:
        while not self._complete_page(database, stream):
            pass

    def _complete_page(self, database: Database, stream: str) -> bool:
        """Fetches the next large records of a stream that are missing here. Returns whether that was all."""
        first = self._mirror.first_stub(stream)
        rows = database.large_rows(stream, first, _FETCH_ROWS) if first is not None else []
        if rows:
            self._mirror.complete(rows)
        return len(rows) < _FETCH_ROWS

    def _complete_followed(self, database: Database) -> None:
        """Streams that readers lacked, and what others added to those that are open here."""
        while self._wanted:
            stream = self._wanted.pop()
            self._follow_stream(stream)
            if stream not in self._writing_to:
                self._complete(database, stream)

    def _wake_follower(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it has not looked yet
            os.write(self._wake_writer, b"x")

    def _follow(self) -> None:
        """Until closed. If the server can't be reached, reads continue with what is there."""
        if self._stopping.wait(_FOLLOW_AFTER_SECONDS):
            return
        database = self._following
        is_listening = was_lost = False
        connected_at = signed_at = 0.0
        while not self._stopping.is_set():
            database.is_notified = False
            try:
                if not is_listening:
                    database.listen()
                    database.forget_old_writers()
                    is_listening, connected_at = True, time.monotonic()
                if time.monotonic() - signed_at >= _SIGN_SECONDS:
                    if self.database.process is not None or self.database.commits:
                        database.renew_lease(self.database.writer, self.database.process)
                    self._judge(database.leases(), time.monotonic() - connected_at if was_lost else math.inf)
                    signed_at = time.monotonic()
                before = self._mirror.state().last
                self._catch_up(database)
                self._complete_followed(database)
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
                is_listening, was_lost, ready, signed_at = False, True, [self._wake_reader], time.monotonic()
            if database.is_notified:  # meanwhile: no longer to be read, and perhaps not fetched
                continue
            with contextlib.suppress(OSError, ValueError):
                select.select(ready, [], [], max(signed_at + _POLL_SECONDS - time.monotonic(), 0.0))
                os.read(self._wake_reader, 100)
        database.disconnect()

    def _judge(self, leases: Leases, connected_seconds: float) -> None:
        """After the server was away for some or for all, everybody gets the time to give a sign of life."""
        self._leases = leases if min(leases.uptime, connected_seconds) > leases.seconds else None


def is_event_loop_running() -> bool:
    """In this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _mirrored(seq: int, row: tuple[str, str, str, str, str | None]) -> RecordRow:
    return RecordRow(seq, *row, row_checksum(*row))
