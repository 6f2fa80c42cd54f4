"""The PostgreSQL database of a journal: connecting, migrating, appending; errors as problems with a fix.

Used by postgres_journal and store_copy. Needs psycopg (extra `fleet`), so this module is imported only when a database
is configured.
"""

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict

from kitbag.store.briefs import STUB_CHECKSUM, make_brief
from kitbag.store.database_url import describe_url, url_secrets
from kitbag.store.deleted_records import number_ranges
from kitbag.store.journal_integrity import RecordRow, checksum
from kitbag.store.postgres_schema import CHANNEL, FORMAT, MIGRATIONS, MIN_SERVER_VERSION
from kitbag.store.private_files import StoreError
from kitbag.store.progress import report_progress
from kitbag.store.token_bucket import RateLimit

EXISTS: Final = 0
FENCED: Final = -1
"""Outcomes of a row in the result of an append, besides its number."""
RECONNECT_SECONDS: Final = 120.0
"""How long a write waits for a server that can't be reached."""
_ANSWER_SECONDS: Final = 60.0
"""A server that does not answer a statement for so long counts as lost."""
_CLOSE_SECONDS: Final = 5.0
"""How long closing waits for the answer to a statement."""
_BACKOFF_SECONDS: Final = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
_CONNECT_SECONDS: Final = 10
_DEFAULTS: Final = {
    "connect_timeout": str(_CONNECT_SECONDS),
    "application_name": "kitbag",
    # A server that vanished is noticed within half a minute.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
    "client_encoding": "UTF8",
}
# Without them, as behind a connection pool that shares connections between clients, everything still works.
_SESSION_SETTINGS: Final = """
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET statement_timeout = 0;
SET lock_timeout = '30s';
SET idle_in_transaction_session_timeout = '30s'
"""
_SCHEMA_LOCK: Final = 0x4B424A31
_APPEND: Final = (
    "SELECT kitbag_append(%s, %s, %s, %s::boolean[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],"
    " %s::bigint[], %s::text[], %s::text[])"
)
_PRUNE: Final = (
    "SELECT kitbag_prune(%s, %s, %s, %s::boolean[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],"
    " %s::bigint[], %s::text[], %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[])"
)
_COLUMNS: Final = "SELECT seq, stream, at, kind, body, key, checksum FROM kitbag_records WHERE "
_ROWS: Final = _COLUMNS + "seq > %s ORDER BY seq"
_STREAM_ROWS: Final = _COLUMNS + "stream = %s AND seq >= %s AND brief IS NOT NULL ORDER BY seq LIMIT %s"
_BRIEF_ROWS: Final = (
    "SELECT seq, stream, at, kind, coalesce(brief, body), key, CASE WHEN brief IS NULL THEN checksum ELSE -1 END"
    " FROM kitbag_records WHERE seq > %s ORDER BY seq"
)
_STORE: Final = "SELECT value, extract(epoch FROM clock_timestamp())::float FROM kitbag_facts WHERE name = 'store'"
_LEASE_SECONDS: Final = (
    "SELECT value::float, extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float,"
    " extract(epoch FROM clock_timestamp())::float FROM kitbag_facts WHERE name = 'lease_seconds'"
)
_LEASES: Final = (
    "SELECT process, extract(epoch FROM clock_timestamp() - max(at))::float FROM kitbag_writers"
    " WHERE process IS NOT NULL AND at > clock_timestamp() - make_interval(secs => %s) GROUP BY process"
)
_RENEW: Final = (
    "INSERT INTO kitbag_writers VALUES (%s, 0, '{}', clock_timestamp(), %s)"
    " ON CONFLICT (id) DO UPDATE SET at = clock_timestamp()"
)
_LOST_STATES: Final = ("08", "57P01", "57P02", "57P03", "57P05", "25P03", "53300", "40001", "40P01", "55P03")
"""Starts of SQLSTATE codes after which the same statement may succeed later."""
_READ_ONLY: Final = "25006"
_WRITER_DAYS: Final = 30
_STREAM_ROWS_AT_ONCE: Final = 100
"""A row may have half a megabyte."""

