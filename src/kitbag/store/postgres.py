"""The PostgreSQL database of a journal: connecting, migrating, appending; errors as problems with a fix.

Used by postgres_journal and store_copy. Needs psycopg (extra `fleet`), so this module is imported only when a database
is configured.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from kitbag.store.database_url import describe_url, url_secrets
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
}
# The last one: a record is durable when its write returns.
_SESSION_SETTINGS: Final = """
SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET lock_timeout = '30s';
SET idle_in_transaction_session_timeout = '30s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'
"""
_SCHEMA_LOCK: Final = 0x4B424A31
_APPEND: Final = (
    "SELECT kitbag_append(%s, %s, %s, %s::boolean[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],"
    " %s::bigint[], %s::text[])"
)
_ROWS: Final = "SELECT seq, stream, at, kind, body, key, checksum FROM kitbag_records WHERE seq > %s ORDER BY seq"
_LEASE_SECONDS: Final = (
    "SELECT value::float, extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::float"
    " FROM kitbag_facts WHERE name = 'lease_seconds'"
)
_LEASES: Final = (
    "SELECT process, extract(epoch FROM clock_timestamp() - max(at))::float FROM kitbag_writers"
    " WHERE process IS NOT NULL AND at > clock_timestamp() - make_interval(secs => %s) GROUP BY process"
)
_LOST_STATES: Final = ("08", "57P01", "57P02", "57P03", "53300", "40001", "40P01", "55P03")
"""Starts of SQLSTATE codes after which the same statement may succeed later."""
_WRITER_DAYS: Final = 30

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
    fix = "write it as postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    if not url.startswith(("postgresql://", "postgres://")):
        raise StoreError("the database URL does not start with postgresql://", fix)
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as error:
        raise StoreError("the database URL is not valid", fix) from error.with_traceback(None)
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
        return StoreError(problem, f"give the user rights on the schema and Kitbag's tables, for example: {grant}")
    if state == "25006":
        return StoreError(problem, "the server is read-only, perhaps a standby; use the URL of the primary")
    if state.startswith("53"):
        return StoreError(problem, "the server lacks disk space, memory or connections; free some, then retry")
    if is_lost(error):
        return UnreachableError(
            f"cannot reach {name}: {text}", "check that the server runs and accepts connections from this machine"
        )
    return StoreError(problem, "see the server's log; `kitbag store check` checks the records")


def check_server_version(name: str, version: int) -> None:
    if version < MIN_SERVER_VERSION:
        found, needed = version // 10_000, MIN_SERVER_VERSION // 10_000
        raise StoreError(f"{name} is PostgreSQL {found}, which is too old", f"use PostgreSQL {needed} or newer")


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
        self._stop = threading.Event()
        self.store_id = ""

    def open(self) -> "Database":
        """Connects once, creates or migrates the tables. Raises StoreError."""
        with self._translated():
            self._connected()
        return self

    def close(self) -> None:
        """Also ends waiting for a server that can't be reached."""
        self._stop.set()

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
            self._connected().execute(f"LISTEN {CHANNEL}")

    @contextlib.contextmanager
    def _translated(self) -> Generator[None, None, None]:
        try:
            yield
        except psycopg.Error as error:
            if is_lost(error):
                self.disconnect()
            raise database_error(self.url, error) from error.with_traceback(None)

    def _connected(self) -> "psycopg.Connection[Any]":
        if self._connection is None or self._connection.closed:
            connection = psycopg.connect(**self._parameters, autocommit=True, prepare_threshold=None)
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
        if _read_format(connection) != FORMAT:
            with connection.transaction():
                self._migrate(connection)
        store_id = str(connection.execute("SELECT value FROM kitbag_facts WHERE name = 'store'").fetchall()[0][0])
        if self.store_id and store_id != self.store_id:
            raise StoreError(f"{self.name} is another store than before", "restart Kitbag")
        self.store_id = store_id

    def _migrate(self, connection: "psycopg.Connection[Any]") -> None:
        """One process at a time; the others wait and find it done."""
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SCHEMA_LOCK,))
        found = _read_format(connection)
        if found > FORMAT:
            raise StoreError(f"{self.name} was written by a newer version of Kitbag (format {found})", "upgrade Kitbag")
        for statements in MIGRATIONS[found:]:
            for statement in statements:
                connection.execute(statement)
        connection.execute("DELETE FROM kitbag_facts WHERE name = 'format'")
        connection.execute("INSERT INTO kitbag_facts VALUES ('format', %s)", (str(FORMAT),))
        connection.execute("DELETE FROM kitbag_writers WHERE at < now() - make_interval(days => %s)", (_WRITER_DAYS,))

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

    def prune(self, batch: NewBatch, deleted: Sequence[int], ranges: Sequence[tuple[int, int]]) -> None:
        """Deletes records in the transaction that appends what is left of them."""
        self.commits += 1
        with self._translated(), self._connected().transaction():
            connection = self._connected()
            values = [self.writer, self.process, self.commits, *_columns([batch])]
            if batch.rows:
                connection.execute(_APPEND, values)
            firsts, lasts = [first for first, _ in ranges], [last for _, last in ranges]
            connection.execute(
                "SELECT kitbag_prune(%s::bigint[], %s::bigint[], %s::bigint[])", (list(deleted), firsts, lasts)
            )

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

    def renew_lease(self, writer: str) -> None:
        """A sign of life of a process that wrote as `writer`."""
        with self._translated():
            self._connected().execute("UPDATE kitbag_writers SET at = clock_timestamp() WHERE id = %s", (writer,))

    def leases(self) -> Leases:
        with self._translated():
            connection = self._connected()
            seconds, uptime = connection.execute(_LEASE_SECONDS).fetchall()[0]
            return Leases(seconds, uptime, dict(connection.execute(_LEASES, (seconds,)).fetchall()))

    def take(self, name: str, limit: RateLimit, requests: float, tokens: float) -> float:
        """From a bucket (store/token_bucket); seconds until it is there."""
        with self._translated():
            values = (name, limit.requests, limit.tokens, requests, tokens)
            return self._connected().execute("SELECT kitbag_take(%s, %s, %s, %s, %s)", values).fetchall()[0][0]

    def state(self) -> DatabaseState:
        with self._translated():
            return DatabaseState(*self._connected().execute("SELECT last, prunings FROM kitbag_counter").fetchall()[0])

    def rows_after(self, seq: int) -> Iterator[RecordRow]:
        """All records after this one, of one moment. Raises StoreError, also for a damaged one."""
        with self._translated(), contextlib.closing(self._connected().cursor()) as cursor:
            for values in cursor.stream(_ROWS, (seq,)):
                row = RecordRow(*values)
                if row.checksum != row_checksum(*row[1:6]):
                    raise CorruptRecordError(
                        f"record {row.seq} of {self.name} is corrupt", "restore the database from a backup"
                    )
                yield row

    def row(self, seq: int) -> RecordRow | None:
        with self._translated():
            query = _ROWS.replace("seq > %s", "seq = %s")
            return next((RecordRow(*row) for row in self._connected().execute(query.encode(), (seq,))), None)

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
                "COPY kitbag_records (seq, stream, at, kind, body, key, checksum) FROM STDIN"
            ) as copy:
                for row in rows:
                    copy.write_row((*row[:6], row_checksum(*row[1:6])))
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
    return starts, streams, times, kinds, bodies, keys, [row_checksum(*row) for row in rows], fences


def _read_format(connection: "psycopg.Connection[Any]") -> int:
    """0: no tables yet."""
    # Not `to_regclass`, which may not see a table that another process has just created.
    tables = "SELECT FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'kitbag_facts'"
    if not connection.execute(tables).fetchall():
        return 0
    found = connection.execute("SELECT value FROM kitbag_facts WHERE name = 'format'").fetchall()
    return int(found[0][0]) if found else 0


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
