"""The searchable text of the skills of one root: two FTS5 tables, one of names and descriptions, one of bodies.

Used by search_index. Stored beside the library index, or in memory. Rows are added and never changed: a changed skill
gets a new row, and rows without a document are ignored. Raises sqlite3.Error for a damaged or locked file, and
TextStoreUnavailableError without FTS5.
"""

import contextlib
import math
import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    pass

STORE_FORMAT: Final = 1
_APPLICATION_ID: Final = 0x6B726F75
_BUSY_MILLISECONDS: Final = 200
_MAX_LOOKED_UP: Final = 400
_MIN_WEIGHT: Final = 1e-6
"""What FTS5 uses for terms that occur in more than half of all rows."""
_MAX_FREQUENCY: Final = 2.2
"""What the frequency of a term in BM25 grows to. Two spellings in one query have weights of their own."""
_TOKENIZER: Final = "tokenize = 'porter unicode61 remove_diacritics 2'"
_SCHEMA: Final = (
    "CREATE TABLE identity(value TEXT NOT NULL)",
    "CREATE TABLE documents(id INTEGER PRIMARY KEY AUTOINCREMENT, location TEXT NOT NULL, name TEXT NOT NULL,"
    " stamp INTEGER NOT NULL, has_body INTEGER NOT NULL DEFAULT 0, keywords TEXT NOT NULL DEFAULT '',"
    " UNIQUE(location, name))",
    "CREATE TABLE frequencies(term TEXT PRIMARY KEY, fields INTEGER NOT NULL, body INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE state(uncounted INTEGER NOT NULL, dead INTEGER NOT NULL, bodies INTEGER NOT NULL)",
    "INSERT INTO state VALUES (0, 0, 0)",
    f"CREATE VIRTUAL TABLE fields USING fts5(name, summary, content='', {_TOKENIZER})",
    f"CREATE VIRTUAL TABLE bodies USING fts5(headings, body, content='', {_TOKENIZER})",
    "CREATE VIRTUAL TABLE field_terms USING fts5vocab(fields, 'row')",
    "CREATE VIRTUAL TABLE body_terms USING fts5vocab(bodies, 'row')",
)


class TextStoreUnavailableError(Exception):
    """Python was built without SQLite, or SQLite without FTS5."""


class ForeignStoreError(Exception):
    """The file is something else, or of another version, or of another root."""


class StoredDocument(NamedTuple):
    id: int
    location: str
    name: str
    stamp: int
    has_body: int
    keywords: str


class FieldTexts(NamedTuple):
    """What is known of a skill without reading its file."""

    location: str
    name: str
    """The full name."""
    stamp: int
    names: str
    summary: str


class BodyTexts(NamedTuple):
    id: int
    headings: str
    body: str
    keywords: str
    """The tags and triggers, one per line, as `keyword_lines` writes them."""