T = TypeVar("T")
NewRow = tuple[str, str, str, str, str | None]
"""stream, at, kind, body, key"""


class UnreachableError(StoreError):
    """The server can't be reached or is busy: the same may succeed later."""


class CorruptRecordError(StoreError):
    pass


class NewBatch(NamedTuple):
    """Rows that are written together or not at all."""

    rows: Sequence[NewRow]
    fences: tuple[str, ...] = ()
    """Keys of records; if one of them exists, the batch is refused."""


class DatabaseState(NamedTuple):
    last: int
    prunings: int


class Leases(NamedTuple):
    seconds: float
    """How long a lease is valid after the last sign of life."""
    uptime: float
    """Since when the server runs: before that, nobody could give a sign of life."""
    ages: dict[str, float]
    """Processes with a valid lease, and when they last gave a sign of life."""


def parse_url(url: str) -> dict[str, Any]:
    """Raises StoreError that does not contain the URL, which may hold a password."""
    fix = "write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE, in the password %40 for @, %2F for /, %25 for %"
    if not url.startswith(("postgresql://", "postgres://")):
        raise StoreError("the database URL does not start with postgresql://", fix)
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        problem = "the database URL is not valid"
        if found := re.fullmatch(r'invalid URI query parameter: "(\w+)"', str(error).strip()):
            problem = f"the database URL has an unknown option: {found[1]}"
        raise StoreError(problem, fix) from None  # its text may hold the password
    return {**_DEFAULTS, **{name: value for name, value in parts.items() if value is not None}}


