"""Tables that answer listings without reading the records: what the records of some streams add up to, row by row.

The module that writes a stream registers its table; the journal then updates it in the transaction that writes the
record. A table that is missing, of another version or unfinished is built from the records, in steps that survive a
crash. Plain SQL, so that another database can follow. Used by the journal, the board and the session list.
"""

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from kitbag.store.fault_points import point

_WINDOW: Final = 5_000
"""Records per step of building a table: other processes can write between two steps."""


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True):
    seq: int
    """Increases with every record of the journal, across streams; a reader that sees one can see all before it."""
    stream: str
    at: str
    kind: str
    body: Any


class DerivedTable(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    version: int
    """Another version is built anew. Include what the stored rows depend on."""
    streams: tuple[str, ...]
    """Names, or prefixes that end with a slash."""
    kinds: frozenset[str]
    """Kinds of records that it depends on."""
    apply: Callable[[sqlite3.Connection, JournalRecord], None]
    """Raises for a record that it can't read; it is listed in `problems` then."""

    def depends_on(self, stream: str, kind: str) -> bool:
        return kind in self.kinds and any(
            stream.startswith(name) if name.endswith("/") else stream == name for name in self.streams
        )


_tables: dict[str, DerivedTable] = {}
UNREADABLE: Final = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, msgspec.MsgspecError)


def register_table(table: DerivedTable) -> DerivedTable:
    _tables[table.name] = table
    return table


def fields_version(number: int, *kinds: type[msgspec.Struct]) -> int:
    """A version that also changes with the fields of what is stored."""
    names = [",".join(kind.__struct_fields__) for kind in kinds]
    return zlib.crc32(f"{number} {names}".encode()) & 0x7FFFFFFF


def apply_rows(writer: sqlite3.Connection, rows: Iterable[tuple[int, str, str, str, str]]) -> None:
    """Called in the transaction that writes the rows: (seq, stream, at, kind, body)."""
    current: dict[str, bool] = {}
    for seq, stream, at, kind, body in rows:
        for table in _tables.values():
            if not table.depends_on(stream, kind):
                continue
            if table.name not in current:
                current[table.name] = is_current(writer, table)
                if not current[table.name]:
                    _leave_behind(writer, seq, "name = ?", table.name)
            if current[table.name]:
                _apply(writer, table, JournalRecord(seq=seq, stream=stream, at=at, kind=kind, body=json.loads(body)))


def leave_unknown_tables(writer: sqlite3.Connection, first: int) -> None:
    """Called in the transaction that writes records of others, from this number on: tables that this process has not
    registered may depend on them."""
    _leave_behind(writer, first, f"name NOT IN ({', '.join('?' for _ in _tables)})", *_tables)


def _leave_behind(writer: sqlite3.Connection, first: int, which: str, *values: str) -> None:
    """The next reader of the table applies the records from this number on."""
    query = f"UPDATE derived_tables SET complete = 0, applied = ? WHERE complete = 1 AND {which}"  # noqa: S608 - our text
    writer.execute(query, (first - 1, *values))


def is_current(connection: sqlite3.Connection, table: DerivedTable) -> bool:
    row = connection.execute("SELECT version, complete FROM derived_tables WHERE name = ?", (table.name,)).fetchone()
    return row is not None and (row[0], row[1]) == (table.version, 1)


def build_step(writer: sqlite3.Connection, table: DerivedTable) -> tuple[int, bool]:
    """Applies the next records, in a transaction of the caller. Returns the last one, and whether it is complete."""
    row = writer.execute(
        "SELECT version, applied, complete FROM derived_tables WHERE name = ?", (table.name,)
    ).fetchone()
    if row is not None and (row[0], row[2]) == (table.version, 1):
        return int(row[1]), True
    applied = int(row[1]) if row is not None and row[0] == table.version else 0
    if not applied:
        writer.execute(f"DELETE FROM {table.name}")  # noqa: S608 - a name from our own code
        writer.execute("DELETE FROM derived_problems WHERE name = ?", (table.name,))
        writer.execute("DELETE FROM derived_tables WHERE name = ?", (table.name,))
        writer.execute("INSERT INTO derived_tables VALUES (?, ?, 0, 0)", (table.name, table.version))
    first = writer.execute("SELECT min(seq) FROM records WHERE seq > ?", (applied,)).fetchone()[0]
    end = (first or applied) + _WINDOW
    kinds = ", ".join("?" for _ in table.kinds)
    query = f"SELECT seq, stream, at, kind, body FROM records WHERE seq > ? AND seq <= ? AND kind IN ({kinds})"  # noqa: S608
    rows = writer.execute(f"{query} ORDER BY seq", (applied, end, *table.kinds))
    for seq, stream, at, kind, body in rows.fetchall():
        if table.depends_on(stream, kind):
            _apply_stored(writer, table, seq, stream, at, kind, body)
    last = int(writer.execute("SELECT coalesce(max(seq), 0) FROM records").fetchone()[0])
    complete = end >= last
    writer.execute(
        "UPDATE derived_tables SET applied = ?, complete = ? WHERE name = ?",
        (min(end, last), int(complete), table.name),
    )
    point("table-step")
    return min(end, last), complete


def _apply_stored(
    writer: sqlite3.Connection, table: DerivedTable, seq: int, stream: str, at: str, kind: str, body: str
) -> None:
    try:
        value = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        _add_problem(writer, table, seq, kind, error)
        return
    _apply(writer, table, JournalRecord(seq=seq, stream=stream, at=at, kind=kind, body=value))


def _apply(writer: sqlite3.Connection, table: DerivedTable, record: JournalRecord) -> None:
    """A record of another version must not prevent that later ones are written or listed."""
    try:
        table.apply(writer, record)
    except UNREADABLE as error:
        _add_problem(writer, table, record.seq, record.kind, error)


def _add_problem(writer: sqlite3.Connection, table: DerivedTable, seq: int, kind: str, error: Exception) -> None:
    text = f"{type(error).__name__}: {error}"[:200].encode("utf-8", "replace").decode()
    writer.execute("INSERT INTO derived_problems VALUES (?, ?, ?, ?)", (table.name, seq, kind, text))


def state_checksum(key: str, state: str) -> int:
    return zlib.crc32(f"{key}\0{state}".encode())