class TextStore:
    def __init__(self, path: str = "", identity: str = "") -> None:
        """`path`: empty for a store in memory. Creates the file and its tables."""
        try:
            import sqlite3
        except ImportError as error:
            raise TextStoreUnavailableError from error
        self.path = path
        self._lock = threading.Lock()
        self._bodies = 0
        """How many rows have a body, as of the last call of `uncounted`."""
        if path:
            _create_private_file(path)
        self._connection = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        self._close = weakref.finalize(self, self._connection.close)
        try:
            self._open_tables(identity)
        except BaseException:
            self._close()
            raise

    def close(self) -> None:
        with self._lock:
            self._close()

    def _open_tables(self, identity: str) -> None:
        import sqlite3

        run = self._connection.execute
        run(f"PRAGMA busy_timeout = {_BUSY_MILLISECONDS}")
        if self.path:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = NORMAL")
        application_id, version = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
        if (application_id, version) != (_APPLICATION_ID, STORE_FORMAT):
            if application_id or version or run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise ForeignStoreError(self.path)
            with self._write():
                if not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:  # not by another process meanwhile
                    try:
                        for statement in _SCHEMA:
                            run(statement)
                    except sqlite3.OperationalError as error:
                        raise TextStoreUnavailableError from error
                    run("INSERT INTO identity VALUES (?)", (identity,))
                    run(f"PRAGMA application_id = {_APPLICATION_ID}")
                    run(f"PRAGMA user_version = {STORE_FORMAT}")
        stored = run("SELECT value FROM identity").fetchone()
        if stored is None or stored[0] != identity:
            raise ForeignStoreError(self.path)

    @contextlib.contextmanager
    def _write(self) -> Any:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def documents(self) -> list[StoredDocument]:
        with self._lock:
            rows = self._connection.execute("SELECT id, location, name, stamp, has_body, keywords FROM documents")
            return [StoredDocument(*row) for row in rows]

    def dead_share(self) -> float:
        """The share of rows whose document was changed or deleted."""
        with self._lock:
            dead = self._connection.execute("SELECT dead FROM state").fetchone()[0]
            live = self._connection.execute("SELECT count(*) FROM documents").fetchone()[0]
        return dead / (dead + live) if dead else 0.0

    def update_fields(self, texts: Iterable[FieldTexts], deleted: Sequence[int]) -> None:
        """Adds documents without their body, and removes others."""
        with self._lock, self._write():
            run = self._connection.execute
            self._connection.executemany("DELETE FROM documents WHERE id = ?", ((one,) for one in deleted))
            dead, added = len(deleted), 0
            for text in texts:
                key = (text.location, text.name)
                known = run("SELECT id, stamp FROM documents WHERE location = ? AND name = ?", key).fetchone()
                if known is not None:
                    if known[1] == text.stamp:
                        continue  # added by another process
                    run("DELETE FROM documents WHERE id = ?", (known[0],))
                    dead += 1
                row = run("INSERT INTO documents(location, name, stamp) VALUES (?, ?, ?)", (*key, text.stamp)).lastrowid
                run(
                    "INSERT INTO fields(rowid, name, summary) VALUES (?, ?, ?)",
                    (row, text.names, text.summary),
                )
                added += 1
            run("UPDATE state SET uncounted = uncounted + ?, dead = dead + ?", (added, dead))

    def add_bodies(self, texts: Sequence[BodyTexts]) -> None:
        with self._lock, self._write():
            run = self._connection.execute
            lacking = {row[0] for row in run("SELECT id FROM documents WHERE NOT has_body")}
            new = [text for text in texts if text.id in lacking]  # not deleted, or added by another process
            self._connection.executemany(
                "UPDATE documents SET has_body = 1, keywords = ? WHERE id = ?", [(one.keywords, one.id) for one in new]
            )
            self._connection.executemany(
                "INSERT INTO bodies(rowid, headings, body) VALUES (?, ?, ?)", (one[:3] for one in new)
            )
            run("UPDATE state SET uncounted = uncounted + ?, bodies = bodies + ?", (len(new), len(new)))

    def update_frequencies(self) -> None:
        """Counts in how many rows each term occurs."""
        with self._lock, self._write():
            run = self._connection.execute
            run("DELETE FROM frequencies")
            run("INSERT INTO frequencies SELECT term, doc, 0 FROM field_terms")
            run(
                "INSERT INTO frequencies SELECT term, 0, doc FROM body_terms WHERE true"
                " ON CONFLICT(term) DO UPDATE SET body = excluded.body"
            )
            run("UPDATE state SET uncounted = 0")

    def uncounted(self) -> int:
        """How many documents were added since terms were last counted."""
        with self._lock:
            uncounted, self._bodies = self._connection.execute("SELECT uncounted, bodies FROM state").fetchone()
        return int(uncounted)

    def frequencies(self, terms: Sequence[str]) -> dict[str, tuple[int, int]]:
        """In how many rows each term occurs, in fields and in bodies. Terms that occur nowhere are missing."""
        found: dict[str, tuple[int, int]] = {}
        with self._lock:
            for start in range(0, len(terms), _MAX_LOOKED_UP):
                some = terms[start : start + _MAX_LOOKED_UP]
                marks = ",".join("?" * len(some))
                rows = self._connection.execute(
                    f"SELECT term, fields, body FROM frequencies WHERE term IN ({marks})",  # noqa: S608
                    some,
                )
                found.update((term, (fields, body)) for term, fields, body in rows)
        return found

    def find_in_fields(self, queries: Iterable[str]) -> list[list[tuple[int]]]:
        """The rows that match each FTS5 query."""
        sql = "SELECT rowid FROM fields WHERE fields MATCH ?"
        with self._lock:
            run = self._connection.execute
            return [run(sql, (query,)).fetchall() for query in queries]

    def find_in_bodies(self, queries: Iterable[tuple[str, int]]) -> list[list[tuple[int, float]]]:
        """The rows that match each FTS5 query for a term that so many rows have, each with its BM25 score without the
        weight of the term: how often the term occurs."""
        sql = "SELECT rowid, min(-bm25(bodies, 3.0, 1.0) * ?, ?) FROM bodies WHERE bodies MATCH ?"
        with self._lock:
            run = self._connection.execute
            return [
                run(sql, (self._inverse_weight(frequency), _MAX_FREQUENCY, query)).fetchall()
                for query, frequency in queries
            ]

    def _inverse_weight(self, frequency: int) -> float:
        ratio = (self._bodies - frequency + 0.5) / (frequency + 0.5)
        return 1.0 / max(math.log(ratio) if ratio > 1.0 else 0.0, _MIN_WEIGHT)

    def find_prefix(self, prefix: str, limit: int) -> list[str]:
        """Terms of names and descriptions that start with a prefix, shortest first."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT term FROM frequencies WHERE term >= ? AND term < ? AND fields > 0"
                " ORDER BY length(term), term LIMIT ?",
                (prefix, f"{prefix}\U0010ffff", limit),
            )
            return [row[0] for row in rows]


def _create_private_file(path: str) -> None:
    """SQLite would follow a link and use the umask."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def delete_store(path: str) -> None:
    for suffix in ("", "-wal", "-shm"):
        with contextlib.suppress(OSError):
            os.unlink(path + suffix)


def keyword_lines(tags: Iterable[str], triggers: Iterable[str], paths: Iterable[str]) -> str:
    """Tags, triggers and `paths` as stored: one line each, marked by its first character."""
    marked = (("#", tags), ("!", triggers), ("/", paths))
    lines = [f"{mark}{' '.join(word.split())}" for mark, words in marked for word in words]
    return "\n".join(lines).encode("utf-8", "replace").decode()