def is_lost(error: psycopg.Error) -> bool:
    """Whether the connection failed or the server is busy, rather than the statement being wrong."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return error.sqlstate.startswith(_LOST_STATES)


def database_error(url: str, error: psycopg.Error) -> StoreError:
    """Translates an error into a problem with a fix."""
    name, state = describe_url(url), error.sqlstate or ""
    text = " ".join((error.diag.message_primary or str(error)).split())
    for secret in url_secrets(url):
        text = text.replace(secret, "***")
    problem = f"cannot use {name}: {text}"
    if state.startswith("28") or "password authentication" in text or "no password supplied" in text:
        return StoreError(problem, "check the user and the password in the database URL")
    if state == "3D000" or ("database" in text and "does not exist" in text):
        return StoreError(problem, "create the database, or fix its name in the database URL")
    if state in ("42501", "3F000"):
        grant = "GRANT USAGE, CREATE ON SCHEMA public TO the_user"
        if "for table" in text:  # of another role
            grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO the_user"
        create = "create the schema that the database URL names (CREATE SCHEMA), or " if state == "3F000" else ""
        rights = f"give the user rights on the schema and Kitbag's tables, for example: {grant}"
        return StoreError(problem, create + rights)
    if state == _READ_ONLY:
        return StoreError(problem, "the server is read-only, perhaps a standby; use the URL of the primary")
    if state == "53300" or "too many c" in text:
        fix = "stop some processes that use it (each needs two), or raise max_connections or the role's limit"
        return UnreachableError(f"{name} has no free connection: {text}", fix)
    if state.startswith("53"):
        return StoreError(problem, "the server lacks disk space or memory; free some, then retry")
    if "SSL" in text or "certificate" in text:
        return UnreachableError(problem, "check sslmode and the certificates that the database URL names")
    if text.startswith("connection is bad: invalid"):
        return StoreError(problem, "fix the database URL")
    if is_lost(error):
        return UnreachableError(
            f"cannot reach {name}: {text}", "check that the server runs and accepts connections from this machine"
        )
    return StoreError(problem, "see the server's log; `kitbag store check` checks the records")


def check_server_version(name: str, version: int) -> None:
    if version < MIN_SERVER_VERSION:
        found, needed = version // 10_000, MIN_SERVER_VERSION // 10_000
        raise StoreError(f"{name} is PostgreSQL {found}, which is too old", f"use PostgreSQL {needed} or newer")


class _Connection(psycopg.Connection[Any]):
    """Gives up waiting for an answer."""

    gives_up: Callable[[float], bool] = staticmethod(lambda since: False)  # type: ignore[misc]
    """Whether to wait no longer for what was begun at that time."""

    def wait(self, gen: PQGen[T], *values: Any, **named: Any) -> T:
        return super().wait(self._limit(gen), *values, **named)

    def _limit(self, gen: PQGen[T]) -> PQGen[T]:
        """psycopg resumes it several times a second."""
        began = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and self.gives_up(began):
                    raise psycopg.OperationalError("the server does not answer")
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


class Database:
    """One connection, which is replaced when it is lost. For one thread at a time, except `close`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = describe_url(url)
        self._parameters = parse_url(url)
        self._connection: psycopg.Connection[Any] | None = None
        self.writer = os.urandom(12).hex()
        """Identifies this connection's commits."""
        self.process: str | None = None
        """The owner of tasks that writes here."""
        self.commits = 0
        self.is_notified = False
        """A notification arrived since it was last set to False."""
        self._stop = threading.Event()
        self._give_up_at = math.inf
        self.store_id = ""
        self.clock_ahead = 0.0
        """Seconds by which the server's clock is ahead of this machine's, as of the last connection or `leases`."""

    def open(self) -> "Database":
        """Connects once, creates or migrates the tables. Raises StoreError."""
        with self._translated():
            self._connected()
        return self

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """From any thread: ends waiting for a server that can't be reached, and soon for one that does not answer."""
        self._give_up_at = time.monotonic() + seconds
        self._stop.set()

    def _gives_up(self, since: float) -> bool:
        return time.monotonic() > min(since + _ANSWER_SECONDS, self._give_up_at)

    def disconnect(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def fileno(self) -> int:
        """Readable when a notification arrives."""
        return self._connected().fileno()

    def listen(self) -> None:
        with self._translated():
            connection = self._connected()
            connection.add_notify_handler(self._on_notification)
            connection.execute(f"LISTEN {CHANNEL}")

    def _on_notification(self, _: psycopg.Notify) -> None:
        """Also during a statement, which then takes it from the connection."""
        self.is_notified = True

    @contextlib.contextmanager
    def _translated(self) -> Generator[None, None, None]:
        try:
            yield
        except psycopg.Error as error:
            if is_lost(error) or error.sqlstate == _READ_ONLY:  # after a failover, another server may be the primary
                self.disconnect()
            raise database_error(self.url, error) from error.with_traceback(None)

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            connection = _Connection.connect(**self._parameters, autocommit=True, prepare_threshold=None)
            connection.gives_up = self._gives_up
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _prepare(self, connection: "psycopg.Connection[Any]") -> None:
        check_server_version(self.name, connection.info.server_version)
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreError(f"{self.name} has the encoding {encoding}", "create the database with ENCODING 'UTF8'")
        connection.execute(_SESSION_SETTINGS)
        if self._read_format(connection) != FORMAT:
            with connection.transaction():
                self._migrate(connection)
        store_id, now = connection.execute(_STORE).fetchall()[0]
        self.clock_ahead = now - time.time()
        if self.store_id and store_id != self.store_id:
            raise StoreError(f"{self.name} is a different store than before", "restart Kitbag")
        self.store_id = store_id

    def _read_format(self, connection: "psycopg.Connection[Any]") -> int:
        """0: no tables yet."""
        # Not `to_regclass`, which may not see a table that another process has just created.
        tables = "SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'kitbag_facts'"
        if not connection.execute(tables).fetchall():
            return 0
        found = connection.execute("SELECT value FROM kitbag_facts WHERE name = 'format'").fetchall()
        if not found or not str(found[0][0]).isdecimal():
            problem = f"{self.name} has damaged tables: no format in kitbag_facts"
            raise StoreError(problem, "restore the database from a backup, or use another schema")
        return int(found[0][0])

    def _migrate(self, connection: "psycopg.Connection[Any]") -> None:
        """One process at a time; the others wait and find it done."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        found = self._read_format(connection)
        if found > FORMAT:
            raise StoreError(f"{self.name} was written by a newer version of Kitbag (format {found})", "upgrade Kitbag")
        for statements in MIGRATIONS[found:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute("DELETE FROM kitbag_facts WHERE name = 'format'")
        connection.execute("INSERT INTO kitbag_facts VALUES ('format', %s)", (str(FORMAT),))

    # Statements

    def append(self, batches: Sequence[NewBatch]) -> list[list[int]]:
        """The numbers of the rows of each batch, or EXISTS or FENCED. Waits for a server that can't be reached, and
        writes nothing twice. Raises StoreError."""
        self.commits += 1
        values = [self.writer, self.process, self.commits, *_columns(batches)]

        def send(_: Database) -> list[Any]:
            with self._translated():
                return self._connected().execute(_APPEND, values).fetchall()

        rows = self.retry(send)
        numbers = iter(rows[0][0])
        return [[next(numbers) for _ in batch.rows] for batch in batches]

    def prune(self, left: NewBatch, deleted: Sequence[int], streams: Sequence[str]) -> bool:
        """Deletes records, all of these streams among them, and appends what is left of them. False, and nothing is
        done, if that is not all of the streams any more, or some are gone. Waits as `append` does."""
        self.commits += 1
        ranges = number_ranges(sorted(deleted))
        values = [self.writer, self.process, self.commits, *_columns([left] if left.rows else [])]
        values += [list(deleted), list(streams), [first for first, _ in ranges], [last for _, last in ranges]]

        def send(_: Database) -> list[Any]:
            with self._translated():
                return self._connected().execute(_PRUNE, values).fetchall()

        return bool(self.retry(send)[0][0])

    def retry(self, work: "Callable[[Database], T]") -> T:
        """Repeats it while the server can't be reached, for a limited time."""
        deadline, attempt = time.monotonic() + RECONNECT_SECONDS, 0
        while True:
            try:
                return work(self)
            except UnreachableError:
                if self._stop.is_set() or time.monotonic() > deadline:
                    raise
                if attempt == len(_BACKOFF_SECONDS):
                    report_progress(f"waiting for {self.name}, which can't be reached; nothing is lost")
                self._stop.wait(_BACKOFF_SECONDS[min(attempt, len(_BACKOFF_SECONDS) - 1)])
                attempt += 1

    def renew_lease(self, writer: str, process: str | None) -> None:
        """A sign of life of a process that writes as `writer`."""
        with self._translated():
            self._connected().execute(_RENEW, (writer, process))

    def forget_writer(self) -> None:
        """Call last: its process is not there any more, and will send no commit again."""
        if self._connection is not None and not self._connection.closed:
            with self._translated():
                self._connection.execute("DELETE FROM kitbag_writers WHERE id = %s", (self.writer,))

    def forget_old_writers(self) -> None:
        """Of processes that were killed."""
        with self._translated():
            query = "DELETE FROM kitbag_writers WHERE at < clock_timestamp() - make_interval(days => %s)"
            self._connected().execute(query, (_WRITER_DAYS,))

    def leases(self) -> Leases:
        with self._translated():
            connection = self._connected()
            seconds, uptime, now = connection.execute(_LEASE_SECONDS).fetchall()[0]
            self.clock_ahead = now - time.time()
            return Leases(seconds, uptime, dict(connection.execute(_LEASES, (seconds,)).fetchall()))

    def take(self, name: str, limit: RateLimit, requests: float, tokens: float) -> float:
        """From a bucket (store/token_bucket); seconds until it is there."""
        with self._translated():
            values = (name, limit.requests, limit.tokens, requests, tokens)
            return self._connected().execute("SELECT kitbag_take(%s, %s, %s, %s, %s)", values).fetchall()[0][0]

    def state(self) -> DatabaseState:
        with self._translated():
            return DatabaseState(*self._connected().execute("SELECT last, prunings FROM kitbag_counter").fetchall()[0])

    def rows_after(self, seq: int, *, brief: bool = False) -> Iterator[RecordRow]:
        """All records after this one, of one moment. `brief`: large ones as stubs. Raises StoreError."""
        with self._translated(), contextlib.closing(self._connected().cursor()) as cursor:
            size = _STREAM_ROWS_AT_ONCE if psycopg.capabilities.has_stream_chunked() else 1
            for found in cursor.stream(_BRIEF_ROWS if brief else _ROWS, (seq,), size=size):
                yield self._checked(RecordRow(*found))

    def large_rows(self, stream: str, first: int, limit: int) -> list[RecordRow]:
        """Whole records of a stream that have a brief, from this number on. Raises StoreError."""
        with self._translated():
            found = self._connected().execute(_STREAM_ROWS, (stream, first, limit)).fetchall()
        return [self._checked(RecordRow(*row)) for row in found]

    def _checked(self, row: RecordRow) -> RecordRow:
        if row.checksum not in (STUB_CHECKSUM, row_checksum(*row[1:6])):
            raise CorruptRecordError(
                f"record {row.seq} of {self.name} is corrupt", "restore the database from a backup"
            )
        return row

    def row(self, seq: int) -> RecordRow | None:
        with self._translated():
            found = self._connected().execute(f"{_COLUMNS}seq = %s", (seq,)).fetchall()
            return RecordRow(*found[0]) if found else None

    @contextlib.contextmanager
    def fill(
        self, rows: Iterator[RecordRow], pruned: Sequence[tuple[int, int]]
    ) -> Generator[Iterator[RecordRow], None, None]:
        """Writes a whole journal into an empty database, and yields what was written, read back, before the commit.
        Raises StoreError."""
        with self._translated(), self._connected().transaction():
            connection = self._connected()
            last = connection.execute("SELECT last FROM kitbag_counter FOR UPDATE").fetchall()[0][0]
            if last:
                problem = f"{self.name} has {last:,} records already"
                raise StoreError(problem, "copy to an empty database, or to another schema")
            with connection.cursor().copy(
                "COPY kitbag_records (seq, stream, at, kind, body, key, checksum, brief) FROM STDIN"
            ) as copy:
                for row in rows:
                    brief = make_brief(row.stream, row.kind, row.body)
                    copy.write_row((*row[:6], row_checksum(*row[1:6]), brief))
                    last = row.seq
            last = max([last, *(end for _, end in pruned)])
            connection.execute("UPDATE kitbag_counter SET last = %s, prunings = %s", (last, 1 if pruned else 0))
            for first, end in pruned:
                connection.execute("INSERT INTO kitbag_pruned VALUES (1, %s, %s)", (first, end))
            yield self.rows_after(0)

    def pruned_after(self, pruning: int) -> list[tuple[int, int]]:
        with self._translated():
            query = "SELECT first, last FROM kitbag_pruned WHERE number > %s"
            return [(int(first), int(last)) for first, last in self._connected().execute(query, (pruning,))]


def row_checksum(stream: str, at: str, kind: str, body: str, key: str | None) -> int:
    """Without the number, which the server assigns."""
    return checksum(0, stream, at, kind, body, key)


def _columns(batches: Sequence[NewBatch]) -> tuple[list[Any], ...]:
    starts: list[bool] = []
    fences: list[str | None] = []
    for batch in batches:
        starts += [index == 0 for index in range(len(batch.rows))]
        fences += ["\n".join(batch.fences) or None, *(None for _ in batch.rows[1:])]
    rows = [row for batch in batches for row in batch.rows]
    streams, times, kinds, bodies, keys = (list(column) for column in zip(*rows, strict=True)) if rows else ([],) * 5
    briefs = [make_brief(stream, kind, body) for stream, _, kind, body, _ in rows]
    return starts, streams, times, kinds, bodies, keys, [row_checksum(*row) for row in rows], fences, briefs


def check_database(url: str) -> tuple[int, str]:
    """How many records there are, and the first problem; empty: none. Raises StoreError if it can't be read."""
    database = Database(url).open()
    try:
        count = 0
        for _ in database.rows_after(0):
            count += 1
        last = database.state().last
        pruned = sum(end - first + 1 for first, end in database.pruned_after(0))
        missing = last - count - pruned
        return count, f"{missing:,} records are missing" if missing > 0 else ""
    except CorruptRecordError as error:
        return 0, error.problem
    finally:
        database.disconnect()
