"""The searchable text of the skills of one root, in SQLite: the postings of names and descriptions, and of bodies.

Used by search_index. Stored beside the library index, or in memory. Rows are added and never changed: a changed skill
gets a new row, and rows without a document are ignored. Raises sqlite3.Error for a damaged or locked file,
ForeignStoreError for one with impossible content, and TextStoreUnavailableError without SQLite.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from kitbag.library.routing.postings import MAX_ROW, CountedText, Postings, PostingsBuilder, unpack_postings

STORE_FORMAT: Final = 6
_APPLICATION_ID: Final = 0x6B726F75
_BUSY_MILLISECONDS: Final = 200
_WRITER_BUSY_MILLISECONDS: Final = 30_000
_MAX_LOOKED_UP: Final = 400
_SCHEMA: Final = (
    "CREATE TABLE identity(value TEXT NOT NULL)",
    "CREATE TABLE documents(id INTEGER PRIMARY KEY AUTOINCREMENT, location TEXT NOT NULL, name TEXT NOT NULL,"
    " stamp INTEGER NOT NULL, has_body INTEGER NOT NULL DEFAULT 0, keywords TEXT NOT NULL DEFAULT '',"
    " UNIQUE(location, name))",
    "CREATE TABLE state(dead INTEGER NOT NULL, last_body INTEGER NOT NULL, is_ordered INTEGER NOT NULL)",
    "INSERT INTO state VALUES (0, 0, 1)",
    "CREATE TABLE fields(term TEXT NOT NULL, form TEXT NOT NULL, rows BLOB NOT NULL, levels BLOB NOT NULL,"
    " PRIMARY KEY(term, form)) WITHOUT ROWID",
    "CREATE TABLE bodies(term TEXT NOT NULL, form TEXT NOT NULL, rows BLOB NOT NULL, levels BLOB NOT NULL,"
    " PRIMARY KEY(term, form)) WITHOUT ROWID",
)


class TextStoreUnavailableError(Exception):
    """Python was built without SQLite."""


class ForeignStoreError(Exception):
    """The file is damaged or something else, or of another version, or of another root."""


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
    text: CountedText


class BodyTexts(NamedTuple):
    id: int
    text: CountedText
    keywords: str
    """The tags and triggers, one per line, as `keyword_lines` writes them."""


class TextStore:
    def __init__(self, path: str = "", identity: str = "", busy_milliseconds: int = _BUSY_MILLISECONDS) -> None:
        """`path`: empty for a store in memory. Creates the file and its tables."""
        try:
            import sqlite3
        except ImportError as error:
            raise TextStoreUnavailableError from error
        self.path = path
        self.is_damaged = False
        self._identity = identity
        self._lock = threading.Lock()
        if path:
            _create_private_file(path)
        self._connection = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        self._close = weakref.finalize(self, self._connection.close)
        try:
            self._open_tables(identity, busy_milliseconds)
        except BaseException:
            self._close()
            raise

    def open_writer(self) -> "TextStore":
        """The store for a background thread: with a connection of its own, so that no message waits while bodies are
        written. The store itself if it is in memory."""
        return TextStore(self.path, self._identity, _WRITER_BUSY_MILLISECONDS) if self.path else self

    def mark_damaged(self) -> None:
        self.is_damaged = True
        if self.path:
            delete_store(self.path)

    @property
    def is_reusable(self) -> bool:
        return bool(self.path) and not self.is_damaged

    def close(self) -> None:
        with self._lock:
            self._close()

    def _open_tables(self, identity: str, busy_milliseconds: int) -> None:
        run = self._connection.execute
        run(f"PRAGMA busy_timeout = {busy_milliseconds}")
        if self.path:
            run("PRAGMA journal_mode = WAL")
            run("PRAGMA synchronous = OFF")  # a damaged store is built again
        application_id, version = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
        if (application_id, version) != (_APPLICATION_ID, STORE_FORMAT):
            if application_id or version or run("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise ForeignStoreError(self.path)
            with self._write():
                if not run("SELECT count(*) FROM sqlite_master").fetchone()[0]:  # not by another process meanwhile
                    for statement in _SCHEMA:
                        run(statement)
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
            rows = self._connection.execute(
                "SELECT id, CAST(location AS TEXT), CAST(name AS TEXT), stamp, has_body, CAST(keywords AS TEXT)"
                " FROM documents"
            )
            documents = [StoredDocument(*row) for row in rows]
        if any(not 0 < document.id <= MAX_ROW for document in documents):
            raise ForeignStoreError(self.path)
        return documents

    def dead_share(self) -> float:
        """The share of rows whose document was changed or deleted."""
        with self._lock:
            dead = self._read_state("dead")
            live = self._connection.execute("SELECT count(*) FROM documents").fetchone()[0]
        return dead / (dead + live) if dead else 0.0

    def _read_state(self, column: str) -> int:
        row = self._connection.execute(f"SELECT {column} FROM state").fetchone()  # noqa: S608
        if row is None or not isinstance(row[0], int):
            raise ForeignStoreError(self.path)
        return row[0]

    def update_fields(self, texts: Iterable[FieldTexts], deleted: Sequence[int]) -> None:
        """Adds documents without their body, and removes others."""
        with self._lock, self._write():
            run = self._connection.execute
            self._connection.executemany("DELETE FROM documents WHERE id = ?", ((one,) for one in deleted))
            dead = len(deleted)
            builder = PostingsBuilder()
            for text in texts:
                key = (text.location, text.name)
                known = run("SELECT id, stamp FROM documents WHERE location = ? AND name = ?", key).fetchone()
                if known is not None:
                    if known[1] == text.stamp:
                        continue  # added by another process
                    run("DELETE FROM documents WHERE id = ?", (known[0],))
                    dead += 1
                row = run("INSERT INTO documents(location, name, stamp) VALUES (?, ?, ?)", (*key, text.stamp)).lastrowid
                if row is None or row > MAX_ROW:
                    raise ForeignStoreError(self.path)
                builder.add(row, text.text)
            self._add_postings("fields", builder)
            run("UPDATE state SET dead = dead + ?", (dead,))

    def add_bodies(self, texts: Sequence[BodyTexts]) -> None:
        with self._lock, self._write():
            run = self._connection.execute
            lacking = {row[0] for row in run("SELECT id FROM documents WHERE NOT has_body")}
            added = sorted((text for text in texts if text.id in lacking), key=lambda text: text.id)
            if not added:  # deleted, or added by another process
                return
            builder = PostingsBuilder()
            for text in added:
                builder.add(text.id, text.text)
            self._connection.executemany(
                "UPDATE documents SET has_body = 1, keywords = ? WHERE id = ?",
                [(text.keywords, text.id) for text in added],
            )
            self._add_postings("bodies", builder)
            run(
                "UPDATE state SET is_ordered = is_ordered AND last_body < ?, last_body = max(last_body, ?)",
                (added[0].id, added[-1].id),
            )

    def _add_postings(self, table: str, builder: PostingsBuilder) -> None:
        self._connection.executemany(
            f"INSERT INTO {table} VALUES (?, ?, ?, ?)"  # noqa: S608
            " ON CONFLICT(term, form) DO UPDATE SET rows = CAST(rows || excluded.rows AS BLOB),"
            " levels = CAST(levels || excluded.levels AS BLOB)",
            builder.packed(),
        )

    def find_in_fields(self, terms: Sequence[str], limit: int) -> dict[str, Postings]:
        """The postings of each term that occurs, of the first `limit` rows."""
        with self._lock:
            found = self._find("fields", terms, limit, is_ordered=True)
        return {term: forms[term] for term, forms in found.items() if term in forms}

    def find_in_bodies(self, terms: Sequence[str], limit: int) -> dict[str, dict[str, Postings]]:
        """The postings of each form of each term that occurs."""
        with self._lock:
            is_ordered = bool(self._read_state("is_ordered"))
            return self._find("bodies", terms, limit, is_ordered=is_ordered)

    def _find(
        self, table: str, terms: Sequence[str], limit: int, *, is_ordered: bool
    ) -> dict[str, dict[str, Postings]]:
        found: dict[str, dict[str, Postings]] = {}
        for start in range(0, len(terms), _MAX_LOOKED_UP):
            some = terms[start : start + _MAX_LOOKED_UP]
            marks = ",".join("?" * len(some))
            sql = f"SELECT term, form, rows, levels FROM {table} WHERE term IN ({marks})"  # noqa: S608
            for term, form, rows, levels in self._connection.execute(sql, some):
                is_valid = isinstance(form, str) and isinstance(rows, bytes) and isinstance(levels, bytes)
                if not is_valid or len(rows) != 4 * len(levels):
                    raise ForeignStoreError(self.path)
                postings = unpack_postings(rows, levels, limit, is_ordered=is_ordered)
                found.setdefault(term, {})[form or term] = postings
        return found

    def find_prefix(self, prefix: str, limit: int) -> list[str]:
        """Terms of names and descriptions that start with a prefix, shortest first."""
        with self._lock:
            rows = self._connection.execute(
                "SELECT term FROM fields WHERE term >= ? AND term < ? ORDER BY length(term), term LIMIT ?",
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
