"""Checksums of journal records, and reading them up to the first damaged one.

SQLite does not notice changed bytes inside a row, so every record has a checksum over its number and its columns.
Records of the first format have none. Used by the journal, its recovery and `kitbag store check`.
"""

import bisect
import contextlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

_ALL_ROWS: Final = "SELECT seq, stream, at, kind, body, key, checksum FROM records NOT INDEXED ORDER BY seq"
_ALL_FIRST_FORMAT_ROWS: Final = "SELECT seq, stream, at, kind, body, key, NULL FROM records NOT INDEXED ORDER BY seq"
_PROGRESS_STEP: Final = 100_000


class RecordRow(NamedTuple):
    seq: int
    stream: str
    at: str
    kind: str
    body: str
    key: str | None
    checksum: int | None


class DamagedRecordError(Exception):
    """The first damaged record, or the first one that is missing."""


def checksum(seq: int, stream: str, at: str, kind: str, body: str, key: str | None) -> int:
    text = f"{seq}\0{stream}\0{at}\0{kind}\0{'' if key is None else '=' + key}\0{body}"
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def row_problem(row: Any, unchecked_until: int) -> str:
    """Empty if the row is what was written. `unchecked_until`: records up to this number may lack a checksum."""
    seq, stream, at, kind, body, key, stored = row
    if not all(isinstance(text, str) for text in (stream, at, kind, body)) or not isinstance(key, str | None):
        return "a column has the wrong type"
    if stored is None:
        return "" if seq <= unchecked_until else "its checksum is missing"
    return "" if stored == checksum(seq, stream, at, kind, body, key) else "its checksum does not match"


def read_unchecked_until(connection: sqlite3.Connection) -> int | None:
    """None: the file has the first format, without checksums."""
    columns = [str(row[1]) for row in connection.execute("PRAGMA table_info(records)")]
    if "checksum" not in columns:
        return None
    found = connection.execute("SELECT value FROM journal_facts WHERE name = 'unchecked_until'").fetchone()
    return int(found[0]) if found is not None else 0


def last_used_seq(connection: sqlite3.Connection) -> int:
    """The highest number that a record has or a deleted record had."""
    queries = ("SELECT coalesce(max(seq), 0) FROM records", "SELECT coalesce(max(last), 0) FROM pruned_ranges")
    return max(int(connection.execute(query).fetchone()[0]) for query in queries)


def intact_rows(
    connection: sqlite3.Connection, progress: Callable[[int], None] = lambda count: None
) -> Iterator[RecordRow]:
    """All records in order. Raises DamagedRecordError or sqlite3.Error at the first one that is damaged or missing."""
    unchecked = read_unchecked_until(connection)
    pruned = PrunedRanges(connection)
    last = count = 0
    # By row id, because an index may be what is damaged. One row at a time, because the next may be unreadable.
    for values in connection.execute(_ALL_FIRST_FORMAT_ROWS if unchecked is None else _ALL_ROWS):
        row = RecordRow(*values)
        _check_intact(row, last, unchecked, pruned)
        yield row
        last, count = row.seq, count + 1
        if not count % _PROGRESS_STEP:
            progress(count)


def _check_intact(row: RecordRow, last: int, unchecked: int | None, pruned: "PrunedRanges") -> None:
    if problem := row_problem(row, row.seq if unchecked is None else unchecked):
        raise DamagedRecordError(f"record {row.seq}: {problem}")
    if row.checksum is None:
        try:
            json.loads(row.body)
        except (ValueError, RecursionError) as error:
            raise DamagedRecordError(f"record {row.seq} is not JSON") from error
    elif row.seq != last + 1 and not _follows_gap(row) and not pruned.covers(last + 1, row.seq - 1):
        # Numbers of the first format have gaps.
        raise DamagedRecordError(f"record {last + 1} is missing")


def _follows_gap(row: RecordRow) -> bool:
    """The record that reports damage follows a gap."""
    return (row.stream, row.kind) == ("journal", "damaged")


class PrunedRanges:
    """Numbers of records that were deleted on purpose."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._ranges: list[tuple[int, int]] = []
        with contextlib.suppress(sqlite3.Error):  # an earlier format, or damaged
            self._ranges = connection.execute("SELECT first, last FROM pruned_ranges ORDER BY first").fetchall()

    def covers(self, first: int, last: int) -> bool:
        index = bisect.bisect_right(self._ranges, (first, 1 << 62)) - 1
        return index >= 0 and self._ranges[index][1] >= last
